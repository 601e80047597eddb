"""Google's compiler alone, for the Python of its toolchain: `ask_iree.py MODEL`; exit status 0 if it compiles."""

import subprocess
import sys
from pathlib import Path

programs = Path(sys.executable).parent
imported = [str(programs / "iree-import-onnx"), sys.argv[1], "-o", "model.mlir"]
compiled = [
    *(str(programs / "iree-compile"), "model.mlir", "-o", "model.vmfb", "--iree-hal-target-device=local"),
    *("--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=generic"),
]
sys.exit(subprocess.run(imported, check=False).returncode or subprocess.run(compiled, check=False).returncode)
