"""`onnx-bisect run`: searches, then reports on the screen and in files."""

import sys
from dataclasses import replace
from pathlib import Path

from onnxbisect.report.text import clean, plural
from onnxbisect.verdict import Status
from onnxbisect_cli.arguments import Format, demand_folder
from onnxbisect_cli.bisection import Request, bisected
from onnxbisect_cli.colours import print_report
from onnxbisect_cli.exit_status import ExitStatus
from onnxbisect_cli.reports import render
from onnxbisect_cli.results import CULPRITS, exit_code, fresh_folder, write_files
from onnxbisect_cli.typed import typed


def run(request: Request, out: Path | None, form: Format, exit_status: ExitStatus = ExitStatus.USUAL) -> int:
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
        kept = "their verdicts are kept and the same command goes on from here" if request.cache else "nothing is kept"
        print(clean(f"onnx-bisect: interrupted after {calls}; {kept}."), file=sys.stderr)
        return interruption.exit_code
    if out is None and result.culprits:
        print("onnx-bisect: --out DIR writes the reports and a model.onnx for each culprit.", file=sys.stderr)
    if exit_status is ExitStatus.GIT_BISECT and result.verdict is Status.FAIL:
        return CULPRITS  # also where a budget ended the search before it found one
    return exit_code(result)
