"""A job that has ended, as values: everything that a report is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from onnxbisect.diagnosis import Diagnosis
from onnxbisect.exactness import Exactness
from onnxbisect.finding import Finding
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict

if TYPE_CHECKING:
    # Both import onnx, which readers of reports do not need.
    from onnxbisect.alternatives import Alternative
    from onnxbisect.causes.condition import AskedNeighbour
    from onnxbisect.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Target:
    """A backend with its options, and the tool that was called.

    `calibration` is a digest of the user's input samples, if any were given.
    """

    backend: str
    tool: str
    version: str
    options: dict[str, Any]
    calibration: str = ""


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """One verdict on record.

    `key` is the canonical structure of the probe (`onnxbisect.key`), `round` the number of its batch, `attempt` 0 for
    the first compile. `cached` means that no compiler ran and an earlier answer was reused. `file_sha256` is that of
    `Answer`.
    """

    key: str
    units: UnitSet
    verdict: Verdict
    why: str
    round: int
    attempt: int = 0
    cached: bool = False
    file_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Stats:
    """The cost of a job. Seconds are wall time; `compile_seconds` adds up parallel compiles."""

    compiler_calls: int
    cached: int
    rounds: int
    compile_seconds: float
    engine_seconds: float
    wall_seconds: float

    @classmethod
    def of(
        cls, records: Sequence[ProbeRecord], *, calls: int, rounds: int, engine_seconds: float, wall_seconds: float
    ) -> Self:
        """Complete the given numbers with those from the records."""
        return cls(
            compiler_calls=calls,
            cached=sum(record.cached for record in records),
            rounds=rounds,
            compile_seconds=sum(record.verdict.seconds for record in records if not record.cached),
            engine_seconds=engine_seconds,
            wall_seconds=wall_seconds,
        )

    def and_then(self, later: Self) -> Self:
        """The cost of this and of what followed it."""
        return type(self)(**{it.name: getattr(self, it.name) + getattr(later, it.name) for it in fields(self)})


@dataclass(frozen=True, kw_only=True)
class CompilesAfter:
    """A change of the whole file after which the target compiles the model.

    `sentence` describes the change, `remedies` are the ids of the file remedies. `exactness` is their promise about the
    numbers, and `domain` the values that it holds for, empty for all. `calls` were needed to find it, 0 where known.
    With `options` the file is as it was, and these options of the target make it compile.
    """

    sentence: str
    remedies: tuple[str, ...]
    exactness: Exactness
    domain: str
    calls: int
    options: Mapping[str, str] = field(default_factory=dict)

    def following(self, first: "CompilesAfter") -> "CompilesAfter":
        """This change of a file that has the `first` one already, as one change."""
        return replace(
            self,
            sentence=f"{first.sentence}; {self.sentence}",
            remedies=tuple(dict.fromkeys((*first.remedies, *self.remedies))),
            exactness=max(first.exactness, self.exactness, key=list(type(first.exactness)).index),
            domain="; ".join(filter(None, dict.fromkeys((first.domain, self.domain)))),
        )


@dataclass(frozen=True, kw_only=True)
class CompletedDiagnosis:
    """The diagnosis of one model on one target.

    With `compiles_after`, only the whole model was compiled, not its parts. `alternatives` are other options of the
    target that were tried afterwards, `neighbours` changed culprits that were compiled. `file_after` says what was
    changed in the file before it was searched, since the compiler refuses the file as it is for another reason; empty
    if nothing.
    """

    model: "Model"
    target: Target
    diagnosis: Diagnosis
    probes: tuple[ProbeRecord, ...]
    preflight: tuple[Finding, ...]
    stats: Stats
    compiles_after: CompilesAfter | None = None
    file_after: str = ""
    alternatives: "tuple[Alternative, ...]" = ()
    neighbours: "tuple[AskedNeighbour, ...]" = ()
