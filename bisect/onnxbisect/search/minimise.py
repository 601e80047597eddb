"""Find a failing set around a unit that fails with the passing set, and reduce it to a minimal failing set.

Units that fail together are mostly adjacent: the unit is compiled with balls of growing radius around it, and the
failing ball is then trimmed from its rim. If no neighbourhood fails by itself, by QuickXplain (U. Junker, "QuickXplain:
Preferred Explanations and Relaxations for Over-Constrained Problems", AAAI 2004).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxbisect.language import english
from onnxbisect.search.atoms import rarity
from onnxbisect.search.oracle import Fails, Oracle
from onnxbisect.search.pattern import alone
from onnxbisect.search.state import Atom
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Growth factor, in units, from one compiled ball to the next.
_GROWTH = 6
#: Places from which on a structure is repeated; the ball around one of them is at most this fraction of the model.
_REPEATED = 3
_SHARE = 8
#: A connected failing set seldom has more units of one op that matter.
_MOST_CENTRES = 2
#: A ball of at most so many units is trimmed without being asked.
_UNASKED = 4
#: Longest distance in a pattern that balls are asked for.
_FURTHEST = 12
#: In a model of at most so many units, balls of any size are asked.
_FEW = 16


@dataclass(frozen=True)
class Failing:
    """A failing set. `trimmed`: it is connected, and nothing at its rim can be left out."""

    units: UnitSet
    trimmed: bool = False


class ConnectedMinimiser:
    """Looks for a connected failing set. `fails` tells whether a set fails and may raise BlockedError."""

    def __init__(self, universe: Universe, fails: Fails) -> None:
        self._universe = universe
        self._fails = fails

    def around(self, atom: UnitSet, failing: UnitSet, *, far: bool) -> Failing:
        """A failing subset of `failing`, which contains the atom and passes without it; `failing` itself if none is
        near. `far`: that is expected, so only the largest ball is asked.
        """
        asked, before = atom, 0
        steps, inner = 1, atom
        while True:
            near = self._universe.ball(atom, steps, failing)
            if near == failing:
                return self._connected(atom, near, before, steps)
            # A ball with most of the model would give little information.
            too_far = steps > _FURTHEST or size(near) * 2 > len(self._universe) > _FEW
            last = too_far or near == inner
            if last:
                near, steps = inner, steps - 1
            growth = 2 if too_far else 1 if last else _GROWTH
            if near != asked and (last or not far) and (not before or size(near) >= growth * size(asked)):
                if self._fails(near, english("an op and its neighbours")):
                    return self._connected(atom, near, before, steps)
                asked, before = near, steps
            if last:
                break
            inner = near
            steps += 1
        if one := self._one_place(atom, failing, steps):
            place, wide, reach = one
            if self._fails(wide, english("one place of a repeated structure, with its neighbours")):
                return self._connected(place, wide, before, reach)
        return Failing(failing)

    def _connected(self, atom: UnitSet, near: UnitSet, low: int, high: int) -> Failing:
        """A failing set around the fewest of the atom's units.

        The ball around all of them fails with radius `high` and passes with radius `low`.
        """
        for centre in self._centres(atom, near, high):
            if found := self._around_centre(centre, near, low, high):
                return Failing(found, trimmed=True)
        # A limit on the number of units of an op is mostly low, so half of them fail by themselves.
        several = of(list(members(atom))[: size(atom) // 2])
        enough = size(several) > _MOST_CENTRES
        return Failing(several if enough and self._fails(several, english("half of the units of an op")) else near)

    def _around_centre(self, centre: UnitSet, near: UnitSet, low: int, high: int) -> UnitSet:
        """A minimal connected failing set around a centre; 0 if its ball was not asked and passes."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(self._universe.ball(centre, middle, near), english("an op and its neighbours")):
                high = middle
            else:
                low = middle
        return self._trimmed(centre, self._universe.ball(centre, high, near))

    def _centres(self, atom: UnitSet, near: UnitSet, steps: int) -> Iterator[UnitSet]:
        """One or two units of the atom around which a set fails, as far as is known.

        A ball around one unit mostly fails, so it is trimmed without being asked first; and so is one of few units
        around two, which is trimmed in as few calls. The next centre is taken only if it passes.
        """
        balls, places = self._places(atom, near, steps)
        repeated = len(places) < len(balls)
        if repeated and self._fails(balls[places[0][0]], english("one place of a repeated structure")):
            yield 1 << places[0][0]
        left = [units[0] for units in places[int(repeated) :]]
        centre, around = 0, 0
        while left and size(centre) < _MOST_CENTRES:
            low, high = 0, len(left)
            while high - low > 1:
                middle = (low + high) // 2
                together = around | union(balls[unit] for unit in left[:middle])
                if self._fails(together, english("half of the places of an op")):
                    high = middle
                else:
                    low = middle
            centre |= 1 << left[high - 1]
            around |= balls[left[high - 1]]
            if size(centre) == 1 or size(around) <= _UNASKED or self._fails(around, english("two places of an op")):
                yield centre
            left = left[: high - 1]

    def _places(self, atom: UnitSet, within: UnitSet, steps: int) -> tuple[dict[int, UnitSet], list[list[int]]]:
        """The ball around each unit of the atom, and the units grouped by equal balls, most repeated first."""
        balls = {unit: self._universe.ball(1 << unit, steps, within) for unit in members(atom)}
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for unit, ball in balls.items():
            # by the variants at both ends of every edge, which are equal for places of a repeated structure
            variant, successors = self._universe.variant, self._universe.successors
            edges = (
                (variant[one], variant[after]) for one in members(ball) for after in members(successors[one] & ball)
            )
            alike.setdefault(tuple(sorted(edges)), []).append(unit)
        return balls, sorted(alike.values(), key=lambda units: (-len(units), units[0]))

    def _one_place(self, atom: UnitSet, within: UnitSet, steps: int) -> tuple[UnitSet, UnitSet, int] | None:
        """One unit of the atom whose surroundings the model repeats, the largest ball around it, and its radius.

        None if nothing is repeated, or if the ball is not larger than the one of `steps`.
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

    def _trimmed(self, centre: UnitSet, failing: UnitSet) -> UnitSet:
        """A minimal connected failing set inside a failing ball, as far as its rim is concerned; 0 if the ball passes.

        The units are ordered by distance from those known to be necessary. The last unit of the shortest failing prefix
        is necessary, and all after it are not. Whether the connecting units are necessary is left to the certificate,
        which asks it of each unit.
        """
        needed = centre
        while True:
            core = self._universe.joined(needed, failing)
            rest: list[int] = []
            reached = core
            while frontier := self._universe.neighbours(reached) & failing & ~reached:
                rest += members(frontier)
                reached |= frontier
            low, high = -1, len(rest)
            while high - low > 1:
                middle = (low + high) // 2
                if self._fails(core | of(rest[:middle]), english("the inner part of a failing piece")):
                    high = middle
                else:
                    low = middle
            failing = core | of(rest[:high])
            unasked = high == len(rest) and (not rest or size(failing) > _UNASKED)
            if unasked and not self._fails(failing, english("one place of an op")):
                return 0
            if not high:
                return core
            needed |= 1 << rest[high - 1]


#: Necessary parts that still pass together after which the failing set is asked again: one false refusal of a large
#: probe looks like an interaction of all its units.
_SURPRISING_PARTS = 3
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
        self._surroundings = ConnectedMinimiser(universe, self.fails)

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
            for part in universe.components(failing):
                if {universe.variant[unit] for unit in members(part)} == wanted:
                    together.setdefault(tuple(sorted(universe.solo[unit] for unit in members(part))), part)
            for part in sorted(together.values(), key=size)[:2]:
                if part != failing and self.fails(part, english("one place where these ops meet")):
                    return self._guess(part)
            apart = of({universe.variant[unit]: unit for unit in reversed(list(members(failing)))}.values())
            if size(apart) > 1 and self.fails(apart, english("one of each of these ops")):
                return list(members(apart))
        return list(members(failing))

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
            if found == _SURPRISING_PARTS:
                self._oracle.ask(needed | union(rest), english("a failing set of which every part passes"), again=True)
            if found == MANY_PARTS and self._too_large(needed, union(rest), within):
                raise CapacityError(needed | union(rest))
            count = self._shortest_prefix(needed, rest)
            last = rest[count - 1]
            # of units with sizes or weights of their own, one often fails alone where others of its variant pass
            if size(last) == 1 and self.fails(last, english("{op} alone", op=self._universe.op[lowest(last)])):
                return last
            if not found and self._any_will_do(rest, count):
                return union(rest[:count])
            needed |= last
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
        # the last one is needed; if it fails with few others, half of them are left at once
        if self.fails(union(candidates[count // 2 :]), english("half of a failing set")):
            return False
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
