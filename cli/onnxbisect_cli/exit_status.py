"""How a command ends: exit statuses of `run`, also as `git bisect run` reads them, and signals."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from time import monotonic
from types import FrameType

OPTION = "--exit-status"
#: git tests another commit.
_CANNOT_BE_TESTED = 125
#: From here on git ends the bisection, as after Ctrl-C.
_ENDS = 128
#: The signals of a terminal, a job scheduler and a closed connection; Windows has no SIGHUP.
_SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Seconds within which a repeated signal is the same one: `timeout`, `uv run` and a closing terminal send it both to
#: this process and to its process group. No person presses Ctrl-C twice so fast.
_ONE_SIGNAL = 0.1


class ExitStatus(StrEnum):
    """Whose exit statuses to use."""

    USUAL = "usual"
    GIT_BISECT = "git-bisect"


def for_git_bisect(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for the exit statuses of `git bisect run`.

    It is read here and not by the parser, because a command line that cannot be parsed is no bad commit either.
    """
    before = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    return f"{OPTION}={ExitStatus.GIT_BISECT}" in before or (OPTION, ExitStatus.GIT_BISECT) in pairwise(before)


def as_git_bisect_reads(code: int) -> int:
    """0 for a model that compiles, 1 for one that does not, 125 without an answer: mistakes, too."""
    return code if code in (0, 1) or code >= _ENDS else _CANNOT_BE_TESTED


@dataclass
class Interruption:
    """The first signal, None if there was none."""

    number: int | None = None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells report it: 130 for Ctrl-C."""
        return 128 + (self.number or 0)


@contextmanager
def stopping(stop: Callable[[], None] | None = None) -> Iterator[Interruption]:
    """While in this context, a signal calls `stop`; a later one of the same kind has its previous handler.

    Without `stop` it raises KeyboardInterrupt.
    """
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    received: dict[int, float] = {}

    def handle(number: int, _frame: FrameType | None) -> None:
        if number not in received:
            received[number] = monotonic()
            if interruption.number is None:
                interruption.number = number
            if stop is None:
                raise KeyboardInterrupt
            stop()
        elif monotonic() - received[number] > _ONE_SIGNAL:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    for number in _SIGNALS:
        if before[number] is not signal.SIG_IGN:  # nohup ignores SIGHUP, which must stay ignored
            signal.signal(number, handle)
    try:
        yield interruption
    finally:
        for number in _SIGNALS:
            signal.signal(number, before[number])
