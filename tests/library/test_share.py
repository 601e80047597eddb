"""`onnx_bisect.share`: what the vendor gets fails like the culprit and has nothing of the user's."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_bisect
from onnxbisect.verdict import Kind, Status, Verdict


@pytest.fixture
def culprit(tmp_path: Path) -> Path:
    """A product with secret weights."""
    x = helper.make_tensor_value_info("secret_input", TensorProto.FLOAT, [8, 64])
    y = helper.make_tensor_value_info("secret_output", TensorProto.FLOAT, [8, 64])
    weights = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    node = helper.make_node("MatMul", ["secret_input", "secret_weights"], ["secret_output"], "secret_node")
    graph = helper.make_graph([node], "secret", [x], [y], [numpy_helper.from_array(weights, "secret_weights")])
    path = tmp_path / "culprit.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_what_is_written_fails_alike_and_has_no_weight_and_no_name_of_the_user(culprit: Path, tmp_path: Path) -> None:
    def refuses_products(path: Path) -> Verdict:
        if any(node.op_type == "MatMul" for node in onnx.load(path).graph.node):
            return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message="no MatMul")
        return Verdict(status=Status.PASS)

    shared = onnx_bisect.share(culprit, tmp_path / "shared.onnx", backend=refuses_products)
    assert shared is not None
    assert (shared.nodes, shared.message) == (1, "no MatMul")
    assert shared.compiler_calls > 0
    written = shared.path.read_bytes()
    assert b"secret" not in written
    assert len(written) < 500
    assert refuses_products(shared.path).failed


def test_a_failure_of_its_own_names_alone_cannot_be_shared(culprit: Path, tmp_path: Path) -> None:
    def refuses_its_name(path: Path) -> Verdict:
        if onnx.load(path).graph.initializer[0].name == "secret_weights":
            return Verdict(status=Status.FAIL, kind=Kind.CRASH, message="out of memory")
        return Verdict(status=Status.PASS)

    assert onnx_bisect.share(culprit, tmp_path / "shared.onnx", backend=refuses_its_name) is None
    assert not (tmp_path / "shared.onnx").exists()
