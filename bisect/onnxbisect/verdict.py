"""What became of a probe, in the words of docs/engine.md."""

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """The three answers that a compiler call can end with."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    #: The compiler refused this probe, and would again.
    FAIL = "fail"
    #: The question itself was bad: an invalid cut, infrastructure trouble, a time-out. Says nothing of the model.
    UNRESOLVED = "unresolved"


class Kind(StrEnum):
    """In which way a probe failed or stayed unresolved."""

    #: The compiler says that it lacks an op or an attribute.
    UNSUPPORTED = "unsupported"
    #: It died by a signal.
    CRASH = "crash"
    #: It was killed at its time limit.
    TIMEOUT = "timeout"
    #: It ran out of memory, of on-chip memory, or of disk.
    RESOURCE = "resource"
    #: It compiled, and the compiled model computes other numbers.
    NUMERIC = "numeric"
    #: It placed work on the host where the user forbids that.
    FALLBACK = "fallback"
    #: onnx.checker or onnxruntime refuse the probe.
    INVALID = "invalid"
    #: What answers for the compiler is a record of it (a profile), which does not say.
    UNKNOWN = "unknown"
    #: Anything else.
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What a compiler's log names. Hints steer the search; they never decide.

    Where it compares tensors with their reference values, `tensors` are those that differ and `right` those that do
    not. A tensor that is in neither was not compared. `unfolded` are lines in which it says that it has not computed
    constants beforehand, as it does otherwise.
    """

    ops: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    unfolded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ops or self.nodes or self.tensors)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Something that a compiler tabulates beside its verdict, such as where each node runs; every row is as long
    as `columns`. Cells are text as the compiler wrote it. `counted` is the column by whose values a summary counts
    the rows, empty where none says more than the others.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    counted: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One answer of a compiler.

    `fingerprint` is the compiler's own message with names, numbers and addresses normalised (`onnxbisect.
    fingerprint`), empty for a pass or a silent failure. `message` is the line a person should read.
    `seconds` is the compiler's wall time. `tables` are what else the compiler told of the probe.
    """

    status: Status
    kind: Kind | None = None
    fingerprint: str = ""
    message: str = ""
    hints: Hints = field(default_factory=Hints)
    seconds: float = 0.0
    tables: tuple[Table, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the compiler accepted the probe."""
        return self.status is Status.PASS

    @property
    def final(self) -> bool:
        """Whether the same compiler would answer the same again; an answer that is not final is not kept."""
        return self.status is not Status.UNRESOLVED or self.kind is Kind.UNKNOWN

    @property
    def failed(self) -> bool:
        """Whether the compiler refused the probe."""
        return self.status is Status.FAIL
