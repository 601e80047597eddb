"""The search for nodes that must stay precise in a model process: replayed on what was measured, then measured on."""

import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from onnx_bisect.measuring_precision import answered
from onnx_bisect.precision_record import MeasurementBudget, Record
from onnx_bisect.precision_search import finite
from onnx_bisect.precision_subject import PrecisionQuestion
from onnxbisect.precision.report import PrecisionReport
from onnxbisect.precision.wanted import Wanted
from onnxbisect_db.answers import MeasuredSet

#: Seconds of measuring after which others get their turn: what was measured is kept, and this search goes on later.
_SLICE = 300.0
#: So many times what came before the first measurement, which the next turn has to do again.
_TIMES = 3.0


class PausedError(Exception):
    """The time for measuring is over."""


class ToldRecord(Record):
    """A record whose measurements are told at once. PausedError after a slice of time, and at least one of them."""

    def __init__(
        self,
        known: Sequence[MeasuredSet],
        want: Wanted,
        silent: dict[tuple[str, frozenset[str]], str],
        tell: Callable[[MeasuredSet], None],
    ) -> None:
        nothing = -want.score(inf)
        super().__init__(
            {(it.arithmetic, frozenset(it.keep)): nothing if it.value is None else it.value for it in known}, silent
        )
        self._tell, self._began, self._until = tell, time.monotonic(), inf

    def add(self, on: str, keep: frozenset[str], value: float, *, work: float, shown: str, why: str) -> None:
        super().add(on, keep, value, work=work, shown=shown, why=why)
        names = tuple(sorted(keep))
        self._tell(
            MeasuredSet(arithmetic=on, keep=names, work=work, value=finite(value), shown=shown, why=why),
        )
        at = time.monotonic()
        if self._until == inf:
            self._until = self._began + max(_SLICE, (1 + _TIMES) * (at - self._began))
        if at > self._until:
            raise PausedError


def search(
    question: PrecisionQuestion, folder: Path, record: Record, *, calls: int | None, seconds: float | None
) -> PrecisionReport | None:
    """The result, whose files are in the folder; None if the time for measuring is over before."""
    left = None if calls is None else max(calls - len(record.silent), 0)
    budget = MeasurementBudget(left, seconds, time.monotonic())
    try:
        return answered(question, budget, folder, record, tell=lambda line: None).report
    except PausedError:
        return None
