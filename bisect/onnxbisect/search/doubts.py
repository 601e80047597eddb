"""What could refute the culprits of a finished search: asked last, and only the conclusion sees the answers.

An op that is refused in its place may compile in a smaller piece, as where a compiler fuses it with what it reads if
nothing else reads that. The search would take such a pass for an excuse, and look at each place for what spoils it.
Here it makes a fact a suspicion, for a call or two.
"""

from collections import Counter
from collections.abc import Iterable

from onnxbisect.search.context import FEW_UNITS, between_neighbours, fused_pieces
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.places import seen_to_fail
from onnxbisect.search.state import SearchState
from onnxbisect.unitset import UnitSet, members, of, union
from onnxbisect.universe import Universe

#: Places at which an op passes that show what it passes beside, and that show what it cannot do without.
_SHOW, _SHOW_NEED = 2, 3


def doubts(universe: Universe, oracle: Oracle, state: SearchState, remainder: UnitSet, record: Oracle) -> list[UnitSet]:
    """The next piece of each op that was seen to fail in its place; `record` has all answers.

    Of a compiler that was not seen to fuse anything, a single piece of a single op; where that passes, it fuses. Then
    one place of each variant is asked between its neighbours, and the others are where that passes.
    None in a small model, whose ops are asked in pieces of all sizes, and none where logs name anything.
    """
    if len(universe) <= FEW_UNITS or any((said := oracle.look(failing)) and said.hints for failing in oracle.failing):
        return []
    within = remainder | union(universe.variant_members[variant] for variant in state.only_alone)
    places = _seen_places(universe, oracle, state)
    others = union(suspect.everywhere for suspect in state.suspects)
    if not state.only_alone:
        shared = [unit for unit in places if any(fused_pieces(universe, unit, within))]
        pieces = (between_neighbours(universe, unit, within & ~others) for unit in shared)
        first = oracle.probe(next(filter(None, pieces), 0))
        answer = record.look(first)
        if answer is None or not answer.passed:
            return [first] if first and answer is None else []
    found: list[UnitSet] = []
    first_of: dict[int, UnitSet] = {}
    for unit in places:
        between = oracle.probe(between_neighbours(universe, unit, within & ~others))
        first = first_of.setdefault(universe.variant[unit], between)
        if record.passes_within(1 << unit):
            continue
        due = between if between == first or record.passes_within(first) else 0
        asked = map(oracle.probe, _pieces(universe, oracle, unit, within, others, due))
        found += [next((piece for piece in asked if piece and record.look(piece) is None), 0)]
    return list(filter(None, dict.fromkeys(found)))


def _seen_places(universe: Universe, oracle: Oracle, state: SearchState) -> list[int]:
    """A unit for each kind of place at which a single op was seen to fail."""
    seen = seen_to_fail(universe, oracle, state)
    found: list[int] = []
    for suspect in state.suspects:
        if suspect.single and not suspect.contested:
            places = members(suspect.everywhere & seen)
            found += {(universe.neighbourhoods[unit], universe.solo[unit]): unit for unit in places}.values()
    return found


def _pieces(
    universe: Universe, oracle: Oracle, unit: int, within: UnitSet, others: UnitSet, between: UnitSet
) -> Iterable[UnitSet]:
    """The piece `between` neighbours, those with what something else reads in the model, then those with what units of
    the variant passed beside, and with what that reads. The other suspects are in none but as its neighbours.

    None where those all passed with an op that they read, and this one reads none like it; `between` is one nonetheless
    where some of them read what this one reads. What one of several passed beside may be there by chance.
    """
    passed = _passed_beside(universe, oracle, unit)
    counted = Counter(kind for kinds in passed for kind in kinds)
    read = {_beside(universe, unit, it) for it in members(universe.predecessors[unit])}
    needed = {(reads_it, it) for (reads_it, it), count in counted.items() if count == len(passed) and not reads_it}
    without = len(passed) >= _SHOW_NEED and needed - read
    if not without or (read & counted.keys()) - needed:
        yield between
    if without:
        return
    yield from fused_pieces(universe, unit, within, others)
    often = {kind for kind, count in counted.items() if count >= min(_SHOW, len(passed))}
    beside = of(it for it in members(universe.neighbours(1 << unit)) if _beside(universe, unit, it) in often)
    earlier = union(universe.predecessors[it] for it in members(beside & universe.predecessors[unit]))
    yield from fused_pieces(universe, unit, within & (beside | earlier), others, shared=False)


def _passed_beside(universe: Universe, oracle: Oracle, unit: int) -> list[set[tuple[bool, int]]]:
    """What each unit of this variant that passed in some probe passed beside, as `_beside`."""
    return [
        {
            _beside(universe, other, beside)
            for beside in members(universe.neighbours(1 << other))
            if oracle.passes_within(1 << other | 1 << beside)
        }
        for other in members(universe.variant_members[universe.variant[unit]] & oracle.exonerated)
    ]


def _beside(universe: Universe, unit: int, neighbour: int) -> tuple[bool, int]:
    """Whether the neighbour reads this unit, and the neighbour's variant."""
    return bool(universe.successors[unit] >> neighbour & 1), universe.variant[neighbour]
