"""The API in a process of its own, behind a real uvicorn: for what only a network shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = """
import socket, sys
import uvicorn
from onnxbisect_api.app import create_app
from onnxbisect_api.app import server_config
from onnxbisect_service.service import open_service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.model_processes.pool import inspection

listening = socket.create_server(("127.0.0.1", 0))
settings = Settings()
server = uvicorn.Server(server_config(create_app(open_service(settings), inspect_model=inspection), settings))
print(listening.getsockname()[1], flush=True)
server.run([listening])
"""


@dataclass(frozen=True, kw_only=True)
class Served:
    """Where it listens, and what it is."""

    port: int
    pid: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def peak_memory(self) -> int:
        """The most bytes of memory that the process had at a time."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def forget_peak(self) -> int:
        """Count the peak anew, from what it is now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.peak_memory()


@contextmanager
def served(folder: Path, files: int | None = None, **settings: object) -> Iterator[Served]:
    """An API on the data in `folder`, whose tables are at head; `files` bounds its open files."""
    variables = {f"ONNXBISECT_{name.upper()}": str(value) for name, value in {"data": folder, **settings}.items()}
    log = folder / "server.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            ["sh", "-c", f'ulimit -n {files or "$(ulimit -n)"}; exec "$0" "$@"', sys.executable, "-c", _PROGRAM],
            env={**os.environ, "ONNXBISECT_DISK_FLOOR": "0", **variables},
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Served(port=int(line), pid=process.pid, log=log)
    finally:
        process.terminate()
        process.communicate(timeout=60)
