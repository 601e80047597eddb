"""What the diagnosis of a model says in names, so that what is known of one model serves for the next."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnxbisect.diagnosis import Culprit, CulpritKind, Diagnosis
from onnxbisect.job import Job
from onnxbisect.model.model import Model
from onnxbisect.model.variants import Variants
from onnxbisect.remedies.advise import Place
from onnxbisect.remedies.known import Known
from onnxbisect.unitset import UnitSet, members, union
from onnxbisect.verdict import Hints, Status


@dataclass(frozen=True, kw_only=True)
class Named:
    """A culprit by the names of its nodes, with what the compiler said of it."""

    kind: CulpritKind
    ops: tuple[str, ...]
    places: tuple[Place, ...]
    message: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """A model with the verdicts on it. `stopped` says that the user, or the budget, ended the search.

    `names` are those that nodes have elsewhere, for a model that was cut out of another.
    """

    job: Job
    stopped: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model that was asked about."""
        return self.job.model

    @property
    def diagnosis(self) -> Diagnosis:
        """What was found."""
        return self.job.diagnosis

    @property
    def compiles(self) -> bool:
        """Whether the whole model passed."""
        return self.diagnosis.verdict is Status.PASS

    @property
    def hints(self) -> Hints:
        """What the compiler named when it was asked about the whole model."""
        everything = self.model.universe.everything
        return next((it.verdict.hints for it in self.job.probes if it.units == everything), Hints())

    @cached_property
    def culprits(self) -> tuple[Named, ...]:
        """In the order of the diagnosis."""
        return tuple(self._named(culprit) for culprit in self.diagnosis.culprits)

    @cached_property
    def passing(self) -> frozenset[str]:
        """The names of nodes that were in a probe that passed."""
        return frozenset(self._name(unit) for unit in members(self._passing))

    @cached_property
    def known(self) -> Known:
        """What the verdicts say of variants. Only culprits of one node say that a variant is refused."""
        single = [it for it in self.diagnosis.culprits if it.kind is CulpritKind.SINGLE]
        refused = union(place for culprit in single for place in culprit.places)
        return Known(
            passing=self._variants(self._passing),
            refused=self._variants(refused),
            passing_ops=self._ops(self._passing),
            refused_ops=self._ops(refused),
        )

    @cached_property
    def variant(self) -> dict[str, Hashable]:
        """The support question of each node, by its name."""
        model = self.model
        told = Variants(model.proto, model.types, model.known, model.path.parent)
        return {
            self._name(number): told.variant(model.proto.graph.node[it.node]) for number, it in enumerate(model.units)
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

    def _named(self, culprit: Culprit) -> Named:
        return Named(
            kind=culprit.kind,
            ops=tuple(self.model.universe.op[unit] for unit in members(culprit.units)),
            places=tuple(Place(tuple(map(self._name, members(place)))) for place in culprit.places),
            message=culprit.message,
        )
