"""The commands in a report run as they stand there, from the folder of the file that shows them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli.command_line import CASES, PROGRAM, Shell

pytestmark = pytest.mark.long

C1 = str(CASES / "c1_chain100_1bad.onnx")
#: Looks for the op's type in the bytes of the file, which takes a tenth of the time of importing onnx.
REFUSE = f"""#!{sys.executable} -IS
import sys
with open(sys.argv[1], "rb") as model:
    sys.exit(b"\\x22\\x05Asinh" in model.read())
"""


def script(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(REFUSE)
    path.chmod(0o755)
    return path


def commands(out: Path) -> list[tuple[Path, str]]:
    """Each command with the folder of its file."""
    found = [(out, line) for line in re.findall(r"Reproduce: `(.*?)`", (out / "report.md").read_text())]
    for readme in (out / "culprits").glob("*/README.md"):
        found += [(readme.parent, line) for line in re.findall(r"```sh\n(.*?)\n```", readme.read_text())]
    return found


def rerun(shell: Shell, folder: Path, line: str) -> int:
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**shell.environment, "PATH": path}
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode


@pytest.mark.parametrize("out", ["deep/er/out", "../elsewhere"])
def test_a_command_of_the_user_s_own(shell: Shell, out: str) -> None:
    script(shell.folder / "tools" / "refuse.py")
    assert shell.call("run", C1, "-o", out, "--", sys.executable, "tools/refuse.py", "{model}").code == 1
    found = commands(shell.folder / out)
    assert len(found) == 2
    assert [rerun(shell, folder, line) for folder, line in found] == [1, 1], found


def test_a_toml_file_with_a_command_beside_it(shell: Shell) -> None:
    script(shell.folder / "chips" / "refuse.py")
    (shell.folder / "chips" / "chip.toml").write_text('name = "chip"\ncommand = ["./refuse.py", "{model}"]\n')
    assert shell.call("run", C1, "-b", "chips/chip.toml", "-o", "out").code == 1
    found = commands(shell.folder / "out")
    assert [rerun(shell, folder, line) for folder, line in found] == [1, 1], found
    report = json.loads((shell.folder / "out" / "report.json").read_text())
    assert report["reproduce"] == {"backend": "../chips/chip.toml"}


def test_a_backend_that_is_shipped_is_named(shell: Shell) -> None:
    shell.call("run", C1, "-b", "whitelist", "--option", "deny=Asinh", "-o", "out")
    found = commands(shell.folder / "out")
    assert [rerun(shell, folder, line) for folder, line in found] == [1, 1], found


class TestRelativeCommands:
    """Of a TOML file: beside it, then from the working directory."""

    def test_from_the_working_directory(self, shell: Shell) -> None:
        script(shell.folder / "tools" / "refuse.py")
        (shell.folder / "chips").mkdir()
        (shell.folder / "chips" / "chip.toml").write_text('name = "chip"\ncommand = ["tools/refuse.py", "{model}"]\n')
        assert shell.call("run", C1, "-b", "chips/chip.toml").code == 1

    def test_beside_the_file_comes_first(self, shell: Shell) -> None:
        script(shell.folder / "refuse.py").write_text("#!/bin/sh\nexit 0\n")
        script(shell.folder / "chips" / "refuse.py")
        (shell.folder / "chips" / "chip.toml").write_text('name = "chip"\ncommand = ["./refuse.py", "{model}"]\n')
        assert shell.call("run", C1, "-b", "chips/chip.toml").code == 1

    def test_an_edited_command_is_a_new_compiler(self, shell: Shell) -> None:
        """What the old one said is not what the new one says."""
        compiler = script(shell.folder / "refuse.py")
        (shell.folder / "chip.toml").write_text('name = "chip"\ncommand = ["./refuse.py", "{model}"]\n')
        assert shell.call("run", C1, "-b", "chip.toml").code == 1
        compiler.write_text("#!/bin/sh\nexit 0\n")
        assert shell.call("run", C1, "-b", "chip.toml").code == 0

    def test_the_error_says_where_it_was_looked_for(self, shell: Shell) -> None:
        (shell.folder / "chips").mkdir()
        (shell.folder / "chips" / "chip.toml").write_text('name = "chip"\ncommand = ["./gone.py", "{model}"]\n')
        done = shell.call("run", C1, "-b", "chips/chip.toml")
        assert done.code == 3
        sentence = done.sentence()
        assert "'./gone.py'" in sentence
        assert str(shell.folder / "chips" / "chip.toml") in sentence
        assert f"working directory {shell.folder}" in sentence

    def test_what_cannot_be_executed_is_said_to_be_so(self, shell: Shell) -> None:
        script(shell.folder / "refuse.py").chmod(0o644)
        (shell.folder / "chip.toml").write_text('name = "chip"\ncommand = ["./refuse.py", "{model}"]\n')
        assert "chmod +x" in shell.call("run", C1, "-b", "chip.toml").sentence()
