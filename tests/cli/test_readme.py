"""The README shows what the program prints today."""

import re
from pathlib import Path

from command_line import Shell

ROOT = Path(__file__).parents[2]


def test_the_report_in_the_readme_is_that_of_the_demo(shell: Shell) -> None:
    shown = re.search(r"```console\n\$ onnx-bisect (.*)\n(?P<report>(?:.*\n)+?)```", (ROOT / "README.md").read_text())
    assert shown is not None
    (command, model, *options) = shown[1].split()
    assert shown[1] in (ROOT / "Makefile").read_text()
    printed = shell.call(command, str(ROOT / model), *options).out
    assert untimed(printed) == untimed(shown["report"])


def untimed(report: str) -> list[str]:
    """The lines of a report without the seconds it took and the digest of the profile."""
    return [re.sub(r"\d+\.\d s|\[\w{8}\]", "…", line) for line in report.splitlines()]
