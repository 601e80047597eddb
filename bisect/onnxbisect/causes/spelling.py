"""Format feature values as short text."""

import numpy as np
import onnx
from onnx import helper

_DTYPES = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
#: Most items of a list, and most characters of a string.
_ITEMS = 8
_CHARACTERS = 80


def dtype_name(kind: onnx.TypeProto) -> str | None:
    """`float`, `int64`, or a description of a type that is not a tensor; None for an unknown type."""
    if kind.HasField("tensor_type"):
        return _DTYPES.get(kind.tensor_type.elem_type) if kind.tensor_type.elem_type else None
    name = kind.WhichOneof("value")
    return name.removesuffix("_type") if name else None


def array_text(array: np.ndarray) -> str:
    """`3`, or `[0, 1]`; distinguishes a scalar from a list of one element."""
    flat = ", ".join(map(_scalar, array.reshape(-1).tolist()))
    if array.ndim > 1:
        return f"[{flat}] of shape {list(array.shape)}"
    return f"[{flat}]" if array.ndim else flat


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """The value of an attribute; tensors and graphs only by their type."""
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
    if kind not in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS"):
        return f"a {kind.lower().replace('_', ' ')}"
    value = helper.get_attribute_value(attribute)
    if not kind.endswith("S"):
        return _scalar(value)
    shown = ", ".join(map(_scalar, list(value)[:_ITEMS]))
    return f"[{shown}{', …' if len(value) > _ITEMS else ''}]"


def attribute_numbers(attribute: onnx.AttributeProto) -> list[int]:
    """The integers of an attribute; empty for other types."""
    if attribute.type == onnx.AttributeProto.INT:
        return [attribute.i]
    return list(attribute.ints) if attribute.type == onnx.AttributeProto.INTS else []


def _scalar(value: object) -> str:
    if isinstance(value, bytes):
        return value[: 2 * _CHARACTERS].decode("utf-8", "replace")[:_CHARACTERS]
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:_CHARACTERS]
