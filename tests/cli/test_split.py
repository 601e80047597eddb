"""`split`: from a report to files that run, and what is refused on the way there."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from support.cli.command_line import Shell

MODEL = """<ir_version: 8, opset_import: ["": 17]>
net (float[2,3] x) => (float[2,3] y) {
  [a] a = Sigmoid(x)
  [b] b = Exp(a)
  [c] c = Sin(b)
  [d] d = Mul(c, a)
  [e] y = Tanh(d)
}"""
TARGET = ["--backend", "whitelist", "--option", "deny=Sin"]
#: Takes all but Sin, and leaves a file. Ops are found in the bytes: importing onnx would take ten times as long.
COMPILER = """import re, sys
ops = set(re.findall("\\x22.(Sigmoid|Exp|Sin|Mul|Tanh)", open(sys.argv[1], encoding="latin1").read()))
open(sys.argv[2] + ".bin", "w").write(" ".join(sorted(ops)))
sys.exit("Sin" in ops or ("Tanh" in ops and len(ops) < int(sys.argv[3])))
"""
#: Before it, in a folder that says so.
HANGING = """import pathlib, time
if pathlib.Path("hang").exists():
    pathlib.Path("hanging").touch()
    time.sleep(300)
"""


@pytest.fixture
def net(shell: Shell) -> Path:
    path = shell.folder / "net.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    return path


@pytest.fixture
def diagnosed(shell: Shell, net: Path) -> Path:
    """The folder with the report of a run."""
    assert shell.call("run", str(net), *TARGET, "--out", "out").code == 1
    return shell.folder / "out"


def test_a_split_is_shown_and_runs(shell: Shell, net: Path, diagnosed: Path) -> None:
    done = shell.call("split", str(net), "--report", str(diagnosed))
    assert done.code == 0
    first, counts, proof, *_ = done.out.splitlines()
    assert first == "net.onnx, split for whitelist (deny=Sin, report=all)"
    assert counts == "  2 pieces for the NPU with 80.0% of the work, 1 for the host, 2 transfers"
    assert proof.startswith("  proven: ")
    rows = [line.split() for line in done.out.splitlines() if ".onnx  " in line]
    assert rows == [
        ["00_npu.onnx", "2", "40.0%", "1", "2", "not", "known"],
        ["01_host.onnx", "1", "20.0%", "1", "1"],
        ["02_npu.onnx", "2", "40.0%", "2", "1", "not", "known"],
    ]
    assert "00_npu.onnx, 02_npu.onnx: These nodes were seen to compile as part of a larger piece" in done.out
    assert "--backend" in done.out
    script = diagnosed / "split" / "run.py"
    ran = subprocess.run(
        [sys.executable, "-I", script, "--compare", net], cwd=shell.folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "bit for bit" in ran.stdout


def test_the_reports_compiler_compiles_the_pieces(shell: Shell, net: Path, diagnosed: Path) -> None:
    done = shell.call("split", str(net), "--report", str(diagnosed / "report.json"), "--out", "there", *TARGET)
    assert done.code == 0
    manifest = json.loads((shell.folder / "there" / "split" / "manifest.json").read_text())
    assert [piece["compiled"] for piece in manifest["pieces"]] == [True, None, True]
    assert manifest["target"]["backend"] == "whitelist"
    assert "not known" not in done.out


@pytest.mark.parametrize("refuses", [False, True])
def test_what_the_compiler_makes_is_kept_and_what_it_refuses_is_told(shell: Shell, net: Path, refuses: bool) -> None:
    (shell.folder / "compiler.py").write_text(COMPILER)
    words = [sys.executable, "compiler.py", "{model}", "{out}", "3" if refuses else "0"]
    assert shell.call("run", str(net), "--out", "out", "--", *words).code == 1
    done = shell.call("split", str(net), "-r", "out", "--host-share", "0", "--", *words)
    compiled = shell.folder / "out" / "split" / "compiled"
    assert (compiled / "00_npu" / "out.bin").read_text() == "Exp Sigmoid"
    if refuses:
        assert done.code == 1
        assert "02_npu.onnx: This file was refused: Ended with exit status 1, without a word." in done.out
        assert not (compiled / "02_npu").exists()
    else:
        assert done.code == 0
        assert (compiled / "02_npu" / "out.bin").read_text() == "Mul Tanh"


def test_more_may_move_to_the_host(shell: Shell, net: Path, diagnosed: Path) -> None:
    assert shell.call("split", str(net), "-r", str(diagnosed), "--host-share", "0.5").code == 0
    manifest = json.loads((diagnosed / "split" / "manifest.json").read_text())
    assert [piece["kind"] for piece in manifest["pieces"]].count("npu") == 1


def test_a_report_of_another_model_is_refused(shell: Shell, net: Path, diagnosed: Path) -> None:
    other = onnx.load(net)
    other.graph.node[0].op_type = "Tanh"
    onnx.save(other, shell.folder / "other.onnx")
    done = shell.call("split", "other.onnx", "--report", str(diagnosed))
    assert done.code == 2
    assert "is the report of another model, net.onnx (" in done.sentence()
    assert not (diagnosed / "split").exists()


def test_another_target_than_the_reports_is_refused(shell: Shell, net: Path, diagnosed: Path) -> None:
    done = shell.call("split", str(net), "-r", str(diagnosed), "--backend", "whitelist", "--option", "deny=Cos")
    assert done.code == 2
    assert done.sentence() == (
        "The report is of another target: whitelist (deny=Sin, report=all). Name that one, or none."
    )


def test_a_model_that_compiles_is_not_split(shell: Shell, net: Path) -> None:
    assert shell.call("run", str(net), "--backend", "whitelist", "--option", "deny=Cos", "--out", "out").code == 0
    done = shell.call("split", str(net), "-r", "out")
    assert done.code == 2
    assert "there is nothing to split" in done.sentence()


def test_what_is_there_is_kept(shell: Shell, net: Path, diagnosed: Path) -> None:
    assert shell.call("split", str(net), "-r", str(diagnosed)).code == 0
    (diagnosed / "split" / "run.py").write_text("mine")
    done = shell.call("split", str(net), "-r", str(diagnosed))
    assert done.code == 2
    assert "is there already" in done.sentence()
    assert (diagnosed / "split" / "run.py").read_text() == "mine"


@pytest.mark.parametrize(
    "change",
    [{"units": "0-x"}, {"units": 3}, {"verdict": []}],
)
def test_a_damaged_report_is_refused(shell: Shell, net: Path, diagnosed: Path, change: dict[str, object]) -> None:
    file = diagnosed / "report.json"
    report = json.loads(file.read_text())
    report["probes"][0] |= change
    file.write_text(json.dumps(report))
    done = shell.call("split", str(net), "-r", str(file))
    assert done.code == 2
    assert "damaged" in done.sentence()


def test_a_split_that_is_not_proven_says_so(shell: Shell) -> None:
    proto = parser.parse_model(MODEL)
    proto.graph.node[3].op_type, proto.graph.node[3].domain = "Vendor", "acme"
    proto.opset_import.add(domain="acme", version=1)
    proto.graph.node[3].output.append("more")  # of no known type
    proto.graph.node[4].op_type = "Add"
    proto.graph.node[4].input.append("more")
    onnx.save(proto, shell.folder / "custom.onnx")
    shell.call("run", "custom.onnx", *TARGET[:3], "ops=Sigmoid,Exp,Add,acme::Vendor", "--out", "out")
    done = shell.call("split", "custom.onnx", "-r", "out")
    assert done.code == 1
    assert (
        "  not proven: acme::Vendor 'd' is no op of onnxruntime, and type or shape of its output 'd' are not"
        in done.out
    )
    assert not json.loads((shell.folder / "out/split/manifest.json").read_text())["proof"]["proven"]


def test_dynamic_dimensions_are_bound_as_in_the_run(shell: Shell) -> None:
    onnx.save(parser.parse_model(MODEL.replace("[2,3]", "[n,3]")), shell.folder / "net.onnx")
    bound = ["--input-shape", "x=4,3"]
    assert shell.call("run", "net.onnx", *bound, *TARGET, "--out", "out").code == 1
    assert "onnx-bisect fix net.onnx" in (report := (shell.folder / "out" / "report.md").read_text())
    assert " --input-shape x=4,3" in report
    done = shell.call("split", "net.onnx", "-r", "out")
    assert done.code == 2
    assert done.sentence() == "Bind the dynamic dimensions of 'x' with --input-shape."
    assert shell.call("split", "net.onnx", "-r", "out", *bound).code == 0
    np.save(shell.folder / "x.npy", np.ones((4, 3), np.float32))
    script = shell.folder / "out" / "split" / "run.py"
    subprocess.run([sys.executable, "-I", script, "x.npy"], cwd=shell.folder, check=True, capture_output=True)
    with np.load(shell.folder / "outputs.npz") as outputs:
        assert outputs["y"].shape == (4, 3)


def test_an_interrupted_split_leaves_nothing(shell: Shell, net: Path) -> None:
    (shell.folder / "compiler.py").write_text(HANGING + COMPILER)
    words = [sys.executable, "compiler.py", "{model}", "{out}", "0"]
    assert shell.call("run", str(net), "--out", "out", "--", *words).code == 1
    (shell.folder / "hang").touch()
    with shell.start("split", str(net), "-r", "out", "--", *words) as process:
        try:
            give_up = time.monotonic() + 60
            while not (shell.folder / "hanging").exists():
                assert time.monotonic() < give_up, "the compiler did not start"
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err == "onnx-bisect: interrupted; nothing was written.\n"
    assert not [path.name for path in (shell.folder / "out").iterdir() if "split" in path.name]


def test_a_split_is_told_in_chinese(shell: Shell, net: Path, diagnosed: Path) -> None:
    done = shell.call("--lang", "zh_CN", "split", str(net), "--report", str(diagnosed))
    first, _counts, _proof, *rest = done.out.splitlines()
    assert first.endswith("按 whitelist (deny=Sin, report=all) 切分")
    assert "这些节点作为更大子图的一部分编译通过" in done.out
    assert not [line for line in rest if re.search("[a-z]{2,} [a-z]{2,}", line.replace(str(shell.folder), ""))]


def test_a_mistake_is_told_in_chinese(shell: Shell, net: Path, diagnosed: Path) -> None:
    done = shell.call("--lang", "zh_CN", "split", str(net), "--report", str(diagnosed), "--backend", "nobody")
    assert done.code == 2
    assert "不是有效的后端" in done.err
    assert not re.search("[a-z]{3,} [a-z]{3,}", done.err)
