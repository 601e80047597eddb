"""`onnx-bisect precision` on the command line; tests/library/test_precision.py has what it finds."""

import json

from support.cli.command_line import Shell
from support.precision import planted_pair


def test_the_set_is_printed_and_written_and_a_mistake_is_one_sentence(shell: Shell) -> None:
    planted_pair(shell.folder)
    words = ["precision", "net.onnx", "--backend", "onnxruntime", "--samples", "samples"]
    ended = shell.call(*words, "--at-least", "25", "--out", "out")
    assert ended.code == 1, ended.err
    assert ended.out.startswith("2 nodes of 9 have to stay in high precision")
    assert "1  9 nodes kept: 200.0 dB (everything in high precision, onnxruntime)" in ended.err
    assert {it.name for it in (shell.folder / "out").iterdir()} == {
        "asks.jsonl",
        "errors.svg",
        "mixed.onnx",
        "mixed16.onnx",
        "precision.html",
        "precision.json",
        "precision.md",
        "precision.svg",
        "pulsar2.json",
        "rewritten.onnx",
        "rknn.hybrid.yaml",
        "tensorrt.txt",
        "tpu_mlir.qtable",
    }
    again = shell.call(*words, "--at-least", "25", "--out", "out", "--format", "json")
    assert (again.code, json.loads(again.out)["resumed"]) == (1, 8)

    missed = shell.call(*words, "--at-least", "999", "--out", "out")
    assert missed.code == 2
    assert missed.err.splitlines()[-1].startswith("onnx-bisect: Full precision itself has sqnr 200.0 dB")
    assert (shell.folder / "out" / "tpu_mlir.qtable").read_text() == "t3_Mul F16\nt5_Mul F16\n"
    assert shell.call(*words, "--at-least", "-50", "--out", "out").code == 0
    assert not (shell.folder / "out" / "tpu_mlir.qtable").exists()

    without = shell.call("precision", "net.onnx")
    assert (without.code, without.out) == (2, "")
    assert without.err.splitlines()[-1].endswith("say where they are with --samples PATH.")
