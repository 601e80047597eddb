"""From a failing set to a minimal failing set: QuickXplain, guided by structure.

U. Junker, "QuickXplain: Preferred Explanations and Relaxations for Over-Constrained Problems", AAAI 2004. Units
that fail together are mostly neighbours, and rare ones; both are tried before the general search.
"""

from collections.abc import Sequence

from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone, components, neighbours
from onnxbisect.search.prior import Atom, rarity
from onnxbisect.unitset import UnitSet, lowest, members, of, size
from onnxbisect.universe import Universe

#: A failing set that still passes when so many necessary parts are put together is a matter of capacity.
MOST_PARTS = 6


class CapacityError(Exception):
    """No small part of the failing set fails; `units` is the set."""

    def __init__(self, units: UnitSet) -> None:
        super().__init__(units)
        self.units = units


class Minimiser:
    """Finds a minimal failing subset. Every question goes through the oracle, so it may end in BlockedError."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    def fails(self, units: UnitSet, why: str) -> bool:
        """Whether a set fails, by its own verdict or as part of a passing probe."""
        if not units or self._oracle.passes_within(units):
            return False
        probe = alone(self._universe, lowest(units)) if size(units) == 1 else units
        return not self._oracle.ask(probe, why).passed

    def close_by(self, atom: UnitSet, passing: UnitSet) -> UnitSet:
        """Of `passing` and `atom`, which fail together while each passes, the part that is known to fail.

        Units that fail together are mostly neighbours: one question tells whether these are.
        """
        near = neighbours(self._universe, atom) & passing
        # Where nearly everything is near, the guess would tell nothing that is not known.
        if near and size(near) * 2 < size(passing) and self.fails(atom | near, "an op and what surrounds it"):
            return atom | near
        return atom | passing

    def narrow(self, failing: UnitSet, named: UnitSet) -> UnitSet:
        """A minimal failing subset of a failing set; `named` units, which logs name, are tried first.

        Variant by variant, then by structure, then unit by unit. Every failing probe on the way is a smaller set
        to start from, so a replay goes on from there. Raises CapacityError.
        """
        variants = self._by_variant(failing, named)
        if 1 < len(variants) < size(failing):
            failing = self._shortest(variants)
        return self._verified(self._shortest([1 << unit for unit in self._guess(failing)]))

    def _verified(self, minimal: UnitSet) -> UnitSet:
        """The same set once every part that lacks one unit is known to pass by a probe of its own, else that part."""
        if size(minimal) == 1:
            return minimal
        parts = self.parts(minimal)
        answers = self._oracle.ask_all(((part, "a part of an interaction") for part in parts), sure=True)
        for part, answer in zip(parts, answers, strict=True):
            if answer.failed and self._oracle.stands(part):
                return self._verified(part)
        return minimal

    def parts(self, units: UnitSet) -> tuple[UnitSet, ...]:
        """The probes for all subsets that lack one unit."""
        parts = [units & ~(1 << unit) for unit in members(units)]
        return tuple(alone(self._universe, lowest(part)) if size(part) == 1 else part for part in parts)

    def _guess(self, failing: UnitSet) -> list[int]:
        """The units of a failing subset that structure suggests, likeliest to be necessary first."""
        universe = self._universe
        wanted = {universe.variant[unit] for unit in members(failing)}
        if size(failing) > len(wanted):
            together: dict[tuple[int, ...], UnitSet] = {}
            for part in components(universe, failing):
                if {universe.variant[unit] for unit in members(part)} == wanted:
                    together.setdefault(tuple(sorted(universe.solo[unit] for unit in members(part))), part)
            for part in sorted(together.values(), key=size)[:2]:
                if part != failing and self.fails(part, "one place where these ops meet"):
                    return self._guess(part)
            apart = self._one_of_each(failing)
            if size(apart) > 1 and self.fails(apart, "one of each of these ops"):
                return list(members(apart))
        return list(members(failing))

    def _one_of_each(self, failing: UnitSet) -> UnitSet:
        chosen: dict[int, int] = {}
        for unit in members(failing):
            chosen.setdefault(self._universe.variant[unit], unit)
        return of(chosen.values())

    def _by_variant(self, units: UnitSet, named: UnitSet) -> list[UnitSet]:
        """The units grouped by variant, those likeliest to be to blame first."""
        groups: dict[int, list[int]] = {}
        for unit in members(units):
            groups.setdefault(self._universe.variant[unit], []).append(unit)
        atoms = [Atom(of(group), variant) for variant, group in groups.items()]
        atoms.sort(key=lambda atom: (not atom.units & named, -rarity(atom.units), lowest(atom.units)))
        return [atom.units for atom in atoms]

    def _shortest(self, candidates: Sequence[UnitSet]) -> UnitSet:
        """A minimal choice of candidates that fails; all candidates together do.

        Each necessary candidate is the last of the shortest failing prefix, found by halving the weight of what
        could be it.
        """
        needed, found = 0, 0
        rest = list(candidates)
        while rest and (not needed or not self.fails(needed, "what is left of a failing set")):
            if found == MOST_PARTS:
                raise CapacityError(needed | self._union(rest))
            low, high = 0, len(rest)
            while high - low > 1:
                middle = self._even(rest, low, high)
                if self.fails(needed | self._union(rest[:middle]), "half of what fails together"):
                    high = middle
                else:
                    low = middle
            needed |= rest[high - 1]
            rest = rest[: high - 1]
            found += 1
        return needed

    def _union(self, sets: Sequence[UnitSet]) -> UnitSet:
        union = 0
        for units in sets:
            union |= units
        return union

    def _even(self, rest: Sequence[UnitSet], low: int, high: int) -> int:
        weights = [rarity(units) for units in rest[low:high]]
        half = sum(weights) / 2
        for index, weight in enumerate(weights[:-1]):
            half -= weight
            if half <= 0:
                return low + index + 1
        return high - 1
