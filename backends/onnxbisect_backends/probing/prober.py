"""One probe from beginning to end, and the files of culprits.

A probe is cut, written, compiled and judged; failing cuts are checked. A culprit's file is handed out only if a fresh
process failed on exactly its bytes. Usually the search has compiled it; its probe is then cut again, and equal bytes
are the proof. If the verdict came from another place with equal structure, whose weights and bytes differ, the driver
compiles this file too. It keeps the answer under the file's digest, because under the key of the structure all such
files would count as attempts of one probe.

How long a compile may take is estimated from those of the same search that passed: a compiler mostly refuses a probe
before it does the expensive work.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from threading import Lock
from time import perf_counter
from typing import Protocol

from onnxbisect.answer import Answer, shorten_log
from onnxbisect.diagnosis import DiagnosedCulprit
from onnxbisect.errors import OnnxBisectError, shortage
from onnxbisect.unitset import UnitSet, is_subset, size
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Backend, Limits, Outcome, products
from onnxbisect_backends.logs import killed_from_outside, unresolved
from onnxbisect_backends.samples import samples_folder
from onnxbisect_backends.sandbox.process import demand_plenty, oom_kills
from onnxbisect_backends.verifying import verified

#: Time limit as a multiple of the expected time: time can grow faster than linearly, and the machine may be busier than
#: before.
_MULTIPLE = 4
#: Shortest limit in seconds. Starting a compiler alone can take half of it on a busy machine.
_SHORTEST = 30.0
#: The estimate is used up to this many times the size of the largest probe that passed. Where time grows with the
#: square of the size, it is too low by this factor, for which `_MULTIPLE` leaves room.
_REACH = 2
#: Most compiles used for the fit, the latest ones; it considers all pairs of them.
_MOST = 100


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compile that ended with a verdict: its units, wall seconds, and whether it passed."""

    units: UnitSet
    seconds: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Seconds after which a compile is stopped, and the expected seconds."""

    seconds: float
    expected: float


def expected_seconds(compiled: Iterable[Compiled], units: int) -> float | None:
    """Expected seconds for a passing probe of `units` units: a + b * units, neither negative. None if none has passed.

    The fit is the Theil-Sen estimator: b is the median slope of all pairs, a the median of the residuals. Outliers,
    such as the first compile after a reboot, do not move it (Sen 1968, doi:10.1080/01621459.1968.10480934).
    """
    points = [(size(it.units), it.seconds) for it in compiled if it.passed][-_MOST:]
    if not points:
        return None
    slopes = [(t - s) / (n - m) for (m, s), (n, t) in combinations(points, 2) if m != n]
    slope = max(median(slopes), 0.0) if slopes else 0.0
    start = median(seconds - slope * count for count, seconds in points)
    if start < 0:
        start, slope = 0.0, median(seconds / count for count, seconds in points)
    return start + slope * units


def time_limit(compiled: Sequence[Compiled], units: UnitSet) -> TimeLimit | None:
    """The time limit of a probe; None where no compile on record is close enough for an estimate.

    Besides the estimate from size, it considers compiles of parts of the probe, which may contain what is slow in it,
    and of probes at least as large.
    """
    count = size(units)
    expected = expected_seconds(compiled, count)
    largest = max((size(it.units) for it in compiled if it.passed), default=0)
    if expected is None or count > _REACH * largest:
        return None
    seen = max((it.seconds for it in compiled if size(it.units) >= count or is_subset(it.units, units)), default=0.0)
    return TimeLimit(seconds=max(_MULTIPLE * max(expected, seen), _SHORTEST), expected=expected)


#: The probe's file name, the same in every folder, with no characters that trouble compilers.
PROBE_NAME = "model.onnx"

#: Cuts the units, writes them as a stand-alone model to the path (with a data file beside it if needed) and returns
#: the node and tensor names that differ from the model's: probe name to model name.
WriteProbe = Callable[[UnitSet, Path], Mapping[str, str]]

#: Writes input samples beside a probe, given its path and what `WriteProbe` returned (`onnxbisect_backends.samples`).
WriteSamples = Callable[[Path, Mapping[str, str]], None]

#: Returns a sentence if a failing probe file is invalid although the whole model is valid, else None.
Objection = Callable[[UnitSet, Path], str | None]


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """The result of one probe. `answer` is None if the budget, not the compiler's limit, ended it.

    `compiled`: a compiler ran; `engine_seconds` were used for cutting, writing and checking. `interrupted`: another
    process, not the kernel for lack of memory, ended the compile, so the answer says nothing.
    """

    answer: Answer | None
    compiled: bool
    engine_seconds: float
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True)
class Keep:
    """The folder for the compiler's output on these units."""

    units: UnitSet
    folder: Path


class Probes(Protocol):
    """The driver's interface for probes."""

    def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
        """Compile once, in a fresh process. Called by several threads at a time."""


