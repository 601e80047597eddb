"""A script for a process of its own: call the user's metric on each sample, and write what it returned.

`call_metric.py FILE FUNCTION ORDER`, where ORDER is a file of JSON: `outputs` are the names of the model's outputs,
`reference`, `found` and `samples` folders of `N.npz`, `count` their number, and `answer` the file to write. It gets
`scores`, or `problem` and `detail`.
"""

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np


def main(file: str, function: str, order: str) -> None:
    """Call the function on each sample."""
    asked = json.loads(Path(order).read_text())
    answer = _answer(file, function, asked)
    Path(asked["answer"]).write_text(json.dumps(answer))


def _answer(file: str, function: str, asked: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, str(Path(file).parent))
    try:
        spec = importlib.util.spec_from_file_location("metric", file)
        assert spec is not None  # noqa: S101 - the file ends in .py
        assert spec.loader is not None  # noqa: S101
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up
        spec.loader.exec_module(module)
    except BaseException as error:  # whatever a user's file raises
        return {"problem": "file", "detail": _said(error, file)}
    if not callable(score := getattr(module, function, None)):
        return {"problem": "missing", "detail": function}
    names, scores = asked["outputs"], []
    for number in range(asked["count"]):
        reference, found, sample = (_load(asked[it], number) for it in ("reference", "found", "samples"))
        try:
            value = score(_named(names, reference), _named(names, found), sample)
        except BaseException as error:  # whatever a user's function raises
            return {"problem": "raises", "detail": _said(error, file), "sample": number}
        try:
            scores.append(float(value))
        except Exception:  # of the value's own
            return {"problem": "returns", "detail": type(value).__name__, "sample": number}
    return {"scores": scores}


def _load(folder: str, number: int) -> dict[str, np.ndarray]:
    with np.load(Path(folder) / f"{number}.npz") as arrays:
        return dict(arrays)


def _named(names: list[str], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: arrays[str(place)] for place, name in enumerate(names) if str(place) in arrays}


def _said(error: BaseException, file: str) -> str:
    """The exception, and the line of the user's file that it came from."""
    lines = [it.lineno for it in traceback.extract_tb(error.__traceback__) if it.filename == file]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{where}" if str(error) else f"{type(error).__name__}{where}"


if __name__ == "__main__":
    main(*sys.argv[1:])
