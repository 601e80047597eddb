"""Models in float16."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxbisect.model.scopes import walk


def in_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float16 wherever it has float32."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    graph = twin.graph
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    held = [it.t for node in walk(graph) for it in node.attribute if it.type == onnx.AttributeProto.TENSOR]
    for tensor in (*graph.initializer, *held):
        if tensor.data_type == TensorProto.FLOAT:
            largest = float(np.finfo(np.float16).max)
            array = numpy_helper.to_array(tensor).clip(-largest, largest).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in walk(graph):
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return twin
