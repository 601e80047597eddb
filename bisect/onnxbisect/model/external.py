"""Tensors that a model stores: initializers and values of Constant nodes, and their data in other files."""

from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnxbisect.errors import ModelError
from onnxbisect.model.scopes import bodies, is_constant

#: The attributes that can hold a Constant node's value, with their types. `gate` checks that each node has one.
HELD = {
    "value": AttributeProto.TENSOR,
    "sparse_value": AttributeProto.SPARSE_TENSOR,
    "value_float": AttributeProto.FLOAT,
    "value_floats": AttributeProto.FLOATS,
    "value_int": AttributeProto.INT,
    "value_ints": AttributeProto.INTS,
    "value_string": AttributeProto.STRING,
    "value_strings": AttributeProto.STRINGS,
}
Stored = TensorProto | onnx.SparseTensorProto


def stored(proto: onnx.ModelProto) -> dict[str, Stored]:
    """The main graph's stored tensors by name."""
    found: dict[str, Stored] = {tensor.name: tensor for tensor in proto.graph.initializer}
    found |= {tensor.values.name: tensor for tensor in proto.graph.sparse_initializer}
    found |= {node.output[0]: constant_tensor(node) for node in proto.graph.node if is_constant(node)}
    return found


def constant_tensor(node: onnx.NodeProto) -> Stored:
    """The value of a Constant node as a tensor, whichever attribute holds it."""
    attribute = _held(node)
    if attribute.name == "value":
        dense: TensorProto = attribute.t
        return dense
    if attribute.name == "sparse_value":
        sparse: onnx.SparseTensorProto = attribute.sparse_tensor
        return sparse
    value = onnx.helper.get_attribute_value(attribute)
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    array = np.array(value, dtype=dtype.get(attribute.name, object))
    return numpy_helper.from_array(array)


def forms(proto: onnx.ModelProto) -> dict[str, str]:
    """How the main graph's stored tensors are stored that are no dense initializers; compilers tell them apart."""
    found = {tensor.values.name: "sparse initializer" for tensor in proto.graph.sparse_initializer}
    return found | {node.output[0]: _held(node).name for node in proto.graph.node if is_constant(node)}


def _held(node: onnx.NodeProto) -> AttributeProto:
    """The attribute with the value of a Constant node."""
    return next(attribute for attribute in node.attribute if attribute.name in HELD)


_PACKED_BITS = {
    onnx.TensorProto.DataType.Value(name): bits
    for name, bits in (("UINT4", 4), ("INT4", 4), ("FLOAT4E2M1", 4), ("UINT2", 2), ("INT2", 2))
    if name in TensorProto.DataType.keys()  # noqa: SIM118 - a protobuf enum wrapper, not a mapping
}


def byte_size(dtype: int, shape: Iterable[int]) -> int:
    """Bytes of a tensor's raw data; 0 for strings."""
    elements = prod(shape)
    if dtype in _PACKED_BITS:
        return (elements * _PACKED_BITS[dtype] + 7) // 8
    if dtype in (TensorProto.STRING, TensorProto.UNDEFINED):
        return 0
    return elements * np.dtype(helper.tensor_dtype_to_np_dtype(dtype)).itemsize


def is_external(tensor: TensorProto) -> bool:
    """Whether the tensor's bytes lie in another file."""
    return tensor.data_location == TensorProto.EXTERNAL


def place_of(tensor: TensorProto, folder: Path) -> tuple[Path, int, int]:
    """Where the bytes of an external tensor lie: file, offset and number.

    The number follows from type and shape: a model need not say it, and what it says may include padding.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = folder / entries.get("location", "")
    # `load` refuses such files, but the tensor may not come from it.
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ModelError(
            f"The data of tensor {tensor.name!r} lies outside the model's folder. Put it beside the model."
        )
    return file, int(entries.get("offset") or 0), byte_size(tensor.data_type, tensor.dims)


def array_of(tensor: TensorProto, folder: Path) -> np.ndarray:
    """The value of a tensor of a model in `folder`, whether its bytes lie in the model or in another file."""
    if not is_external(tensor):
        return numpy_helper.to_array(tensor)
    path, offset, size = place_of(tensor, folder)
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    return numpy_helper.to_array(TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=data))


def locations(proto: onnx.ModelProto, folder: Path) -> list[Path]:
    """The external files of a model, sorted by their paths, each checked to hold the bytes that tensors claim.

    Raises ModelError for a file that is missing, too short, or not inside `folder`.
    """
    sizes: dict[str, int] = {}
    root = folder.resolve()
    for tensor in external_tensors(proto):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location:
            raise ModelError(f"Tensor {tensor.name!r} keeps its data in another file and does not say which.")
        if location not in sizes:
            sizes[location] = _size_inside(tensor.name, location, folder, root)
        if tensor.data_type == TensorProto.STRING:
            raise ModelError(f"Tensor {tensor.name!r} keeps strings in another file, which ONNX does not allow.")
        try:
            _, offset, size = place_of(tensor, folder)
            length = int(entries.get("length") or size)
        except ValueError:
            raise ModelError(
                f"Tensor {tensor.name!r} says where its data lies in {location!r} in words that are no numbers."
            ) from None
        end = offset + max(length, size)
        if offset < 0 or length < 0 or end > sizes[location]:
            raise ModelError(
                f"The data of tensor {tensor.name!r} ends at byte {end} of {location!r}, which has only "
                f"{sizes[location]} bytes. Copy the file again, whole."
            )
    return sorted((folder / location for location in sizes), key=Path.as_posix)


def external_tensors(proto: onnx.ModelProto, *, in_nodes: bool = True) -> list[TensorProto]:
    """The tensors whose bytes lie in another file; without `in_nodes` only initializers.

    Looking into every node takes as long as a cut, looking at initializers only a moment.
    """
    return list(filter(is_external, tensors(proto) if in_nodes else _initializers(proto.graph)))


def tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor stored in the model: initializers and attributes, in subgraphs and functions too."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from _initializers(graph)
    yield from _of_nodes(graph.node)


def _initializers(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                continue  # the function's caller has the tensor
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.TENSORS:
                yield from attribute.tensors
            elif attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices
        for body in bodies(node):
            yield from _of_graph(body)


def _size_inside(name: str, location: str, folder: Path, root: Path) -> int:
    if PurePosixPath(location).is_absolute():
        raise ModelError(
            f"The data of tensor {name!r} lies at the absolute path {location!r}. Put it beside the model."
        )
    try:
        file = (folder / location).resolve()
        if not file.is_relative_to(root):
            raise ModelError(
                f"The data of tensor {name!r} lies at {location!r}, outside the model's folder. "
                "Put it beside the model."
            )
        if not file.is_file():
            raise ModelError(f"The data file {location!r} of tensor {name!r} is missing. Put it beside the model.")
        return file.stat().st_size
    except (OSError, ValueError) as error:
        raise ModelError(f"The data file {location!r} of tensor {name!r} cannot be read: {error}.") from error
