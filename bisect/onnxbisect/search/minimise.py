"""From a failing set to a minimal failing set.

Units that fail together are mostly neighbours. So a unit that fails with what passed is asked with balls of doubling
radius around it, and the failing ball is trimmed from its rim. What is not connected is found by QuickXplain (U.
Junker, "QuickXplain: Preferred Explanations and Relaxations for Over-Constrained Problems", AAAI 2004).
"""

from collections.abc import Sequence

from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone, components, joined
from onnxbisect.search.prior import Atom, rarity
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size
from onnxbisect.universe import Universe

#: With so many necessary parts that still pass together, it is asked whether the size alone is to blame.
MANY_PARTS = 6
#: So many disjoint removals, and so many other pieces, must agree before size is blamed.
_WITNESSES = 3
#: The next larger ball that is asked has so many times as many units.
_GROWTH = 4
#: What stands in so many places is a repeated structure; of one of them, this part of the model is asked at most.
_REPEATED = 3
_SHARE = 8
#: A failing set that is connected seldom takes more places of one op.
_MOST_CENTRES = 2
#: Steps from one end of a pattern to its other end; longer ones are not found by what is near.
_FURTHEST = 12
#: In a failing set of so few units, what is near is always asked.
_FEW = 16


class CapacityError(Exception):
    """The failing set `units` fails for its size: whatever is left out it passes, and other pieces as large fail."""

    def __init__(self, units: UnitSet) -> None:
        super().__init__(units)
        self.units = units


