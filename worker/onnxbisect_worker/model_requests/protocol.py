"""The requests to model processes, and the messages exchanged with them.

A model process has one model and one target, and handles one request at a time. If the model crashes it, only that
process is lost.

A message is one JSON object on a line. The first one is the `Setup`. A request names a method of `ModelProcess`:
`{"do": name, "given": {argument: ...}}`. An answer is `{"result": ...}`, or `{"error": class, "text": sentence}`;
before it there may be messages `{"told": ...}` of what was measured so far. All are read by the types of the method. A
model may have taken over the process, so its answers are not trusted: one of another type is an error.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from onnxbisect import errors
from onnxbisect.diagnosis import CompilesAfter, Stats, Target
from onnxbisect.errors import BackendUnusableError, OnnxBisectError
from onnxbisect.json_form import from_json, to_json
from onnxbisect.precision.plan import PrecisionEnding
from onnxbisect.report.contents import Report
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Confinement, Description
from onnxbisect_backends.probing.identity import REVISION
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db.answers import AnsweredProbe, MeasuredSet, Reply
from onnxbisect_service.search_spec import SearchSpec


class OtherVersionError(BackendUnusableError):
    """The search began with another compiler, or another version of this program, than this worker has.

    Answers of both are no evidence together, so it begins again.
    """


def this_version() -> str:
    """The version of this program, for `Prepared.made_by`."""
    return f"{version('onnx-bisect')}, probe files {REVISION}, form 2"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The target as its compiler describes itself, the model's units for this target, and the identity of its verdicts.

    It is the same for every job with the same model and target. `changeable`: changed copies of the file are worth
    trying. `forms_differ` is that of `SearchContext`.

    `made_by` is the version of this program; another one may number units otherwise and write other files for them.

    `established` has the facts found when the model was loaded (`Established.to_bytes`), so that model processes need
    not find them again; empty if they are large, and in files of earlier versions.
    """

    target: Target
    description: Description
    universe: Universe
    identity: str
    changeable: bool = False
    forms_differ: bool = False
    made_by: str = field(default_factory=lambda: this_version())
    established: bytes = b""

    def to_bytes(self) -> bytes:
        """The file; equal contents give equal bytes."""
        fields = to_json(self)
        established = fields.pop("established")
        line = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return b"\n".join([line.encode(), established.encode()])

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Prepared":
        """The contents that `to_bytes` wrote. OtherVersionError if an earlier or later version wrote them."""
        line, _, established = raw.partition(b"\n")
        fields = json.loads(line)
        made_by = fields.get("made_by") if isinstance(fields, dict) else None
        if made_by != this_version():
            raise OtherVersionError(
                f"The search was begun by another version of onnx-bisect ({made_by}) than this worker has "
                f"({this_version()}): start the job again when all workers have the same."
            )
        return from_json({**fields, "established": established.decode()}, cls)


#: The name of a model process among the system's processes.
PROCESS_NAME = "model-process"
#: The subfolder that the process writes to; the lock is beside it.
OWN = "own"


class ProcessLostError(OnnxBisectError):
    """The process that had the model is gone: crashed, out of memory or out of time, as the kernel reported.

    The text is a sentence.
    """


class ProcessKilledError(ProcessLostError):
    """It was ended from outside, or could not be started, which says nothing about the model."""


