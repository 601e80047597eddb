"""Shape inference of onnx, told everything that is known already: the fallback where a model cannot run."""

import re
from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxbisect.model.external import is_external
from onnxbisect.model.scopes import bodies, walk

#: Constants up to this many elements go along, for Reshape and its like; of others the type is enough.
_SMALL = 1024
_LONG = 1 << 20


def infer(
    proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], values: Mapping[str, np.ndarray]
) -> dict[str, onnx.TypeProto]:
    """The types of all tensors that inference can type, given `types` and `values` of some; those are returned too.

    Declared value_info is not looked at. Weights are not copied, so the cost does not grow with them.
    """
    skeleton, result = _skeleton(proto, types, values)
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton)
        # Data propagation writes every vector out, at 140 bytes an element: a file of 100 bytes could take all memory.
        if not any(_is_long(value.type) for value in (*inferred.graph.value_info, *skeleton.graph.input)):
            inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True)
    except Exception:  # a hostile model may raise anything here, and what is known stays known
        return result
    for value in inferred.graph.value_info:
        if value.type.WhichOneof("value") and value.name not in result:
            result[value.name] = value.type
    return result


def contradiction(proto: onnx.ModelProto) -> str:
    """Why no shapes fit the graph's inputs, as inference says it; empty where none is known."""
    skeleton, _ = _skeleton(proto, {}, {})
    try:
        onnx.shape_inference.infer_shapes(skeleton, strict_mode=True)
    except Exception as error:
        return " ".join(re.sub(r"\[\w+\]|Inference error\(s\):", "", str(error)).split())
    return ""


def _skeleton(
    proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], values: Mapping[str, np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, onnx.TypeProto]]:
    """The model without its large weights, and with what is known of it; and all types that this gives."""
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


def _is_long(kind: onnx.TypeProto) -> bool:
    dims = kind.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > _LONG
