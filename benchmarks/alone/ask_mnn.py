"""Alibaba's converter alone, for the Python of its toolchain: `ask_mnn.py MODEL`; exit status 0 if it converts it.

Its own program installs packages, so its library is called. The exit status of that says nothing.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

if len(sys.argv) > 2:
    import _tools  # type: ignore[import-not-found]

    with contextlib.suppress(SystemExit):
        _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", sys.argv[1], "--MNNModel", sys.argv[2]])
    sys.stdout.flush()
    os._exit(0)  # its libraries may die of being unloaded
done = subprocess.run([sys.executable, __file__, sys.argv[1], "model.mnn"], stdout=subprocess.PIPE, check=False)
sys.stdout.buffer.write(done.stdout)
sys.exit(not (b"Converted Success!" in done.stdout and Path("model.mnn").exists()))
