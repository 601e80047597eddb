"""Run onnx.checker for a note only, because compilers accept much that it refuses."""

import onnx
from onnx import helper


def complaint(proto: onnx.ModelProto) -> str:
    """The first sentence of the checker's complaint about the graph's structure; empty if there is none.

    The checker sees initializers as inputs: their data may be gigabytes, and `load` has already checked its location.
    """
    graph = proto.graph
    skeleton = onnx.ModelProto()
    skeleton.ir_version = proto.ir_version
    skeleton.opset_import.extend(proto.opset_import)
    skeleton.functions.extend(proto.functions)
    skeleton.graph.name = graph.name
    skeleton.graph.node.extend(graph.node)
    skeleton.graph.input.extend(graph.input)
    skeleton.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in graph.initializer
    )
    skeleton.graph.input.extend(
        helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, list(sparse.dims))
        for sparse in graph.sparse_initializer
    )
    skeleton.graph.output.extend(graph.output)
    try:
        onnx.checker.check_model(skeleton)
    except onnx.checker.ValidationError as error:
        return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
    except Exception as error:  # the message is a note; what matters is tried in onnxruntime anyway
        return str(error)
    return ""
