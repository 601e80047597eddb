"""Progress while compilers run: a live display on a terminal, else one line for each verdict.

Both go to standard error, so that standard output has only the report. Names and messages are hostile text: they pass
through `clean` or `clip`, and never through rich's markup.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

import onnx_bisect
from onnxbisect.finished import phrase
from onnxbisect.language import _
from onnxbisect.report.text import clip, duration, plural
from onnxbisect_cli.exit_status import Interruption, stopping
from onnxbisect_cli.speech import say, spoken

#: Most culprits and probes shown; the rest is counted.
_SHOWN = 6


class Display(Protocol):
    """Shows the events of a search while its context lasts."""

    def __call__(self, event: onnx_bisect.Event) -> None:
        """Handle an event."""

    def __enter__(self) -> Self:
        """Start the display."""

    def __exit__(self, *exception: object) -> None:
        """End the display, also after an error."""


def display() -> Display:
    """A live display if standard error is a terminal, else plain lines."""
    console = Console(file=sys.stderr)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(console)
    return PlainDisplay(sys.stderr)


class Shown:
    """The progress of a diagnosis: a display during the search, and signals that cancel it."""

    def __init__(self, cancellation: onnx_bisect.Cancellation) -> None:
        self.interruption = Interruption()
        self._cancellation = cancellation
        self._searching = ExitStack()
        self._display: Display | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._searching.close()

    def __call__(self, event: onnx_bisect.Event) -> None:
        """The `progress` argument of `diagnose`."""
        match event:
            case onnx_bisect.Note():
                say(str(event))
            case onnx_bisect.SearchStarted():
                self._display = self._searching.enter_context(display())
                self.interruption = self._searching.enter_context(stopping(self._cancellation.cancel))
            case onnx_bisect.SearchEnded():
                self._searching.close()
            case _ if self._display is not None:
                self._display(event)


class PlainDisplay:
    """One line for each verdict, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._calls = 0
        self._expected = 0.0
        self._known = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._flush_known()

    def __call__(self, event: onnx_bisect.Event) -> None:
        """Print the event if it is a verdict."""
        if isinstance(event, onnx_bisect.PlanMade):
            self._expected = event.expected_calls
        elif isinstance(event, onnx_bisect.ProbeAnswered) and event.cached:
            self._known += 1
        elif isinstance(event, onnx_bisect.ProbeAnswered):
            self._flush_known()
            self._calls += 1
            with spoken():
                self._say(f"[{self._calls}/{max(self._calls, round(self._expected))}] {event}")

    def _flush_known(self) -> None:
        if self._known:
            with spoken():
                self._say(_("{answers} already known", answers=plural(self._known, "answer")))
            self._known = 0

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveDisplay:
    """Calls done and expected, elapsed time, running probes, culprits so far."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._calls = 0
        self._known = 0
        self._expected = 0.0
        self._asking: dict[str, tuple[onnx_bisect.ProbeStarted, float]] = {}
        self._last: onnx_bisect.ProbeAnswered | None = None
        self._found: tuple[onnx_bisect.Found, ...] = ()
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self.display, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def __call__(self, event: onnx_bisect.Event) -> None:
        """Keep the event for the next refresh."""
        match event:
            case onnx_bisect.PlanMade():
                self._expected, self._found = event.expected_calls, event.found
            case onnx_bisect.ProbeStarted():
                self._asking[event.probe] = (event, self._clock())
            case onnx_bisect.ProbeAnswered():
                self._asking.pop(event.probe, None)
                self._last = event
                self._known += event.cached
                self._calls += not event.cached

    @spoken()
    def display(self) -> RenderableType:
        """The current contents."""
        now = self._clock()
        expected = max(self._calls + len(self._asking), round(self._expected), 1)
        head = Table.grid(padding=(0, 1))
        known = "  " + _("{answers} already known", answers=plural(self._known, "answer")) if self._known else ""
        calls = _("{calls} of about {expected}", calls=plural(self._calls, "call"), expected=expected)
        head.add_row(
            self._spinner,
            ProgressBar(total=expected, completed=self._calls, width=24),
            Text(f"{calls}  {duration(now - self._began)}{known}"),
        )
        lines: list[RenderableType] = [head]
        asking = list(self._asking.values())
        lines += [
            _line(
                f"  {_('asking')}  {clip(phrase(ask.why), 60)}, {plural(ask.units, 'unit')}, {duration(now - since)}",
                "cyan",
            )
            for ask, since in asking[:_SHOWN]
        ]
        if len(asking) > _SHOWN:
            lines.append(_line(f"          {_('and {more} more', more=len(asking) - _SHOWN)}", "cyan"))
        if self._last is not None:
            lines.append(_line(f"  {_('latest')}  {clip(str(self._last), 120)}", "dim"))
        for found in self._found[:_SHOWN]:
            style = "bold red" if found.certainty is onnx_bisect.Certainty.CONFIRMED else "red"
            lines.append(_line(f"  {_('found')}   {found}", style))
        if len(self._found) > _SHOWN:
            lines.append(_line(f"          {_('and {more} more', more=len(self._found) - _SHOWN)}", "red"))
        return Group(*lines)


def _line(text: str, style: str) -> Text:
    """One row, shortened to the screen's width."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
