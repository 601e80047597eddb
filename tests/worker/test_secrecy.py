"""What a compiler that a model has taken over can see of the service: it runs as the same user."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("onnx-bisect"))
#: Root with all of its powers may look into everything.
POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is kept secret this way"),
    pytest.mark.skipif(POWERLESS != [] and not shutil.which("setpriv"), reason="root needs the command setpriv"),
]


@contextmanager
def started(*command: str) -> Iterator[int]:
    """A process that has a secret in its environment and has said something."""
    environment = {**os.environ, "SECRET": "of the service"}
    with subprocess.Popen([*POWERLESS, *command], env=environment, stdout=subprocess.PIPE, text=True) as it:
        try:
            assert it.stdout is not None
            assert it.stdout.readline()
            yield it.pid
        finally:
            it.terminate()


def seen(*command: str) -> str:
    """What another process of the same user sees."""
    done = subprocess.run([*POWERLESS, *command], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_environment_of_the_service_is_its_own(tmp_path: Path) -> None:
    with started("yes") as other:
        assert "SECRET" in seen("cat", f"/proc/{other}/environ"), "what is asked here shows nothing"
    with started(PROGRAM, "serve", "--data", str(tmp_path), "--port", "0") as service:
        assert "Permission denied" in seen("cat", f"/proc/{service}/environ")
