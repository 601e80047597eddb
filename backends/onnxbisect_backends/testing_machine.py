"""Test helpers: disks that are full or read-only, and the search for leftover processes."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def processes_in(workdir: Path) -> list[int]:
    """Processes that belong to a work directory: it is their working directory, or in their arguments or environment.

    Linux only; on other systems the result is empty.
    """
    mark = os.fsencode(workdir)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            stands = os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue
        if int(entry.name) != os.getpid() and (mark in words or stands.startswith(mark)):
            found.append(int(entry.name))
    return found


@contextmanager
def bad_disk(folder: Path, disk: str) -> Iterator[Path]:
    """A work directory on a disk that is `full` or `read-only`; skips the test if it cannot be created."""
    workdir = folder / "work"
    workdir.mkdir(parents=True)
    if os.geteuid() != 0:
        if disk == "full":
            pytest.skip("only root may mount a small disk to fill it")
        workdir.chmod(0o555)
        yield workdir
        return
    done = _mount("-t", "tmpfs", "-o", "size=64k", "onnx-bisect-test", str(folder))
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        workdir.mkdir()
        if disk == "read-only":
            _mount("-o", "remount,ro", str(folder)).check_returncode()
        else:
            _fill(folder / "filler")
        yield workdir
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607 - the system's own


def _mount(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *words], capture_output=True, text=True)  # noqa: S607 - the system's own


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            return