class Minimiser:
    """Finds a minimal failing subset. Every question goes through the oracle, so it may end in BlockedError."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    def fails(self, units: UnitSet, why: str) -> bool:
        """Whether a set fails, by its own verdict; what is part of a passing probe is taken to pass."""
        if not units or self._oracle.passes_within(units):
            return False
        probe = alone(self._universe, lowest(units)) if size(units) == 1 else units
        return not self._oracle.ask(probe, why).passed

    def around(self, atom: UnitSet, passing: UnitSet, named: UnitSet, region: UnitSet) -> UnitSet:
        """A minimal failing set of `passing` and `atom`, which fail together while each passes."""
        failing = passing | atom
        asked, before = atom, 0
        steps, inner = 1, atom
        while True:
            near = self._universe.ball(atom, steps, failing)
            if near == failing:
                return self._connected(atom, near, before, steps, named)
            # Where most of the model is near, the question would tell little.
            too_far = steps > _FURTHEST or size(near) * 2 > len(self._universe) > _FEW
            last = too_far or near == inner
            if last:
                near, steps = inner, steps - 1
            if near != asked and (last or not before or size(near) >= _GROWTH * size(asked)):
                if self.fails(near, "an op and what surrounds it"):
                    return self._connected(atom, near, before, steps, named)
                asked, before = near, steps
            if last:
                break
            inner = near
            steps += 1
        if one := self._one_place(atom, failing, steps):
            place, wide, reach = one
            if self.fails(wide, "one place of a repeated structure, and all around it"):
                return self._connected(place, wide, before, reach, named)
        return self.narrow(failing, named, region)

    def narrow(self, failing: UnitSet, named: UnitSet, region: UnitSet) -> UnitSet:
        """A minimal failing subset of a failing set; `named` units, which logs name, are tried first.

        Variant by variant, then by structure, then unit by unit. Every failing probe on the way is a smaller set
        to start from, so a replay goes on from there. Raises CapacityError; other pieces as large are taken from
        `region`.
        """
        variants = self._by_variant(failing, named)
        if 1 < len(variants) < size(failing):
            failing = self._shortest(variants, region)
        return self._shortest([1 << unit for unit in self._guess(failing)], region)

    def parts(self, units: UnitSet) -> tuple[UnitSet, ...]:
        """The probes for all subsets that lack one unit."""
        parts = [units & ~(1 << unit) for unit in members(units)]
        return tuple(alone(self._universe, lowest(part)) if size(part) == 1 else part for part in parts)

    def _connected(self, atom: UnitSet, near: UnitSet, low: int, high: int, named: UnitSet) -> UnitSet:
        """A minimal failing set around one of the atom's units.

        What is near all of them fails within `high` steps, and passes within `low`.
        """
        centre = self._centre(atom, near, high)
        if centre is None:
            return self.narrow(near, named, 0)
        while high - low > 1:
            middle = (low + high) // 2
            if self.fails(self._universe.ball(centre, middle, near), "an op and what surrounds it"):
                high = middle
            else:
                low = middle
        return self._trimmed(centre, self._universe.ball(centre, high, near))

    def _centre(self, atom: UnitSet, near: UnitSet, steps: int) -> UnitSet | None:
        """Units of the atom around which a failing set lies: one, or two if neither will do; None if it takes more."""
        balls, places = self._places(atom, near, steps)
        repeated = len(places) < len(balls)
        if repeated and self.fails(balls[places[0][0]], "one place of a repeated structure"):
            return 1 << places[0][0]
        left = [units[0] for units in places[int(repeated) :]]
        centre, around = 0, 0
        while left and size(centre) < _MOST_CENTRES:
            low, high = 0, len(left)
            while high - low > 1:
                middle = (low + high) // 2
                together = around | self._union([balls[unit] for unit in left[:middle]])
                if self.fails(together, "half of the places of an op"):
                    high = middle
                else:
                    low = middle
            centre |= 1 << left[high - 1]
            around |= balls[left[high - 1]]
            if self.fails(around, "one place of an op" if size(centre) == 1 else "two places of an op"):
                return centre
            left = left[: high - 1]
        return None

    def _places(self, atom: UnitSet, within: UnitSet, steps: int) -> tuple[dict[int, UnitSet], list[list[int]]]:
        """The ball around each unit of the atom; the units grouped by equal balls, those repeated most first."""
        balls = {unit: self._universe.ball(1 << unit, steps, within) for unit in members(atom)}
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for unit, ball in balls.items():
            alike.setdefault(self._edges(ball), []).append(unit)
        return balls, sorted(alike.values(), key=lambda units: (-len(units), units[0]))

    def _one_place(self, atom: UnitSet, within: UnitSet, steps: int) -> tuple[UnitSet, UnitSet, int] | None:
        """One unit of the atom whose surroundings the model repeats, the largest ball around it, and its radius.

        None where nothing is repeated, or the ball is not larger than one of so many steps.
        """
        _, places = self._places(atom, within, steps)
        if not places or len(places[0]) < _REPEATED:
            return None
        place = 1 << places[0][0]
        wide, radius = self._universe.ball(place, steps, within), steps
        while True:
            wider = self._universe.ball(place, radius + 1, within)
            if wider == wide or size(wider) * _SHARE > len(self._universe):
                return (place, wide, radius) if radius > steps else None
            wide, radius = wider, radius + 1

    def _edges(self, units: UnitSet) -> tuple[tuple[int, int], ...]:
        """The variants at both ends of every edge: equal for places of a repeated structure."""
        universe = self._universe
        return tuple(
            sorted(
                (universe.variant[unit], universe.variant[after])
                for unit in members(units)
                for after in members(universe.successors[unit] & units)
            )
        )

    def _trimmed(self, centre: UnitSet, failing: UnitSet) -> UnitSet:
        """A failing set inside a failing ball: its necessary ends, and what connects them with the centre.

        The units are in the order of their distance from what is known to be necessary. The last unit of the
        shortest failing prefix is necessary, all behind it is not. That the connecting units are necessary is not
        asked here: the certificate asks it of each unit.
        """
        needed = centre
        while True:
            core = joined(self._universe, needed, failing)
            rest = self._by_distance(core, failing)
            low, high = -1, len(rest)
            while high - low > 1:
                middle = (low + high) // 2
                if self.fails(core | of(rest[:middle]), "the inner part of a failing piece"):
                    high = middle
                else:
                    low = middle
            failing = core | of(rest[:high])
            if not high:
                return core
            needed |= 1 << rest[high - 1]

    def _by_distance(self, core: UnitSet, within: UnitSet) -> list[int]:
        order: list[int] = []
        reached = core
        while frontier := self._universe.neighbours(reached) & within & ~reached:
            order += members(frontier)
            reached |= frontier
        return order

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

    def _shortest(self, candidates: Sequence[UnitSet], within: UnitSet) -> UnitSet:
        """A minimal choice of candidates that fails; all candidates together do.

        Each necessary candidate is the last of the shortest failing prefix, found by halving the weight of what
        could be it.
        """
        needed, found = 0, 0
        rest = list(candidates)
        while rest and (not needed or not self.fails(needed, "what is left of a failing set")):
            if found == MANY_PARTS and self._too_large(needed, self._union(rest), within):
                raise CapacityError(needed | self._union(rest))
            low, high = 0, len(rest)
            while high - low > 1:
                middle = self._even(rest, low, high)
                if self.fails(needed | self._union(rest[:middle]), "half of what fails together"):
                    high = middle
                else:
                    low = middle
            if not found and self._any_will_do(rest, high):
                return self._union(rest[:high])
            needed |= rest[high - 1]
            rest = rest[: high - 1]
            found += 1
        return needed

    def _any_will_do(self, candidates: Sequence[UnitSet], count: int) -> bool:
        """Whether so many of these fail whichever they are, as where a target takes only so many units of an op.

        The first so many fail, and one less of them pass.
        """
        ops = {self._universe.op[lowest(candidate)] for candidate in candidates}
        if len(ops) > 1 or count < 3 or any(size(candidate) > 1 for candidate in candidates):
            return False
        if count < len(candidates):
            last = self._union(candidates[-count:])
            fewer = self._union(candidates[len(candidates) - count + 1 :])
            return self.fails(last, "others as many") and not self.fails(fewer, "one less")
        without = [self._union(candidates) & ~candidates[index] for index in (0, count // 2)]
        return not any(self.fails(part, "one less") for part in without)

    def _too_large(self, needed: UnitSet, rest: UnitSet, within: UnitSet) -> bool:
        """Whether size is to blame: it passes without any of several parts, and other pieces as large fail."""
        failing = needed | rest
        if any(size(passing) >= size(failing) for passing in self._oracle.passing):
            return False
        others = self._as_large(failing, within)
        if not others or not all(self.fails(other, "another piece as large") for other in others):
            return False
        units = list(members(rest))
        share = -(-len(units) // _WITNESSES)
        removals = [of(units[start : start + share]) for start in range(0, len(units), share)]
        return not any(
            self.fails(failing & ~removed, "without a part of what may be too large") for removed in removals
        )

    def _as_large(self, failing: UnitSet, within: UnitSet) -> list[UnitSet]:
        """Pieces as large as a failing one with other content: none where too little else is there."""
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
