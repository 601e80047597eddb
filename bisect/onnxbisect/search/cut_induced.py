"""Units that fail when they are cut out and pass inside the model, found in the verdicts on record."""

from onnxbisect.language import english
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.suspect import CutInducedFailure
from onnxbisect.unitset import UnitSet, lowest, members, of, size
from onnxbisect.universe import Universe

#: A passing probe up to this size shows well enough which neighbours such a unit needs.
SMALL = 8


def failing_only_alone(universe: Universe, oracle: Oracle) -> dict[int, UnitSet]:
    """For each variant that fails alone although one of its units passed among others: the failing probe."""
    found: dict[int, UnitSet] = {}
    for failing in oracle.failing:
        if size(failing) != 1:
            break
        if any(passing & _alike(universe, failing) for passing in oracle.passing):
            found.setdefault(universe.variant[lowest(failing)], failing)
    return found


def cut_induced_failures(universe: Universe, oracle: Oracle, blamed: UnitSet) -> list[CutInducedFailure]:
    """These units, each with the smallest group in which it passed. Asks one small group, and the unit alone again.

    `blamed` are units of culprits: the same op may be to blame in another place.
    """
    found = []
    for failing in failing_only_alone(universe, oracle).values():
        alike = _alike(universe, failing) & ~blamed
        op = universe.op[lowest(failing)]
        if not alike or not oracle.ask(failing, english("{op} alone", op=op), again=True).failed:
            continue
        smallest = min((passing for passing in oracle.passing if passing & alike), key=size, default=0)
        if smallest and size(smallest) > SMALL:
            smallest = _surroundings_that_pass(universe, oracle, smallest & alike, op) or smallest
        if smallest:
            found.append(
                CutInducedFailure(
                    units=1 << lowest(smallest & alike),
                    occurrences=tuple((unit,) for unit in members(alike)),
                    passes_with=smallest,
                )
            )
    return found


def _surroundings_that_pass(universe: Universe, oracle: Oracle, passed: UnitSet, op: str) -> UnitSet:
    group = 1 << lowest(passed)
    for _ in range(2):
        group |= universe.neighbours(group)
        if oracle.ask(group, english("{op} with its neighbours", op=op)).passed:
            return group
    return 0


def _alike(universe: Universe, one: UnitSet) -> UnitSet:
    """All units that are identical to this one when cut out alone."""
    unit = lowest(one)
    same = universe.variant_members[universe.variant[unit]]
    return of(other for other in members(same) if universe.solo[other] == universe.solo[unit])
