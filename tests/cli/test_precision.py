"""`onnx-bisect precision` on the command line; tests/library/test_precision.py has what it finds."""

import json
import os
import re
import signal
import time

import pytest

from support.cli.command_line import Shell
from support.cli.processes import survivors
from support.precision import planted_pair


def test_the_set_is_printed_and_written_and_a_mistake_is_one_sentence(shell: Shell) -> None:
    planted_pair(shell.folder)
    words = ["precision", "net.onnx", "--backend", "onnxruntime", "--samples", "samples"]
    ended = shell.call(*words, "--at-least", "25", "--out", "out")
    assert ended.code == 1, ended.err
    assert ended.out.startswith("net.onnx\n\n2 nodes of 9 have to stay in high precision")
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
    english = (shell.folder / "out" / "precision.json").read_text()

    chinese = shell.call(*words, "--at-least", "25", "--out", "out", "--lang", "zh")
    for name in ("precision.md", "precision.html"):
        assert "必须保持高精度" in (shell.folder / "out" / name).read_text("utf-8")
    assert "个节点" not in chinese.err
    seconds = re.compile('"seconds": [0-9.]+')
    assert seconds.sub("", (shell.folder / "out" / "precision.json").read_text()) == seconds.sub("", english)

    missed = shell.call(*words, "--at-least", "999", "--out", "out")
    assert missed.code == 2
    assert missed.err.splitlines()[-1].startswith("onnx-bisect: Full precision itself has sqnr 200.0 dB")
    assert (shell.folder / "out" / "tpu_mlir.qtable").read_text() == "t3_Mul F16\nt5_Mul F16\n"
    assert shell.call(*words, "--at-least", "-50", "--out", "out").code == 0
    assert not (shell.folder / "out" / "tpu_mlir.qtable").exists()

    without = shell.call("precision", "net.onnx")
    assert (without.code, without.out) == (2, "")
    assert without.err.splitlines()[-1].endswith("say where they are with --samples PATH.")


#: The process that computes hangs once it has measured the model, whose outputs it has written by then.
HANGS = """
import sys, time
from pathlib import Path

if any(it.endswith("low_precision.py") for it in sys.orig_argv):
    import numpy

    save = numpy.savez

    def hanging(file, **arrays):
        if "reference" not in str(file):
            Path({here!r}, "hanging").touch()
            time.sleep(300)
        save(file, **arrays)

    numpy.savez = hanging
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_search_ends_at_once_and_leaves_nobody(shell: Shell, number: signal.Signals) -> None:
    planted_pair(shell.folder)
    (shell.folder / "sitecustomize.py").write_text(HANGS.format(here=str(shell.folder)))
    environment = {**shell.environment, "PYTHONPATH": str(shell.folder), "TMPDIR": str(shell.folder)}
    words = ["precision", "net.onnx", "--samples", "samples", "--out", "out"]
    with shell.start(*words, environment=environment) as process:
        try:
            give_up = time.monotonic() + 100
            while not (shell.folder / "hanging").exists():
                assert time.monotonic() < give_up
                time.sleep(0.05)
            began = time.monotonic()
            process.send_signal(number)
            process.communicate(timeout=60)
            assert time.monotonic() - began < 20
            while survivors(shell.folder):
                assert time.monotonic() - began < 20, survivors(shell.folder)
                time.sleep(0.05)
        finally:
            process.kill()
            for pid in survivors(shell.folder):
                os.kill(pid, signal.SIGKILL)
