"""Find producers that a cut must include because the target accepts their result as no graph input."""

from collections.abc import Mapping

import onnx

from onnxbisect.cut.wiring import read_wiring
from onnxbisect.model.model import Model
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet


def producers_required_by_type(model: Model, probe_format: ProbeFormat) -> Mapping[int, UnitSet]:
    """For each unit that cannot be cut alone, the earlier units that a cut must include.

    These are the producers of inputs whose dtype is not in `probe_format.input_dtypes`, of inputs without elements
    unless `probe_format.empty_inputs`, and the producers that those require in turn. Tensors of known value become
    initializers and graph inputs have no producer, so neither counts; tensors of unknown type are assumed to be
    accepted.
    """
    dtypes = probe_format.input_dtypes
    if dtypes is None and probe_format.empty_inputs:
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
