"""The result of a search as values without behaviour; reports are made from them."""

from dataclasses import dataclass
from enum import StrEnum

from onnxbisect.unitset import UnitSet, is_subset, size
from onnxbisect.verdict import Kind, Status


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
    #: context of other occurrences.
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
