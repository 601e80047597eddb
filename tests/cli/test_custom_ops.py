"""`fix`, `split` and `compare` of models with ops that onnxruntime does not know: recorded, or by a function."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from support.cli.command_line import Shell

NET = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
net (float[2,3] x) => (float[2,3] y)
<float[3] w = {1, 2, 3}> {
  [a] a = Sigmoid(x)
  [g] g, h = my.Gate <slope: float = 3.0> (a, , w)
  [c] c = Mish(g)
  [d] d = Mul(c, h)
  [e] y = Tanh(d)
}"""
GATE = """from __future__ import annotations
from dataclasses import dataclass
import numpy as np
@dataclass
class Gate:  # it is looked up by the name of its module
    slope: float
def gate(x, missing, w, slope):
    assert missing is None
    slope = Gate(slope).slope
    return x * np.float32(slope) + w, -x
def wrong(x, missing, w, slope):
    return x[0], -x
def fails(x, missing, w, slope):
    raise ValueError("no")
"""
TARGET = ["--backend", "whitelist", "--option", "deny=Mish,my::Gate"]
OP = "my:Gate=ops.py:gate"


@pytest.fixture
def net(shell: Shell) -> Path:
    path = shell.folder / "net.onnx"
    proto = parser.parse_model(NET.replace("Mish", "Softsign").replace('"": 17', '"": 18'))
    proto.graph.node[2].op_type = "Mish"
    proto.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "gh"
    )
    onnx.save(proto, path)
    (shell.folder / "ops.py").write_text(GATE)
    return path


def expected(x: np.ndarray) -> np.ndarray:
    a = 1 / (1 + np.exp(-x))
    g = a * 3 + np.array([1, 2, 3])
    return np.asarray(np.tanh(g * np.tanh(np.log1p(np.exp(g))) * -a))


@pytest.mark.long
def test_a_function_computes_the_op_from_the_repair_to_the_pieces(shell: Shell, net: Path) -> None:
    fixed = shell.call("fix", str(net), *TARGET, "--op", OP, "--out", "out")
    assert fixed.code == 1
    assert "Mish \u2192 Softplus, Tanh, Mul: mish-softplus, exact" in fixed.out
    assert fixed.out.splitlines()[-1].endswith(f"--report out/repair {' '.join(TARGET)} --op={OP}")
    done = shell.call("split", "out/repair/repaired.onnx", "--report", "out/repair", "--op", OP)
    assert done.code == 0, done.out
    assert "proven: one after the other they give the model's outputs, bit for bit (7 samples" in done.out
    x = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    np.savez(shell.folder / "x.npz", x=x, y=expected(x).astype(np.float32))
    script = shell.folder / "out" / "repair" / "split" / "run.py"
    ran = subprocess.run(
        [sys.executable, "-I", script, "x.npz", "--op", OP], cwd=shell.folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    with np.load(shell.folder / "outputs.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], expected(x), atol=1e-6)
    assert "from the given one" in ran.stdout


def test_recorded_tensors_stand_for_the_op_on_the_same_inputs_alone(shell: Shell, net: Path) -> None:
    assert shell.call("run", str(net), *TARGET, "--out", "out").code == 1
    x = np.ones((2, 3), np.float32)
    a = 1 / (1 + np.exp(-x))
    recorded = {"x": x, "a": a, "g": a * 3 + np.array([1, 2, 3], np.float32), "h": -a}
    (shell.folder / "samples").mkdir()
    np.savez(shell.folder / "samples" / "0.npz", **recorded)  # type: ignore[arg-type]
    assert shell.call("split", str(net), "--report", "out", "--samples", "samples").code == 0
    run = [sys.executable, "-I", str(shell.folder / "out" / "split" / "run.py")]
    ran = subprocess.run([*run, "samples/0.npz"], cwd=shell.folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    with np.load(shell.folder / "outputs.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], expected(x), atol=1e-6)
    np.savez(shell.folder / "other.npz", **{**recorded, "x": 2 * x})  # type: ignore[arg-type]
    for inputs, sentence in (
        (["other.npz"], "The tensors of my:Gate were recorded on other inputs: 'a' differs."),
        ([], "onnxruntime does not know my:Gate: name a function, --op my:Gate=FILE.py:FUNCTION, or give its recorded"),
    ):
        ran = subprocess.run([*run, *inputs], cwd=shell.folder, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr.startswith(sentence)) == (1, True), ran.stderr


def test_models_are_compared_around_the_op(shell: Shell, net: Path) -> None:
    other = onnx.load(net)
    assert shell.call("compare", str(net), str(net)).code == 0
    other.graph.node[0].op_type = "HardSigmoid"
    onnx.save(other, shell.folder / "other.onnx")
    assert shell.call("compare", str(net), "other.onnx").code == 1


@pytest.mark.parametrize(
    ("op", "sentence"),
    [
        ("my:Gate", "--op is DOMAIN:NAME=FILE.py:FUNCTION, such as --op my.ops:Gate=ops.py:gate, and not 'my:Gate'."),
        ("my:Gate=none.py:gate", "There is no file none.py of a custom op."),
        ("my:Gate=ops.py:fails", "fails() of ops.py: ValueError: no (line 14)."),
        ("my:Gate=ops.py:none", "none() of ops.py: AttributeError: module 'ops' has no attribute 'none'."),
        ("my:Gate=ops.py:wrong", "ops.py:wrong returned float32 [3] for 'g', which the model has as float32 [2, 3]:"),
    ],
)
def test_a_function_that_cannot_be_used_is_one_sentence(shell: Shell, net: Path, op: str, sentence: str) -> None:
    done = shell.call("fix", str(net), *TARGET, "--op", op, "--out", "out")
    assert (done.code, sentence in done.err) == (2, True), done.err
