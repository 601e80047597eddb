"""Tensors that a model stores: dense and sparse initializers, and the values of Constant nodes."""

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxbisect.model.scopes import is_constant

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
