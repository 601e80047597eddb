"""A service that is told to stop while it still imports what it needs ends with 0, like one that works."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("onnx-bisect")
#: Many short steps, as in an import: Python handles a signal that comes just before a sleep when that ends.
SLOW = "import time\nprint('importing', flush=True)\nfor _ in range(600):\n    time.sleep(0.1)\n"


@pytest.mark.parametrize("slow", ["typer", "sqlalchemy"])
@pytest.mark.parametrize(
    "command", [["worker", "--control"], ["worker", "--backend", "whitelist"], ["serve", "--port", "0"]]
)
def test_a_service_that_has_just_started_stops_with_0(tmp_path: Path, command: list[str], slow: str) -> None:
    """A module that is slow to import stands for a machine that is."""
    (tmp_path / f"{slow}.py").write_text(SLOW)
    more = {
        "PYTHONPATH": str(tmp_path),
        "ONNXBISECT_DATA": str(tmp_path),
        "ONNXBISECT_REDIS_URL": "redis://127.0.0.1:1",
    }
    with subprocess.Popen(
        [PROGRAM, *command], env={**os.environ, **more}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_another_command_ends_by_the_signal(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(SLOW)
    with subprocess.Popen(
        [PROGRAM, "run"], env={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
