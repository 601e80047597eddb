"""A lower version of the format."""

from collections.abc import Iterator

import onnx
from onnx import AttributeProto, TensorProto

from onnxbisect.file_remedies.editing import copied
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import RemediedFile, file_remedy
from onnxbisect.model.external import tensors
from onnxbisect.model.scopes import bodies, walk
from onnxbisect.preflight import NEWEST_IR_IN_GENERAL, Reader
from onnxbisect.rewrites import NotApplicable

#: The IR version that introduced each newer element type, according to onnx.proto.
_DTYPES = {
    TensorProto.DataType.Value(name): version
    for version, names in {
        4: "BFLOAT16",
        9: "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ",
        10: "UINT4 INT4",
        11: "FLOAT4E2M1",
        12: "FLOAT8E8M0",
        13: "UINT2 INT2",
    }.items()
    for name in names.split()
}
#: Attributes that name an element type.
_NAMING = ("to", "dtype", "output_dtype")


@file_remedy("lower-ir-version", answers="ir-newer-than-tool ir-version-too-new")
def lower_ir_version(file: File, reader: Reader) -> RemediedFile:
    """The newest version of the format that the tool reads, where nothing in the file needs a newer one."""
    newest = reader.newest_ir or NEWEST_IR_IN_GENERAL
    proto = file.proto
    if proto.ir_version <= newest:
        raise NotApplicable(f"ir_version is {proto.ir_version}, which is not above {newest}")
    for version, what in _needs(proto):
        if version > newest:
            raise NotApplicable(f"the file has {what}, which IR version {version} brought in")
    result = copied(proto)
    result.ir_version = newest
    return RemediedFile(proto=result, sentence=f"ir_version {proto.ir_version} → {newest}")


def _needs(proto: onnx.ModelProto) -> Iterator[tuple[int, str]]:
    """Parts of the file that need a later version. Node metadata are of version 10; older readers skip them."""
    graph = proto.graph
    inputs = {value.name for value in graph.input}
    if any(tensor.name not in inputs for tensor in graph.initializer):
        yield 4, "initializers that are no inputs"
    if graph.quantization_annotation:
        yield 5, "quantization annotations"
    if graph.sparse_initializer:
        yield 6, "sparse initializers"
    if proto.training_info:
        yield 7, "training information"
    if proto.functions:
        yield 8, "local functions"
    if any(function.attribute_proto for function in proto.functions):
        yield 9, "functions whose attributes have defaults"
    if any(function.overload for function in proto.functions):
        yield 10, "overloaded functions"
    if proto.configuration:
        yield 11, "a configuration for several devices"
    for dtype in sorted(set(_dtypes(proto)) & _DTYPES.keys()):
        yield _DTYPES[dtype], f"the element type {TensorProto.DataType.Name(dtype).lower()}"
    for kind in _types(proto):
        if kind.HasField("optional_type") or kind.HasField("sparse_tensor_type"):
            yield 8, "optional or sparse types"


def _dtypes(proto: onnx.ModelProto) -> Iterator[int]:
    yield from (tensor.data_type for tensor in tensors(proto))
    yield from (kind.tensor_type.elem_type for kind in _types(proto) if kind.HasField("tensor_type"))
    for node in _nodes(proto):
        yield from (it.i for it in node.attribute if it.name in _NAMING and it.type == AttributeProto.INT)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from walk(proto.graph)
    for function in proto.functions:
        yield from walk(function)


def _types(proto: onnx.ModelProto) -> Iterator[onnx.TypeProto]:
    """Declared types, including those inside sequences and optionals."""
    graphs = [proto.graph, *(body for node in _nodes(proto) for body in bodies(node))]
    values = [value for graph in graphs for value in (*graph.input, *graph.output, *graph.value_info)]
    values += [value for function in proto.functions for value in function.value_info]
    for value in values:
        kind = value.type
        yield kind
        while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
            kind = getattr(kind, kind.WhichOneof("value")).elem_type
            yield kind
