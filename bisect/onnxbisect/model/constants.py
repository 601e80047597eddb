"""Tensors that a model stores: initializers, dense and sparse, and what its Constant nodes hold."""

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxbisect.model.scopes import is_constant

#: What a Constant node may hold, by attribute, and the type of each. Intake sees to it that it holds one (`gate`).
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
    """What a Constant node holds, in whichever of its attributes, as a tensor."""
    attribute = next(attribute for attribute in node.attribute if attribute.name in HELD)
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
