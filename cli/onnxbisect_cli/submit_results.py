"""Shows and writes the results of a submitted job, or those of a job for each of several models, as one table."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from onnx_bisect import Client, Part, RemoteJob
from onnx_bisect.client import failure
from onnx_bisect.job_documents import TargetStatus
from onnxbisect.errors import OnnxBisectError
from onnxbisect.language import _
from onnxbisect.report import parts as table
from onnxbisect.report import words
from onnxbisect.report.overview import AskedModel, TargetReport, overview
from onnxbisect.report.text import clean
from onnxbisect.verdict import Status
from onnxbisect_cli.arguments import Format, demand_folder, demand_overview
from onnxbisect_cli.exit_status import stopping
from onnxbisect_cli.reports import relabelled, render, render_overview, render_parts, write_overview, write_parts
from onnxbisect_cli.results import exit_code, write_files
from onnxbisect_cli.speech import say, spoken
from onnxbisect_cli.submit_job import ProgressLines, SubmitRequest, interrupt


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
                    print("\n" + "\n".join(terminal(precision.report)))
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
                    print("\n" + "\n".join(lines(repair.document)))
            if folder is not None:
                names = repair.write(folder / "repair")
                if REPAIRED in names:
                    repaired = onnx.load(folder / "repair" / REPAIRED, load_external_data=False)
                    copy_data(repaired, model.parent, folder / "repair")
                if verbose:
                    with spoken():
                        print(
                            clean(
                                _(
                                    "{folder} holds {files}.",
                                    folder=f"{folder / 'repair'}{os.sep}",
                                    files=", ".join(names),
                                )
                            )
                        )
        except OnnxBisectError as error:
            say(f"{label}: {error}")
            codes[label] = error.exit_code
    return codes


def submit_parts(request: SubmitRequest, parts: Sequence[Part], *, wait: bool, out: Path | None, form: Format) -> int:
    """Submit a job for each model, wait and show their table; returns the highest exit status.

    Without `wait` it only prints the jobs' URLs, and the status is 0.
    """
    demand_overview(form)
    if out is not None:
        demand_folder(out)
    with Client(request.server, request.token) as client:
        jobs = client.submit_parts(parts, **request.terms)
        if not wait:
            print("\n".join(job.url for job in jobs))
            return 0
        shown = _Shown(labels=[target.label for target in request.targets], out=out)
        with stopping(interrupt) as interruption:
            try:
                for part, job in zip(parts, jobs, strict=True):
                    shown.add(part, job)
            except KeyboardInterrupt:
                for job in jobs[len(shown.rows) :]:
                    job.cancel()
                say("interrupted; the jobs that go on are cancelled, the verdicts that they have are kept.")
                return interruption.exit_code
    return shown.end(form)


class _Shown:
    """The results so far: rows of the table, and files."""

    def __init__(self, labels: Sequence[str], out: Path | None) -> None:
        self.rows: list[table.ModelPart] = []
        self._labels = labels
        self._out = out
        self._worst = 0
        self._unwritten: OSError | OnnxBisectError | None = None

    def add(self, part: Part, job: RemoteJob) -> None:
        """Wait for a job, and fetch its results."""
        say(f"{part.label}, job {job.id}: {job.page}")
        ended = job.wait(ProgressLines(self._labels))
        asked = []
        for label, target in zip(self._labels, ended["targets"], strict=True):
            backend = target["backend"]
            if target["state"] != "done":
                error = failure(target if target["problem"] else ended)
                say(f"{part.label}, {label}: {error}")
                self._worst = max(self._worst, error.exit_code)
                asked.append(TargetReport(label=label, backend=backend, reason=str(error)))
                continue
            result = job.fetched(target)
            self._worst = max(self._worst, exit_code(result))
            asked.append(TargetReport(label=label, backend=backend, report=result.report))
            if self._out is not None:
                folder = self._out / part.label
                try:
                    write_files(result, folder if len(self._labels) == 1 else folder / label)
                except (OnnxBisectError, OSError) as error:  # without the files, the table is still printed
                    self._unwritten = self._unwritten or error
        reports = [each.report for each in asked if each.report]
        subject = AskedModel.of_report(reports[0]) if reports else None
        self.rows.append(table.ModelPart(label=part.label, name=part.model.name, subject=subject, asked=asked))
        if self._out is not None and subject and len(self._labels) > 1:
            write_overview(overview(subject, asked), self._out / part.label)

    def end(self, form: Format) -> int:
        """Print the table and write its files; returns the highest exit status."""
        targets = {label: label for label in self._labels}
        for row in self.rows:
            targets |= {asked.label: words.target(asked.report["target"]) for asked in row.asked if asked.report}
        made, several = table.parts_table(self.rows, targets), len(self._labels) > 1
        if self._out is not None:
            write_parts(made, self._out, several=several)
        files = "" if self._out is None or self._unwritten else str(self._out)
        sys.stdout.write(render_parts(made, form, several=several, files=files))
        sys.stdout.flush()
        if self._unwritten is not None:
            raise self._unwritten
        return self._worst
