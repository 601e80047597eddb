"""Sophgo's converter alone, for the Python of its toolchain: `ask_tpu_mlir.py MODEL SAMPLE.npz`.

Exit status 0 if it converts the model, and its numbers are onnxruntime's on the sample.
"""

import os
import subprocess
import sys
from pathlib import Path

import tpu_mlir  # type: ignore[import-not-found]  # noqa: F401 - sets the environment of its tools

tool = Path(os.environ["TPUC_ROOT"], "python", "tools", "model_transform.py")
words = ["--model_name", "alone", "--model_def", sys.argv[1], "--mlir", "alone.mlir", "--tolerance", "0.99,0.99"]
words += ["--test_input", sys.argv[2], "--test_result", "outputs.npz"]
sys.exit(subprocess.run([sys.executable, str(tool), *words], check=False).returncode)
