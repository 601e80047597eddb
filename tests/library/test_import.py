"""What a program pays for that imports the library."""

import subprocess
import sys

_LOADED = "import sys; from onnx_bisect import Client; print(*sys.modules)"


def test_a_program_that_only_submits_jobs_imports_neither_reports_nor_compilers_nor_the_engine() -> None:
    loaded = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True).stdout.split()
    assert "onnx_bisect.client" in loaded
    engine = {"onnxruntime", "pydantic", "jinja2", "onnxbisect.search", "onnxbisect.cut", "onnxbisect_backends"}
    assert engine.isdisjoint(loaded)
