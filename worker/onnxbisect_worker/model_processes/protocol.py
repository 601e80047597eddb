"""What a worker asks model processes for, and the messages that it exchanges with them.

A model process has one model before one target, and does one thing at a time. It may die of the model: then nothing but
that process is lost.

A message is one JSON object on a line. The first one is the `Setup`. A request is `{"do": name, ...}`; an answer is
`{"result": ...}`, or `{"error": class, "text": sentence}`. A model may have taken the process over, so its answers
are not trusted.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import cattrs

from onnxbisect import errors
from onnxbisect.errors import BackendUnusableError, OnnxBisectError
from onnxbisect.job import CompilesAfter, Stats
from onnxbisect.report.contents import Report
from onnxbisect.unitset import UnitSet
from onnxbisect_backends.contract import Confinement
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db.answers import AnsweredProbe, Reply
from onnxbisect_service.search_spec import Alternatives, SearchSpec
from onnxbisect_worker.prepared import Prepared

#: The name of a model process among the system's processes.
PROCESS_NAME = "model-process"
#: Of a process's folder, the one that it writes to. Beside it lies the lock.
OWN = "own"

#: Values of messages. Numbers are hexadecimal: a set of units may have more decimal digits than Python's JSON reads.
converter = cattrs.Converter(detailed_validation=False)
converter.register_unstructure_hook(int, lambda number: f"{number:x}")
converter.register_structure_hook(int, lambda text, _: int(text, 16))
converter.register_unstructure_hook(bool, bool)
converter.register_structure_hook(bool, lambda value, _: bool(value))
converter.register_structure_hook(Alternatives, lambda value, _: value)


class ProcessLostError(OnnxBisectError):
    """The process that had the model is gone: crashed, out of memory or out of time, as the kernel told its parent. The
    text is a sentence.
    """


class ProcessKilledError(ProcessLostError):
    """It was ended from outside, or could not be started, which says nothing about the model."""


class ToolBrokenError(BackendUnusableError):
    """The compiler complains whatever is asked of it: another worker's may work. The text has nothing of the job."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stored model before a target. `onnx` is the SHA-256 of its file, `files` are those of its external data:
    location to SHA-256.

    `prepared` is None for a case that is to be prepared. Processes for equal cases do for each other; those of two
    tenants are never equal, since a model that has taken its process over would see what the next one asks.
    """

    tenant: str = ""
    onnx: str
    model_name: str
    files: Mapping[str, str] = field(default_factory=dict)
    backend: str
    options: Mapping[str, str]
    spec: SearchSpec
    #: SHA-256 of the stored file that `prepare` led to.
    prepared: str | None = None

    @property
    def all_files(self) -> set[str]:
        """SHA-256 of every stored file that is needed."""
        prepared = [] if self.prepared is None else [self.prepared]
        return {self.onnx, *self.files.values(), *self.spec.files, *prepared}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A case, the bounds under which it is worked on, and `paths` of the stored files by SHA-256.

    `folder` is the process's own, `environment` the whole one that compilers get. `compile_seconds` and
    `compile_memory` bound one compile, `seconds` and `memory` everything else. `confinement` is that of the process
    and of every compile, None where they see all that their user sees.
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
        """The paths of stored files, by the same names as their SHA-256."""
        return {name: self.paths[sha256] for name, sha256 in files.items()}


@dataclass(frozen=True, kw_only=True)
class Written:
    """A report: the document, and by path below it the files that go with it (`culprits/01-Abs/model.onnx`, ...)."""

    document: Report
    files: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A changed model that is asked about: its files by name, `model.onnx` and what it has of its own beside that; or,
    where there are none, the model as it is.

    A `piece` has inputs of its own, other models those of the job's, and its external data. `whole`: whether it passes,
    and nothing more. With `options` the target has these in place of its own, and is asked about `pieces` of the model.
    """

    files: Mapping[str, Path]
    piece: bool = False
    whole: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[UnitSet, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Changed:
    """What changed copies of the whole file came to: the one after which the compiler takes the model, if any."""

    compiles_after: CompilesAfter | None


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """What a repair came to: its outcome in a few words (`Search.repair`), and what it has written, by path below the
    report.
    """

    outcome: dict[str, Any]
    files: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class Begun:
    """How far a step is that asks about changed models: what was answered about the model as it is, and what about
    these. `ended`: the budget is spent; `searched`: the parts of the model were asked about, and not only the whole.
    """

    answers: Sequence[AnsweredProbe]
    stats: Stats
    replies: Sequence[Reply]
    ended: bool
    searched: bool = True


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """What is known of changed culprits that were asked about to confirm causes, and the calls that may be made for all
    of them: 0 where none are to be asked.
    """

    most: int = 0
    replies: Sequence[Reply] = ()


#: Of a search whose causes are not to be confirmed.
NO_NEIGHBOURS = Neighbours()


class ModelProcess(Protocol):
    """One model before one target. All methods raise ProcessLostError, or OnnxBisectError with a sentence for users."""

    def prepare(self) -> Prepared:
        """Read the model for the target; the compiler must be here. Raises ModelError, OptionError and
        BackendUnusableError.
        """

    def draw(self) -> bytes:
        """What pictures of the model are made from (`onnxbisect.report.network_file`)."""

    def key(self, units: UnitSet) -> str:
        """The probe's canonical structure."""

    def ask(self, units: UnitSet, *, seconds_left: float | None) -> ProbeResult:
        """Cut, compile and judge; the compiler must be here. `seconds_left` are those of the search's budget."""

    def digests(self, pieces: Sequence[UnitSet]) -> list[str]:
        """SHA-256 of the files of these pieces, as compilers get them; empty for one that cannot be cut."""

    def report(
        self,
        answers: Sequence[AnsweredProbe],
        stats: Stats,
        logs: Mapping[str, str],
        folder: Path,
        compiles_after: CompilesAfter | None = None,
        neighbours: Neighbours = NO_NEIGHBOURS,
    ) -> Question | Written:
        """The report that these answers lead to, or a neighbour of a culprit that is to be asked about before. `logs`
        are compilers' logs by probe id, at least of the failures that have a `file_sha256`; files are written into the
        folder. With `compiles_after` the parts of the model were not asked about.
        """

    def change(self, begun: Begun, folder: Path) -> Question | Changed:
        """The first changed copy of the whole file that was not asked about, or what these came to. Files are written
        into the folder.
        """

    def repair(self, begun: Begun, folder: Path) -> Question | Repaired:
        """The first question that was not answered, or what the repair has come to; the compiler must be here. Files
        are written into the folder.
        """

    def kill(self) -> None:
        """End it and all its compiles at once; from any thread. A thread that waits for it gets ProcessLostError."""


class Pool(Protocol):
    """The model processes of a worker, kept for the next question: reading a model takes longer than most of them."""

    def acquire(self, case: Case, *, new: bool = False) -> AbstractContextManager[ModelProcess]:
        """A process for the case, used by no other thread while the context lasts. It starts, and reads the model, when
        it is first asked for anything. A `new` one has done nothing before.
        """

    def warm(self) -> Collection[str]:
        """SHA-256 of what was prepared, of the processes that wait for a question: they have read their models."""

    def close(self) -> None:
        """End all of them."""


def failure(error: OnnxBisectError, text: str) -> dict[str, Any]:
    """The answer that `raised` reads."""
    return {"error": type(error).__name__, "text": text}


def raised(answer: Mapping[str, Any]) -> OnnxBisectError:
    """The error that a model process met."""
    own = {kind.__name__: kind for kind in (ProcessLostError, ToolBrokenError)}
    kind = own.get(answer["error"]) or getattr(errors, str(answer["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, OnnxBisectError)):
        kind = OnnxBisectError
    return kind(str(answer.get("text")))
