"""Hosts without models: a universe, and a compiler that fails by a rule which only it knows."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import cast

from onnxbisect.answer import Answer
from onnxbisect.diagnosis import CompilesAfter, Diagnosis, Target
from onnxbisect.errors import OnnxBisectError
from onnxbisect.precision.plan import PrecisionEnding
from onnxbisect.report.contents import Report
from onnxbisect.search import plan
from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Description
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db.answers import AnsweredProbe, MeasuredSet
from onnxbisect_worker.model_requests.protocol import (
    Case,
    ChangeOutcome,
    ModelQuestion,
    PrecisionOutcome,
    Prepared,
    ProcessKilledError,
    ProcessLostError,
    RepairOutcome,
    ReportOutcome,
    StepProgress,
)
from onnxbisect_worker.model_requests.repair import question_name


@dataclass(kw_only=True)
class Compiler:
    """What the hosts of all workers call. `asked` counts the compiles of each piece.

    Where `running` is given, compiles wait until `go` is set, unless they are killed.
    """

    universe: Universe
    rule: Callable[[UnitSet], bool]
    #: What each of its compiles is said to have taken.
    seconds: float = 1.0
    #: What files have in them besides units, and keys have not.
    weights: str = ""
    #: Pieces that kill whoever compiles them.
    deadly: Callable[[UnitSet], bool] = lambda units: False
    go: Event = field(default_factory=Event)
    #: Compilers that are still to be killed from outside, and those that are still to be refused memory.
    shot: int = 0
    starved: int = 0
    #: Hosts that are still to be killed from outside while they read or report.
    hosts_shot: int = 0
    #: Why the model cannot be read.
    refusal: OnnxBisectError | None = None
    #: Why it cannot be drawn.
    no_picture: OnnxBisectError | None = None
    #: Questions that are out of time, whatever is left.
    too_slow: bool = False
    #: What a repair asks about, and why there is none; how often it was begun or gone on with.
    changed_models: Sequence[bytes] = (b"one", b"other")
    no_repair: OnnxBisectError | None = None
    #: Other options under which they are asked about, as of a process that was taken over.
    options: Mapping[str, str] = field(default_factory=dict)
    repairs: int = 0
    #: What is measured in a search for precise nodes, how often that was done, and whether each is a turn of its own.
    measured: Sequence[MeasuredSet] = ()
    measurements: int = 0
    paused: bool = False
    #: Measurements after which the process that makes them still crashes; files that it writes in the end.
    crashes_measuring: int = 0
    precision_files: Sequence[str] = ("precision.json",)
    #: Changed copies of the file to ask about before a search, and what they come to.
    changed_files: Sequence[bytes] = ()
    compiles_after: CompilesAfter | None = None
    #: The whole model passes once it is written as its parts are.
    form_is_to_blame: bool = False
    asked: Counter[UnitSet] = field(default_factory=Counter)
    running: Event = field(default_factory=Event)
    killed: int = 0
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.go.set()

    def key(self, units: UnitSet) -> str:
        """Equal for pieces of one unit that are equal alone; others are told apart by where their units stand, too."""
        alone = [self.universe.solo[unit] for unit in members(units)]
        what: object = alone[0] if len(alone) == 1 else (f"{units:x}", alone)
        return hashlib.sha256(repr(what).encode()).hexdigest()

    def file(self, units: UnitSet) -> str:
        """As if every piece had weights of its own."""
        return hashlib.sha256(f"file of {units:x}{self.weights}".encode()).hexdigest()

    def answer(self, units: UnitSet) -> Answer:
        with self.lock:
            self.starved -= 1
            if self.starved >= 0:
                verdict = Verdict(status=Status.UNRESOLVED, kind=Kind.RESOURCE, message="Was refused memory.")
                return Answer(verdict=verdict, log="half a\n")
        if not self.rule(units):
            return Answer(verdict=Verdict(status=Status.PASS, seconds=self.seconds), log="fine\n")
        names = tuple(f"n{unit}" for unit in members(units) if self.rule(1 << unit))
        words = f"no {names[0]}" if len(names) == 1 and units.bit_count() == 1 else "no"
        verdict = Verdict(
            status=Status.FAIL,
            kind=Kind.UNSUPPORTED,
            fingerprint="no",
            message=words,
            hints=Hints(nodes=names[:1]),
            seconds=self.seconds,
        )
        return Answer(verdict=verdict, file_sha256=self.file(units), log=f"{words}\n")


class HiddenRuleProcess:
    def __init__(self, compiler: Compiler, case: Case) -> None:
        self._compiler = compiler
        self._case = case
        self._killed = Event()

    def prepare(self) -> Prepared:
        self._wait()
        self._be_shot()
        if self._compiler.refusal is not None:
            raise self._compiler.refusal
        target = Target(backend=self._case.backend, tool="tool", version="1", options=dict(self._case.options))
        return Prepared(
            target=target,
            description=Description(tool="tool", version="1"),
            universe=self._compiler.universe,
            identity=hashlib.sha256(repr(target).encode()).hexdigest(),
            changeable=bool(self._compiler.changed_files),
            forms_differ=self._compiler.form_is_to_blame,
        )

    def draw(self) -> str:
        if self._compiler.no_picture is not None:
            raise self._compiler.no_picture
        return "a picture"

    def key(self, units: UnitSet, *, as_part: bool = False) -> str:
        return self._compiler.key(units) if not as_part else hashlib.sha256(b"as its parts are").hexdigest()

    def ask(self, units: UnitSet, *, seconds_left: float | None, as_part: bool = False) -> ProbeResult:
        with self._compiler.lock:
            self._compiler.asked[units] += 1
        self._wait()
        if self._compiler.deadly(units):
            raise ProcessLostError("The process that had the model was killed by signal 9.")
        if self._compiler.too_slow:
            return ProbeResult(answer=None, compiled=True, engine_seconds=0.0)
        with self._compiler.lock:
            self._compiler.shot -= 1
            if self._compiler.shot >= 0:
                verdict = Verdict(status=Status.UNRESOLVED, kind=Kind.RESOURCE, message="Killed from outside.")
                return ProbeResult(answer=Answer(verdict=verdict), compiled=True, engine_seconds=0.01, interrupted=True)
        answer = Answer(verdict=Verdict(status=Status.PASS)) if as_part else self._compiler.answer(units)
        return ProbeResult(answer=answer, compiled=True, engine_seconds=0.01)

    def _be_shot(self) -> None:
        with self._compiler.lock:
            self._compiler.hosts_shot -= 1
            if self._compiler.hosts_shot >= 0:
                raise ProcessKilledError("The process that had the model was killed by SIGKILL.")

    def digests(self, pieces: Sequence[UnitSet]) -> list[str]:
        self._be_shot()
        return list(map(self._compiler.file, pieces))

    def report(
        self,
        begun: StepProgress,
        folder: Path,
        *,
        logs: Mapping[str, str],
        compiles_after: CompilesAfter | None = None,
        file_after: str = "",
        neighbours: int = 0,
    ) -> ReportOutcome:
        self._be_shot()
        diagnosis = self._diagnosis(begun.answers)
        files = {}
        for culprit in diagnosis.culprits:
            name = f"culprits/{culprit.units:x}/model.onnx"
            files[name] = folder / f"{culprit.units:x}"
            files[name].write_text(self._compiler.file(culprit.units))
        document = {  # as much of a report as the worker reads
            "verdict": diagnosis.verdict.value,
            "headline": "a rule was asked",
            "diagnosis": culprits_of(diagnosis),
            "culprits": [],  # a model that is a rule has no ops that an entry could name
            "stats": asdict(begun.stats),
            "logs": sorted(logs.values()),
            "compiles_after": None if compiles_after is None else compiles_after.sentence,
        }
        return ReportOutcome(document=cast(Report, document), files=files)

    def change(self, begun: StepProgress, folder: Path) -> ModelQuestion | ChangeOutcome:
        self._be_shot()
        if self._compiler.no_repair is not None:
            raise self._compiler.no_repair
        question = self._next_question(self._compiler.changed_files, begun, folder, whole=True)
        return question or ChangeOutcome(compiles_after=self._compiler.compiles_after)

    def repair(self, begun: StepProgress, folder: Path) -> ModelQuestion | RepairOutcome:
        """Asks about `changed_models`, one after the other, and is content with the last answer."""
        self._compiler.repairs += 1
        self._be_shot()
        if self._compiler.no_repair is not None:
            raise self._compiler.no_repair
        question = self._next_question(self._compiler.changed_models, begun, folder, whole=False)
        if question is not None:
            return question
        path = folder / "repair.json"
        path.write_text('{"changes": []}')
        calls = sum(it.calls for it in begun.replies)
        files = {"repair/repair.json": path}
        return RepairOutcome(verdict=Status.PASS, changes=1, left=0, calls=calls, problem="", files=files)

    def precision(
        self,
        known: Sequence[MeasuredSet],
        folder: Path,
        *,
        calls: int | None,
        seconds: float | None,
        tell: Callable[[MeasuredSet], None],
    ) -> PrecisionOutcome:
        """Measures each of `measured` once, one in each turn where they are `paused`."""
        self._be_shot()
        if self._compiler.no_repair is not None:
            raise self._compiler.no_repair
        done = {it.keep for it in known}
        new = [it for it in self._compiler.measured if it.keep not in done][:calls]
        for number, it in enumerate(new, 1):
            self._compiler.measurements += 1
            tell(it)
            self._be_shot()
            self._compiler.crashes_measuring -= 1
            if self._compiler.crashes_measuring >= 0:
                raise ProcessLostError("The process that had the model was killed by SIGSEGV.")
            if self._compiler.paused and number < len(new):
                return PrecisionOutcome()
        for name in self._compiler.precision_files:
            (folder / name).write_text("{}")
        return PrecisionOutcome(
            ending=PrecisionEnding.MINIMAL,
            headline="1 node has to stay.",
            keep=1,
            asks=len(done) + len(new),
            files={f"precision/{name}": folder / name for name in self._compiler.precision_files},
        )

    def _next_question(
        self, models: Sequence[bytes], begun: StepProgress, folder: Path, *, whole: bool
    ) -> ModelQuestion | None:
        known = {it.question for it in begun.replies}
        for content in models:
            name = question_name(hashlib.sha256(content).hexdigest(), whole=whole)
            if name not in known and not begun.ended:
                path = folder / "model.onnx"
                path.write_bytes(content)
                return ModelQuestion(files={"model.onnx": path}, whole=whole, options=self._compiler.options)
        return None

    def kill(self) -> None:
        self._killed.set()

    def _diagnosis(self, answers: Sequence[AnsweredProbe]) -> Diagnosis:
        verdicts: dict[UnitSet, list[Verdict]] = {}
        for answer in answers:
            verdicts.setdefault(answer.units, []).append(answer.verdict)
        return plan(self._compiler.universe, verdicts, recheck=self._case.spec.recheck).diagnosis

    def _wait(self) -> None:
        self._compiler.running.set()
        while not self._compiler.go.wait(0.01):
            if self._killed.is_set():
                self._compiler.killed += 1
                raise ProcessLostError("The process that had the model was told to end.")


class HiddenRulePool:
    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    @contextmanager
    def acquire(self, case: Case, *, new: bool = False) -> Iterator[HiddenRuleProcess]:
        yield HiddenRuleProcess(self._compiler, case)

    def warm(self) -> Collection[str]:
        return ()

    def close(self) -> None:
        pass


def culprits_of(diagnosis: Diagnosis) -> list[list[str]]:
    """What is the same whoever found it in whichever order."""
    return [
        [f"{culprit.units:x}", culprit.kind.value, culprit.certainty.value, culprit.message]
        + [f"{units:x}" for units in culprit.occurrences]
        for culprit in diagnosis.culprits
    ]
