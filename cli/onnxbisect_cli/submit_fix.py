"""`onnx-bisect submit --fix`: what the server's repairs came to, as `fix` shows and writes it."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from onnx_bisect import OnnxBisectError, RemoteJob, RemoteRepair, Status
from onnx_bisect.job_documents import TargetStatus
from onnxbisect.remedies.summary import lines
from onnxbisect.report.text import clean
from onnxbisect_backends.probing.repair_compiler import REPAIRED, copy_data

#: By the verdict on the repaired model: it compiles now; something is left; nothing is known.
_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.UNRESOLVED: 3}


def show(
    model: Path, job: RemoteJob, targets: Sequence[TargetStatus], folders: Mapping[str, Path | None], *, told: bool
) -> dict[str, int]:
    """Show, and write below the folder of each target where there is one. Returns the exit statuses of the targets that
    have a repair; what keeps a target from it is `told` on standard error, and the diagnosis stands.
    """
    codes = {}
    for (label, folder), target in zip(folders.items(), targets, strict=True):
        if target["state"] != "done":
            continue
        try:
            repair = job.repair(target["number"])
            codes[label] = _CODES[Status(repair.document.verdict)]
            if told:
                print("\n" + "\n".join(lines(repair.document)))
            if folder is not None:
                names = _written(repair, model, folder / "repair")
                if told:
                    print(f"{folder / 'repair'}{os.sep} holds {', '.join(names)}.")
        except OnnxBisectError as error:
            print(f"onnx-bisect: {label}: {clean(str(error))}", file=sys.stderr, flush=True)
            codes[label] = error.exit_code
    return codes


def _written(repair: RemoteRepair, model: Path, folder: Path) -> list[str]:
    names = repair.write(folder)
    if REPAIRED in names:
        copy_data(onnx.load(folder / REPAIRED, load_external_data=False), model.parent, folder)
    return names
