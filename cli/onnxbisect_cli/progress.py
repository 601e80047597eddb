"""What a person sees while compilers run: a live display on a terminal, else one line for each verdict.

Both go to standard error, so that standard output holds the report and nothing else. Names and messages are
hostile text: they pass through `clean` or `clip`, and never through rich's markup.
"""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from onnxbisect.diagnosis import Certainty, Diagnosis
from onnxbisect.job import ProbeRecord
from onnxbisect.report.text import clean, clip, duration, plural
from onnxbisect.search.plan import Ask, Plan
from onnxbisect.unitset import UnitSet, members, size
from onnxbisect.universe import Universe
from onnxbisect_cli.driver import Observer

#: Culprits and questions shown at most; the rest is counted.
_SHOWN = 6


class Progress(Observer, Protocol):
    """An observer with a display that must be put up and taken down."""

    def __enter__(self) -> Self:
        """Put it up."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Take it down, whatever happened."""


def progress(universe: Universe) -> Progress:
    """The live display where standard error is a terminal, else plain lines."""
    stream = sys.stderr
    console = Console(file=stream)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(universe, console)
    return PlainProgress(universe, stream)


class PlainProgress:
    """One line for each verdict, for logs and pipes."""

    def __init__(self, universe: Universe, stream: TextIO) -> None:
        self._universe = universe
        self._stream = stream
        self._calls = 0
        self._expected = 0.0
        self._known = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._flush_known()

    def planned(self, plan: Plan, calls: int) -> None:
        """See `Observer.planned`."""
        self._expected = calls + plan.expected

    def asked(self, ask: Ask) -> None:
        """Says nothing: the verdict's line will name the question."""

    def answered(self, record: ProbeRecord) -> None:
        """See `Observer.answered`."""
        if record.cached:
            self._known += 1
            return
        self._flush_known()
        self._calls += 1
        self._say(f"[{self._calls}/{max(self._calls, round(self._expected))}] {sentence(self._universe, record)}")

    def _flush_known(self) -> None:
        if self._known:
            self._say(f"{plural(self._known, 'answer')} already known")
            self._known = 0

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveProgress:
    """Calls done and expected, elapsed time, what is being asked now, culprits found so far."""

    def __init__(self, universe: Universe, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._universe = universe
        self._clock = clock
        self._began = clock()
        self._calls = 0
        self._known = 0
        self._started = 0
        self._expected = 0.0
        self._asking: dict[tuple[UnitSet, int], tuple[str, float]] = {}
        self._last: ProbeRecord | None = None
        self._diagnosis: Diagnosis | None = None
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self.display, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._live.stop()

    def planned(self, plan: Plan, calls: int) -> None:
        """See `Observer.planned`."""
        self._expected = calls + plan.expected
        self._diagnosis = plan.diagnosis

    def asked(self, ask: Ask) -> None:
        """See `Observer.asked`."""
        self._asking[ask.units, ask.attempt] = (ask.why, self._clock())

    def answered(self, record: ProbeRecord) -> None:
        """See `Observer.answered`."""
        self._asking.pop((record.units, record.attempt), None)
        self._last = record
        if record.cached:
            self._known += 1
        else:
            self._calls += 1

    def display(self) -> RenderableType:
        """The display as it stands."""
        now = self._clock()
        expected = max(self._calls + len(self._asking), round(self._expected), 1)
        head = Table.grid(padding=(0, 1))
        known = f"  {plural(self._known, 'answer')} already known" if self._known else ""
        head.add_row(
            self._spinner,
            ProgressBar(total=expected, completed=self._calls, width=24),
            Text(f"{plural(self._calls, 'call')} of about {expected}  {duration(now - self._began)}{known}"),
        )
        lines: list[RenderableType] = [head]
        asking = list(self._asking.items())
        lines += [
            _line(f"  asking  {clip(why, 60)}, {plural(size(units), 'unit')}, {duration(now - since)}", "cyan")
            for (units, _), (why, since) in asking[:_SHOWN]
        ]
        if len(asking) > _SHOWN:
            lines.append(_line(f"          and {len(asking) - _SHOWN} more", "cyan"))
        if self._last is not None:
            lines.append(_line(f"  latest  {clip(sentence(self._universe, self._last), 120)}", "dim"))
        culprits = () if self._diagnosis is None else self._diagnosis.culprits
        for culprit in culprits[:_SHOWN]:
            found = f"  found   {ops_of(self._universe, culprit.units)}"
            times = f", {len(culprit.occurrences)} times" if len(culprit.occurrences) > 1 else ""
            sure = "" if culprit.certainty is Certainty.CONFIRMED else f" ({culprit.certainty})"
            lines.append(_line(found + times + sure, "bold red"))
        if len(culprits) > _SHOWN:
            lines.append(_line(f"          and {len(culprits) - _SHOWN} more", "red"))
        return Group(*lines)


def _line(text: str, style: str) -> Text:
    """One row of the screen, however narrow."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def sentence(universe: Universe, record: ProbeRecord) -> str:
    """One verdict on one line: `fail (unsupported): Erf alone: Erf, 0.4 s: op Erf is not supported`."""
    verdict = record.verdict
    kind = f" ({verdict.kind})" if verdict.kind is not None else ""
    again = f", asked again ({record.attempt + 1})" if record.attempt else ""
    units = plural(size(record.units), "unit")
    message = f": {clip(verdict.message, 120)}" if verdict.message and not verdict.passed else ""
    what = f"{verdict.status}{kind}: {clean(record.why)} ({units}{again}, {duration(verdict.seconds)})"
    return what + message


def ops_of(universe: Universe, units: UnitSet) -> str:
    """The ops of a set in topological order, as `ReduceMean → BatchNormalization`, the first few of many."""
    ops = [clip(universe.op[unit], 40) for unit in members(units)]
    return " → ".join(ops[:4]) + (f" … ({plural(len(ops), 'unit')})" if len(ops) > 4 else "")
