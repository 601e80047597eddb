"""Sophgo's converter alone, for the Python of its toolchain: `ask_tpu_mlir.py MODEL SAMPLE.npz`.

Exit status 0 if it converts the model, and its numbers are onnxruntime's on the sample. Where the tool's onnxruntime
does not read the model's IR version, they are compared at one that it reads, if it runs the model then. The tool's own
comparison is relative only; where it complains, numbers within 1e-5 and a hundredth of the largest are no others.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import tpu_mlir  # type: ignore[import-not-found]  # noqa: F401 - sets the environment of its tools

tool = Path(os.environ["TPUC_ROOT"], "python", "tools", "model_transform.py")


def _transform(model: str, *, compare: bool = True) -> int:
    words = ["--model_name", "alone", "--model_def", model, "--mlir", "alone.mlir", "--tolerance", "0.99,0.99"]
    words += ["--test_input", sys.argv[2], "--test_result", "outputs.npz"] if compare else []
    return subprocess.run([sys.executable, str(tool), *words], check=False).returncode


status = _transform(sys.argv[1])
if status and Path("alone.mlir").exists() and not Path("outputs.npz").exists():
    proto = onnx.load(sys.argv[1])
    proto.ir_version = onnx.IR_VERSION
    onnx.save(proto, "older.onnx")
    status = _transform("older.onnx")
    if not Path("outputs.npz").exists():
        print("not compared: its onnxruntime cannot run the model")
        status = _transform(sys.argv[1], compare=False)
if status and Path("outputs.npz").exists():
    ours, right = np.load("outputs.npz"), np.load("alone_ref_outputs.npz")
    far = [
        name
        for name in set(ours) & set(right)
        if np.abs(ours[name] - right[name]).max(initial=0) > 1e-5 + 0.01 * np.abs(right[name]).max(initial=0)
    ]
    print("other numbers:", *far) if far else print("within 1e-5 and a hundredth of the largest")
    status = status if far else 0
sys.exit(status)
