"""What a diagnosis leaves behind, made here or by a server: the files of its result, and the exit status."""

import shutil
from pathlib import Path

from onnx_bisect import Result
from onnxbisect.drawing import model_explorer
from onnxbisect.report.files import culprit_dirs
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.prober import COMPILED, PROBE_NAME
from onnxbisect_cli.speech import say, spoken

#: Exit statuses: the model compiles; culprits were found; no answer.
COMPILES, CULPRITS, UNRESOLVED = 0, 1, 3


def fresh_folder(out: Path) -> Path:
    """The folder for the compiler's output on the model, below the report's folder.

    Output of an earlier run is deleted if its report is there.
    """
    folder = out / COMPILED
    if (out / "report.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
    return folder


def exit_code(result: Result) -> int:
    """0 if the whole model compiles, 1 for culprits or a needed change of the file, 3 if there is no answer."""
    if result.verdict is Status.PASS:
        return COMPILES
    return CULPRITS if result.culprits or result.compiles_after else UNRESOLVED


def write_files(result: Result, out: Path) -> None:
    """Write the report in every form, and the culprits' files; raises OSError."""
    with spoken():
        result.write(out)
    for culprit, folder in zip(result.report["culprits"], culprit_dirs(result.report), strict=True):
        if culprit["repro"] is None:
            say(f"{folder} has no {PROBE_NAME}: the search ended before that file was seen to fail.")
    if (out / COMPILED).exists():
        say(f"{out / COMPILED} holds what the compiler made of the model.")
    for place in model_explorer.FILES:
        if not (out / place).exists():
            say(f"there is no {place}: the server has no picture of the model.")
