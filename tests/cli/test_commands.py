"""`inspect`, `extract`, `backends` and `report`."""

import json
import os
import subprocess

import onnx
import pytest

from support.cli.command_line import CASES, PROGRAM, Shell

C2 = str(CASES / "c2_chain100_3bad.onnx")


def test_inspect_counts_ops_and_variants(shell: Shell) -> None:
    done = shell.call("inspect", C2)
    assert done.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line and not line.startswith(" ")}
    assert rows["Asinh"] == ["1", "1"]
    assert rows["Abs"] == ["25", "1"]
    assert "100 nodes" in done.out
    assert "Preflight:" in done.out


def test_inspect_shows_findings_with_why_and_fix(shell: Shell) -> None:
    done = shell.call("inspect", str(CASES / "c12_custom_domain.onnx"))
    assert "AcmeNorm" in done.out
    assert "why:" in done.out
    assert "fix:" in done.out


def test_extract_by_nodes(shell: Shell) -> None:
    names = [node.name for node in onnx.load(C2).graph.node][17:20]
    done = shell.call("extract", C2, "--nodes", ",".join(names[:2]), "--nodes", names[2], "-o", "piece.onnx")
    assert done.code == 0
    piece = onnx.load(shell.folder / "piece.onnx")
    onnx.checker.check_model(piece)
    assert [node.name for node in piece.graph.node] == names


def test_extract_by_tensors(shell: Shell) -> None:
    nodes = onnx.load(C2).graph.node
    done = shell.call(
        "extract", C2, "--inputs", nodes[30].input[0], "--outputs", nodes[34].output[0], "-o", "piece.onnx"
    )
    assert done.code == 0
    piece = onnx.load(shell.folder / "piece.onnx")
    assert [node.name for node in piece.graph.node] == [node.name for node in nodes[30:35]]
    assert [value.name for value in piece.graph.input] == [nodes[30].input[0]]


def test_extract_by_module(shell: Shell) -> None:
    """The mask decoder of Segment Anything has its prompt encoder in `/prompt_encoder`."""
    decoder = str(CASES.parents[1] / "examples" / "sam_decoder.onnx")
    done = shell.call("extract", decoder, "--scope", "/prompt_encoder", "-o", "prompt.onnx")
    assert done.code == 0
    piece = onnx.load(shell.folder / "prompt.onnx")
    onnx.checker.check_model(piece, full_check=True)
    assert {node.name.split("/")[1] for node in piece.graph.node if node.op_type != "Constant"} == {"prompt_encoder"}
    assert {"Sin", "Cos", "Abs"} <= {node.op_type for node in piece.graph.node}
    assert "Shape" not in {node.op_type for node in piece.graph.node}


def test_extract_names_the_nearest(shell: Shell) -> None:
    done = shell.call("extract", C2, "--nodes", "n17_Asin", "-o", "piece.onnx")
    assert done.code == 2
    assert "n17_Asinh" in done.sentence()
    assert not (shell.folder / "piece.onnx").exists()


def test_backends_are_listed_with_their_versions(shell: Shell) -> None:
    import onnxruntime

    done = shell.call("backends")
    assert done.code == 0
    assert f"usable onnxruntime {onnxruntime.__version__}" in " ".join(done.out.split())
    assert "whitelist" in done.out


def test_a_report_can_be_shown_again_in_any_form(shell: Shell) -> None:
    run = shell.call("run", C2, "--out", "out", "--backend", "whitelist", "--option", "deny=Asinh")
    shown = {}
    for form in ("text", "json", "md", "html", "junit", "sarif", "gitlab"):
        again = shell.call("report", "out", "--format", form)
        assert again.code == 0, form
        assert "n17_Asinh" in again.out, form
        shown[form] = again.out
    assert shown["text"].splitlines()[0] == run.out.splitlines()[0]
    for form in ("sarif", "gitlab"):
        json.loads(shown[form])
    assert shown["json"] == (shell.folder / "out" / "report.json").read_text()


@pytest.mark.parametrize(
    ("typed", "offered"), [("ru", {"run", "rules"}), ("run --back", {"--backend"}), ("run net.onnx -- cc", set())]
)
def test_a_shell_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    words = f"onnx-bisect {typed}"
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_ONNX_BISECT_COMPLETE": "complete_bash"}
    done = subprocess.run([PROGRAM], env=os.environ | asked, text=True, capture_output=True, check=False, timeout=60)
    assert (set(done.stdout.split()), done.stderr) == (offered, "")
