"""The result of compiling a probe; docs/engine.md defines the terms."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self


class Status(StrEnum):
    """The three results of a compiler call."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    #: The compiler refused this probe, and would again.
    FAIL = "fail"
    #: The probe says nothing about the model: an invalid cut, an infrastructure failure or a time-out.
    UNRESOLVED = "unresolved"


class Kind(StrEnum):
    """How a probe failed or why it is unresolved."""

    #: The compiler says that it lacks an op or an attribute.
    UNSUPPORTED = "unsupported"
    #: The compiler was killed by a signal.
    CRASH = "crash"
    #: The compiler was stopped at its time limit.
    TIMEOUT = "timeout"
    #: The compiler ran out of memory, on-chip memory or disk space.
    RESOURCE = "resource"
    #: The probe compiled, and the compiled model computes other numbers.
    NUMERIC = "numeric"
    #: The compiler placed work on the host although the user forbids that.
    FALLBACK = "fallback"
    #: onnx.checker or onnxruntime refuse the probe.
    INVALID = "invalid"
    #: The verdict comes from a record of the compiler (a profile) that does not say more.
    UNKNOWN = "unknown"
    #: Anything else.
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Names in a compiler's log. Hints steer the search; they never decide a verdict.

    If the compiler compares tensors with reference values, `tensors` are those that differ and `right` those that
    agree; others were not compared. `unfolded` are log lines that say that constants were not folded although they
    usually are.
    """

    ops: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    unfolded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ops or self.nodes or self.tensors)

    def renamed(self, names: Mapping[str, str]) -> Self:
        """With other names of nodes and tensors, where `names` has one."""
        nodes, tensors, right = (
            tuple(names.get(name, name) for name in each) for each in (self.nodes, self.tensors, self.right)
        )
        return replace(self, nodes=nodes, tensors=tensors, right=right)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that a compiler prints beside its verdict, such as where each node runs; rows are as long as `columns`.

    Cells are text as written by the compiler. `counted` is the column by whose values a summary counts rows; empty
    where no column is suitable.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    counted: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One result of a compiler call.

    `fingerprint` is the compiler's message with names, numbers and addresses normalised (`onnxbisect.fingerprint`);
    empty for a pass or a failure without a message. `message` is the line that people should read. `seconds` is the
    compiler's wall time. `tables` are further output about the probe.
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
        """Whether the same compiler would give the same result again; other results are not kept."""
        return self.status is not Status.UNRESOLVED or self.kind is Kind.UNKNOWN

    @property
    def failed(self) -> bool:
        """Whether the compiler refused the probe."""
        return self.status is Status.FAIL

    @property
    def by_chance(self) -> bool:
        """Whether it may pass when it is asked again: the processor stopped the compiler, which named nothing.

        A compiler that reads memory it never set, or whose threads race, dies so of a file that it takes the next time.
        One that aborts has decided to.
        """
        stopped = self.fingerprint.startswith(("SIGFPE", "SIGSEGV", "SIGBUS", "SIGILL"))
        return self.failed and self.kind is Kind.CRASH and stopped and not self.hints
