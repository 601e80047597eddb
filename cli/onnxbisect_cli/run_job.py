"""`onnx-bisect run`: searches, then reports on the screen and in files."""

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from onnxbisect.language import english
from onnxbisect.report.next_steps import TypedCommand, bound_inputs
from onnxbisect.report.text import plural
from onnxbisect.verdict import Status
from onnxbisect_cli.arguments import Format, demand_folder
from onnxbisect_cli.bisection import SearchRequest, bisected
from onnxbisect_cli.exit_status import ExitStatus
from onnxbisect_cli.reports import render
from onnxbisect_cli.results import CULPRITS, exit_code, fresh_folder, write_files
from onnxbisect_cli.speech import say


def run(request: SearchRequest, out: Path | None, form: Format, exit_status: ExitStatus = ExitStatus.USUAL) -> int:
    """Diagnose the model and write the report to standard output; returns the exit status.

    Everything else goes to standard error. With `out`, the reports and culprits are also written to that folder.
    """
    if out is not None:
        demand_folder(out)
        request = replace(request, artifacts=fresh_folder(out))
    result, interruption = bisected(request)
    unwritten = None
    if out is not None:
        try:
            write_files(result, out)
        except OSError as error:  # on a full disk the report is still printed
            unwritten = error
    files = "" if out is None or unwritten else str(out)
    text = render(result.report, form, files=files, typed=typed(request, files))
    if form is Format.TEXT:
        print_report(text, compiles={Status.PASS: True, Status.FAIL: False}.get(result.verdict))
    else:
        sys.stdout.write(text)
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
    if interruption.number is not None:
        calls = plural(result.stats.compiler_calls, "compiler call")
        go_on = english("their verdicts are kept and the same command goes on from here")
        rest = go_on if request.cache else english("nothing is kept")
        say(f"interrupted after {calls}; {rest}.")
        return interruption.exit_code
    if out is None and result.culprits:
        say("--out DIR writes the reports and a model.onnx for each culprit.")
    if exit_status is ExitStatus.GIT_BISECT and result.verdict is Status.FAIL:
        return CULPRITS  # also where a budget ended the search before it found one
    return exit_code(result)


def typed(request: SearchRequest, files: str) -> TypedCommand:
    """The words of a `run` command that other commands repeat; `files` is the report's folder, or empty."""
    words = [] if request.backend is None else ["--backend", request.backend]
    for key, value in request.options.items():
        words += ["--option", f"{key}={value}"]
    if request.calibration is not None:  # answers are kept by samples: without them the diagnosis would begin anew
        words += ["--samples", str(request.calibration)]
    inputs = bound_inputs(request.input_shapes, request.input_values)
    return TypedCommand(
        model=str(request.model), target=words, inputs=inputs, command=request.command or (), files=files
    )


#: How a line begins, below the headline, and its style.
_STYLES = (
    ("  proven:", "green"),
    ("  bounded:", "yellow"),
    ("  unknown:", "yellow"),
    ("  next:", "bold"),
    ("        onnx-bisect ", "cyan"),
    ("  refused ", "red"),
    ("  unknown ", "yellow"),
    ("  compiles ", "green"),
)


def print_report(text: str, *, compiles: bool | None) -> None:
    """Write a report's lines to standard output; `compiles` is the verdict of its headline, None if there is none."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    console = Console(highlight=False)
    headline = {True: "bold green", False: "bold red", None: "bold yellow"}[compiles]
    for number, line in enumerate(text.splitlines()):
        found = (style for prefix, style in _STYLES if line.startswith(prefix))
        style = headline if number == 0 else next(found, "")
        console.print(Text(line, style=style), soft_wrap=True)
