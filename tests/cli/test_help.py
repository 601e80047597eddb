"""The help of every command: an example that the program takes, plain words for types, 80 columns."""

import shlex

import pytest
from typer.main import get_command

from onnxbisect_cli.main import app
from support.cli.command_line import Shell
from support.golden import same_as_golden

PROGRAM = get_command(app)


def _all() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in PROGRAM.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        found += [(name, each) for each in below] or [(name,)]
    return found


@pytest.mark.parametrize("words", _all(), ids=" ".join)
def test_a_commands_help_has_an_example_and_fits(shell: Shell, words: tuple[str, ...]) -> None:
    shown = shell.call(*words, "--help").out
    assert max(map(len, shown.splitlines())) <= 80
    assert not [line for line in shown.splitlines() if "<list" in line or "<Path" in line or " range>" in line]
    (_, example) = shown.split("Example: onnx-bisect ")
    typed = shlex.split(example.split("\n\n")[0])
    assert tuple(typed[: len(words)]) == words
    command = PROGRAM
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in typed if word.startswith("-")} <= known


def test_commands_stand_in_groups_with_whole_sentences(shell: Shell) -> None:
    shown = shell.call("--help").out
    assert "..." not in shown.partition("\n\n")[2]
    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Options:",
        "Diagnose and repair a model:",
        "Look at models and reports:",
        "Compilers:",
        "The service:",
    ]


@pytest.mark.parametrize("command", ["fix", "regress", "run", "submit"])
def test_the_options_of_a_command_stay(shell: Shell, command: str) -> None:
    assert same_as_golden(f"help_{command}.txt", shell.call(command, "--help").out)
