"""`onnx-bisect run`: search, then say on the screen and in files what was found."""

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from onnxbisect.errors import OptionError
from onnxbisect.report import model_explorer
from onnxbisect.report.document import document
from onnxbisect.report.files import culprit_dirs, put, write
from onnxbisect.report.graph import network_of
from onnxbisect.report.text import plural
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.culprit_files import DATA_NAME, LOG_NAME
from onnxbisect_backends.probing.prober import PROBE_NAME
from onnxbisect_cli.arguments import Format
from onnxbisect_cli.bisection import Bisected, Request, bisected
from onnxbisect_cli.fix_hint import fix_hint
from onnxbisect_cli.reports import render

#: The model compiles; culprits were found; nothing is known.
COMPILES, CULPRITS, UNRESOLVED = 0, 1, 3


def run(request: Request, out: Path | None, form: Format) -> int:
    """Returns the exit status. The report goes to standard output, everything else to standard error."""
    if out is not None:
        demand_folder(out)
    with bisected(request) as found:
        report = document(found.job)
        unwritten = None
        if out is not None:
            try:
                write_files(found, report, out)
            except OSError as error:  # a full disk must not cost the answer, too
                unwritten = error
        sys.stdout.write(render(report, form, files="" if out is None or unwritten else str(out)))
        sys.stdout.flush()
        if unwritten is not None:
            raise unwritten
    interruption = found.interruption
    if interruption.number is not None:
        calls = plural(found.job.stats.compiler_calls, "compiler call")
        kept = "their verdicts are kept and the same command goes on from here" if request.keep else "nothing is kept"
        print(f"onnx-bisect: interrupted after {calls}; {kept}.", file=sys.stderr)
        return interruption.exit_code
    if out is None and found.job.diagnosis.culprits:
        print("onnx-bisect: --out DIR writes the reports and a model.onnx for each culprit.", file=sys.stderr)
    for line in fix_hint(found.job, request):
        print(f"onnx-bisect: {line}", file=sys.stderr)
    return exit_code(report)


def exit_code(report: Mapping[str, Any]) -> int:
    """0 where the whole model compiles, 1 where culprits were found, 3 where there is no answer."""
    if report["verdict"] == Status.PASS:
        return COMPILES
    return CULPRITS if report["culprits"] else UNRESOLVED


def write_files(found: Bisected, report: dict[str, object], out: Path) -> None:
    """The report in every form, and the culprits' files; OSError where they cannot be written."""
    culprits = report["culprits"]
    assert isinstance(culprits, list)  # noqa: S101 - the document is ours
    files = {}
    for culprit, folder, of_culprit in zip(culprits, culprit_dirs(report), found.culprit_files, strict=True):
        for name in {PROBE_NAME, DATA_NAME, LOG_NAME} - set(of_culprit):
            (out / folder / name).unlink(missing_ok=True)  # an earlier run's file proves nothing about this one
        if of_culprit:
            files[culprit["id"]] = of_culprit
        else:
            culprit["repro"] = None
            print(
                f"onnx-bisect: {folder} has no {PROBE_NAME}: the search ended before that file was seen to fail.",
                file=sys.stderr,
            )
    write(report, out, files)
    network = network_of(found.job.model)
    for name, content in model_explorer.files(network, report).items():
        (out / name).parent.mkdir(exist_ok=True)
        put(out / name, content)


def demand_folder(out: Path) -> None:
    """OptionError where nothing can be written there: before minutes of compiling, not after."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--out {out} cannot be a folder: {error.strerror or error}.") from error
    try:
        TemporaryFile(dir=out).close()
    except OSError as error:
        raise OptionError(f"--out {out} cannot be written to: {error.strerror or error}.") from error
