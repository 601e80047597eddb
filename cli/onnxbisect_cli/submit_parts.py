"""`onnx-bisect submit` with several models: a job for each, and the table that `run` makes."""

import sys
from collections.abc import Sequence
from pathlib import Path

from onnx_bisect import Client, Part, RemoteJob
from onnx_bisect.client import failure
from onnxbisect.errors import OnnxBisectError
from onnxbisect.report import parts as table
from onnxbisect.report import words
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.overview import overview
from onnxbisect_cli.exit_status import stopping
from onnxbisect_cli.parameters import Format, demand_folder, demand_overview
from onnxbisect_cli.reports import exit_code, render_parts, write_files, write_overview, write_parts
from onnxbisect_cli.speech import say
from onnxbisect_cli.submit_job import ProgressLines, SubmitRequest


def submit(request: SubmitRequest, parts: Sequence[Part], *, wait: bool, out: Path | None, form: Format) -> int:
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
        with stopping() as interruption:
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
