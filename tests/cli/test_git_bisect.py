"""`--exit-status git-bisect`: the statuses that `git bisect run` reads, and docs/ci.md's command followed."""

import re
import subprocess
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from onnxbisect_cli.exit_status import as_git_bisect_reads, for_git_bisect
from support.cli.command_line import PROGRAM

DOCUMENT = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
WANTED = ("--exit-status", "git-bisect")
DENYING = ("--backend", "whitelist", "--option", "deny=Sin", "--no-cache", *WANTED)


def model(path: Path, op: str) -> Path:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    save(helper.make_model(helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", value[:1], value[1:])), path)
    return path


def ends(folder: Path, *arguments: str | Path) -> int:
    command = [PROGRAM, "run", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("op", "arguments", "status"),
    [
        ("Relu", DENYING, 0),
        ("Sin", DENYING, 1),
        ("Sin", (*DENYING, "--budget-calls", "1"), 1),
        ("Sin", (*WANTED, "--backend", "no-such"), 125),
        ("Sin", ("--exit-status=git-bisect", "--no-such"), 125),
        ("Sin", (*DENYING, "--backend", "onnxruntime"), 125),
        ("Sin", (*WANTED, "--no-cache", "--timeout", "0.5", "--", "sleep", "9"), 125),
        ("Sin", ("--backend", "no-such", "--", "a", *WANTED), 2),
    ],
)
def test_what_git_is_told(tmp_path: Path, op: str, arguments: tuple[str, ...], status: int) -> None:
    assert ends(tmp_path, model(tmp_path / "net.onnx", op), *arguments) == status


def test_a_file_that_is_no_model_cannot_be_tested(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no model")
    assert ends(tmp_path, "net.onnx", *DENYING) == 125


def test_an_interrupted_search_ends_the_bisection() -> None:
    assert [as_git_bisect_reads(code) for code in (0, 1, 2, 3, 127, 128, 130, 143)] == [
        0,
        1,
        125,
        125,
        125,
        128,
        130,
        143,
    ]
    assert not for_git_bisect(["run", "m.onnx", "--", "tool", *WANTED])
    assert not for_git_bisect(["run", "git-bisect"])


@pytest.mark.long
def test_git_finds_the_commit_with_the_command_of_the_document(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        named = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
        return subprocess.run(named, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet")
    (tmp_path / "models").mkdir()
    for number, op in enumerate(["Relu", "Abs", "Neg", "Sin", "Sin", "Sin"]):
        model(tmp_path / "models" / "decoder.onnx", op)
        (tmp_path / "number").write_text(str(number))
        git("add", ".")
        git("commit", "--quiet", "--message", f"commit {number}")
        if number == 0:
            git("tag", "v1.2")
    [start, run] = re.findall(r"^git (bisect (?:start|run) .*)$", DOCUMENT, re.MULTILINE)
    git(*start.split())
    said = git(*run.replace("onnx-bisect run", f"{PROGRAM} run").replace("qnn", "whitelist --option deny=Sin").split())
    assert re.search(r"is the first (?:'?bad'?|bad) commit", said)
    assert "commit 3" in said
