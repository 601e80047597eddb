"""A script for the tool's Python: quantise a model but for some ops, and run it in the tool's own arithmetic.

`tpu_mlir_mixed.py MODEL SAMPLES ORDER`: SAMPLES is a folder of `N.npz` keyed by the model's inputs, ORDER is JSON, of
which `processor` is what to compile for. The first call converts the model and calibrates it, and writes
`tensors.json`, the names of the ops that are left after fusing, and `errors.json`, those that quantising makes worst. A
call with `out`, the folder of `N.npz` to write,
keyed by the place of each output, computes the ops of `keep` in float16 and all others in int8, and runs each sample
as the tool does that compares (its interpreter, not the chip's emulator). All calls of one model have the same working
directory. Exit status 0: done. 3: refused, with the reason in the last line. Anything else: the tool was not called.
"""

import json
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
import tpu_mlir_steps  # type: ignore[import-not-found]

_REFUSED = 3
_NO_QUESTION = 2
#: The tool's kinds of ops that compute nothing.
_NOTHING = ("top.None", "top.Weight", "top.Input")


def main(model: str, samples: str, order: str) -> int:
    """Convert if that is not done yet, and run the model if that is wanted; returns the exit status."""
    asked = json.loads(order)
    if (root := tpu_mlir_steps.find_root()) is None:
        print("TPU-MLIR is not to be found.", file=sys.stderr)
        return _NO_QUESTION
    os.environ["TMPDIR"] = "."  # the tool creates sockets there, whose paths must be short
    sys.path[:0] = [str(root / "python" / "tools"), str(root / "python")]
    try:
        files = sorted(Path(samples).glob("*.npz"), key=lambda path: int(path.stem))
        if not Path("tensors.json").is_file():
            _convert(root, model, [str(file) for file in files], asked["processor"])
        if "out" in asked:
            import numpy
            import onnx

            out = Path(asked["out"])
            lowered = _lowered(asked["keep"], out.name, asked["processor"])
            names = [it.name for it in onnx.load(model, load_external_data=False).graph.output]
            out.mkdir()
            for number in range(len(files)):
                found = _inferred(number, lowered)
                numpy.savez(
                    out / f"{number}.npz", **{str(place): _output(name, found) for place, name in enumerate(names)}
                )
    except Exception as error:
        traceback.print_exc()
        print(f"\n{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return _REFUSED
    return 0


def _convert(root: Path, model: str, files: list[str], processor: str) -> None:
    import onnx
    from utils.mlir_parser import MlirParser  # type: ignore[import-not-found]

    given = tpu_mlir_steps.write_samples(onnx.load(model, load_external_data=False).graph, files, len(files))
    order = {"verify": False, "calibrate": len(given), "processor": "", "quantize": "INT8", "result": ""}
    steps = [tpu_mlir_steps.transform(model, order, given[:1]), tpu_mlir_steps.calibration(len(given))]
    for step in steps:
        if status := tpu_mlir_steps.call(root, *step):
            raise ValueError(f"{step[0]} ended with exit status {status}")
    ops = [it for it in MlirParser("probe.mlir").ops if it.type not in _NOTHING]
    with suppress(Exception):  # a hint, without which the search goes on
        Path("errors.json").write_text(json.dumps([[name] for name in _worst_first(ops, processor)]))
    Path("tensors.json").write_text(json.dumps([it.name for it in ops]))


def _worst_first(ops: list[Any], processor: str) -> list[str]:
    """The ops by the errors that they add on the first sample: each tensor's in int8 less those of what it is made of.

    The tool compares all tensors, too (`npz_tool compare`), but the errors of one op stay in all that follow.
    """
    import numpy

    lowered = _lowered([], "errors", processor)
    exact, low = (_inferred(0, file, every=True) for file in ("probe.mlir", lowered))
    noise = {
        name: float(numpy.sum((values - low[name].reshape(values.shape)) ** 2) / (numpy.sum(values**2) or 1))
        for name, values in exact.items()
        if name in low and low[name].size == values.size
    }
    added = {
        it.name: noise[it.name] - max((noise.get(one, 0.0) for one in it.opds), default=0.0)
        for it in ops
        if it.name in noise
    }
    return sorted(added, key=lambda name: -added[name])


def _lowered(keep: list[str], name: str, processor: str) -> str:
    """The file of the model in int8 but for some ops."""
    from utils.mlir_shell import mlir_lowering  # type: ignore[import-not-found]

    table, lowered = f"{name}.qtable", f"{name}.mlir"
    Path(table).write_text("".join(f"{it} F16\n" for it in keep))
    mlir_lowering("probe.mlir", lowered, "INT8", processor, cali_table="table", quantize_table=table)
    return lowered


def _inferred(number: int, file: str, *, every: bool = False) -> dict[str, Any]:
    """The outputs for one sample, or every tensor that the tool can show."""
    import numpy
    from model_runner import mlir_inference  # type: ignore[import-not-found]

    with numpy.load(f"{tpu_mlir_steps.SAMPLES}/{number}.npz") as arrays:
        found: dict[str, Any] = mlir_inference(dict(arrays), file, every)
    return found


def _output(name: str, found: dict[str, Any]) -> Any:
    """The tool's name of an output is the model's, with an op and what it has added: `y_Gemm`, `y_Gemm_f32`."""
    named = [it for it in found if it == name or it.startswith(f"{name}_")]
    wanted = [it for it in named if it.endswith("_f32")] or named
    if not wanted:
        raise ValueError(f"there is no output {name} among {', '.join(found)}")
    return found[wanted[0]]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
