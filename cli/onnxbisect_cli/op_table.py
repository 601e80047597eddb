"""`op-table` and `profile`: measure which ops a compiler takes, or read it off reports, and write a profile."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from onnx_bisect.measuring import ModelAnswered, SeriesStarted, measure
from onnx_bisect.searching import Cancellation
from onnxbisect.errors import OptionError
from onnxbisect.report.text import clean, clip, plural
from onnxbisect_backends.measurement.recorded import recorded_profile
from onnxbisect_backends.simulator.profiles import profile_text
from onnxbisect_cli.exit_status import stopping
from onnxbisect_cli.reports import read

#: Answers between two progress lines if standard error is no terminal.
_LINE = 100


def write_profile(
    backend: str,
    output: Path,
    *,
    options: Mapping[str, str],
    ops: Sequence[str],
    jobs: int,
    timeout: float | None,
    budget_seconds: float | None,
    cache: bool,
) -> int:
    """Measure the compiler and write its profile; returns the exit status."""
    _demand_profile_path(output)
    try:  # checked first, because compiling can take an hour
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise OptionError(f"{output} cannot be written: {error.strerror or error}.") from error
    cancellation = Cancellation()
    with stopping(cancellation.cancel) as interruption, _ProgressBar() as bar:
        measured = measure(
            backend,
            name=output.stem,
            options=options,
            ops=ops,
            jobs=jobs,
            timeout=timeout,
            budget_seconds=budget_seconds,
            cache=cache,
            progress=bar.show,
            cancellation=cancellation,
        )
    if measured is None:
        kept = "its verdicts are kept and the same command goes on" if cache else "nothing is kept"
        print(clean(f"onnx-bisect: interrupted; no profile is written, {kept}."), file=sys.stderr)
        return interruption.exit_code
    measured.save(output)
    profile = measured.profile
    supported = sum(bool(support.node_tests) for support in profile.ops.values())
    unknown_ops = len(measured.ops - profile.ops.keys() - profile.refused.keys())
    found = f"{plural(supported, 'op')} supported, {len(profile.refused)} refused"
    found += f", {unknown_ops} not known" if unknown_ops else ""
    print(clean(f"{output}: {found}; {plural(measured.compiler_calls, 'compiler call')}"))
    for note in profile.notes:
        print(f"  {clip(note, 300)}")
    return 0


def _demand_profile_path(output: Path) -> None:
    if output.suffix != ".toml" or not output.parent.is_dir():
        raise OptionError(f"{output} cannot be a profile: name a file that ends in .toml in a folder that is.")


class _ProgressBar:
    """Progress on standard error: a bar on a terminal, else a line after every `_LINE` answers."""

    def __init__(self) -> None:
        self._calls = 0
        self._refused = 0
        self._known = 0
        self._console = Console(file=sys.stderr)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._live)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, event: SeriesStarted | ModelAnswered) -> None:
        """Begin a series of compiles, or count an answer."""
        if isinstance(event, SeriesStarted):
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(event.subject, total=event.models)
            if not self._live and event.models:
                print(event, file=sys.stderr, flush=True)
            return
        self._calls += not event.cached
        self._known += event.cached
        self._refused += event.verdict.failed
        if self._task is not None:
            self._bar.advance(self._task)
        done = self._calls + self._known
        if not self._live and done % _LINE == 0:
            print(f"{done} answers, {self._known} known before, {self._refused} refused", file=sys.stderr, flush=True)


def write_recorded(reports: Sequence[Path], output: Path) -> None:
    """Write the profile; raises OptionError for a bad report or output path."""
    _demand_profile_path(output)
    profile = recorded_profile(output.stem, {str(path): read(path) for path in reports})
    try:
        output.write_text(profile_text(profile, command="profile"), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{output} cannot be written: {error.strerror or error}.") from error
    supported = len(profile.ops) - 1  # all but Constant, which every profile has
    print(clean(f"{output}: {plural(supported, 'op')} supported as far as seen, {len(profile.refused)} refused"))
    for note in profile.notes:
        print(clean(f"  {note}"))
