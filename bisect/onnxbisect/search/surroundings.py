"""A failing set around a unit that fails with the passing set; units that fail together are mostly adjacent.

The unit is compiled with balls of growing radius around it, and the failing ball is then trimmed from its rim.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnxbisect.language import english
from onnxbisect.search.pattern import joined
from onnxbisect.unitset import UnitSet, members, of, size, union
from onnxbisect.universe import Universe

#: Growth factor, in units, from one compiled ball to the next.
_GROWTH = 6
#: Places from which on a structure is repeated; the ball around one of them is at most this fraction of the model.
_REPEATED = 3
_SHARE = 8
#: A connected failing set seldom has more units of one op that matter.
_MOST_CENTRES = 2
#: A ball of at most so many units is trimmed without being asked first.
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


class Surroundings:
    """Looks for a connected failing set. `fails` tells whether a set fails and may raise BlockedError."""

    def __init__(self, universe: Universe, fails: Callable[[UnitSet, str], bool]) -> None:
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

        A ball of few units is not asked, because it is trimmed in as few calls if it fails. The next centre is taken
        only if it does not.
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
            why = english("one place of an op") if size(centre) == 1 else english("two places of an op")
            if size(around) <= _UNASKED or self._fails(around, why):
                yield centre
            left = left[: high - 1]

    def _places(self, atom: UnitSet, within: UnitSet, steps: int) -> tuple[dict[int, UnitSet], list[list[int]]]:
        """The ball around each unit of the atom, and the units grouped by equal balls, most repeated first."""
        balls = {unit: self._universe.ball(1 << unit, steps, within) for unit in members(atom)}
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for unit, ball in balls.items():
            alike.setdefault(self._edges(ball), []).append(unit)
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
        """A minimal connected failing set inside a failing ball, as far as its rim is concerned; 0 if the ball passes.

        The units are ordered by distance from those known to be necessary. The last unit of the shortest failing prefix
        is necessary, and all after it are not. Whether the connecting units are necessary is left to the certificate,
        which asks it of each unit.
        """
        needed = centre
        while True:
            core = joined(self._universe, needed, failing)
            rest = self._by_distance(core, failing)
            low, high = -1, len(rest)
            while high - low > 1:
                middle = (low + high) // 2
                if self._fails(core | of(rest[:middle]), english("the inner part of a failing piece")):
                    high = middle
                else:
                    low = middle
            failing = core | of(rest[:high])
            if not rest and not self._fails(core, english("one place of an op")):
                return 0
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
