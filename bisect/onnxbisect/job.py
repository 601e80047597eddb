"""A finished (or ended) job as values: everything that a report is made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from onnxbisect.diagnosis import Diagnosis
from onnxbisect.exactness import Exactness
from onnxbisect.finding import Finding
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict

if TYPE_CHECKING:
    # both bring onnx along, which readers of reports do without
    from onnxbisect.alternatives import Alternative
    from onnxbisect.causes.cause import AskedNeighbour
    from onnxbisect.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Target:
    """A backend with its options, and the tool that answered.

    `calibration` is a digest of the user's samples of input values, where the target was given any.
    """

    backend: str
    tool: str
    version: str
    options: dict[str, Any]
    calibration: str = ""


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """One answered question. `key` is the canonical structure of the probe (`onnxbisect.key`), `round` the number
    of the batch it went out with, `attempt` 0 for the first time it was asked; `cached` means no compiler ran, and the
    answer was taken over from an earlier one. `file_sha256` is that of `Answer`.
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
    """What the job cost. Seconds are wall time; `compile_seconds` adds up over parallel compilers."""

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
        """With what the records tell."""
        return cls(
            compiler_calls=calls,
            cached=sum(record.cached for record in records),
            rounds=rounds,
            compile_seconds=sum(record.verdict.seconds for record in records if not record.cached),
            engine_seconds=engine_seconds,
            wall_seconds=wall_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class CompilesAfter:
    """The change of the whole file after which the target takes the model.

    `sentence` says what was changed, `remedies` are the ids of the file remedies, `exactness` what they promise of the
    numbers, and `domain` for which values, empty for all. `calls` were needed to find it, 0 where the answer was known.
    """

    sentence: str
    remedies: tuple[str, ...]
    exactness: Exactness
    domain: str
    calls: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model on one target, diagnosed.

    With `compiles_after`, the model was asked about as a whole only, and its parts were not searched. `alternatives`
    are other options of the target that were tried after that, `neighbours` changed culprits that were asked about.
    """

    model: "Model"
    target: Target
    diagnosis: Diagnosis
    probes: tuple[ProbeRecord, ...]
    preflight: tuple[Finding, ...]
    stats: Stats
    compiles_after: CompilesAfter | None = None
    alternatives: "tuple[Alternative, ...]" = ()
    neighbours: "tuple[AskedNeighbour, ...]" = ()
