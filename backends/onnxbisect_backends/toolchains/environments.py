"""Environments of vendors' compilers: finds an interpreter, and runs pip in one."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

#: Patterns for the paths of interpreters that are not on PATH.
_PLACES = (
    "~/.pyenv/versions/{version}.*/bin/python{version}",
    "~/.local/share/uv/python/cpython-{version}.*/bin/python{version}",
    "/opt/python/cp{digits}-cp{digits}/bin/python{version}",
)

_WHO = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"


def find_python(version: str) -> Path | None:
    """An interpreter such as `3.10` that can create environments; None if there is none."""
    return next((path for path in _candidates(version) if _is_python(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    if "{}.{}".format(*sys.version_info) == version:
        yield Path(getattr(sys, "_base_executable", sys.executable))
    for folder in os.get_exec_path():
        yield Path(folder, f"python{version}")
    for pattern in _PLACES:
        path = Path(pattern.format(version=version, digits=version.replace(".", ""))).expanduser()
        root = Path(path.anchor)
        yield from sorted(root.glob(str(path.relative_to(root))), reverse=True)


def _is_python(path: Path, version: str) -> bool:
    """Whether it has that version and can create environments; pyenv's shims exist and may fail."""
    if not path.is_file():
        return False
    try:
        done = subprocess.run([str(path), "-I", "-c", _WHO], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.decode(errors="replace").strip() == version


#: Called with a line about each step.
Say = Callable[[str], None]

#: pip's line for a large download.
_FETCHING = re.compile(r"\s*Downloading (?:\S*/)?(\S+ \(\d[\d.]* [MG]B\))")

#: The user's settings that would redirect or forbid the installation; indexes and certificates stay.
_MISLEADING = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")


class PipError(Exception):
    """pip failed; the text is its complaint, as a sentence."""


def run_to_end(argv: Sequence[str], say: Say, lock: int | None = None) -> list[str]:
    """Run a command to its end, and return the printed lines; raises PipError with its complaint.

    The command inherits the descriptor `lock`, so that the lock lasts while it still works for a killed caller. If this
    call is interrupted, the command is killed.
    """
    said: list[str] = []
    process = subprocess.Popen(
        argv,
        env={name: value for name, value in os.environ.items() if name not in _MISLEADING},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=() if lock is None else (lock,),
        start_new_session=True,
    )
    with process:
        try:
            for line in cast("IO[str]", process.stdout):
                said.append(line.strip())
                if fetching := _FETCHING.match(line):
                    say(f"fetching {fetching[1]}")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # it must not write into a folder that is about to be removed
            raise
    if process.returncode:
        raise PipError(_complaint(said))
    return said


def _complaint(said: Sequence[str]) -> str:
    """The last error that pip printed, else its last line, as a sentence."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR")]
    words = (errors or [line for line in said if line] or ["it ended without a word"])[-1]
    offline = any("Retrying (" in line for line in said)
    return f"{words.rstrip('.')}{' (a package index could not be reached)' if offline else ''}."
