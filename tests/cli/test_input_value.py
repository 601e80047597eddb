"""`--input-value`, with every command that takes it: the model is asked about as it is deployed."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from support.cli.command_line import Shell

#: The form of Silero VAD: one net for each of two rates, of which a device has one.
NET = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,8] x, int64 sr, int64[1] first) => (float[1,Q] y)
<int64 rate = {16000}, int64[1] last = {8}, int64[1] axis = {1}> {
  [fast] fast = Equal (sr, rate)
  [branch] b = If (fast) <
    then_branch = t () => (float[1,8] bt) { [sin] bt = Sin (x) },
    else_branch = e () => (float[1,8] be) { [cos] be = Cos (x) }>
  [cut] s = Slice (b, first, last, axis)
  [relu] y = Relu (s)
}"""
VALUES = ["--input-value", "sr=16000", "--input-value", "first=2"]
TARGET = ["--backend", "whitelist", "--option", "deny=If", "--no-cache"]


@pytest.fixture
def net(shell: Shell) -> Path:
    path = shell.folder / "net.onnx"
    onnx.save(parser.parse_model(NET), path)
    return path


def inputs(path: Path) -> list[str]:
    return [value.name for value in onnx.load(path).graph.input]


def test_run_asks_about_the_model_with_the_value(shell: Shell, net: Path) -> None:
    done = shell.call("run", str(net), *TARGET[:2], "--option", "deny=Abs", "--no-cache", *VALUES, "--format", "json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["verdict"] == "pass"
    assert "The input 'sr' is always 16000: a constant, and no input any more." in report["model"]["notes"]
    assert "The input 'first' is always 2: a constant, and no input any more." in report["model"]["notes"]


def test_fix_writes_a_model_without_the_input(shell: Shell, net: Path) -> None:
    done = shell.call("fix", str(net), *TARGET, *VALUES)
    assert done.code == 0, done.out + done.err
    repaired = shell.folder / "repair" / "repaired.onnx"
    assert inputs(repaired) == ["x"]
    assert not {"If", "Equal"} & {node.op_type for node in onnx.load(repaired).graph.node}
    told = json.loads((shell.folder / "repair" / "repair.json").read_text())
    assert told["input_values"] == {"sr": 16000, "first": 2}
    assert "sr is 16000" in (shell.folder / "repair" / "repair.md").read_text()
    compared = shell.call("compare", str(net), str(repaired), *VALUES)
    assert (compared.code, "The models agree" in compared.out) == (0, True)


def test_fix_takes_samples_with_the_value_and_none_with_another(shell: Shell, net: Path) -> None:
    for rate in (16000, 8000):
        (shell.folder / str(rate)).mkdir()
        file = shell.folder / str(rate) / "0.npz"
        np.savez(file, x=np.ones((1, 8), np.float32), sr=np.array(rate), first=np.array([2]))
    assert shell.call("fix", str(net), *TARGET, *VALUES, "--samples", "16000").code == 0
    refused = shell.call("fix", str(net), *TARGET, *VALUES, "--samples", "8000")
    assert refused.code == 2
    assert "another value of 'sr'" in refused.sentence()


def test_fix_writes_the_file_that_compiles_where_the_value_is_enough(shell: Shell, net: Path) -> None:
    done = shell.call("fix", str(net), *TARGET[:2], "--option", "deny=Abs", "--no-cache", *VALUES)
    assert done.code == 0
    assert inputs(shell.folder / "repair" / "repaired.onnx") == ["x"]
    told = json.loads((shell.folder / "repair" / "repair.json").read_text())
    assert (told["verdict"], told["repaired"]) == ("pass", True)
    assert [output["absolute"] for output in told["outputs"]] == [0]


def test_split_and_extract_write_files_without_the_input(shell: Shell, net: Path) -> None:
    assert shell.call("run", str(net), *TARGET, "--as-is", *VALUES, "--out", "out").code == 1
    done = shell.call("split", str(net), "--report", "out", *VALUES)
    assert done.code == 0, done.out + done.err
    manifest = json.loads((shell.folder / "out" / "split" / "manifest.json").read_text())
    assert [value["name"] for value in manifest["inputs"]] == ["x"]
    assert shell.call("extract", str(net), "-o", "piece.onnx", "--nodes", "branch,cut,relu", *VALUES).code == 0
    assert inputs(shell.folder / "piece.onnx") == ["x"]


def test_inspect_and_rules_take_it(shell: Shell, net: Path) -> None:
    found = json.loads(shell.call("inspect", str(net), *VALUES, "--format", "json").out)
    assert [value["name"] for value in found["inputs"]] == ["x"]
    assert shell.call("rules", "--match", str(net), *VALUES).code == 0


def test_the_command_that_run_recommends_has_the_value(shell: Shell, net: Path) -> None:
    done = shell.call("run", str(net), *TARGET[:2], "--option", "deny=If,Relu", "--as-is", "--no-cache", *VALUES)
    assert "--input-value=sr=16000 --input-value=first=2" in done.out


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("rate=1", "'rate', which is no input"),
        ("sr=1,2", "has 2 values"),
        ("sr=0.5", "int64, which has no such value"),
        ("sr=x", "no number, true or false"),
    ],
)
def test_what_does_not_fit_is_a_sentence(shell: Shell, net: Path, value: str, words: str) -> None:
    done = shell.call("run", str(net), *TARGET, "--input-value", value)
    assert done.code == 2
    assert words in done.sentence()


