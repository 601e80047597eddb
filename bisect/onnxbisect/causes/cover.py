"""Choose the cheapest explanations that together explain every culprit that can be explained."""

from collections.abc import Iterable, Sequence

from onnxbisect.causes.separate import Explanation
from onnxbisect.unitset import is_subset, members, size

#: Choices tried for each group of culprits with common explanations; then the best one found is taken.
_TRIED = 5_000


def cheapest_cover(explanations: Sequence[Explanation]) -> list[Explanation]:
    """The choice of lowest total cost among `explanations`, which are sorted by cost.

    Of equally cheap choices the smallest, then the first in the order of the explanations. Exact for groups of up to a
    few dozen culprits with common explanations.
    """
    useful: list[Explanation] = []
    for one in explanations:
        if not any(is_subset(one.refused, other.refused) for other in useful):
            useful.append(one)
    chosen = [one for part in _components(useful) for one in _Search(part).best]
    return sorted(chosen, key=lambda one: one.order)


def _components(useful: Iterable[Explanation]) -> list[list[Explanation]]:
    """Groups that share no culprit, each in the given order."""
    groups: list[tuple[int, list[Explanation]]] = []
    for one in useful:
        touched = [group for group in groups if group[0] & one.refused]
        groups = [group for group in groups if not group[0] & one.refused]
        refused = one.refused
        merged = []
        for mask, those in touched:
            refused |= mask
            merged += those
        groups.append((refused, [*merged, one]))
    return [sorted(those, key=lambda one: one.order) for _, those in groups]


class _Search:
    """Branch and bound over one group, starting from the greedy choice."""

    def __init__(self, explanations: Sequence[Explanation]) -> None:
        self._all = explanations
        self._left = _TRIED
        everything = 0
        for one in explanations:
            everything |= one.refused
        self._fitting = {
            culprit: [place for place, one in enumerate(explanations) if one.refused >> culprit & 1]
            for culprit in members(everything)
        }
        self._share = {
            culprit: min(explanations[place].cost / size(explanations[place].refused) for place in fitting)
            for culprit, fitting in self._fitting.items()
        }
        self._best = self._greedy(everything)
        self._extend((), 0, everything)

    @property
    def best(self) -> list[Explanation]:
        """The cheapest choice found."""
        return [self._all[place] for place in self._best[2]]

    def _rated(self, chosen: Iterable[int]) -> tuple[int, int, tuple[int, ...]]:
        places = tuple(sorted(chosen))
        return sum(self._all[place].cost for place in places), len(places), places

    def _greedy(self, left: int) -> tuple[int, int, tuple[int, ...]]:
        chosen = []
        while left:
            place = min(
                (place for place, one in enumerate(self._all) if one.refused & left),
                key=lambda place: self._all[place].cost / size(self._all[place].refused & left),
            )
            chosen.append(place)
            left &= ~self._all[place].refused
        return self._rated(chosen)

    def _extend(self, chosen: tuple[int, ...], cost: int, left: int) -> None:
        if not left:
            self._best = min(self._best, self._rated(chosen))
            return
        self._left -= 1
        # Lower bound: the sum of each culprit's smallest share of the cost of any explanation.
        if self._left < 0 or cost + sum(self._share[culprit] for culprit in members(left)) > self._best[0] + 1e-6:
            return
        hardest = min(members(left), key=lambda culprit: len(self._fitting[culprit]))
        for place in self._fitting[hardest]:
            one = self._all[place]
            self._extend((*chosen, place), cost + one.cost, left & ~one.refused)
