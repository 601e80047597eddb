"""Runs pip and venv in a child process, with progress and error messages."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, cast

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
