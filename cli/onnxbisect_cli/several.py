"""`onnx-bisect run` with several compilers: one intake, one search after the other, a report for each, an overview."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.report import document
from onnxbisect.report.files import put
from onnxbisect.report.overview import Asked, overview
from onnxbisect.report.overview_forms import html, lines, markdown
from onnxbisect_backends.contract import Backend, Description
from onnxbisect_cli.arguments import Format
from onnxbisect_cli.bisection import Intake, Request, backend_of, bisected, demand_static
from onnxbisect_cli.reports import terminal_width
from onnxbisect_cli.run_job import UNRESOLVED, demand_folder, exit_code, write_files
from onnxbisect_cli.signals import Interruption

_FORMS: Mapping[Format, Callable[[Mapping[str, Any]], str]] = {
    Format.JSON: lambda found: json.dumps(found, indent=1) + "\n",
    Format.MD: markdown,
    Format.HTML: html,
}


def run(requests: Mapping[str, Request], out: Path | None, form: Format) -> int:
    """The requests by label, all about one model. Returns the exit status: the worst of the targets'.

    One that cannot be used does not stop the others; what the user got wrong stops all before any compile.
    """
    if form not in (Format.TEXT, *_FORMS):
        raise OptionError(
            f"--format {form} is for one target; of several, text, json, md and html show an overview, and --out DIR "
            f"writes every form for each of them."
        )
    if out is not None:
        demand_folder(out)
    backends = {label: _described(request) for label, request in requests.items()}
    first = next(iter(requests.values()))
    intake = Intake(first.model, first.input_shapes)
    for known in backends.values():
        if not isinstance(known, str):
            demand_static(intake.model, *known)
    asked: list[Asked] = []
    worst, interrupted, unwritten = 0, Interruption(), None
    for number, (label, request) in enumerate(requests.items(), 1):
        head = Asked(label=label, backend=request.backend or "")
        known = backends[label]
        if interrupted.number is not None:
            asked.append(_without(head, "the run was interrupted before its turn", ended=True))
            continue
        print(f"onnx-bisect: target {number} of {len(requests)}, {label}", file=sys.stderr, flush=True)
        try:
            if isinstance(known, str):
                raise BackendUnusableError(known)
            with bisected(request, intake) as found:
                report = document(found.job)
                asked.append(Asked(label=label, backend=head.backend, report=report))
                worst, interrupted = max(worst, exit_code(found.job)), found.interruption
                if out is not None:
                    write_files(found, report, out / label)
        except BackendUnusableError as error:
            print(f"onnx-bisect: {label}: {error}", file=sys.stderr)
            asked.append(_without(head, str(error)))
            worst = UNRESOLVED
        except OSError as error:  # a full disk must not cost the other targets
            unwritten = error
    table = overview(intake.model, asked)
    if out is not None and unwritten is None:
        for kind, write in _FORMS.items():
            put(out / f"overview.{kind}", write(table).encode("utf-8", "backslashreplace"))
    sys.stdout.write(_shown(table, form, files="" if out is None or unwritten else str(out)))
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
    if interrupted.number is not None:
        kept = "all verdicts are kept and the same command goes on from here" if first.keep else "nothing is kept"
        print(f"onnx-bisect: interrupted; {kept}.", file=sys.stderr)
        return interrupted.exit_code
    return worst


def _described(request: Request) -> tuple[Backend, Description] | str:
    """The backend, or the sentence that says why it cannot be used; OptionError is the user's to mend."""
    try:
        backend = backend_of(request)
        return backend.check() or (backend, backend.describe())
    except BackendUnusableError as error:
        return str(error)


def _without(head: Asked, reason: str, *, ended: bool = False) -> Asked:
    return Asked(label=head.label, backend=head.backend, reason=reason, ended=ended)


def _shown(table: Mapping[str, Any], form: Format, files: str) -> str:
    if form is Format.TEXT:
        return "\n".join(lines(table, width=terminal_width(), files=files)) + "\n"
    return _FORMS[form](table)