def test_of_several_models_each_gets_the_values_of_its_inputs(shell: Shell, net: Path) -> None:
    other = shell.folder / "other.onnx"
    onnx.save(
        parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> other (float[2] x, float a) => (float[2] y) { y = Mul (x, a) }'
        ),
        other,
    )
    (shell.folder / "net.toml").write_text(
        '[[part]]\nmodel = "net.onnx"\ninput_values = {first = [2]}\n[[part]]\nmodel = "other.onnx"\n'
    )
    done = shell.call(
        "run", "net.toml", *TARGET[:2], "--option", "deny=Abs", "--no-cache", *VALUES[:2], "--input-value", "a=0.5"
    )
    assert done.code == 0, done.out + done.err
    assert "no input of these models" in shell.call("run", "net.toml", *TARGET, "--input-value", "q=1").sentence()


def test_run_suggests_the_value_that_the_graph_compares_with(shell: Shell, net: Path) -> None:
    done = shell.call("run", str(net), *TARGET, "--as-is")
    said = "If branch depends only on the scalar input 'sr', which is compared with 16000: --input-value sr=16000"
    assert said in done.out.replace("\n", " ")
    assert said not in shell.call("run", str(net), *TARGET, "--as-is", *VALUES).out.replace("\n", " ")


RUNTIME = """<ir_version: 8, opset_import: ["": 17]>
net (float[8] x, int64[2] s) => (float[4] y) <float[4] a, float[4] b> {
  [split] a, b = Split <axis = 0> (x, s)
  [sin] c = Abs (a)
  [add] y = Add (c, b)
}"""


def test_a_model_that_runs_only_on_samples_is_diagnosed_and_repaired(shell: Shell) -> None:
    """Made-up sizes make Split fail; the declared types are right, and the user's sample runs."""
    onnx.save(parser.parse_model(RUNTIME), shell.folder / "net.onnx")
    target = ["--backend", "whitelist", "--option", "deny=Abs", "--no-cache"]
    done = shell.call("run", "net.onnx", *target)
    assert (done.code, "1 op at 1 place, 1 unit of 3" in done.out, "proven" in done.out) == (1, True, True)
    (shell.folder / "samples").mkdir()
    np.savez(shell.folder / "samples" / "0.npz", x=np.ones(8, np.float32), s=np.array([4, 4]))
    refused = shell.call("fix", "net.onnx", *target)
    assert "onnxruntime does not run" in refused.out + refused.err
    fixed = shell.call("fix", "net.onnx", *target, "--samples", "samples")
    assert fixed.code == 0, fixed.out + fixed.err
    assert "in onnxruntime on 1 sample" in fixed.out


def test_types_are_those_of_the_users_sample_where_nothing_is_declared(shell: Shell) -> None:
    proto = parser.parse_model(RUNTIME)
    del proto.graph.value_info[:]
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, shell.folder / "net.onnx")
    (shell.folder / "samples").mkdir()
    np.savez(shell.folder / "samples" / "0.npz", x=np.ones(8, np.float32), s=np.array([4, 4]))
    target = ["--backend", "whitelist", "--option", "deny=Abs", "--no-cache"]
    done = shell.call("run", "net.onnx", *target, "--samples", "samples", "--out", "out")
    assert (done.code, "1 op at 1 place, 1 unit of 3" in done.out, "proven" in done.out) == (1, True, True)
    (culprit,) = (shell.folder / "out").glob("culprits/*/model.onnx")
    assert [dim.dim_value for dim in onnx.load(culprit).graph.input[0].type.tensor_type.shape.dim] == [4]
