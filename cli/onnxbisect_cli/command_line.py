"""Commands that take another command after `--`: what stands there is never taken for a model, nor the reverse."""

import typer
from typer.core import TyperCommand

_AFTER = "onnxbisect_cli.after"

#: The end of the help of such commands.
EPILOG = (
    "COMMAND is any compiler, '{model}' standing for the file to compile. Exit status 0 is a pass, 125 no answer, "
    "anything else a failure."
)


class TakesCommand(TyperCommand):
    """Keeps what stands after `--` for `command_of`, and parses what stands before it."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override] # typer's own click
        """Parse what stands before the first `--`."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_AFTER] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # typer's own click
        """What the first line of the help shows."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND]"]


def command_of(ctx: typer.Context) -> tuple[str, ...]:
    """The words after `--`."""
    found: tuple[str, ...] = ctx.meta[_AFTER]
    return found
