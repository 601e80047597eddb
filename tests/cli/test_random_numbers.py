"""Models that draw random numbers: proofs give both sides the same ones, and `fix` can make them an input."""

from pathlib import Path

import onnx
import pytest

from support.cli.command_line import Shell

DRAWING = {
    "RandomNormalLike": "r = RandomNormalLike(a)",
    "RandomUniformLike": "r = RandomUniformLike(a)",
    "RandomNormal": "r = RandomNormal <shape = [2,3]> ()",
    "RandomUniform": "r = RandomUniform <shape = [2,3], seed = 1.0> ()",
    "Bernoulli": "p = Sigmoid(a) r = Bernoulli(p)",
    "Multinomial": "m = Multinomial <sample_size = 3> (a) r = Cast <to = 1> (m)",
}
#: Those that read no values.
GENERATORS = [op for op in DRAWING if op.startswith("Random")]


def net(shell: Shell, drawing: str, before: str = "a = Sinh(x)") -> str:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[n,m] y)'
        f" {{ {before} {drawing} b = Mul(a, r) y = Relu(b) }}"
    )
    onnx.save(onnx.parser.parse_model(text), shell.folder / "net.onnx")
    return "net.onnx"


def refusing(*ops: str) -> list[str]:
    return ["--backend", "whitelist", "--option", f"deny={','.join(ops)}"]


@pytest.mark.parametrize("op", DRAWING)
def test_another_op_is_replaced_and_proven(shell: Shell, op: str) -> None:
    done = shell.call("fix", net(shell, DRAWING[op]), *refusing("Sinh"))
    assert done.code == 0, done.out
    assert "The outputs agree in onnxruntime on 8 samples" in done.out


@pytest.mark.parametrize("op", GENERATORS)
def test_the_numbers_become_an_input(shell: Shell, op: str) -> None:
    done = shell.call("fix", net(shell, DRAWING[op]), *refusing("Sinh", op), "--allow", "domain")

    assert done.code == 0, done.out
    assert f"an input of the model instead of {op} 'r'" in done.out
    repaired = onnx.load(shell.folder / "repair" / "repaired.onnx")
    assert op not in {node.op_type for node in repaired.graph.node}
    (given,) = [it for it in repaired.graph.input if it.name == "r"]
    assert [dim.dim_value for dim in given.type.tensor_type.shape.dim] == [2, 3]
    assert shell.call("compare", "net.onnx", "repair/repaired.onnx").code == 0


def test_without_leave_it_says_what_would_be_allowed(shell: Shell) -> None:
    done = shell.call("fix", net(shell, DRAWING["RandomNormalLike"]), *refusing("RandomNormalLike"))
    assert done.code == 1
    assert "--allow domain makes its numbers an input" in done.out


@pytest.mark.parametrize("op", ["RandomNormalLike", "Bernoulli"])
def test_a_split_is_proven(shell: Shell, op: str) -> None:
    shell.call("run", net(shell, DRAWING[op]), *refusing("Sinh", op), "--out", "found")
    done = shell.call("split", "net.onnx", "--report", "found")
    assert done.code == 0, done.out
    assert "proven: one after the other they give the model's outputs" in done.out


def test_numbers_of_a_size_that_values_decide_prove_nothing(shell: Shell) -> None:
    before = "z = NonZero(x) i = Transpose <perm = [1,0]> (z) a = GatherND(x, i)"
    drawing = "r = RandomNormalLike(a)"
    shell.call("run", net(shell, drawing, before), *refusing("RandomNormalLike"), "--out", "found")
    done = shell.call("split", "net.onnx", "--report", "found")
    assert done.code == 1
    assert "RandomNormalLike_r" in done.out.replace("\n", " ")
    assert "draws other numbers in each run" in " ".join(done.out.split())


def test_two_files_that_draw_differently_differ(shell: Shell, tmp_path: Path) -> None:
    """Which numbers are drawn does not count; what is computed of them does."""
    net(shell, DRAWING["RandomNormalLike"])
    (shell.folder / "net.onnx").rename(shell.folder / "one.onnx")
    net(shell, "r = RandomNormalLike(a)", "c = Sinh(x) a = Abs(c)")
    assert shell.call("compare", "one.onnx", "one.onnx").code == 0
    assert shell.call("compare", "one.onnx", "net.onnx").code == 1
