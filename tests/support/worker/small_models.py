"""Bytes of models that a few lines make."""

import itertools

import onnx
from onnx import TensorProto, helper


def model(*nodes: onnx.NodeProto, tensors: tuple[onnx.TensorProto, ...] = ()) -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph([*nodes], "g", ends[:1], ends[1:], [*tensors])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def chain(*ops: str) -> bytes:
    names = ["x", *(str(number) for number in range(len(ops) - 1)), "y"]
    return model(*(helper.make_node(op, [a], [b]) for op, (a, b) in zip(ops, itertools.pairwise(names), strict=True)))


def relus(count: int) -> bytes:
    return chain(*["Relu"] * count)
