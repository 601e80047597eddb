"""Shows and writes the results of a submitted job."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from onnx_bisect import RemoteJob
from onnx_bisect.client import failure
from onnx_bisect.job_documents import TargetStatus
from onnxbisect.errors import OnnxBisectError
from onnxbisect.language import _
from onnxbisect.report.text import clean
from onnxbisect.verdict import Status
from onnxbisect_cli.parameters import Format
from onnxbisect_cli.reports import exit_code, relabelled, render, render_overview, write_files, write_overview
from onnxbisect_cli.speech import say, spoken, terminal_width


def show(
    job: RemoteJob, targets: Sequence[TargetStatus], labels: Sequence[str], out: Path | None, form: Format
) -> dict[str, int]:
    """Print and write the job's results; returns the exit status of each target."""
    ended = dict(zip(labels, targets, strict=True))
    results = {label: job.fetched(target) for label, target in ended.items() if target["state"] == "done"}
    overview = relabelled(job.client.overview(job.id), labels) if len(targets) > 1 else None
    failures = {label: failure(target) for label, target in ended.items() if label not in results}
    for label, what in failures.items():
        say(f"{label}: {what}")
    unwritten = None
    if out is not None:
        if overview is not None:
            write_overview(overview, out)
        for label, result in results.items():
            try:
                write_files(result, out if overview is None else out / label)
            except (OnnxBisectError, OSError) as error:  # without the files, the results are still printed
                unwritten = unwritten or error
    files = "" if out is None or unwritten else str(out)
    if overview is None:
        sys.stdout.write(render(results[labels[0]].report, form, files=files))
    else:
        sys.stdout.write(render_overview(overview, form, files=files))
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
    codes = {label: exit_code(result) for label, result in results.items()}
    return codes | {label: what.exit_code for label, what in failures.items()}


def show_precision(
    job: RemoteJob, targets: Sequence[TargetStatus], folders: Mapping[str, Path | None], *, verbose: bool
) -> dict[str, int]:
    """Show the nodes that must stay precise as `precision` does, and write its files below each target's folder.

    Returns the exit status of each target of which they cannot be fetched; the error goes to standard error.
    """
    from onnxbisect.precision.report import terminal  # it imports what makes reports

    codes = {}
    for (label, folder), target in zip(folders.items(), targets, strict=True):
        if target["state"] != "done":
            continue
        try:
            precision = job.precision(target["number"])
            if verbose:
                with spoken():
                    print("\n" + "\n".join(terminal(precision.report, width=terminal_width())))
            if folder is not None:
                precision.write(folder / "precision")
        except OnnxBisectError as error:
            say(f"{label}: {error}")
            codes[label] = error.exit_code
    return codes


#: Exit statuses by the verdict on the repaired model.
_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.UNRESOLVED: 3}


def show_repairs(
    model: Path, job: RemoteJob, targets: Sequence[TargetStatus], folders: Mapping[str, Path | None], *, verbose: bool
) -> dict[str, int]:
    """Show the repairs of `submit --fix` as `fix` does, and write each below its target's folder if there is one.

    Returns the exit status of each finished target. `verbose` prints the repairs to standard output. If a repair cannot
    be fetched, the error goes to standard error and gives the exit status.
    """
    from onnx_bisect.steps.repair_compiler import REPAIRED, copy_data  # these import the engine
    from onnxbisect.remedies.summary import lines

    codes = {}
    for (label, folder), target in zip(folders.items(), targets, strict=True):
        if target["state"] != "done":
            continue
        try:
            repair = job.repair(target["number"])
            codes[label] = _CODES[Status(repair.document.verdict)]
            if verbose:
                with spoken():
                    print("\n" + "\n".join(lines(repair.document, width=terminal_width())) + "\n")
            if folder is not None:
                names = repair.write(folder / "repair")
                if REPAIRED in names:
                    repaired = onnx.load(folder / "repair" / REPAIRED, load_external_data=False)
                    copy_data(repaired, model.parent, folder / "repair")
                if verbose:
                    with spoken():
                        place = f"{folder / 'repair'}{os.sep}"
                        print(clean(_("{folder} holds {files}.", folder=place, files=", ".join(names))))
        except OnnxBisectError as error:
            say(f"{label}: {error}")
            codes[label] = error.exit_code
    return codes
