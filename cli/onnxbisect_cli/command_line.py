"""Commands that take another command after `--`, whose words are never parsed as models or options."""

import typer

from onnxbisect_cli.help_page import Command

_AFTER = "onnxbisect_cli.after"

#: The last paragraph of the help of commands that take another command, behind the example.
EPILOG = (
    "\n\nCOMMAND is any compiler, '{model}' standing for the file to compile. Exit status 0 is a pass, 125 no answer, "
    "anything else a failure."
)


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
