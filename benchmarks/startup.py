"""How long `onnx-bisect serve` takes until it answers."""

import http.client
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from installation import PROGRAM, Installed, cpu_seconds

_STOP_SECONDS = 40.0


@dataclass(frozen=True, kw_only=True)
class Start:
    """Seconds until a request was answered, and processor time until then."""

    seconds: float
    cpu: float


def measure(here: Installed, times: int) -> dict[str, list[Start]]:
    """`fresh` and `again` of everything in one process, `api` where redis and PostgreSQL are."""
    folder = here.folder / "alone"
    alone = {"ONNXBISECT_DATA": str(folder)}
    found: dict[str, list[Start]] = {"fresh": [], "again": [], "api": []}
    for _ in range(times):
        shutil.rmtree(folder, ignore_errors=True)
        found["fresh"].append(_started(alone))
        found["again"].append(_started(alone))
        found["api"].append(_started(here.environment))
    return found


def _started(environment: Mapping[str, str]) -> Start:
    began = time.monotonic()
    with subprocess.Popen(
        [PROGRAM, "serve", "--port", "0"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/livez")
            assert connection.getresponse().status == 200
            start = Start(seconds=time.monotonic() - began, cpu=cpu_seconds(process.pid))
            connection.close()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
    return start
