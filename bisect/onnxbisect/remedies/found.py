"""The diagnosis of a model by node names and variants, so that it applies to other versions of the model."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnxbisect.diagnosis import Certainty, CertificateStatus, CompletedDiagnosis, CulpritKind, Diagnosis
from onnxbisect.file_remedies import USUAL_RANK
from onnxbisect.fingerprint import fingerprint
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.model import Model
from onnxbisect.model.variants import Variants
from onnxbisect.remedies.candidate import CulpritPlace, SeenVariants
from onnxbisect.session import AS_PART
from onnxbisect.unitset import UnitSet, members, union
from onnxbisect.verdict import Hints, Kind, Status, Verdict

#: Ops that move elements and compute nothing.
_MOVING = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"}
    | {"Unsqueeze"}
)


@dataclass(frozen=True, kw_only=True)
class Named:
    """A culprit by the names of its nodes, with the compiler's message."""

    kind: CulpritKind
    ops: tuple[str, ...]
    places: tuple[CulpritPlace, ...]
    message: str


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchedModel:
    """A model with its verdicts. `stopped` says that the user or the budget ended the search.

    `limited`: the repair has made as many calls as it may. `brief`: the search was brief (`onnxbisect.search.plan`),
    and is no report. `names` maps a node's name to its name in the model that this one was cut from. `options` are
    those that the compiler named when it refused the model, and with which it accepts it.
    """

    job: CompletedDiagnosis
    stopped: bool = False
    limited: bool = False
    brief: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model that was diagnosed."""
        return self.job.model

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis."""
        return self.job.diagnosis

    @property
    def compiles(self) -> bool:
        """Whether the whole model passed."""
        return self.diagnosis.verdict is Status.PASS

    @property
    def compiles_in_another_form(self) -> bool:
        """Whether the file fails as it is written, and the model passed once it was written as its parts are."""
        return not self.compiles and any(it.why == AS_PART and it.verdict.passed for it in self.job.probes)

    @property
    def hints(self) -> Hints:
        """What the compiler's log named when it compiled the whole model."""
        everything = self.model.universe.everything
        return next((it.verdict.hints for it in self.job.probes if it.units == everything), Hints())

    @property
    def message(self) -> str:
        """What the compiler said last of the whole model; empty where it was not asked."""
        return "" if self._whole is None else self._whole.message

    @property
    def failure(self) -> str:
        """Why the compiler refused the whole model, without names and numbers; empty where it did not."""
        whole = self._whole
        if whole is None or whole.status is not Status.FAIL:
            return ""
        return whole.fingerprint or fingerprint(whole.message)

    @property
    def reason(self) -> Hashable:
        """The failure with what the log names: of one op after the other a tool may say the same. None without one."""
        return (self.failure, frozenset(self.hints.ops), frozenset(self.hints.nodes)) if self.failure else None

    @property
    def unanswered(self) -> str:
        """Why there is no answer about the whole model, such as a time limit; empty where there is one."""
        whole = self._whole
        return whole.message if whole is not None and whole.status is Status.UNRESOLVED else ""

    @property
    def computes_other_numbers(self) -> bool:
        """Whether the whole model compiled, and only its numbers are wrong."""
        return self._whole is not None and self._whole.kind is Kind.NUMERIC

    @property
    def died(self) -> bool:
        """Whether the compiler broke off on the whole model and named no part of it."""
        whole = self._whole
        return whole is not None and whole.kind in (Kind.ERROR, Kind.CRASH) and not self.named

    @property
    def named(self) -> bool:
        """Whether the compiler's log named a part of the model when it compiled the whole."""
        return bool(self.hints.ops or self.hints.nodes)

    @cached_property
    def refused(self) -> tuple[frozenset[str], ...]:
        """The nodes of each place of a culprit, if a search on record has proven that nothing else is refused.

        A file that has one of these places as it is does not compile. Empty also where a culprit is the number of some
        ops, or the size of the model, which changes elsewhere may lower.
        """
        of_its_own = {CulpritKind.SINGLE, CulpritKind.INTERACTION}
        sure = all(it.certainty is Certainty.CONFIRMED and it.kind in of_its_own for it in self.diagnosis.culprits)
        if self.diagnosis.certificate.status is not CertificateStatus.PROVEN or not sure:
            return ()
        return tuple(frozenset(place.nodes) for culprit in self.culprits for place in culprit.places)

    @property
    def near_refused(self) -> frozenset[str]:
        """The nodes of culprits, and those that feed or consume them."""
        universe = self.model.universe
        units = union(place for culprit in self.diagnosis.culprits for place in culprit.places)
        return frozenset(map(self._name, members(units | universe.neighbours(units))))

    @property
    def _whole(self) -> Verdict | None:
        everything = self.model.universe.everything
        as_it_is = (it for it in reversed(self.job.probes) if it.units == everything and it.why != AS_PART)
        return next((it.verdict for it in as_it_is), None)

    @cached_property
    def culprits(self) -> tuple[Named, ...]:
        """The culprits in the order of the diagnosis."""
        return tuple(
            Named(
                kind=culprit.kind,
                ops=tuple(self.model.universe.op[unit] for unit in members(culprit.units)),
                places=tuple(CulpritPlace(tuple(map(self._name, members(place)))) for place in culprit.places),
                message=culprit.message,
            )
            for culprit in self.diagnosis.culprits
        )

    @cached_property
    def passing(self) -> frozenset[str]:
        """The names of nodes that were in a probe that passed."""
        return frozenset(self._name(unit) for unit in members(self._passing))

    @cached_property
    def known(self) -> SeenVariants:
        """What the verdicts say about variants. Only culprits of one node show that a variant is refused."""
        single = [it for it in self.diagnosis.culprits if it.kind is CulpritKind.SINGLE]
        refused = union(place for culprit in single for place in culprit.places)
        return SeenVariants(
            passing=self._variants(self._passing),
            refused=self._variants(refused),
            passing_ops=self._ops(self._passing),
            refused_ops=self._ops(refused),
        )

    @cached_property
    def rank_limit(self) -> int | None:
        """As many dimensions as passed, for culprits that have more, and more than four; None without such a culprit.

        An op that was also refused with fewer dimensions, or that passed nowhere and computes something, fails for
        another reason.
        """
        refused: dict[str, set[int]] = {}
        for culprit in self.diagnosis.culprits:
            for unit in members(union(culprit.places)):
                refused.setdefault(self.model.universe.op[unit], set()).add(self.rank(unit))
        passing = self._ops(self._passing)
        high = [
            min(ranks) for op, ranks in refused.items() if min(ranks) > USUAL_RANK and (op in passing or op in _MOVING)
        ]
        if not high:
            return None
        passed = (self.rank(unit) for unit in members(self._passing))
        return max(rank for rank in [USUAL_RANK, *passed] if rank < min(high))

    def rank(self, unit: int) -> int:
        """The most dimensions of a tensor that the unit reads or makes."""
        node, facts = self.model.proto.graph.node[self.model.units[unit].node], self.facts
        return max((len(facts.shape(name) or ()) for name in (*node.input, *node.output)), default=0)

    @cached_property
    def facts(self) -> TensorFacts:
        """What is known of the model's tensors."""
        return TensorFacts.of(self.model)

    @cached_property
    def variant(self) -> dict[str, Hashable]:
        """The support question of each node, by name."""
        model = self.model
        keys = Variants(model.proto, model.types, model.known, model.path.parent)
        return {
            self._name(number): keys.variant(model.proto.graph.node[it.node]) for number, it in enumerate(model.units)
        }

    @property
    def _passing(self) -> UnitSet:
        return union(record.units for record in self.job.probes if record.verdict.passed)

    def _variants(self, units: UnitSet) -> frozenset[Hashable]:
        return frozenset(self.variant[self._name(unit)] for unit in members(units))

    def _ops(self, units: UnitSet) -> frozenset[str]:
        return frozenset(self.model.universe.op[unit] for unit in members(units))

    def _name(self, unit: int) -> str:
        name = str(self.model.proto.graph.node[self.model.units[unit].node].name)
        return self.names.get(name, name)
