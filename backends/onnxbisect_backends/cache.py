"""The folder for reproducible data: kept verdicts, and vendors' compilers."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """`ONNXBISECT_CACHE_DIR`, or this program's folder in the user's cache directory; it may not exist yet."""
    configured = os.environ.get("ONNXBISECT_CACHE_DIR")
    return Path(configured).absolute() if configured else platformdirs.user_cache_path("onnx-bisect", appauthor=False)
