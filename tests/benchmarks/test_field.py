"""Checking reports by the vendor's tool alone: what is bound, what is said of a claim, and what the tools answer."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

import field
from onnxbisect_backends.toolchains.toolchain import toolchain

UNBOUND = "N"


def _model(op: str, *, dim: int | str = 4, scalar: bool = False) -> onnx.ModelProto:
    """A Relu, and the op behind it, at two square matrices."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node(op, ["r", "s"] if scalar else ["r"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [dim, 4, 4])]
    inputs += [helper.make_tensor_value_info("s", TensorProto.INT64, [])] * scalar
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_the_user_bound_is_changed_and_nothing_else(tmp_path: Path) -> None:
    original = _model("Gather", dim=UNBOUND, scalar=True)
    onnx.save(original, tmp_path / "m.onnx")
    field.bind(tmp_path / "m.onnx", tmp_path / "bound.onnx", {"x": (2, 4, 4)}, {"s": 1})
    bound = onnx.load(tmp_path / "bound.onnx")
    assert [entry.name for entry in bound.graph.input] == ["x"]
    assert [dim.dim_value for dim in bound.graph.input[0].type.tensor_type.shape.dim] == [2, 4, 4]
    (scalar,) = bound.graph.initializer
    assert scalar == numpy_helper.from_array(np.array(1, np.int64), "s")
    assert (bound.graph.node, bound.graph.output) == (original.graph.node, original.graph.output)
    assert not bound.graph.value_info


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({}, "nothing claimed"),
        ({"the file compiles": "true"}, "yes"),
        ({"the file is refused": "true", "the rest compiles": "not written"}, "yes, but for the rest compiles: not w"),
        ({"the file is refused": "true", "culprit 1 is refused": "false (taken)"}, "**NO**: culprit 1 is refused"),
    ],
)
def test_a_false_claim_catches_the_eye(claims: dict[str, str], said: str) -> None:
    result = field.Result(model="m", backend="b", verdict="v", calls=1, seconds=1.0, claims=claims)
    assert result.checked.startswith(said)


@pytest.mark.compiler
@pytest.mark.parametrize("backend", field.BACKENDS)
@pytest.mark.parametrize("answer", ["taken", "refused"])
def test_the_tool_alone_says_whether_it_takes_a_file(backend: str, answer: str, tmp_path: Path) -> None:
    if complaint := toolchain(backend).missing:
        pytest.skip(complaint)
    op = "Sigmoid" if answer == "taken" else {"iree": "Unique", "mnn": "Hardmax"}.get(backend, "Det")
    model = _model(op)
    if backend != "nncase":  # for which `alone` declares the shapes
        model = shape_inference.infer_shapes(model)
    onnx.save(model, tmp_path / "m.onnx")
    assert field.alone(backend, tmp_path / "m.onnx") == answer