class Prober:
    """Compiles pieces of one model with one backend; every probe has a temporary folder.

    It records compile times, and ends compiles that take several times the expected time.
    """

    def __init__(
        self,
        *,
        write: WriteProbe,
        write_part: WriteProbe | None = None,
        backend: Backend,
        limits: Limits,
        objection: Objection,
        folder: Path,
        samples: WriteSamples | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._write = write
        self._write_part = write_part or write
        self._samples = samples
        self._keep = keep
        self._backend = backend
        self._limits = limits
        self._objection = objection
        self._folder = folder
        # The cutter is not thread-safe; onnx holds the interpreter's lock anyway, so waiting costs nothing.
        self._cutting = Lock()
        self._compiled: list[Compiled] = []

    def ask(self, units: UnitSet, seconds_left: float | None = None, *, as_part: bool = False) -> ProbeResult:
        """Cut, compile and judge. A problem with a piece is an unresolved answer, so one probe never ends a search.

        `as_part`: the whole model too is written as its parts are, and not as its file has it.
        `seconds_left` limits the compile in addition to its own limit. OnnxBisectError of the backend passes through,
        because no probe can then be compiled; so do ShortageError, if this machine lacks resources, and MemoryError.
        """
        folder = Path(tempfile.mkdtemp(prefix="probe-", dir=self._folder))
        try:
            return self._ask(units, folder, seconds_left, as_part=as_part)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _ask(self, units: UnitSet, folder: Path, seconds_left: float | None, *, as_part: bool) -> ProbeResult:
        write = self._write_part if as_part else self._write
        probe, workdir = folder / "probe" / PROBE_NAME, folder / "work"
        probe.parent.mkdir()
        workdir.mkdir()
        with self._cutting:
            began = perf_counter()
            renamed = self._write_files(write, units, probe)
        engine_seconds = perf_counter() - began
        if isinstance(renamed, Answer):
            return ProbeResult(answer=renamed, compiled=False, engine_seconds=engine_seconds)
        files = _files(probe)
        stamps = _stamps(files)

        limits = self._limits
        if limits.confinement is not None:
            limits = replace(limits, confinement=replace(limits.confinement, probe=probe, workdir=workdir))
        left = inf if seconds_left is None else max(seconds_left, 0.1)
        usual = time_limit(self._compiled[:], units)
        limits = replace(limits, seconds_left=left if usual is None else min(left, usual.seconds))
        kills = oom_kills()
        try:
            outcome = self._backend.compile(probe, workdir, limits)
            if outcome.timed_out and outcome.seconds >= left:
                return ProbeResult(answer=None, compiled=True, engine_seconds=engine_seconds)
            if outcome.broken and not outcome.short:
                demand_plenty(folder)
            verdict = _given_up(outcome, usual) or self._backend.judge(outcome)
            verdict = verified(self._backend, probe, workdir, limits, verdict)
        except (OnnxBisectError, MemoryError):
            raise
        except Exception as error:  # a bug of a third party's backend says nothing about the model
            demand_plenty(folder, error)
            what = f"the backend raised {type(error).__name__}: {error}"
            return ProbeResult(answer=_unresolved(Kind.ERROR, what), compiled=True, engine_seconds=engine_seconds)

        if verdict.passed and self._keep is not None and units == self._keep.units and not as_part:
            keep_products(self._backend, outcome, workdir, self._keep.folder)
        if verdict.status is not Status.UNRESOLVED:
            self._compiled.append(Compiled(units=units, seconds=outcome.seconds, passed=verdict.passed))
        # in names of the model: the log has those of the probe
        verdict = replace(verdict, hints=verdict.hints.renamed(renamed))
        file_sha256 = ""
        if verdict.failed:
            began = perf_counter()
            if _stamps(files) != stamps:  # the compiler changed or removed its input
                probe = folder / "again" / PROBE_NAME
                probe.parent.mkdir()
                with self._cutting:
                    write(units, probe)
                files = _files(probe)
            file_sha256, objection = _digest(files), self._objection(units, probe)
            engine_seconds += perf_counter() - began
            if objection is not None:
                demand_plenty(folder)  # the checks cannot tell an unreadable file from an invalid one
                verdict = replace(verdict, status=Status.UNRESOLVED, kind=Kind.INVALID, message=objection)
        answer = Answer(verdict=verdict, file_sha256=file_sha256, log=shorten_log(outcome.log))
        interrupted = verdict.status is Status.UNRESOLVED and killed_from_outside(outcome) and oom_kills() == kills
        return ProbeResult(answer=answer, compiled=True, engine_seconds=engine_seconds, interrupted=interrupted)

    def _write_files(self, write: WriteProbe, units: UnitSet, probe: Path) -> Mapping[str, str] | Answer:
        """Write the probe and its samples; returns the names that differ, or the answer if they cannot be written."""
        kind, problem = Kind.INVALID, "could not be cut"
        try:
            renamed = write(units, probe)
            kind, problem = Kind.ERROR, "its input samples could not be written"
            if self._samples is not None:
                self._samples(probe, renamed)
        except MemoryError:
            raise
        except Exception as error:  # a piece that cannot be cut is one unanswered probe
            demand_plenty(probe.parent, error)
            return _unresolved(kind, f"{problem}: {error}")
        return renamed


def keep_products(backend: Backend, outcome: Outcome, workdir: Path, folder: Path) -> None:
    """Copy the output for the device (`contract.products`) into a folder."""
    for path in outcome.artifacts:
        if any(fnmatchcase(str(path), glob) for glob in products(backend)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(workdir / path, folder / path)


def file_digest(probe: Path) -> str:
    """SHA-256 of a probe file and of its data files, in the order of their names."""
    return _digest(_files(probe))


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _files(probe: Path) -> list[Path]:
    """The probe and its data files, which lie beside it under any name; its samples are no part of it."""
    samples = samples_folder(probe)
    beside = (path for path in probe.parent.rglob("*") if path.is_file() and samples not in path.parents)
    return [probe, *sorted(path for path in beside if path != probe)]


def _stamps(files: Sequence[Path]) -> list[tuple[int, int]] | None:
    """Which files these are and when they last changed; None if one is gone."""
    try:
        return [(status.st_ino, status.st_ctime_ns) for status in map(Path.stat, files)]
    except FileNotFoundError:
        return None


def _given_up(outcome: Outcome, usual: TimeLimit | None) -> Verdict | None:
    """The verdict if a compile was killed because it took too long for its size, not at the backend's limit."""
    if usual is None or not outcome.timed_out or outcome.seconds < usual.seconds:
        return None
    message = (
        f"Killed after {outcome.seconds:.0f} seconds; a probe of its size was expected to take {usual.expected:.1f} "
        f"seconds. The next run asks it again."
    )
    return unresolved(message, outcome, Kind.TIMEOUT)


def _unresolved(kind: Kind, message: str) -> Answer:
    return Answer(verdict=Verdict(status=Status.UNRESOLVED, kind=kind, message=message))


#: The folder beside the pieces; the compiler's output for each is in a subfolder of its name.
COMPILED = "compiled"


@dataclass(frozen=True, kw_only=True)
class PieceCompiler:
    """Compiles files with one backend; `folder` is for temporary files. `samples` writes a target's samples."""

    backend: Backend
    folder: Path
    limits: Limits
    samples: WriteSamples | None = None

    def __call__(self, file: Path, renamed: Mapping[str, str]) -> Verdict:
        """Compile a file. After a pass, the files for the device are in `compiled/NAME/` beside it.

        `renamed` maps names in the file to the model's. Errors of the backend pass through.
        """
        with tempfile.TemporaryDirectory(prefix="piece-", dir=self.folder) as place:
            probe, workdir = Path(place, "probe", file.name), Path(place, "work")
            probe.parent.mkdir()
            workdir.mkdir()
            for source in (file, file.with_suffix(".data")):
                if source.exists():
                    shutil.copyfile(source, probe.with_name(source.name))
            if self.samples is not None:
                self.samples(probe, renamed)
            outcome = self.backend.compile(probe, workdir, self.limits)
            verdict = verified(self.backend, probe, workdir, self.limits, self.backend.judge(outcome))
            if verdict.passed:
                keep_products(self.backend, outcome, workdir, file.parent / COMPILED / file.stem)
        return verdict


LOG_NAME = "compiler.log"
#: The data file that `onnxbisect.cut.write` puts beside a piece with external data.
DATA_NAME = "model.data"


class CulpritFiles:
    """Cuts culprits again and compares them with what was compiled; `accompany` adds further files."""

    def __init__(self, write: WriteProbe, folder: Path, accompany: WriteSamples | None = None) -> None:
        self._write = write
        self._accompany = accompany
        self._folder = folder
        self._digests: dict[UnitSet, str] = {}

    def is_seen(self, culprit: DiagnosedCulprit, answers: Mapping[UnitSet, Answer]) -> bool:
        """Whether a compiler failed on exactly the bytes that `write` would write."""
        answer = answers.get(culprit.evidence.own)
        if answer is None or not answer.verdict.failed:
            return False
        return answer.file_sha256 == self.digest(culprit.evidence.own)

    def files(self, culprit: DiagnosedCulprit, answers: Mapping[UnitSet, Answer]) -> dict[str, Path | bytes]:
        """The culprit's files by path, in a folder of their own; none if its failure was not seen."""
        if not self.is_seen(culprit, answers):
            return {}
        folder = Path(mkdtemp(prefix="culprit-", dir=self._folder))
        renamed = self._write(culprit.evidence.own, folder / PROBE_NAME)
        if self._accompany is not None:
            self._accompany(folder / PROBE_NAME, renamed)
        log = answers[culprit.evidence.own].log.encode("utf-8", "replace")
        return {
            **{str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()},
            LOG_NAME: log,
        }

    def digest(self, units: UnitSet) -> str:
        """SHA-256 of the piece's file (`prober.file_digest`); empty if it cannot be cut."""
        if units not in self._digests:
            with TemporaryDirectory(prefix="culprit-", dir=self._folder) as folder:
                probe = Path(folder) / PROBE_NAME
                try:
                    self._write(units, probe)
                    self._digests[units] = file_digest(probe)
                except OnnxBisectError as error:
                    if (short := shortage(error)) is not None:
                        raise short from error
                    self._digests[units] = ""
        return self._digests[units]
