"""The command-line interface of `onnx-bisect backends …`."""

from typing import Annotated

import typer

from onnxbisect_cli import arguments
from onnxbisect_cli.help_page import Command
from onnxbisect_cli.parameters import BackendOptions

app = typer.Typer(rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help="The backend.")]


@app.callback(invoke_without_command=True)
def list_command(context: typer.Context) -> None:
    """List the compilers that this machine can run, and what to install for the others."""
    if context.invoked_subcommand is None:
        from onnxbisect_cli import backend_list

        raise typer.Exit(backend_list.show())


@app.command(
    "install",
    cls=Command,
    epilog="Example: onnx-bisect backends install qnn",
)
def install_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME[==VERSION]…",
            help="Compilers, in the version that comes with this program or in any that the package index has.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every version of every compiler.")] = False,
) -> None:
    """Install vendors' compilers, each in an environment of its own in the cache. Exit status 3 if one fails."""
    from onnxbisect_cli import backend_list

    raise typer.Exit(backend_list.install(names or (), everything=everything))


@app.command(
    "check",
    cls=Command,
    epilog="Example: onnx-bisect backends check ./mychip.toml",
)
def check_command(
    name: Name,
    option: BackendOptions = None,
) -> None:
    """Compile a small net and show the log, and measure which inputs and outputs the compiler takes.

    Exit status: 0 it compiles, 1 it does not, 3 no answer.
    """
    from onnxbisect_cli import backend_list

    raise typer.Exit(backend_list.check(name, arguments.key_values(option or (), "--option")))


@app.command(
    "options",
    cls=Command,
    epilog="Example: onnx-bisect backends options qnn",
)
def options_command(name: Name) -> None:
    """Show the options of a backend, as `--option` takes them."""
    from onnxbisect_cli import backend_list

    backend_list.show_options(name)
