"""What the search concludes: values only, no behaviour. Reports are made from these."""

from dataclasses import dataclass
from enum import StrEnum

from onnxbisect.unitset import UnitSet, is_subset, size
from onnxbisect.verdict import Kind, Status


class Certainty(StrEnum):
    """How well a finding is established."""

    #: Fails alone, minimal, and blamed in context.
    CONFIRMED = "confirmed"
    #: Not every confirming question was answered, or the answers leave another explanation.
    SUSPECTED = "suspected"
    #: The compiler contradicted itself; `Culprit.confidence` says how sure the majority is.
    FLAKY = "flaky"


class CulpritKind(StrEnum):
    """What sort of subgraph is to blame."""

    #: One unit.
    SINGLE = "single"
    #: Several units that fail together though every proper part passes.
    INTERACTION = "interaction"
    #: Too much of it: no small part fails, the whole does.
    CAPACITY = "capacity"
    #: Too many units of one op: the target takes a number of them, whichever they are.
    COUNT = "count"


class CertificateStatus(StrEnum):
    """Whether the diagnosis is known to be complete."""

    PROVEN = "proven"
    #: The budget, an unresolved probe or a contradiction left something unknown.
    BOUNDED = "bounded"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The probes behind a culprit; each is a set of units whose verdict is on record.

    `own` is the probe of the culprit's own units, which `fails` is, or is identical to: with what must come along.
    `subsets` are passing probes that each contain a maximal proper part of the culprit, which may be all that is left
    of the model without one of its units (for a single unit there are none). `context` is a passing probe; `blame`
    fails, which is a part of it, at least all that lies within `search.confirm.REACH` steps of the culprit, with the
    culprit in its place.
    """

    fails: UnitSet
    own: UnitSet = 0
    subsets: tuple[UnitSet, ...] = ()
    context: UnitSet | None = None
    blame: UnitSet | None = None


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """A minimal failing subgraph with all its occurrences; `units` is the occurrence that was asked.

    Of kind `count` the target takes fewer than `units` has of the units `among`, whichever they are.
    """

    units: UnitSet
    occurrences: tuple[UnitSet, ...]
    kind: CulpritKind
    certainty: Certainty
    failure: Kind
    fingerprint: str
    message: str
    evidence: Evidence
    #: Probability that the least sure of the deciding verdicts, those of its occurrences included, is right: 1.0
    #: unless the compiler contradicted itself there.
    confidence: float = 1.0
    #: For capacity culprits, the largest piece that passed.
    largest_passing: UnitSet | None = None
    among: UnitSet = 0
    #: Units of occurrences of one op that were not seen to fail where they stand: it is refused alone, and in its
    #: context at other places.
    inferred: UnitSet = 0

    @property
    def places(self) -> tuple[UnitSet, ...]:
        """What is to blame, place by place; of a count all units that are counted."""
        return (self.among,) if self.kind is CulpritKind.COUNT else self.occurrences or (self.units,)

    def held_by(self, probe: UnitSet) -> bool:
        """Whether a probe holds the culprit at any of its places."""
        if self.kind is CulpritKind.COUNT:
            return size(self.among & probe) >= size(self.units)
        if self.kind is CulpritKind.CAPACITY:
            return size(probe) >= size(self.units)
        return any(is_subset(occurrence, probe) for occurrence in self.occurrences)


@dataclass(frozen=True, kw_only=True)
class NeedsContext:
    """Units that fail when cut out and pass where they stand: cutting induces the failure, never "unsupported".

    `passes_with` is the smallest surrounding group that was seen to pass, None where the budget found none but
    the remainder itself.
    """

    units: UnitSet
    occurrences: tuple[UnitSet, ...]
    passes_with: UnitSet | None


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The passing probes that prove completeness, or the sentences that say what is left unknown.

    `assumes` are the properties of the compiler that the proof rests on.
    """

    status: CertificateStatus
    probes: tuple[UnitSet, ...] = ()
    assumes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The answer to: which parts are to blame, all of them, and how do you know?

    `verdict` is that of the whole model. `remainder` is the model without its culprits. `unresolved` are units of
    which no probe gave an answer. `flaky` are probes whose verdicts disagreed.
    """

    verdict: Status
    culprits: tuple[Culprit, ...]
    needs_context: tuple[NeedsContext, ...]
    certificate: Certificate
    remainder: UnitSet
    unresolved: UnitSet = 0
    flaky: tuple[UnitSet, ...] = ()
