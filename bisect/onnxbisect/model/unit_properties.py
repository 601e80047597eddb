"""The attributes and inputs of a model's units in words, for people."""

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
import onnx

from onnxbisect.model.facts import fixed_dims
from onnxbisect.model.model import Model

#: Most elements of a constant whose value is shown; larger constants are weights.
_SMALL = 8
_DTYPES = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}


class UnitProperties:
    """Properties of the units of one model, as pairs of a label and a value that can both be shown to a user."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def of(self, unit: int, *, shapes: bool) -> dict[str, str]:
        """`{"attribute axis": "1", "input 0": "float[1,3]", "input 1": "constant int64[2] = [0, 1]"}`.

        Without `shapes`, only the rank: `float[?,?]`.
        """
        node = self._model.proto.graph.node[self._model.units[unit].node]
        facts = {f"attribute {attribute.name}": _attribute(attribute) for attribute in node.attribute}
        for position, tensor in enumerate(node.input):
            facts[f"input {position}"] = self._tensor(tensor, shapes=shapes)
        return facts

    def type(self, tensor: str) -> str:
        """The tensor's type, such as `float[1,3,224,224]`; empty where it is unknown."""
        known = self._model.types.get(tensor)
        return _type(known, shapes=True) if known is not None else ""

    def _tensor(self, name: str, *, shapes: bool) -> str:
        if not name:
            return "omitted"
        constant = self._constants.get(name)
        if constant is not None:
            return _constant(constant)
        if name in self._model.known:
            return _value(np.asarray(self._model.known[name]))
        known = self._model.types.get(name)
        return _type(known, shapes=shapes) if known is not None else "unknown type"

    @cached_property
    def _constants(self) -> Mapping[str, onnx.TensorProto]:
        graph = self._model.proto.graph
        constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.output:
                for attribute in node.attribute:
                    if attribute.name == "value" and attribute.HasField("t"):
                        constants[node.output[0]] = attribute.t
        return constants


def _attribute(attribute: onnx.AttributeProto) -> str:
    match attribute.type:
        case onnx.AttributeProto.TENSOR:
            return _constant(attribute.t)
        case onnx.AttributeProto.GRAPH | onnx.AttributeProto.GRAPHS:
            return "a subgraph"
        case onnx.AttributeProto.SPARSE_TENSOR | onnx.AttributeProto.SPARSE_TENSORS | onnx.AttributeProto.TENSORS:
            return "tensors"
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value[:200].decode("utf-8", "replace")
    items = list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else None
    if items is not None:
        shown = ", ".join(_scalar(item) for item in items[:_SMALL])
        return f"[{shown}{', …' if len(items) > _SMALL else ''}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bytes):
        return value[:80].decode("utf-8", "replace")
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:80]


def _constant(tensor: onnx.TensorProto) -> str:
    elements = int(np.prod(tensor.dims, dtype=np.int64)) if tensor.dims else 1
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if elements <= _SMALL and not external and tensor.data_type != onnx.TensorProto.STRING:
        return _value(onnx.numpy_helper.to_array(tensor))
    return f"constant {_DTYPES.get(tensor.data_type, '?')}{_dims(tensor.dims)}"


def _value(array: np.ndarray) -> str:
    text = f"constant {array.dtype}{_dims(array.shape)}"
    if array.size > _SMALL:
        return text
    flat = ", ".join(_scalar(item) for item in array.reshape(-1).tolist())
    return f"{text} = {flat if array.ndim == 0 else f'[{flat}]'}"


def _type(kind: onnx.TypeProto, *, shapes: bool) -> str:
    if not kind.HasField("tensor_type"):
        return str(kind.WhichOneof("value") or "unknown type").removesuffix("_type")
    dtype = _DTYPES.get(kind.tensor_type.elem_type, "?")
    dims = fixed_dims(kind)
    if dims is None:
        return f"{dtype} of unknown rank"
    return f"{dtype}{_dims('?' if dim is None or not shapes else dim for dim in dims)}"


def _dims(dims: Iterable[object]) -> str:
    return f"[{','.join(map(str, dims))}]"
