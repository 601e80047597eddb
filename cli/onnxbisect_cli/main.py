"""The `onnx-bisect` command: its subcommands, and how errors are printed.

It starts fast, because onnx, onnxruntime and the engine are imported only by the commands that need them.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.errors import OnnxBisectError, shortage
from onnxbisect.language import english
from onnxbisect_cli import (
    backend_commands,
    diagnosis_commands,
    file_commands,
    search_commands,
    service_commands,
)
from onnxbisect_cli.exit_status import as_git_bisect_reads, for_git_bisect
from onnxbisect_cli.help_page import COMPILERS, Commands
from onnxbisect_cli.speech import Lang, say

app = typer.Typer(
    name="onnx-bisect",
    cls=Commands,
    help="Find every part of an ONNX model that a compiler refuses, and prove that nothing else is wrong.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Example: onnx-bisect run model.onnx --backend qnn --out out",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(search_commands.app)
app.add_typer(diagnosis_commands.app)
app.add_typer(file_commands.app)
app.add_typer(backend_commands.profiles)
app.add_typer(backend_commands.app, name="backends", rich_help_panel=COMPILERS)
app.add_typer(service_commands.app)


#: What the extra `service` installs, as modules.
OF_THE_SERVICE = frozenset(
    [
        "alembic",
        "celery",
        "fastapi",
        "httpcore2",
        "limits",
        "multipart",
        "prometheus_client",
        "psycopg",
        "pydantic_settings",
        "python_multipart",
        "redis",
        "sqlalchemy",
        "standardwebhooks",
        "starlette",
        "uvicorn",
        "uvloop",
    ]
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"onnx-bisect {version('onnx-bisect')}")
        raise typer.Exit


@app.callback()
def _main(
    _lang: Lang = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """The entry point: runs the command, and ends with its exit status."""
    try:
        _run()
    except SystemExit as end:
        if not for_git_bisect(sys.argv):
            raise
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.exit(as_git_bisect_reads(code))


def _run() -> None:
    """Run the command. It prints tracebacks only of bugs, and only if `ONNXBISECT_DEBUG` is set."""
    # onnxruntime's official builds send telemetry to Microsoft by default; models are confidential.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # some service managers start programs without it; files must still be written
            setattr(sys, stream, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    try:
        app()
    except OnnxBisectError as error:
        _end(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe; without this, flushing at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        _end(english("this machine has not enough memory for that."), 3)
    except OSError as error:
        if (short := shortage(error)) is not None:
            _end(str(short), short.exit_code)
        where = f" '{error.filename}'" if error.filename else ""
        _end(f"{error.strerror or error}{where}.", 2)
    except Exception as error:
        missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if missing == "mcp" or missing in OF_THE_SERVICE:
            extra = "mcp" if missing == "mcp" else "service"
            needed = english(
                "this command needs {missing}, which comes with pip install 'onnx-bisect[{extra}]'.",
                missing=missing,
                extra=extra,
            )
            _end(needed, 2)
        if os.environ.get("ONNXBISECT_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}"
        _end(f"this is a bug in onnx-bisect ({what}); please report it with the output under ONNXBISECT_DEBUG=1.", 3)


def _end(sentence: str, code: int) -> None:
    say(sentence)
    sys.exit(code)
