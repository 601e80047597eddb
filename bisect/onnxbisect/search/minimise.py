"""Reduce a failing set to a minimal failing set.

If no neighbourhood fails by itself, by QuickXplain (U. Junker, "QuickXplain: Preferred Explanations and Relaxations for
Over-Constrained Problems", AAAI 2004).
"""

from collections.abc import Sequence

from onnxbisect.language import english
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone, components
from onnxbisect.search.prior import Atom, rarity
from onnxbisect.search.surroundings import Surroundings
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Necessary parts that still pass together after which size is considered as the cause.
MANY_PARTS = 6
#: Disjoint removals, and other pieces, that must agree before size is blamed.
_WITNESSES = 3


class CapacityError(Exception):
    """The failing set `units` is too large: it passes without any part, and other pieces of its size fail."""

    def __init__(self, units: UnitSet) -> None:
        super().__init__(units)
        self.units = units


class Minimiser:
    """Finds a minimal failing subset. Every probe goes through the oracle, so methods may raise BlockedError."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle
        self._surroundings = Surroundings(universe, self.fails)

    def fails(self, units: UnitSet, why: str) -> bool:
        """Whether the set fails; subsets of a passing probe are assumed to pass."""
        if not units or self._oracle.passes_within(units):
            return False
        probe = alone(self._universe, lowest(units)) if size(units) == 1 else units
        return not self._oracle.ask(probe, why).passed

    def around(self, atom: UnitSet, passing: UnitSet, named: UnitSet, region: UnitSet, *, far: bool) -> UnitSet:
        """A minimal failing subset of `passing` and `atom`, which fail together while each passes.

        `far`: its units are expected to be far from each other.
        """
        found = self._surroundings.around(atom, passing | atom, far=far)
        if found.trimmed:
            return found.units
        return self.narrow(found.units, named, region if found.units == passing | atom else 0)

    def narrow(self, failing: UnitSet, named: UnitSet, region: UnitSet) -> UnitSet:
        """A minimal failing subset of a failing set; `named` units, which logs name, are tried first.

        It removes whole variants, then structures, then single units. Every failing probe on the way is a smaller
        start, so a replay continues from it. Raises CapacityError, for which pieces of the same size are taken from
        `region`.
        """
        variants = self._by_variant(failing, named)
        if 1 < len(variants) < size(failing):
            failing = self._shortest(variants, region)
        return self._shortest([1 << unit for unit in self._guess(failing)], region)

    def spoiling(self, base: UnitSet, others: UnitSet) -> UnitSet | None:
        """The few units of `others` that make `base` fail, which passes by itself; None if there are no such few.

        All of `others` together make it fail. A unit that needs the base to pass would fail with any of them, so each
        probe contains the whole base. If several disjoint removals all pass, the size decides and None is returned.
        """
        rest = [1 << unit for group in self._by_variant(others & ~base, 0) for unit in members(group)]
        removals = [union(rest[start::_WITNESSES]) for start in range(_WITNESSES)]
        if not any(
            self.fails((base | others) & ~part, english("a failing set without a part of it")) for part in removals
        ):
            return None
        found: UnitSet = 0
        while rest and not self.fails(base | found, english("the rest of a failing set")):
            if size(found) == _WITNESSES:
                return None
            count = self._shortest_prefix(base | found, rest)
            found |= rest[count - 1]
            rest = rest[: count - 1]
        return found

    def parts(self, units: UnitSet) -> tuple[UnitSet, ...]:
        """The probes for all subsets that lack one unit."""
        parts = [units & ~(1 << unit) for unit in members(units)]
        return tuple(alone(self._universe, lowest(part)) if size(part) == 1 else part for part in parts)

    def _guess(self, failing: UnitSet) -> list[int]:
        """The units of a failing subset that structure suggests, most likely necessary first."""
        universe = self._universe
        wanted = {universe.variant[unit] for unit in members(failing)}
        if size(failing) > len(wanted):
            together: dict[tuple[int, ...], UnitSet] = {}
            for part in components(universe, failing):
                if {universe.variant[unit] for unit in members(part)} == wanted:
                    together.setdefault(tuple(sorted(universe.solo[unit] for unit in members(part))), part)
            for part in sorted(together.values(), key=size)[:2]:
                if part != failing and self.fails(part, english("one place where these ops meet")):
                    return self._guess(part)
            apart = self._one_of_each(failing)
            if size(apart) > 1 and self.fails(apart, english("one of each of these ops")):
                return list(members(apart))
        return list(members(failing))

    def _one_of_each(self, failing: UnitSet) -> UnitSet:
        chosen: dict[int, int] = {}
        for unit in members(failing):
            chosen.setdefault(self._universe.variant[unit], unit)
        return of(chosen.values())

    def _by_variant(self, units: UnitSet, named: UnitSet) -> list[UnitSet]:
        """The units grouped by variant, most likely culprits first."""
        groups: dict[int, list[int]] = {}
        for unit in members(units):
            groups.setdefault(self._universe.variant[unit], []).append(unit)
        atoms = [Atom(of(group), variant) for variant, group in groups.items()]
        atoms.sort(key=lambda atom: (not atom.units & named, -rarity(atom.units), lowest(atom.units)))
        return [atom.units for atom in atoms]

    def _shortest(self, candidates: Sequence[UnitSet], within: UnitSet) -> UnitSet:
        """A minimal selection of candidates that fails; all candidates together fail.

        Each necessary candidate is the last one of the shortest failing prefix, found by bisecting the candidates'
        weight.
        """
        needed, found = 0, 0
        rest = list(candidates)
        while rest and (not needed or not self.fails(needed, english("the rest of a failing set"))):
            if found == MANY_PARTS and self._too_large(needed, union(rest), within):
                raise CapacityError(needed | union(rest))
            count = self._shortest_prefix(needed, rest)
            if not found and self._any_will_do(rest, count):
                return union(rest[:count])
            needed |= rest[count - 1]
            rest = rest[: count - 1]
            found += 1
        return needed

    def _shortest_prefix(self, needed: UnitSet, rest: Sequence[UnitSet]) -> int:
        """How many of the first candidates fail with the needed ones, found by bisecting their weight."""
        low, high = 0, len(rest)
        while high - low > 1:
            middle = self._even(rest, low, high)
            if self.fails(needed | union(rest[:middle]), english("half of a failing set")):
                high = middle
            else:
                low = middle
        return high

    def _any_will_do(self, candidates: Sequence[UnitSet], count: int) -> bool:
        """Whether any `count` of the candidates fail, as where a target accepts only so many units of an op.

        The first `count` fail, and one fewer pass.
        """
        ops = {self._universe.op[lowest(candidate)] for candidate in candidates}
        if len(ops) > 1 or count < 3 or any(size(candidate) > 1 for candidate in candidates):
            return False
        if count < len(candidates):
            last = union(candidates[-count:])
            fewer = union(candidates[len(candidates) - count + 1 :])
            return self.fails(last, english("others as many")) and not self.fails(fewer, english("one less"))
        without = [union(candidates) & ~candidates[index] for index in (0, count // 2)]
        return not any(self.fails(part, english("one less")) for part in without)

    def _too_large(self, needed: UnitSet, rest: UnitSet, within: UnitSet) -> bool:
        """Whether size is to blame: it passes without any of several parts, and other pieces of its size fail."""
        failing = needed | rest
        if any(size(passing) >= size(failing) for passing in self._oracle.passing):
            return False
        others = self._as_large(failing, within)
        if not others or not all(self.fails(other, english("another piece as large")) for other in others):
            return False
        units = list(members(rest))
        share = -(-len(units) // _WITNESSES)
        removals = [of(units[start : start + share]) for start in range(0, len(units), share)]
        return not any(
            self.fails(failing & ~removed, english("a piece that may be too large, without a part"))
            for removed in removals
        )

    def _as_large(self, failing: UnitSet, within: UnitSet) -> list[UnitSet]:
        """Pieces of the same size as a failing one with other units; empty where too few other units exist."""
        wanted = size(failing)
        spare = list(members(within & ~failing))
        if len(spare) * 4 < wanted:
            return []
        if len(spare) >= 2 * wanted:
            return [of(spare[:wanted]), of(spare[-wanted:])]
        filling = list(members(failing))
        missing = max(0, wanted - len(spare))
        pieces = [
            of(spare[:wanted]) | of(filling[:missing]),
            of(spare[-wanted:]) | of(filling[len(filling) - missing :]),
        ]
        return list(dict.fromkeys(piece for piece in pieces if not is_subset(failing, piece)))

    def _even(self, rest: Sequence[UnitSet], low: int, high: int) -> int:
        weights = [rarity(units) for units in rest[low:high]]
        half = sum(weights) / 2
        for index, weight in enumerate(weights[:-1]):
            half -= weight
            if half <= 0:
                return low + index + 1
        return high - 1
