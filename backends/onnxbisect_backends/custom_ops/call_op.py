"""A script for a process of its own: call the user's function for a custom op on each list of arguments.

`call_op.py FILE FUNCTION FOLDER COUNT`. FOLDER has `node.onnx`, and of each call `N.npz` with the arguments by their
places; it gets `made-N.npz` with the outputs by their places, and `answer.json` with `problem`.
"""

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxbisect.model.scopes import captures
from onnxbisect.split.runner import called
from onnxbisect.split.write import plain


def main(file: str, function: str, folder: Path, count: int) -> str:
    """Call the function for each; what is wrong with it."""
    sys.path.insert(0, str(Path(file).parent))
    node = onnx.NodeProto.FromString((folder / "node.onnx").read_bytes())
    attributes = {it.name: plain(it) for it in node.attribute}
    try:
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        assert spec is not None  # noqa: S101 - the file ends in .py
        assert spec.loader is not None  # noqa: S101
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up
        spec.loader.exec_module(module)
        op = getattr(module, function)
        for number in range(count):
            with np.load(folder / f"{number}.npz", allow_pickle=False) as stored:
                given = dict(stored)
            arguments = [given.get(str(place)) for place in range(len(node.input) + len(captures(node)))]
            outputs = called(op, arguments, attributes)
            if len(outputs) != len(node.output):
                return f"it returned {len(outputs)} arrays, and the op has {len(node.output)} outputs"
            made: dict[str, Any] = {str(place): it for place, it in enumerate(outputs)}
            np.savez(folder / f"made-{number}.npz", **made)
    except BaseException as error:  # whatever a user's file raises
        lines = [it.lineno for it in traceback.extract_tb(error.__traceback__) if it.filename == file]
        return f"{type(error).__name__}: {error}{f' (line {lines[-1]})' if lines else ''}"
    return ""


if __name__ == "__main__":
    problem = main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    (Path(sys.argv[3]) / "answer.json").write_text(json.dumps({"problem": problem}))
