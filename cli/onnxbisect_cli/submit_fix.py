"""`onnx-bisect submit --fix`: shows and writes the server's repairs as `fix` does."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from onnx_bisect import OnnxBisectError, RemoteJob, RemoteRepair, Status
from onnx_bisect.job_documents import TargetStatus
from onnx_bisect.steps.repair_compiler import REPAIRED, copy_data
from onnxbisect.language import _
from onnxbisect.remedies.summary import lines
from onnxbisect.report.text import clean
from onnxbisect_cli.speech import say, spoken

#: Exit statuses by the verdict on the repaired model.
_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.UNRESOLVED: 3}


def show(
    model: Path, job: RemoteJob, targets: Sequence[TargetStatus], folders: Mapping[str, Path | None], *, verbose: bool
) -> dict[str, int]:
    """Show the repairs, and write each below its target's folder if there is one.

    Returns the exit status of each finished target. `verbose` prints the repairs to standard output. If a repair cannot
    be fetched, the error goes to standard error and gives the exit status.
    """
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
                names = _written(repair, model, folder / "repair")
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


def _written(repair: RemoteRepair, model: Path, folder: Path) -> list[str]:
    names = repair.write(folder)
    if REPAIRED in names:
        copy_data(onnx.load(folder / REPAIRED, load_external_data=False), model.parent, folder)
    return names
