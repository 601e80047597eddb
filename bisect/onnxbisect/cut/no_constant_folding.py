"""For targets that compute nothing before they look at the ops (`ProbeFormat.folds`).

To them a constant that is computed is not what an initializer is: some ops take only the one, some only the other.
So the nodes that make a known value are cut with its consumer, and units of one variant ask different questions where
different ops make what they take.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from onnxbisect.cut.rename import tensor_names
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import bodies
from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe

#: What an Add of any opset takes.
_NUMBERS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64})


def producers_of_constants(model: Model) -> Mapping[int, UnitSet]:
    """For each unit that takes tensors of known value, the units that make these (`Universe.required_producers`)."""
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
    """The universe in which units of one variant are needy alike: the same ops make what they take.

    All the way back for `solo`, since these ops are part of the probe of a unit alone; one step back for `variant`.
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
    """Behind every output that would get lost, put an Add (or And) with an input of its own, except for `own`.

    What only constants make is one more initializer to such a target, and nobody's output; of nodes that compute the
    same it keeps one, and forgets what the others' results were called. In the model somebody takes these tensors.
    `own` are the model's outputs, which end there anyway. Returns the new name of each such output and the old one.
    Other dtypes stay as they are.
    """
    lost = (_made_of_constants(graph) | _made_again(graph)) - set(own)
    covered = [value for value in graph.output if value.name in lost and _joined_by(value)]
    if not covered:
        return {}
    taken = tensor_names(graph) | {node.name for node in graph.node}
    new_names = {}
    for value in covered:
        old, tensor = value.name, value.type.tensor_type
        new, beside = (_unused(f"{old}_{word}", taken) for word in ("covered", "beside"))
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
    """What nodes make that compute the same as one before them."""
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
    """The op that takes it and another tensor of its dtype; none for dtypes that no op of every opset takes."""
    kind = value.type.tensor_type.elem_type
    if kind == TensorProto.BOOL:
        return "And"
    return "Add" if kind in _NUMBERS else ""


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
