"""The onnxruntime backend: real sessions, real refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.testing import conv_net, with_op
from onnxbisect_backends.vendors.ort.backend import OnnxRuntimeBackend


def ask(model: onnx.ModelProto, tmp_path: Path, **options: str) -> tuple[Outcome, Verdict]:
    probe, workdir = tmp_path / "probe.onnx", tmp_path / "work"
    onnx.save(model, probe)
    workdir.mkdir()
    backend = OnnxRuntimeBackend(options)
    outcome = backend.compile(probe, workdir, Limits(seconds=60))
    return outcome, backend.judge(outcome)


def one_node(op: str, dtype: int, inputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"] * inputs, ["y"], name="it's /a node", **attributes)
    value = [helper.make_tensor_value_info(name, dtype, (2, 2)) for name in "xy"]
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NODE = ("it's /a node",)


@pytest.mark.parametrize(
    ("model", "kind", "hints", "words"),
    [
        (with_op("FancyAct", "vendor.npu"), Kind.UNSUPPORTED, Hints(ops=("vendor.npu::FancyAct",)), "not a registered"),
        (one_node("Foo", 1), Kind.UNSUPPORTED, Hints(ops=("Foo",), nodes=NODE), "No Op registered for Foo"),
        (one_node("Relu", 16), Kind.UNSUPPORTED, Hints(ops=("Relu",), nodes=NODE), "Could not find an implementation"),
        (one_node("Sin", 7), Kind.UNSUPPORTED, Hints(ops=("Sin",), nodes=NODE, tensors=("x",)), "Type 'tensor(int64)'"),
        (one_node("Relu", 1, foo=1), Kind.UNSUPPORTED, Hints(ops=("Relu",), nodes=NODE), "Unrecognized attribute: foo"),
        (one_node("Relu", 1, 2), Kind.ERROR, Hints(ops=("Relu",), nodes=NODE), "has input size 2"),
    ],
    ids=["custom domain", "unknown op", "no kernel", "wrong dtype", "wrong attribute", "too many inputs"],
)
def test_refusals_name_what_onnxruntime_names(
    tmp_path: Path, model: onnx.ModelProto, kind: Kind, hints: Hints, words: str
) -> None:
    _, verdict = ask(model, tmp_path)

    assert (verdict.status, verdict.kind, verdict.hints) == (Status.FAIL, kind, hints)
    assert words in verdict.message
    assert not verdict.message.startswith(("Fail:", "NotImplemented:", "InvalidGraph:")), (
        "the words that tell come first"
    )


def test_refusals_of_two_ops_in_the_same_words_have_one_fingerprint(tmp_path: Path) -> None:
    prints = []
    for op in ["Relu", "Sqrt"]:
        (tmp_path / op).mkdir()
        prints.append(ask(one_node(op, TensorProto.BFLOAT16), tmp_path / op)[1].fingerprint)

    assert prints[0] == prints[1] == "Could not find an implementation for <op>(#) node with name <name>"


@pytest.mark.parametrize("level", ["disable_all", "enable_basic", "enable_extended", "enable_all"])
def test_every_optimisation_level_compiles_and_reports_nothing_home(tmp_path: Path, level: str) -> None:
    outcome, verdict = ask(conv_net(), tmp_path, optimization=level)

    assert verdict.passed
    assert outcome.artifacts == ()  # telemetry would leave its database in the work directory
    assert outcome.log == ""


def test_an_onnxruntime_that_cannot_be_loaded_says_nothing_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)

    _, verdict = ask(conv_net(), tmp_path)

    assert verdict.status is Status.UNRESOLVED
    assert "libcudart.so.12" in verdict.message


def test_a_probe_that_is_not_there_is_unresolved(tmp_path: Path) -> None:
    backend = OnnxRuntimeBackend({})

    verdict = backend.judge(backend.compile(tmp_path / "none.onnx", tmp_path, Limits(seconds=60)))

    assert verdict.status is Status.UNRESOLVED
    assert "File doesn't exist" in verdict.message


def _computed(*nodes: onnx.NodeProto, **constants: Any) -> onnx.ModelProto:
    """`big` is computed from constants alone, and added to the input."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1] if name == "x" else None) for name in "xy"]
    stored = [numpy_helper.from_array(np.array(array), name) for name, array in constants.items()]
    add = helper.make_node("Add", ["x", "big"], ["y"])
    graph = helper.make_graph([*nodes, add], "g", value[:1], value[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


_GIGABYTE = {"one": np.ones((1, 1), np.float32), "shape": np.array([16384, 16384], np.int64)}


@pytest.mark.parametrize(
    "model",
    [
        _computed(helper.make_node("ConstantOfShape", ["shape"], ["big"]), **_GIGABYTE),
        _computed(helper.make_node("Expand", ["one", "shape"], ["big"]), **_GIGABYTE),
        _computed(helper.make_node("Tile", ["one", "shape"], ["big"]), **_GIGABYTE),
        _computed(
            helper.make_node("Range", ["from", "to", "by"], ["big"]),
            **{"from": np.float32(0), "to": np.float32(1 << 28), "by": np.float32(1)},
        ),
        _computed(
            helper.make_node("Pad", ["one", "pads"], ["big"]),
            one=_GIGABYTE["one"],
            pads=np.array([0, 0, 16383, 16383], np.int64),
        ),
    ],
    ids=["ConstantOfShape", "Expand", "Tile", "Range", "Pad"],
)
def test_a_small_file_that_computes_a_gigabyte_is_not_computed(tmp_path: Path, model: onnx.ModelProto) -> None:
    outcome, verdict = ask(model, tmp_path)

    assert verdict.status is Status.PASS
    assert outcome.peak_memory < 300 << 20


def test_a_small_file_that_computes_many_constants_ends_at_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is below the size that stays a node; the limit is lower here, so that it is reached in a second."""
    monkeypatch.setattr("onnxbisect_backends.verifying._MEMORY", 400 << 20)
    steps = [helper.make_node("Neg", [f"t{place}"], [f"t{place + 1}"]) for place in range(20)]
    together = helper.make_node("Sum", [f"t{place}" for place in range(21)], ["big"])
    first = helper.make_node("Expand", ["one", "shape"], ["t0"])
    model = _computed(first, *steps, together, one=np.array([1], np.float32), shape=np.array([4096, 3900], np.int64))

    outcome, verdict = ask(model, tmp_path)

    assert outcome.over_memory
    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.RESOURCE)
    assert "memory limit" in verdict.message
    assert outcome.peak_memory < 1000 << 20
