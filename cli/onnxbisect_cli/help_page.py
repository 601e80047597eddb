"""How the help of a command looks: commands and options in groups, no types of Python; and words after `--`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# The groups of commands, and of options beside those of `onnxbisect.terms`; both in the order of their first member.
DIAGNOSE = "Diagnose and repair a model"
FILES = "Look at models and reports"
COMPILERS = "Compilers"
SERVICE = "The service"
TARGET = "Compiler"

#: What typer shows as the type of a parameter, and what a reader types there.
_TYPES = (
    (re.compile(r"<(?:list\[)?(?:path|str)\]?>", re.IGNORECASE), "TEXT"),
    (re.compile(r"<(?:int|float)(?: range)?>"), "NUMBER"),
)

_AFTER = "onnxbisect_cli.after"

#: The last paragraph of the help of commands that take another command, behind the example.
EPILOG = (
    "\n\nCOMMAND is any compiler, '{model}' standing for the file to compile. Exit status 0 is a pass, 125 no answer, "
    "anything else a failure."
)


class Command(TyperCommand):
    """A command whose help has options in groups, by their `rich_help_panel`."""

    def format_options(self, ctx, formatter) -> None:  # type: ignore[no-untyped-def] # the types are typer's own click
        """Write arguments and options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            if parameter.param_type_name == "argument":
                groups.setdefault("Arguments", []).append((record[0].partition(" <")[0], record[1]))
            else:
                name = record[0]
                for pattern, word in _TYPES:
                    name = pattern.sub(word, name)
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(
                    (name, record[1])
                )
        _write(formatter, groups)


class TakesCommand(Command):
    """Keeps the words after `--` for `command_of`, and parses those before it."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override] # typer's own click
        """Parse the words before the first `--`."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_AFTER] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # typer's own click
        """The parts of the help's first line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND]"]


def command_of(ctx: typer.Context) -> tuple[str, ...]:
    """The words after `--`."""
    found: tuple[str, ...] = ctx.meta[_AFTER]
    return found


class Commands(TyperGroup):
    """The program, whose help has commands in groups, each with a whole sentence."""

    def format_commands(self, ctx, formatter) -> None:  # type: ignore[no-untyped-def] # the types are typer's own click
        """Write the commands."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                group = getattr(command, "rich_help_panel", None)
                groups.setdefault(group if isinstance(group, str) else "Commands", []).append(
                    (name, command.get_short_help_str(200))
                )
        _write(formatter, groups)


def _write(formatter: Any, groups: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for title, rows in groups.items():
        with formatter.section(title):
            formatter.write_dl(rows)
