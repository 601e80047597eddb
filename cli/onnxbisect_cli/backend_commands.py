"""The command-line interface of `onnx-bisect backends …`, and of commands that write a profile of a compiler."""

from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.terms import BudgetSeconds, Timeout
from onnxbisect_cli import parameters
from onnxbisect_cli.help_page import COMPILERS, Command

app = typer.Typer(rich_markup_mode=None)
profiles = typer.Typer(rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help="The backend.")]
_Profile = Annotated[Path, typer.Option("-o", "--output", metavar="PROFILE.toml", help="Where to write the profile.")]


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
@parameters.takes_terms
def check_command(
    name: Name,
    option: parameters.BackendOptions = None,
) -> None:
    """Compile a small net and show the log, and measure which inputs and outputs the compiler takes.

    Exit status: 0 it compiles, 1 it does not, 3 no answer.
    """
    from onnxbisect_cli import backend_list

    raise typer.Exit(backend_list.check(name, option or {}))


@app.command(
    "options",
    cls=Command,
    epilog="Example: onnx-bisect backends options qnn",
)
def options_command(name: Name) -> None:
    """Show the options of a backend, as `--option` takes them."""
    from onnxbisect_cli import backend_list

    backend_list.show_options(name)


@profiles.command(
    "op-table",
    cls=Command,
    rich_help_panel=COMPILERS,
    short_help="Measure which ops a compiler takes.",
    epilog="Example: onnx-bisect op-table --backend qnn -o qnn.toml",
)
@parameters.takes_terms
def op_table_command(
    backend: parameters.BackendName,
    output: _Profile,
    option: parameters.BackendOptions = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="OP,OP,…", help="Ask about these ops only; repeatable.")
    ] = None,
    jobs: parameters.Jobs = 1,
    budget_seconds: BudgetSeconds = None,
    timeout: Timeout = None,
    no_cache: parameters.NoCache = False,
) -> None:
    """Compile ONNX's own tests of every op; write which ones the compiler accepts as a profile for the whitelist
    backend.
    """
    from onnxbisect_cli import op_table

    status = op_table.write_profile(
        backend,
        output,
        options=option or {},
        ops=parameters.names(only or ()),
        jobs=jobs,
        timeout=timeout,
        budget_seconds=budget_seconds,
        cache=not no_cache,
    )
    raise typer.Exit(status)


@profiles.command(
    "profile",
    cls=Command,
    rich_help_panel=COMPILERS,
    short_help="Record which ops a compiler took in runs.",
    epilog="Example: onnx-bisect profile --from out -o mychip.toml",
)
def profile_command(
    reports: Annotated[
        list[Path],
        typer.Option("--from", metavar="REPORT", help="A report.json, or the folder that one is in; repeatable."),
    ],
    output: _Profile,
    more: Annotated[list[Path] | None, typer.Argument(metavar="REPORT", help="More reports.")] = None,
) -> None:
    """Make a profile for the whitelist backend from reports of runs on a compiler. Runs no compiler.

    The profile supports the ops that passed, as far as the reports show them, and refuses those that were refused.
    All other ops are unknown.
    """
    from onnxbisect_cli import op_table

    op_table.write_recorded([*reports, *(more or ())], output)
