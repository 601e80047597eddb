"""Runs pip, and venv, in a process that ends with its caller's patience; says what takes long, and what went wrong."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, cast

#: Takes a line about what is being done.
Say = Callable[[str], None]

#: What pip says of a package that takes time to fetch.
_FETCHING = re.compile(r"\s*Downloading (?:\S*/)?(\S+ \(\d[\d.]* [MG]B\))")

#: The user's settings that would make pip put packages elsewhere, or refuse to; indexes and certificates stay.
_MISLEADING = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")


class PipError(Exception):
    """It failed; the text is its own complaint, as a sentence."""


def carry_out(argv: Sequence[str], say: Say, lock: int | None = None) -> list[str]:
    """Run it to its end, and return the lines that it prints; raises PipError with its complaint.

    It holds on to the descriptor `lock`, so that nobody else begins while it still works for a caller that was
    killed. Where this call is interrupted, it is killed.
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
            os.killpg(process.pid, signal.SIGKILL)  # it must not write into what is about to be removed
            raise
    if process.returncode:
        raise PipError(_complaint(said))
    return said


def _complaint(said: Sequence[str]) -> str:
    """Of many lines, the one that says what went wrong."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR")]
    words = (errors or [line for line in said if line] or ["it ended without a word"])[-1]
    offline = any("Retrying (" in line for line in said)
    return f"{words.rstrip('.')}{' (a package index could not be reached)' if offline else ''}."
