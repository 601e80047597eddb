"""The command-line interface of commands that write a profile for the whitelist backend."""

from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.terms import BudgetSeconds, Timeout
from onnxbisect_cli import arguments
from onnxbisect_cli.help_page import COMPILERS, Command
from onnxbisect_cli.parameters import BackendName, BackendOptions, Jobs, NoCache, takes_terms

app = typer.Typer(rich_markup_mode=None)

_Profile = Annotated[Path, typer.Option("-o", "--output", metavar="PROFILE.toml", help="Where to write the profile.")]


@app.command(
    "op-table",
    cls=Command,
    rich_help_panel=COMPILERS,
    short_help="Measure which ops a compiler takes.",
    epilog="Example: onnx-bisect op-table --backend qnn -o qnn.toml",
)
@takes_terms
def op_table_command(
    backend: BackendName,
    output: _Profile,
    option: BackendOptions = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="OP,OP,…", help="Ask about these ops only; repeatable.")
    ] = None,
    jobs: Jobs = 1,
    budget_seconds: BudgetSeconds = None,
    timeout: Timeout = None,
    no_cache: NoCache = False,
) -> None:
    """Compile ONNX's own tests of every op; write which ones the compiler accepts as a profile for the whitelist
    backend.
    """
    from onnxbisect_cli import op_table

    status = op_table.write_profile(
        backend,
        output,
        options=arguments.key_values(option or (), "--option"),
        ops=arguments.names(only or ()),
        jobs=jobs,
        timeout=timeout,
        budget_seconds=budget_seconds,
        cache=not no_cache,
    )
    raise typer.Exit(status)


@app.command(
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
