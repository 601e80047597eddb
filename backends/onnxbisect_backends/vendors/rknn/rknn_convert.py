"""A script for RKNN-Toolkit2's own Python, in a process of its own: convert one model, and report the result.

`rknn_convert.py MODEL OUT ORDER`, where ORDER is JSON: `config` goes to `RKNN.config`, `quantize` is a flag, and
`samples` are files of input values for calibration. Exit status 0: every call returned 0. 1: refused. 2: the toolkit
was not called, for the reason on standard error. Status 0 is no proof of success; the judge also reads the log.

With `"then": "run"` OUT is no model but the folder of `N.npz` to write, keyed by the place of each output: what the
toolkit's simulator computes of each sample. With `"then": "analyse"` it is the folder of the toolkit's own table of
errors by layer on the first sample, `error_analysis.txt`; tensors that are large in all get none.
"""

import ctypes
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

try:
    import numpy as np
    import onnx
    from rknn.api import RKNN
except (ImportError, OSError) as error:  # a system library is missing, which says nothing about the model
    print(f"RKNN-Toolkit2 cannot be loaded: {error}", file=sys.stderr)
    sys.exit(2)

_LINE_BUFFERED = 1
#: How many values tensors may have in all for a table of errors: 40 s.
_MOST_VALUES = 20_000_000


def main(model: str, out: str, order: str) -> int:
    """Convert the model; returns the exit status."""
    # Make C's standard output line-buffered, so that libraries' output neither mixes with Python's nor is lost.
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, ctypes.c_size_t(0))
    asked = json.loads(order)
    then = asked.get("then", "export")
    graph = onnx.load(model, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [entry for entry in graph.input if entry.name not in weights]
    for entry in inputs:
        # an input of unknown shape, which the toolkit would treat as a scalar
        if entry.type.HasField("tensor_type") and not entry.type.tensor_type.HasField("shape"):
            print(f"The shape of the input '{entry.name}' is not known.", file=sys.stderr)
            return 2
    try:
        names = [entry.name for entry in inputs]
        dataset = write_dataset(load(path, names) for path in asked["samples"]) if asked["quantize"] else None
    except (OSError, ValueError, KeyError) as error:
        print(f"There are no samples to calibrate on: {error}", file=sys.stderr)
        return 2
    try:
        rknn = RKNN(verbose=True)
        refused = (
            rknn.config(**asked["config"])
            or rknn.load_onnx(model=model)
            or rknn.build(do_quantization=asked["quantize"], dataset=dataset)
            or (then == "export" and rknn.export_rknn(out))
            or (then == "run" and rknn.init_runtime())
        )
        if refused:
            return 1
        if then == "run":
            simulate(rknn, [load(path, names) for path in asked["samples"]], Path(out))
        if then == "analyse":
            analyse(rknn, model, load(asked["samples"][0], names), Path(out))
        return 0
    except Exception as error:  # the toolkit has already printed details
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def load(path: str, names: list[str]) -> list[np.ndarray]:
    """The arrays of a sample, in the order of the model's inputs."""
    with np.load(path) as arrays:
        return [arrays[name] for name in names]


def simulate(rknn: RKNN, samples: list[list[np.ndarray]], out: Path) -> None:
    """Run each sample on the simulator, and write its outputs; raises ValueError if it gives none."""
    out.mkdir()
    for number, arrays in enumerate(samples):
        # of arrays that are no images the form is ignored; without it, images are taken for NHWC
        values = rknn.inference(inputs=arrays, data_format=["nchw"] * len(arrays))
        if values is None:
            raise ValueError(f"The simulator gave no outputs of sample {number}.")
        np.savez(out / f"{number}.npz", **{str(place): value for place, value in enumerate(values)})


def analyse(rknn: RKNN, model: str, sample: list[np.ndarray], out: Path) -> None:
    """Write the toolkit's table of errors, unless the tensors are large: it writes them all as text.

    It is a hint, without which a search goes on.
    """
    kinds = onnx.shape_inference.infer_shapes(onnx.load(model, load_external_data=False)).graph.value_info
    if sum(math.prod(it.dim_value for it in kind.type.tensor_type.shape.dim) for kind in kinds) > _MOST_VALUES:
        return
    files = [f"analysed{place}.npy" for place in range(len(sample))]
    for file, array in zip(files, sample, strict=True):
        np.save(file, array)
    with suppress(Exception):
        rknn.accuracy_analysis(inputs=files, output_dir=str(out))
    for dumped in ("golden", "simulator"):
        shutil.rmtree(out / dumped, ignore_errors=True)


def write_dataset(samples: "Iterable[list[np.ndarray]]") -> str:
    """The samples in the toolkit's form: a text file, each line the `.npy` files of one sample's inputs in order.

    All are in the working directory, under names without blanks.
    """
    lines = []
    for number, arrays in enumerate(samples):
        names = [f"sample{number}_{position}.npy" for position in range(len(arrays))]
        for name, array in zip(names, arrays, strict=True):
            np.save(name, array)
        lines.append(" ".join(names))
    if not lines:
        raise ValueError("none were made for this model")
    dataset = Path("dataset.txt")
    dataset.write_text("\n".join(lines) + "\n")
    return str(dataset)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    # skip destructors of libraries, which could change the exit status
    os._exit(status)
