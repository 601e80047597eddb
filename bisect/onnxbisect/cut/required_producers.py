"""Find producers that a cut must include because the target accepts their result as no graph input.

That may be for its type, or for its value: a target that does not fold constants (`ProbeFormat.folds`) treats a
computed constant differently from an initializer, and some ops accept only one of the two. So the units that make a
known value are cut together with the unit that reads it, and units of one variant are split into several variants where
different ops make their inputs.
"""

from collections.abc import Mapping
from dataclasses import replace

import onnx

from onnxbisect.cut.wiring import read_wiring
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.model import Model
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet, members, of
from onnxbisect.universe import Universe


def producers_required_by_type(
    model: Model, probe_format: ProbeFormat, *, static: bool = False
) -> Mapping[int, UnitSet]:
    """For each unit that cannot be cut alone, the earlier units that a cut must include.

    These are the producers of inputs whose dtype is not in `probe_format.input_dtypes`, of inputs without elements
    unless `probe_format.empty_inputs`, with `static` of inputs whose size depends on values, and the producers that
    those require in turn. Tensors of known value become initializers and graph inputs have no producer, so neither
    counts; tensors of unknown type are assumed to be accepted.
    """
    dtypes = probe_format.input_dtypes
    open_sizes = _of_open_size(model) if static else frozenset()
    if dtypes is None and probe_format.empty_inputs and not open_sizes:
        return {}
    wiring = read_wiring(model)
    refused = {
        name
        for name in wiring.takers
        if name in wiring.maker
        and name not in model.known
        and (kind := model.types.get(name)) is not None
        and (
            (dtypes is not None and runtime_dtype(kind) not in dtypes)
            or (not probe_format.empty_inputs and is_empty(kind))
            or name in open_sizes
        )
    }
    needs: dict[int, UnitSet] = {}
    for unit, taken in enumerate(wiring.boundary):
        along = 0
        for name in taken:
            if name in refused:
                maker = wiring.maker[name]
                along |= 1 << maker | needs.get(maker, 0)
        if along:
            needs[unit] = along
    return needs


def makers_of_open_sizes(model: Model) -> Mapping[int, UnitSet]:
    """For each unit that reads tensors whose size depends on values, the units that make them."""
    wiring, open_sizes = read_wiring(model), _of_open_size(model)
    makers = (of(wiring.maker[name] for name in taken if name in open_sizes) for taken in wiring.boundary)
    return {unit: units for unit, units in enumerate(makers) if units}


def _of_open_size(model: Model) -> frozenset[str]:
    """The tensors that nodes make and of which only values of the model's inputs decide a dimension."""
    maker = read_wiring(model).maker
    names = (it for it in model.data_dependent if it in maker and it in model.types and it not in model.known)
    return frozenset(name for name in names if is_unbound(model.types[name]))


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
    kinds: dict[object, int] = {}
    variant: list[int] = []
    solo: list[int] = []
    valueless: list[int] = []
    for unit in range(len(universe)):
        makers = list(members(needs.get(unit, 0)))
        ops = tuple(sorted(universe.op[maker] for maker in makers))
        variant.append(variants.setdefault((universe.variant[unit], ops), len(variants)))
        if universe.valueless:
            valueless.append(kinds.setdefault((universe.valueless[unit], ops), len(kinds)))
        chain = (universe.solo[unit], variant[-1], tuple(solo[maker] for maker in makers))
        solo.append(solos.setdefault(chain, len(solos)))
    return replace(universe, variant=tuple(variant), solo=tuple(solo), valueless=tuple(valueless))


def is_empty(kind: onnx.TypeProto) -> bool:
    """Whether it is the type of a tensor that is known to have no elements."""
    return any(dim.HasField("dim_value") and not dim.dim_value for dim in kind.tensor_type.shape.dim)


def runtime_dtype(value: onnx.TypeProto) -> str:
    """A type as onnxruntime spells it, a plain tensor without `tensor()`: `float`, `seq(tensor(int64))`."""
    kind = value.WhichOneof("value")
    if kind == "tensor_type":
        return _element(value.tensor_type.elem_type)
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({_element(value.sparse_tensor_type.elem_type)})"
    if kind == "sequence_type":
        return f"seq({_inner(value.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_inner(value.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({_element(value.map_type.key_type)},{_inner(value.map_type.value_type)})"
    return "unknown"


def _inner(value: onnx.TypeProto) -> str:
    spelled = runtime_dtype(value)
    return f"tensor({spelled})" if value.WhichOneof("value") == "tensor_type" else spelled


def _element(elem_type: int) -> str:
    if elem_type == onnx.TensorProto.UNDEFINED or elem_type not in onnx.TensorProto.DataType.values():
        return "unknown"
    return str(onnx.TensorProto.DataType.Name(elem_type)).lower()
