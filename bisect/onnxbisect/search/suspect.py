"""A possible culprit before it is confirmed."""

from dataclasses import dataclass

from onnxbisect.search.pattern import Occurrence
from onnxbisect.unitset import UnitSet, is_subset, of, size


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A minimal failing set, with the places where the same structure occurs.

    `units` is the occurrence that was compiled, and `fails` the probe that failed (for a single unit, perhaps of an
    identical one). `occurrences` are aligned: the same position has the same role. `context` and `blame` are set once
    it has failed in context.

    `capacity`: the set is not minimal but too large, and no small part fails. `pool`: the target accepts one unit of
    `pool` fewer than `units` has, whichever they are. `contested`: one unit that fails alone and inside the model, and
    passes in a part of the model, while no few units make the difference.
    """

    units: UnitSet
    fails: UnitSet
    occurrences: tuple[Occurrence, ...]
    capacity: bool = False
    contested: bool = False
    pool: UnitSet = 0
    context: UnitSet | None = None
    blame: UnitSet | None = None
    verified: bool = False

    @property
    def everywhere(self) -> UnitSet:
        """The units of all occurrences."""
        return self.pool or of(unit for occurrence in self.occurrences for unit in occurrence)

    @property
    def single(self) -> bool:
        """Whether one unit is to blame alone."""
        return size(self.units) == 1 and not self.capacity

    @property
    def interaction(self) -> bool:
        """Whether several units are to blame together, each of them necessary."""
        return size(self.units) > 1 and not self.capacity and not self.pool

    @property
    def allowed(self) -> int:
        """How many units of `pool` the target accepts."""
        return size(self.units) - 1

    def held_by(self, probe: UnitSet) -> bool:
        """Whether a probe contains this culprit at any of its places."""
        if self.pool:
            return size(self.pool & probe) > self.allowed
        return any(is_subset(of(occurrence), probe) for occurrence in self.occurrences)


@dataclass(frozen=True, kw_only=True)
class CutInducedFailure:
    """A set that fails when cut out and passes in the model; `occurrences` as in Suspect."""

    units: UnitSet
    occurrences: tuple[Occurrence, ...]
    passes_with: UnitSet | None = None
