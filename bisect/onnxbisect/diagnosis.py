"""The result of a search, and of the job around it, as values without behaviour; reports are made from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import TypedDict

from onnxbisect.exactness import Exactness
from onnxbisect.finding import Finding
from onnxbisect.language import BETWEEN
from onnxbisect.unitset import UnitSet, is_subset, size
from onnxbisect.verdict import Kind, Status, Verdict

if TYPE_CHECKING:
    from onnxbisect.causes.condition import AskedNeighbour
    from onnxbisect.model.model import Model


class Certainty(StrEnum):
    """How well a finding is established."""

    #: Fails alone, is minimal, and is shown to be to blame in its context.
    CONFIRMED = "confirmed"
    #: A confirming probe has no verdict, or the verdicts leave another explanation.
    SUSPECTED = "suspected"
    #: The compiler contradicted itself; `DiagnosedCulprit.confidence` is the probability that the majority is right.
    FLAKY = "flaky"


class CulpritKind(StrEnum):
    """The kind of subgraph that is to blame."""

    #: One unit.
    SINGLE = "single"
    #: Several units that fail together although every proper part passes.
    INTERACTION = "interaction"
    #: Too many units: no small part fails, the whole does.
    CAPACITY = "capacity"
    #: Too many units of one op: the target accepts a limited number of them, whichever they are.
    COUNT = "count"


class CertificateStatus(StrEnum):
    """Whether the diagnosis is known to be complete."""

    PROVEN = "proven"
    #: The budget, an unresolved probe or a contradiction left something unknown.
    BOUNDED = "bounded"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The probes that prove a culprit; each is a set of units that has a verdict.

    `own` is the probe of the culprit's units and the producers that they require; `fails` is this probe or an identical
    one. `subsets` are passing probes that each contain a maximal proper part of the culprit, possibly all of the model
    that is left without one of its units; empty for a single unit. `context` is a passing probe. `blame` fails and
    consists of a part of `context`, at least all units within `search.confirm.REACH` steps of the culprit, plus the
    culprit.
    """

    fails: UnitSet
    own: UnitSet = 0
    subsets: tuple[UnitSet, ...] = ()
    context: UnitSet | None = None
    blame: UnitSet | None = None


@dataclass(frozen=True, kw_only=True)
class DiagnosedCulprit:
    """A minimal failing subgraph with all its occurrences; `units` is the occurrence that was compiled.

    For kind `count`, the target accepts fewer than `size(units)` of the units `among`, whichever they are.
    """

    units: UnitSet
    occurrences: tuple[UnitSet, ...]
    kind: CulpritKind
    certainty: Certainty
    failure: Kind
    fingerprint: str
    message: str
    evidence: Evidence
    #: Probability that the least certain of the deciding verdicts, including those on occurrences, is right; 1.0 unless
    #: the compiler contradicted itself there.
    confidence: float = 1.0
    #: For capacity culprits, the largest piece that passed.
    largest_passing: UnitSet | None = None
    among: UnitSet = 0
    #: Units of occurrences that were not shown to fail in their own context: their op is refused alone, and in the
    #: context of other occurrences, or of culprits that differ from it in constants only.
    inferred: UnitSet = 0

    @property
    def places(self) -> tuple[UnitSet, ...]:
        """The units of each occurrence; for kind `count`, all counted units."""
        return (self.among,) if self.kind is CulpritKind.COUNT else self.occurrences or (self.units,)

    def held_by(self, probe: UnitSet) -> bool:
        """Whether a probe contains an occurrence of the culprit."""
        if self.kind is CulpritKind.COUNT:
            return size(self.among & probe) >= size(self.units)
        if self.kind is CulpritKind.CAPACITY:
            return size(probe) >= size(self.units)
        return any(is_subset(occurrence, probe) for occurrence in self.occurrences)


@dataclass(frozen=True, kw_only=True)
class ContextUnits:
    """Units that fail when cut out and pass in their context: a failure caused by the cut, never "unsupported".

    `passes_with` is the smallest surrounding set known to pass; None if within the budget only the remainder passed.
    """

    units: UnitSet
    occurrences: tuple[UnitSet, ...]
    passes_with: UnitSet | None


@dataclass(frozen=True, kw_only=True)
class DiagnosisProof:
    """The passing probes that prove completeness, or sentences that say what is unknown.

    `assumes` are the properties of the compiler that the proof relies on.
    """

    status: CertificateStatus
    probes: tuple[UnitSet, ...] = ()
    assumes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All culprits of a model on a target, with their proof.

    `verdict` is the verdict on the whole model. `remainder` is the model without its culprits. `unresolved` are units
    without a verdict from any probe. `flaky` are probes whose verdicts disagreed.
    """

    verdict: Status
    culprits: tuple[DiagnosedCulprit, ...]
    needs_context: tuple[ContextUnits, ...]
    certificate: DiagnosisProof
    remainder: UnitSet
    unresolved: UnitSet = 0
    flaky: tuple[UnitSet, ...] = ()


class TargetEntry(TypedDict):
    """The compiler that was asked, with its options, as documents have it (see `Target`)."""

    backend: str
    tool: str
    version: str
    """Of the tool."""
    options: dict[str, Any]


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
    `options` of the target are needed as well; without `remedies` the file is as it was.
    """

    sentence: str
    remedies: tuple[str, ...]
    exactness: Exactness
    domain: str
    calls: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def with_options_alone(self) -> bool:
        """Whether the file stays as it is."""
        return bool(self.options) and not self.remedies

    def following(self, first: "CompilesAfter") -> "CompilesAfter":
        """This change of a file that has the `first` one already, as one change."""
        return replace(
            self,
            sentence=f"{first.sentence}{BETWEEN}{self.sentence}",
            remedies=tuple(dict.fromkeys((*first.remedies, *self.remedies))),
            exactness=max(first.exactness, self.exactness, key=list(type(first.exactness)).index),
            domain=BETWEEN.join(filter(None, dict.fromkeys((first.domain, self.domain)))),
        )


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """The results of compiling with `options` changed what the compiler refused without the change.

    `culprits` are the verdicts on the culprits' files, in the order of the diagnosis. `whole` is the verdict on the
    whole model, which is compiled only where no culprit is refused. None stands for what was not compiled. `problem` is
    a sentence where nothing could be compiled. `calls` counts compiler calls, `cached` verdicts known before.
    """

    options: Mapping[str, str]
    tool: str = ""
    version: str = ""
    culprits: tuple[Verdict | None, ...] = ()
    whole: Verdict | None = None
    problem: str = ""
    calls: int = 0
    cached: int = 0

    @property
    def compiles(self) -> bool:
        """Whether the whole model compiles with these options."""
        return self.whole is not None and self.whole.passed


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
    alternatives: tuple[Alternative, ...] = ()
    neighbours: "tuple[AskedNeighbour, ...]" = ()
