"""Shows and writes the results of a submitted job."""

import sys
from collections.abc import Sequence
from pathlib import Path

from onnx_bisect import RemoteJob
from onnx_bisect.client import failure
from onnx_bisect.job_documents import TargetStatus
from onnxbisect.errors import OnnxBisectError
from onnxbisect_cli.arguments import Format
from onnxbisect_cli.reports import relabelled, render, render_overview, write_overview
from onnxbisect_cli.results import exit_code, write_files
from onnxbisect_cli.speech import say


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
