"""Whole searches with pulsar2, over its stand-in: config, calibration data and logs of every probe are real."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from support.backends import pulsar2_tools
from support.cli.command_line import Shell, culprits

EXAMPLE = Path(__file__).parents[2] / "examples" / "sam_decoder.onnx"

#: Sinh is refused; between Less and Where runs a bool tensor, at which pulsar2 cannot be fed.
MODEL = """<ir_version: 8, opset_import: ["": 17]>
net (float[2,6] x, int64[2] rows) => (float[3,4] z, float[2,6] w)
<float[5,6] table = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29},
 int64[2] shape = {3, 4}>
{
  g = Gather(table, rows)
  a = Add(x, g)
  s = Sinh(a)
  less = Less(s, x)
  w = Where(less, x, s)
  r = Relu(w)
  v = Reshape(r, shape)
  z = Exp(v)
}"""


def tool(shell: Shell, *options: str) -> None:
    folder = pulsar2_tools.forked_stand_in(shell.folder / "bin", *options)
    shell.monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def small(folder: Path) -> str:
    model = parser.parse_model(MODEL)
    for node in model.graph.node:
        node.name = f"/net/{node.op_type}:0"
        node.output[0] = node.output[0] if node.output[0] in ("z", "w") else f"/net/{node.output[0]}:0"
        for position, name in enumerate(node.input):
            if f"/net/{name}:0" in {other for node in model.graph.node for other in node.output}:
                node.input[position] = f"/net/{name}:0"
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / "small.onnx")
    return "small.onnx"


def calibration(folder: Path, row: int) -> str:
    folder.mkdir()
    for number in range(2):
        np.savez(folder / f"{number}.npz", x=np.full((2, 6), number, np.float32), rows=np.array([row, number]))
    return str(folder)


@pytest.mark.long
def test_a_real_model_has_the_culprits_that_the_vendors_list_says(shell: Shell) -> None:
    tool(shell)

    report = shell.report(str(EXAMPLE), "--backend", "pulsar2", "--jobs", "2")

    listed = shell.report(str(EXAMPLE), "--backend", "whitelist", "--option", "profile=pulsar2-ax650")
    assert report["certificate"]["status"] == "proven"
    assert culprits(report) == culprits(listed)
    assert {probe["verdict"] for probe in report["probes"]} == {"pass", "fail"}


def test_cuts_at_odd_names_and_at_bools_are_fair_questions(shell: Shell) -> None:
    tool(shell)

    report = shell.report(small(shell.folder), "--backend", "pulsar2")

    assert culprits(report) == [["/net/Sinh:0"]]
    assert report["certificate"]["status"] == "proven"
    assert {probe["verdict"] for probe in report["probes"]} == {"pass", "fail"}
    assert "made-up inputs" in " ".join(report["model"]["notes"])


def test_a_reshape_that_a_cut_lays_bare_is_not_blamed(shell: Shell) -> None:
    """Behind the Reshape stands Exp, which is refused: every cut without it ends in the Reshape."""
    tool(shell, "--bare-reshape", "--refuse", "Exp=AssertionError('ocm alloc with 1 failed')")

    report = shell.report(small(shell.folder), "--backend", "pulsar2")

    assert culprits(report) == [["/net/Exp:0"], ["/net/Sinh:0"]]
    assert report["certificate"]["status"] == "proven"


@pytest.mark.long
def test_a_reshape_that_ends_the_model_is_to_blame_and_its_like_inside_is_not(shell: Shell) -> None:
    tool(shell, "--bare-reshape")
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (float[3,4] x) => (float[3,4] z) <int64[2] shape = {3, 4}>
    { a = Reshape(x, shape)  b = Abs(a)  c = Reshape(b, shape)  d = Exp(c)  z = Reshape(d, shape) }"""
    model = parser.parse_model(text)
    for node in model.graph.node:
        node.name = f"make_{node.output[0]}"
    onnx.save(model, shell.folder / "ends.onnx")

    report = shell.report("ends.onnx", "--backend", "pulsar2")

    assert culprits(report) == [["make_z"]]
    assert report["certificate"]["status"] == "proven"


