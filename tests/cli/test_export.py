"""`onnx-bisect export` on the command line; tests/library/test_export.py has what it finds."""

import json
import sys
from pathlib import Path

import pytest

from onnxbisect_backends.toolchains.toolchain import toolchain
from support.cli.command_line import Shell

MODEL = """
import torch
class Half(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x / 2
        return x
class Box:
    def __init__(self, x):
        self.x = x
class Pack(torch.nn.Module):
    def forward(self, x):
        return Box(x.tanh())
class Unpack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Half()
    def forward(self, box):
        return self.gate(box.x)
def plain():
    return torch.nn.Tanh(), (torch.ones(2),)
def build():
    return torch.nn.Sequential(Pack(), Unpack()), [((torch.ones(3),), {}), ((-torch.ones(3),), {})]
"""


def test_a_mistake_is_one_sentence_and_exit_status_2(shell: Shell) -> None:
    (shell.folder / "model.py").write_text("def build(): ...")
    ended = shell.call("export", "model.py:build", "--python", sys.executable)
    assert ended.code == 2
    assert ended.err.startswith(f"onnx-bisect: {sys.executable} has no torch")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.compiler
def test_a_branch_is_named_with_its_line(shell: Shell) -> None:
    found = toolchain("torch")
    if not found.installed:
        pytest.skip(found.missing or "")
    (shell.folder / "model.py").write_text(MODEL)
    words = ["export", "model.py:plain,build", "--python", str(found.python), "--set", "exporter=legacy"]
    ended = shell.call(*words, "--format", "json", "--out", "out")
    assert ended.code == 1, ended.err
    plain, report = json.loads(ended.out)
    assert (plain["source"], plain["proven"], plain["culprits"]) == ("model.py:plain", True, [])
    (culprit,) = report["culprits"]
    assert (culprit["path"], culprit["kind"], culprit["place"]["line"]) == ("1.gate", "branch on values", 5)
    assert report["proven"]
    assert report["notes"][-1] == "Not asked alone, since they take or return other things than tensors: 0, 1."
    sarif = json.loads(Path(shell.folder, "out", "build", "export.sarif").read_text())
    place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("model.py", 5)
    assert "model.py:5" in Path(shell.folder, "out", "build", "export.html").read_text()
    assert Path(shell.folder, "out", "plain", "parts.toml").exists()
    assert Path(shell.folder, "out", "build", "export.md").read_text().startswith("# `model.py:build`")
    assert "model: does not export" in ended.err
