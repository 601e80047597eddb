"""Checking reports by the vendor's tool alone: what is bound, what is said of a claim, and what the tools answer."""

import json
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


def test_a_culprit_that_is_a_consequence_of_another_is_false(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = _claims(tmp_path, monkeypatch, file_after="")
    assert claims.pop("the rest with Relu is refused") == "false (taken)"
    assert claims.pop("culprit 2 is refused") == "true"
    assert set(claims.values()) == {"true"}
    assert "the rest with Exp is refused" in claims


@pytest.mark.parametrize("change", ["1 If replaced by the branch that it takes", "6 nodes folded into 3 constants"])
def test_the_rest_of_the_file_is_not_that_of_a_changed_one(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = _claims(tmp_path, monkeypatch, file_after=change)
    assert claims["the rest compiles"].startswith("not written")
    assert not any("the rest with" in claim for claim in claims)


def _claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, file_after: str) -> dict[str, str]:
    """What is checked of a report that states Exp and the Relu behind it, of a tool that refuses Exp alone."""
    nodes = [helper.make_node(op, [at], [to], name=op) for op, at, to in _STATED]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    monkeypatch.setattr(field, "_CACHE", tmp_path)
    monkeypatch.setattr(field, "fetch", lambda _: tmp_path / "m.onnx")
    monkeypatch.setattr(field, "alone", _refuses_exp)
    asked = field.Model(package="p", version="1", file="m.onnx")
    culprits = [_culprit(tmp_path / "reports" / "p-m-qnn", index, op) for index, op in enumerate(("Exp", "Relu"), 1)]
    certificate = {"status": "proven"}
    report = {"verdict": "fail", "compiles_after": None, "probes": [], "culprits": culprits, "certificate": certificate}
    field._report(asked, "qnn").write_text(json.dumps({**report, "file_after": file_after}))
    return dict(field._claims(asked, "qnn"))


_STATED = (("Sigmoid", "x", "s"), ("Exp", "s", "e"), ("Relu", "e", "r"), ("Tanh", "r", "y"))


def _culprit(out: Path, index: int, op: str) -> dict[str, object]:
    """A culprit of the report in this folder, with a file of its own in which an Exp stands beside the op."""
    own = out / "culprits" / f"{index:02}-{op}" / "model.onnx"
    own.parent.mkdir(parents=True)
    onnx.save(_model("Exp"), own)
    return {"certainty": "confirmed", "failure": "unsupported", "nodes": [op], "occurrences": [[op]]}


def _refuses_exp(_: str, file: Path) -> str:
    return "refused" if any(node.op_type == "Exp" for node in onnx.load(file).graph.node) else "taken"


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
