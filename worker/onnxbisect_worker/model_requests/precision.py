"""The search for nodes that must stay precise in a model process: replayed on what was measured, then measured on."""

import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from onnx_bisect.measuring_precision import PrecisionQuestion, answered
from onnx_bisect.precision_search import MeasurementBudget, Record
from onnxbisect.precision.report import Asked, PrecisionReport
from onnxbisect.precision.wanted import Wanted
from onnxbisect_db.answers import MeasuredSet

#: Seconds of measuring after which others get their turn: what was measured is kept, and this search goes on later.
_SLICE = 300.0


class PausedError(Exception):
    """The time for measuring is over."""


class ToldRecord(Record):
    """A record whose measurements are told at once. PausedError after a slice of time, and at least one of them."""

    def __init__(self, known: Sequence[MeasuredSet], want: Wanted, tell: Callable[[MeasuredSet], None]) -> None:
        nothing = -want.score(inf)
        super().__init__(
            {(it.arithmetic, frozenset(it.keep)): nothing if it.value is None else it.value for it in known}
        )
        self._tell, self._until = tell, time.monotonic() + _SLICE

    def add(self, asked: Asked, keep: frozenset[str], value: float) -> None:
        super().add(asked, keep, value)
        self._tell(
            MeasuredSet(
                arithmetic=asked.on,
                keep=tuple(sorted(keep)),
                work=asked.work,
                value=asked.value,
                shown=asked.shown,
                why=asked.why,
            )
        )
        if time.monotonic() > self._until:
            raise PausedError


def search(
    question: PrecisionQuestion, folder: Path, record: Record, *, calls: int | None, seconds: float | None
) -> PrecisionReport | None:
    """The result, whose files are in the folder; None if the time for measuring is over before."""
    budget = MeasurementBudget(calls, seconds, time.monotonic())
    try:
        return answered(question, budget, folder, record, tell=lambda line: None).report
    except PausedError:
        return None
