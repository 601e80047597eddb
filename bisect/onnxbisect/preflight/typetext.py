"""Format types for people."""

import onnx


def type_text(kind: onnx.TypeProto) -> str:
    """A type in words, with `?` for what is unknown."""
    if kind.HasField("sequence_type"):
        return f"sequence({type_text(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if kind.HasField("map_type"):
        return f"map({type_text(kind.map_type.value_type)})"
    tensor = kind.sparse_tensor_type if kind.HasField("sparse_tensor_type") else kind.tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower() if tensor.elem_type else "?"
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if not tensor.HasField("shape"):
        return f"{name}[…]"
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    return f"{name}[{','.join(dims)}]"