@pytest.mark.long
def test_verdicts_belong_to_the_calibration_data(shell: Shell) -> None:
    """Of a model that compiles, whose one verdict tells."""
    tool(shell)
    text = """<ir_version: 8, opset_import: ["": 17]> net (float[2,6] x, int64[2] rows) => (float[2,6] y)
    <float[2,6] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}> { g = Gather(table, rows)  y = Add(x, g) }"""
    onnx.save(parser.parse_model(text), shell.folder / "net.onnx")
    command = ["net.onnx", "--backend", "pulsar2", "--option", "calibration_size=2", "--samples"]
    one, other = (calibration(shell.folder / name, row) for row, name in enumerate(("one", "other")))

    first = shell.report(*command, one)
    again = shell.report(*command, one)
    changed = shell.report(*command, other)

    assert first["stats"]["compiler_calls"] == changed["stats"]["compiler_calls"] > 0
    assert again["stats"]["compiler_calls"] == 0
    assert "made" not in " ".join(first["model"]["notes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--samples", "missing"], "--samples missing cannot be read"),
        (["--option", "npu_mode=NPU3", "--option", "target_hardware=AX615"], "AX615 has only NPU1 and NPU2"),
        (["--option", "input_shapes=x:4x6", "--input-shape", "x=2,6"], "make the input 'x' 4x6, and --input-shape"),
        (["--option", "input_shapes=x:4x6"], "The model does not work where 'x' is 4x6 instead of 2x6"),
        (["--option", "input_shapes=q:4x6"], "'q', which is no input of the model"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(shell: Shell, arguments: list[str], words: str) -> None:
    tool(shell)

    done = shell.call("run", small(shell.folder), "--backend", "pulsar2", *arguments)

    assert words in done.err.splitlines()[-1]
    assert done.code in (2, 3)


def test_calibration_that_nobody_wants_is_said_to_be_unused(shell: Shell) -> None:
    samples = calibration(shell.folder / "samples", row=1)

    done = shell.call("run", small(shell.folder), "--backend", "onnxruntime", "--samples", samples)

    assert "onnxruntime takes no input samples" in done.err
    assert done.code == 0


@pytest.mark.long
def test_a_culprits_folder_runs_the_very_compile_again(shell: Shell) -> None:
    """It is what the vendor's support asks for: model, configuration, data, command, log."""
    tool(shell)
    layers = [{"op_type": "Sinh", "data_type": "U16"}]
    (shell.folder / "config.json").write_text(json.dumps({"quant": {"layer_configs": layers}}))

    shell.call(
        *("run", small(shell.folder), "--backend", "pulsar2", "--option", "config=config.json", "--out", "out"),
        *("--option", "target_hardware=AX620E"),
    )

    folder = shell.folder / "out/culprits/01-Sinh"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {"model.onnx", "config.json", "dataset/0.tar", "reproduce.sh", "compiler.log", "README.md"}
    assert json.loads((folder / "config.json").read_text())["quant"]["layer_configs"] == layers
    assert (folder / "reproduce.sh").read_text().splitlines()[-1] == (
        "pulsar2 build --target_hardware AX620E --config config.json --input model.onnx --output_dir output"
    )
    again = subprocess.run(["sh", "reproduce.sh"], cwd=folder, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1] in (folder / "compiler.log").read_text()


@pytest.mark.long
def test_a_report_without_the_culprit_leaves_nothing_of_it_behind(shell: Shell) -> None:
    tool(shell, "--refuse", "Exp=AssertionError('ocm alloc with 1 failed')")
    command = ("run", small(shell.folder), "--backend", "pulsar2", "--out", "out")
    shell.call(*command)
    assert (shell.folder / "out/culprits/02-Exp/dataset/0.tar").exists()
    tool(shell)

    shell.call(*command, "--no-cache")

    assert [path.name for path in (shell.folder / "out/culprits").iterdir()] == ["01-Sinh"]


@pytest.mark.long
def test_what_is_made_of_a_model_that_compiles_is_kept(shell: Shell) -> None:
    tool(shell, "--record", str(shell.folder / "record"))
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    onnx.save(parser.parse_model(text), shell.folder / "relu.onnx")
    made = "compiled/output/compiled.axmodel"

    first = shell.call("run", "relu.onnx", "--backend", "pulsar2", "--out", "one")
    again = shell.call("run", "relu.onnx", "--backend", "pulsar2", "--out", "two", "--format", "json")
    unkept = shell.call("run", "relu.onnx", "--backend", "pulsar2", "--format", "json")

    assert onnx.load(shell.folder / "one" / made).producer_name == "Pulsar2"
    assert "one/compiled holds what the compiler made of the model" in first.err
    assert (shell.folder / "two" / made).read_bytes() == (shell.folder / "one" / made).read_bytes()
    assert [json.loads(done.out)["stats"]["compiler_calls"] for done in (again, unkept)] == [1, 0]
    assert len(list((shell.folder / "record").iterdir())) == 2
    tool(shell, "--refuse", "Relu=AssertionError('ocm alloc with 1 failed')")
    shell.call("run", "relu.onnx", "--backend", "pulsar2", "--out", "one", "--no-cache")
    assert not (shell.folder / "one/compiled").exists()


def test_a_configuration_that_the_tool_does_not_take_is_told_once(shell: Shell) -> None:
    """An older release lacks a field that the documents have."""
    tool(shell, "--lacks", "transformer_opt_level", "--record", str(shell.folder / "record"))

    option = ("--option", "quant.transformer_opt_level=1")
    done = shell.call("run", small(shell.folder), "--backend", "pulsar2", *option)

    assert done.err.splitlines()[-1] == (
        "onnx-bisect: pulsar2 does not take the configuration, whatever the model: "
        'Message type "pulsar2.build.QuantConfig" has no field named "transformer_opt_level"'
    )
    assert done.code == 3
    assert len(list((shell.folder / "record").iterdir())) == 1


@pytest.mark.long
def test_layers_that_lose_too_much_are_culprits(shell: Shell) -> None:
    tool(shell, "--cosine", "Add=0.91", "--cosine", "Relu=0.5")
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y)
    { a = Abs(x)  b = Relu(a)  c = Add(a, b)  y = Sigmoid(c) }"""
    model = parser.parse_model(text)
    for node in model.graph.node:
        node.name = f"make_{node.output[0]}"
    onnx.save(model, shell.folder / "net.onnx")

    worst = shell.report("net.onnx", "--backend", "pulsar2", "--option", "least_cosine=0.9")
    both = shell.report("net.onnx", "--backend", "pulsar2", "--option", "least_cosine=0.95")

    assert culprits(worst) == [["make_b"]]
    assert culprits(both) == [["make_b"], ["make_c"]]
    assert {it["failure"] for it in both["culprits"]} == {"numeric"}
    assert (
        "has a cosine of 0.5, less than 0.95"
        in next(it for it in both["culprits"] if it["nodes"] == ["make_b"])["message"]
    )
    assert [row[0] for row in both["tables"][0]["rows"]][:2] == ["make_b", "make_c"]
