"""A script for a process of its own: run a model in onnxruntime on the CPU.

`ort_run.py MODEL LEVEL SAMPLES OUT`: LEVEL is as for `ort_session.py`, SAMPLES a folder of `N.npz` keyed by the model's
inputs, OUT the folder of `N.npz` to write, keyed by the place of each output that is a tensor. Exit status 0: all
samples were run. 3: refused, with the reason on standard error. Anything else: onnxruntime was not called.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

_REFUSED = 3


def main(model: str, level: str, samples: str, out: str) -> int:
    """Run each sample; returns the exit status."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        inputs = [it.name for it in session.get_inputs()]
        Path(out).mkdir()
        for number in range(len(list(Path(samples).glob("*.npz")))):
            with np.load(Path(samples) / f"{number}.npz") as arrays:
                values = session.run(names, {name: arrays[name] for name in inputs})
            found = {str(place): it for place, it in enumerate(values) if isinstance(it, np.ndarray)}
            np.savez(Path(out) / f"{number}.npz", **found)  # type: ignore[arg-type] # numpy's stubs miss keywords
    except Exception as error:  # onnxruntime's exceptions have no base of their own
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
