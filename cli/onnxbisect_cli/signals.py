"""Signals that end a run; results so far are kept and reported."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

#: The signals of a terminal, a job scheduler and a closed connection; Windows has no SIGHUP.
_SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass
class Interruption:
    """The first signal, None if there was none."""

    number: int | None = None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells report it: 130 for Ctrl-C."""
        return 128 + (self.number or 0)


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[Interruption]:
    """While in this context, a signal calls `stop`; a second one of the same kind has its previous handler."""
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, _frame: FrameType | None) -> None:
        if interruption.number is None:
            interruption.number = number
        signal.signal(number, before[signal.Signals(number)])
        stop()

    for number in _SIGNALS:
        if before[number] is not signal.SIG_IGN:  # nohup ignores SIGHUP, which must stay ignored
            signal.signal(number, handle)
    try:
        yield interruption
    finally:
        for number in _SIGNALS:
            signal.signal(number, before[number])
