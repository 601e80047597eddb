"""Small models to check a compiler with, written as probes of a whole model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.cut import Cutter, write
from onnxbisect.model import load
from onnxbisect.model.model import Model
from onnxbisect.model.values import TensorValues
from onnxbisect.unitset import UnitSet
from onnxbisect_backends.contract import Description
from onnxbisect_backends.samples import write_samples

#: Versions that every current compiler reads.
IR, OPSET = 8, 13

#: Names that have broken compilers: blanks, quotes, colons, slashes, what shells and formats expand, other scripts.
_ODD_NAME = "/a b/'c\"d':0{x}%s$HOME;`e`\\n-ü中"


def conv_net() -> onnx.ModelProto:
    """Conv, Relu, MaxPool, Conv, Relu on floats of shape (1, 3, 16, 16)."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w1"),
        numpy_helper.from_array(rng.standard_normal((2, 4, 3, 3)).astype(np.float32), "w2"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="conv_1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu_1"),
        helper.make_node("MaxPool", ["b"], ["c"], name="pool_1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w2"], ["d"], name="conv_2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["y"], name="relu_2"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, 8, 8))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def with_op(op_type: str, domain: str = "", **attributes: Any) -> onnx.ModelProto:
    """A net with an additional op between two Relus, which the compiler may refuse."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node(op_type, ["a"], ["b"], name="the_op", domain=domain, **attributes),
        helper.make_node("Relu", ["b"], ["y"], name="after"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3, 16, 16))],
    )
    opsets = [helper.make_opsetid("", OPSET)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR)


def oddly_named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with legal but unusual names of nodes and tensors."""
    graph = model.graph
    weights = {weight.name for weight in graph.initializer}
    for number, node in enumerate(graph.node):
        node.name = f"{_ODD_NAME}{number}"
        for names in (node.input, node.output):
            names[:] = [name if name in weights or not name else _ODD_NAME + name for name in names]
    for value in (*graph.input, *graph.output):
        value.name = _ODD_NAME + value.name
    return model


def write_whole(model: Path, description: Description, probe: Path) -> Mapping[str, str]:
    """Write a model as the probe of all its nodes, with the target's probe format and samples.

    Returns the names in the probe that differ from the model's: probe name to model name.
    """
    read = load(model)
    return write_units(read, read.universe.everything, description, probe)


def write_units(model: Model, units: UnitSet, description: Description, probe: Path) -> Mapping[str, str]:
    """`write_whole`, of some units."""
    piece = Cutter(model).cut(units, description.probe_format)
    write(piece, model, probe)
    if description.samples:
        write_samples(probe, piece.renamed, TensorValues(model, count=description.samples))
    return piece.renamed
