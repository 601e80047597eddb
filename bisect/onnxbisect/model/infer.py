"""Shape inference by onnx, given all types and values known so far; the fallback where a model cannot run."""

import re
from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from onnxbisect.model.external import is_external
from onnxbisect.model.scopes import bodies, walk

#: Constants up to this many elements are passed with their value, for Reshape and similar ops; of others only the type.
_SMALL = 1024
_LONG = 1 << 20


def infer(
    proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], values: Mapping[str, np.ndarray]
) -> dict[str, onnx.TypeProto]:
    """The types of all tensors that inference can find, given `types` and `values` of some; includes the given types.

    Ignores declared value_info. Weights are not copied, so the cost does not grow with them.
    """
    skeleton, result = _skeleton(proto, types, values)
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton)
        # Data propagation writes out every vector at 140 bytes an element: a file of 100 bytes could exhaust memory.
        long = _has_long_vectors(inferred)
        if skeleton.functions and not long:  # inference does not say the types of tensors inside of functions
            inlined = onnx.inliner.inline_local_functions(skeleton)
            long = _has_long_vectors(onnx.shape_inference.infer_shapes(inlined))
        if not long:
            inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True)
    except Exception:  # a hostile model may raise anything here, and what is known stays known
        return result
    for value in inferred.graph.value_info:
        if value.type.WhichOneof("value") and value.name not in result:
            result[value.name] = value.type
    return result


def contradiction(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> str:
    """The error message of inference where the graph's input shapes contradict each other; else empty."""
    skeleton, _ = _skeleton(proto, {}, values)
    try:
        onnx.shape_inference.infer_shapes(skeleton, strict_mode=True)
    except Exception as error:
        return " ".join(re.sub(r"\[\w+\]|Inference error\(s\):", "", str(error)).split())
    return ""


def _skeleton(
    proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], values: Mapping[str, np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, onnx.TypeProto]]:
    """The model with known types and small values but without large weights, and all types that it contains."""
    skeleton = onnx.ModelProto()
    skeleton.ir_version = max(proto.ir_version, 10)
    skeleton.opset_import.extend(proto.opset_import)
    skeleton.functions.extend(proto.functions)
    graph = skeleton.graph
    graph.name = "onnxbisect"
    graph.input.extend(proto.graph.input)
    result: dict[str, onnx.TypeProto] = {value.name: value.type for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        kind = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        result[tensor.name] = kind
        if prod(tensor.dims) <= _SMALL and not is_external(tensor):
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_value_info(tensor.name, kind))
    for sparse in proto.graph.sparse_initializer:
        kind = helper.make_tensor_type_proto(sparse.values.data_type, list(sparse.dims))
        result[sparse.values.name] = kind
        graph.input.append(helper.make_value_info(sparse.values.name, kind))
    replaced: set[str] = set()
    for name, array in values.items():
        kind = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
        result[name] = kind
        replaced.add(name)
        if array.size <= _SMALL:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            graph.input.append(helper.make_value_info(name, kind))
    for node in proto.graph.node:
        outputs = [name for name in node.output if name]
        if outputs and replaced.issuperset(outputs):
            continue
        graph.node.append(node)
        copy = graph.node[-1]
        for slot, name in enumerate(copy.output):
            if name in replaced:
                copy.output[slot] = ""
        for inner in walk([copy]):
            for body in bodies(inner):
                del body.value_info[:]
    for name, kind in types.items():
        if name not in result:
            result[name] = kind
            graph.value_info.append(helper.make_value_info(name, kind))
    return skeleton, result


def _has_long_vectors(proto: onnx.ModelProto) -> bool:
    graphs = [proto.graph, *(body for node in walk(proto.graph) for body in bodies(node))]
    values = (value for graph in graphs for value in (*graph.value_info, *graph.input, *graph.output))
    shapes = (value.type.tensor_type.shape.dim for value in values)
    return any(len(dims) == 1 and dims[0].dim_value > _LONG for dims in shapes)
