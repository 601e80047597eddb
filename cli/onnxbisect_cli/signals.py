"""Signals that end a run; results so far are kept and reported."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import FrameType

#: The signals of a terminal, a job scheduler and a closed connection; Windows has no SIGHUP.
_SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

#: Seconds within which a repeated signal is the same one: `timeout`, `uv run` and a closing terminal send it both to
#: this process and to its process group. No person presses Ctrl-C twice so fast.
_ONE_SIGNAL = 0.1


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
    """While in this context, a signal calls `stop`; a later one of the same kind has its previous handler."""
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    received: dict[int, float] = {}

    def handle(number: int, _frame: FrameType | None) -> None:
        if number not in received:
            received[number] = monotonic()
            if interruption.number is None:
                interruption.number = number
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
