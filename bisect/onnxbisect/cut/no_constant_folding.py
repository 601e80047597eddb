"""Cuts for targets that do not fold constants (`ProbeFormat.folds`).

Such a target treats a computed constant differently from an initializer: some ops accept only one of the two. So the
units that make a known value are cut together with the unit that reads it, and units of one variant are split into
several variants where different ops make their inputs.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from onnxbisect.cut.rename import tensor_names, unused_name
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import bodies
from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe

#: Dtypes that Add accepts in every opset.
_NUMBERS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64})


def producers_of_constants(model: Model) -> Mapping[int, UnitSet]:
    """For each unit that reads tensors of known value, the units that make them (`Universe.required_producers`)."""
    wiring = read_wiring(model)
    needs: dict[int, UnitSet] = {}
    for unit, taken in enumerate(wiring.boundary):
        along = 0
        for name in taken:
            if name in model.known and name in wiring.maker:
                along |= 1 << wiring.maker[name]
        if along:
            needs[unit] = along
    return needs


def split_variants_by_producers(universe: Universe) -> Universe:
    """Split variants and solos so that the constant inputs of units in one group are made by the same ops.

    A variant looks only at the direct producers. A solo looks at the whole chain of producers, because all of them are
    part of the probe of a single unit.
    """
    needs = universe.required_producers
    variants: dict[object, int] = {}
    solos: dict[object, int] = {}
    variant: list[int] = []
    solo: list[int] = []
    for unit in range(len(universe)):
        makers = list(members(needs.get(unit, 0)))
        ops = tuple(sorted(universe.op[maker] for maker in makers))
        variant.append(variants.setdefault((universe.variant[unit], ops), len(variants)))
        chain = (universe.solo[unit], variant[-1], tuple(solo[maker] for maker in makers))
        solo.append(solos.setdefault(chain, len(solos)))
    return replace(universe, variant=tuple(variant), solo=tuple(solo))


def join_outputs(graph: onnx.GraphProto, own: Collection[str]) -> dict[str, str]:
    """Append an Add (or And), with a new graph input as second operand, to each output that the target would lose.

    The target turns results that depend only on constants into initializers that nothing reads. Of nodes that compute
    the same, it keeps one and drops the names of the others' results. In the model, other nodes read these tensors.
    The model's own outputs, `own`, and outputs of dtypes that Add and And do not accept stay unchanged.
    Returns the old name of each changed output by its new name.
    """
    lost = (_made_of_constants(graph) | _made_again(graph)) - set(own)
    covered = [value for value in graph.output if value.name in lost and _joined_by(value)]
    if not covered:
        return {}
    taken = tensor_names(graph) | {node.name for node in graph.node}
    new_names = {}
    for value in covered:
        old, tensor = value.name, value.type.tensor_type
        new, beside = (unused_name(f"{old}_{word}", taken) for word in ("covered", "beside"))
        graph.value_info.add().CopyFrom(value)
        graph.node.append(helper.make_node(_joined_by(value), [old, beside], [new], name=new))
        graph.input.append(helper.make_tensor_value_info(beside, tensor.elem_type, [1]))
        if tensor.HasField("shape") and not tensor.shape.dim:
            tensor.shape.dim.add().dim_value = 1
        value.name = new
        new_names[new] = old
    return new_names


def _made_of_constants(graph: onnx.GraphProto) -> set[str]:
    constant = {tensor.name for tensor in graph.initializer}
    constant.update(tensor.values.name for tensor in graph.sparse_initializer)
    constant -= {value.name for value in graph.input}
    for node in graph.node:
        if not bodies(node) and all(name in constant for name in node.input if name):
            constant.update(filter(None, node.output))
    return constant


def _made_again(graph: onnx.GraphProto) -> set[str]:
    """The results of nodes that repeat an earlier node: same op, inputs and attributes."""
    seen: set[tuple[str, str, tuple[str, ...], tuple[bytes, ...]]] = set()
    again: set[str] = set()
    for node in graph.node:
        attributes = tuple(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        same = (node.domain, node.op_type, tuple(node.input), attributes)
        if same in seen:
            again.update(filter(None, node.output))
        seen.add(same)
    return again


def _joined_by(value: onnx.ValueInfoProto) -> str:
    """The op that combines the tensor with another of its dtype; empty for dtypes not supported in every opset."""
    kind = value.type.tensor_type.elem_type
    if kind == TensorProto.BOOL:
        return "And"
    return "Add" if kind in _NUMBERS else ""