class ToolBrokenError(BackendUnusableError):
    """The compiler fails on everything; another worker's may work. The text has nothing of the job."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stored model and a target. `onnx` is the SHA-256 of its file, `files` maps external data locations to SHA-256.

    `prepared` is None before preparation. Equal cases can share a process; those of two tenants are never equal,
    because a model that has taken over its process would see the next request.
    """

    tenant: str = ""
    onnx: str
    model_name: str
    files: Mapping[str, str] = field(default_factory=dict)
    backend: str
    options: Mapping[str, str]
    spec: SearchSpec
    #: SHA-256 of the stored result of `prepare`.
    prepared: str | None = None

    @property
    def all_files(self) -> set[str]:
        """The SHA-256 of every stored file that it needs."""
        prepared = [] if self.prepared is None else [self.prepared]
        return {self.onnx, *self.files.values(), *self.spec.files, *prepared}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A case, its limits, and the `paths` of stored files by SHA-256.

    `folder` is the process's own, `environment` all variables of compilers. `compile_seconds` and `compile_memory`
    limit one compile, `seconds` and `memory` everything else. `confinement` applies to the process and every compile;
    None if they see all that their user sees.
    """

    case: Case
    paths: Mapping[str, Path]
    folder: Path
    environment: Mapping[str, str]
    cache: Path
    cache_bytes: int
    compile_seconds: float
    compile_memory: int | None
    confinement: Confinement | None
    seconds: float
    memory: int
    nodes: int

    def paths_of(self, files: Mapping[str, str]) -> dict[str, Path]:
        """The paths of stored files, given their SHA-256, under the same names."""
        return {name: self.paths[sha256] for name, sha256 in files.items()}


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """The result of a step, with its files by name."""

    files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReportOutcome(StepOutcome):
    """A report: the document, and its files by path below it (`culprits/01-Abs/model.onnx`, ...)."""

    document: Report


@dataclass(frozen=True, kw_only=True)
class ModelQuestion(StepOutcome):
    """A changed model to search: `model.onnx` and its other files by name; without files, the original model.

    A `piece` has inputs of its own, other models those of the job, and its external data. `whole`: compile only the
    whole model. With `options`, these replace the target's, and only `pieces` of the model are compiled. `brief`:
    search in brief (`onnxbisect.search.plan`), as pieces are. `doubted` are names of nodes that the search leaves out
    first. The search ends after `most_calls`.
    """

    piece: bool = False
    whole: bool = False
    brief: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[UnitSet, ...] = ()
    doubted: tuple[str, ...] = ()
    most_calls: int | None = None


@dataclass(frozen=True, kw_only=True)
class ChangeOutcome(StepOutcome):
    """The result of changing the whole file: the changed copy that the compiler accepts, if any.

    Or `file_after`: what was changed in the copy `model.onnx`, which it refuses for another reason than the file, and
    in which the search goes on.
    """

    compiles_after: CompilesAfter | None
    file_after: CompilesAfter | None = None


@dataclass(frozen=True, kw_only=True)
class RepairOutcome(StepOutcome):
    """The result of a repair in short (`Search.repair`), and the written files by path below the report."""

    verdict: Status
    changes: int
    left: int
    calls: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class PrecisionOutcome(StepOutcome):
    """The result of a search for nodes that must stay precise in short (`measurements.PreciseNodes`), and the written
    files by path below the report. Without an `ending`, the process has measured for its time, and others may work.
    """

    ending: PrecisionEnding | None = None
    headline: str = ""
    keep: int = 0
    asks: int = 0


@dataclass(frozen=True, kw_only=True)
class StepProgress:
    """The progress of a step that asks about changed models: answers on the original model, and on the changed ones.

    `ended`: the budget is spent; `searched`: the parts of the model were searched, not only the whole compiled.
    """

    answers: Sequence[AnsweredProbe]
    stats: Stats
    replies: Sequence[Reply] = ()
    ended: bool = False
    searched: bool = True

    def reply(self, question: str) -> Reply | None:
        """The answer to this question about a changed model; None if there is none."""
        return next((it for it in self.replies if it.question == question), None)


class ModelProcess(Protocol):
    """One model and one target. All methods raise ProcessLostError, or OnnxBisectError with a sentence for users."""

    def prepare(self) -> Prepared:
        """Read the model for the target; needs the compiler. Raises ModelError, OptionError, BackendUnusableError."""

    def draw(self) -> str:
        """The data for pictures of the model (`onnxbisect.drawing.network.network_bytes`)."""

    def key(self, units: UnitSet, *, as_part: bool = False) -> str:
        """The probe's key (`SearchContext.key`)."""

    def ask(self, units: UnitSet, *, seconds_left: float | None, as_part: bool = False) -> ProbeResult:
        """Cut, compile and judge (`Prober.ask`); needs the compiler. `seconds_left` are those of the search."""

    def digests(self, pieces: Sequence[UnitSet]) -> list[str]:
        """SHA-256 of the files of these pieces, as compilers get them; empty for one that cannot be cut."""

    def report(
        self,
        begun: StepProgress,
        folder: Path,
        *,
        logs: Mapping[str, str],
        compiles_after: CompilesAfter | None = None,
        file_after: str = "",
        neighbours: int = 0,
    ) -> ModelQuestion | ReportOutcome:
        """The report for these answers, or a neighbour of a culprit to be compiled first.

        `logs` are compilers' logs by probe id, at least of failures with a `file_sha256`; files are written into the
        folder. With `compiles_after`, the parts of the model were not searched. With `file_after`, the model is the
        job's after that change. `neighbours` are the calls allowed for changed culprits, which confirm causes; 0 for
        none.
        """

    def change(self, begun: StepProgress, folder: Path) -> ModelQuestion | ChangeOutcome:
        """The first changed copy of the whole file without an answer, or the result. Files go into the folder."""

    def repair(self, begun: StepProgress, folder: Path) -> ModelQuestion | RepairOutcome:
        """The first question without an answer, or the result of the repair; needs the compiler. Files go into the
        folder.
        """

    def precision(
        self,
        known: Sequence[MeasuredSet],
        folder: Path,
        *,
        calls: int | None,
        seconds: float | None,
        tell: Callable[[MeasuredSet], None],
    ) -> PrecisionOutcome:
        """The nodes that must stay precise, beginning with what is `known`; needs the compiler.

        `calls` and `seconds` are left of the budget. `tell` gets each new measurement at once. Files go into the
        folder.
        """

    def kill(self) -> None:
        """End it and all its compiles at once, from any thread. A waiting thread gets ProcessLostError."""


class Pool(Protocol):
    """The model processes of a worker, kept because reading a model takes longer than most requests."""

    def acquire(self, case: Case, *, new: bool = False) -> AbstractContextManager[ModelProcess]:
        """A process for the case, used by one thread while the context lasts. A `new` one has handled no request.

        It starts, and reads the model, with its first request.
        """

    def warm(self) -> Collection[str]:
        """SHA-256 of the prepared files of idle processes, which have read their models."""

    def close(self) -> None:
        """End all of them."""


def failure(error: OnnxBisectError, text: str) -> dict[str, Any]:
    """The answer for an error, which `raised` reads."""
    return {"error": type(error).__name__, "text": text}


def raised(answer: Mapping[str, Any]) -> OnnxBisectError:
    """The error that a model process reported."""
    own = {kind.__name__: kind for kind in (ProcessLostError, ToolBrokenError, OtherVersionError)}
    kind = own.get(answer["error"]) or getattr(errors, str(answer["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, OnnxBisectError)):
        kind = OnnxBisectError
    return kind(str(answer.get("text")))
