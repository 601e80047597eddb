"""What else could clear a suspect, beside the contexts in which each is asked.

In a small model of which a log names ops, `NamedContexts` are asked before a suspect is confirmed.

`doubts` could refute the culprits of a finished search: they are asked last, and only the conclusion sees the answers.
An op that is refused in its place may compile in a smaller piece, as where a compiler fuses it with what it reads if
nothing else reads that. The search would take such a pass for an excuse, and look at each place for what spoils it.
Here it makes a fact a suspicion, for a call or two.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from onnxbisect.language import english
from onnxbisect.search.context import (
    between_neighbours,
    computed_from,
    fused_pieces,
    grown_contexts,
)
from onnxbisect.search.excuses import open_context
from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import alone
from onnxbisect.search.places import lists_ops, named_beside_all, rests_on_a_part, seen_to_fail
from onnxbisect.search.state import SearchState, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Places at which an op passes that show what it passes beside, and that show what it cannot do without.
_SHOW, _SHOW_NEED = 2, 3
#: Most refused ops of which each two are asked together, by a compiler that names ops and by one that names nothing.
_MOST_NAMED, _MOST_REFUSED = 2, 3
#: Most pieces that a compiler which names ops is asked.
_PIECES_NAMED = 3
#: Most units of a model that is asked without each single one.
_FEWEST_UNITS = 6
#: Most different ops of a model of which little is left without one: there an op is asked without what is next to it.
_FEW_OPS = 2
#: Fewest unconnected units of interactions, and fewest such interactions, that may be a limit of unconnected pieces.
_MANY_PIECES, _MANY_ALIKE = 3, 4
#: Most units of an interaction that is also asked with each unit next to it.
_MOST_GROWN = 3


class NamedContexts:
    """Contexts that could clear a suspect which a log names."""

    def __init__(self, universe: Universe, oracle: Oracle, *, small: bool) -> None:
        self._universe = universe
        self._oracle = oracle
        self._small = small

    def of_op(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainders: Sequence[UnitSet]
    ) -> tuple[Question, ...]:
        """Contexts for an op that a log names, in a small model; none if the compiler lists all ops that it refuses.

        A log with a single name may mean an interaction that the op is part of, or that a unit is left out that makes
        the op pass. The op is asked in each remainder with its other places, unless it is named beside all that no log
        names, with all that it is computed from, and in the context in which it passes most likely.
        """
        if not self._small or lists_ops(self._universe, self._oracle, suspects):
            return ()
        universe, oracle, units = self._universe, self._oracle, suspect.units
        beside = named_beside_all(universe, oracle, suspect, suspects)
        probes = [] if beside else [oracle.without_named(it | suspect.everywhere, units) for it in remainders]
        before = computed_from(universe, units)
        if not is_subset(before, beside):  # where it is named with all that, nothing in front of it was cut
            probes.append(before)
        if context := open_context(universe, oracle, units, suspects, named=True, beside_all=bool(beside)):
            probes.append(context)
        why = english("{say} in a small context", say=suspect.say(universe))
        return tuple((probe, why) for probe in probes if probe not in (units, universe.everything))

    def of_interaction(self, suspect: Suspect, suspects: Sequence[Suspect]) -> list[Question]:
        """Contexts for an interaction of a small model where a log names ops.

        None for one of many units, which would lead to ever larger ones, and none where a unit of it fails alone: it
        is not stated as a fact in any case (`places.rests_on_a_part`).
        """
        if size(suspect.units) > _MOST_GROWN or lists_ops(self._universe, self._oracle, suspects):
            return []
        if rests_on_a_part(self._universe, self._oracle, suspect):
            return []
        why = english("{say} with its neighbours", say=suspect.say(self._universe))
        places = [of(place) for it in suspects if it.interaction for place in it.occurrences]
        # an op may fail with some of its neighbours, and compile with all
        around = [union(place for place in places if place >> unit & 1) for unit in members(suspect.units)]
        probes = dict.fromkeys((*grown_contexts(self._universe, suspect), *(it | suspect.units for it in around)))
        return [(probe, why) for probe in probes if probe not in (suspect.units, self._universe.everything)]

    def parts_alone(self, suspect: Suspect) -> list[Question]:
        """Each unit of an interaction alone, in a small model where a log names ops (`places.rests_on_a_part`)."""
        verdict = self._oracle.look(suspect.fails)
        if not self._small or not suspect.interaction or suspect.verified or verdict is None or not verdict.hints:
            return []
        units = members(suspect.units)
        return [(alone(self._universe, unit), english("{op} alone", op=self._universe.op[unit])) for unit in units]


def doubts(
    universe: Universe, oracle: Oracle, state: SearchState, remainder: UnitSet, record: Oracle
) -> list[Question]:
    """The next piece of each op that was seen to fail in its place; `record` has all answers.

    Of a compiler that was not seen to fuse anything, a single piece of a single op; where that passes, it fuses. Then
    one place of each variant is asked between its neighbours, and the others are where that passes.
    None where logs name anything. Of a small model, whose ops are asked in connected pieces of all sizes, what
    `_apart` has.
    """
    named = any((said := oracle.look(failing)) and said.hints for failing in oracle.failing)
    if universe.is_small:
        why = english("an op with another one that is not next to it")
        return [(piece, why) for piece in _next_apart(universe, oracle, state, remainder, record, named=named)]
    if named:
        return []
    why = english("an op with what it reads")
    within = remainder | union(universe.variant_members[variant] for variant in state.only_alone)
    places = _seen_places(universe, oracle, state)
    others = union(suspect.everywhere for suspect in state.suspects)
    if not state.only_alone:
        shared = [unit for unit in places if any(fused_pieces(universe, unit, within))]
        pieces = (between_neighbours(universe, unit, within & ~others) for unit in shared)
        first = oracle.probe(next(filter(None, pieces), 0))
        answer = record.look(first)
        if answer is None or not answer.passed:
            return [(first, why)] if first and answer is None else []
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
    return [(piece, why) for piece in dict.fromkeys(found) if piece]


def _next_apart(
    universe: Universe, oracle: Oracle, state: SearchState, remainder: UnitSet, record: Oracle, *, named: bool
) -> Iterator[UnitSet]:
    """The next of the first few pieces of `_apart`, of ops that none of them excused; none if the compiler lists ops.

    One that names nothing is asked one: of a second one, searches with many refused ops would take a call more.
    """
    if lists_ops(universe, oracle, state.suspects):
        return iter(())
    probes = dict.fromkeys(map(oracle.probe, _apart(universe, oracle, state, remainder, named=named)))
    first = islice((it for it in probes if not oracle.answers(it)), _PIECES_NAMED if named else 1)
    facts = [it for it in state.suspects if it.single and not any(map(it.held_by, record.passing))]
    return islice((it for it in first if not record.answers(it) and any(one.held_by(it) for one in facts)), 1)


def _apart(
    universe: Universe, oracle: Oracle, state: SearchState, remainder: UnitSet, *, named: bool
) -> Iterator[UnitSet]:
    """Pieces of a small model with two ops that are each refused alone, and not next to each other: one may excuse the
    other, where in larger pieces each is refused with something else.

    A compiler that names nothing was asked any two ops, so these are asked with what one of them reads, and a model of
    very few units without each of them. One that names ops is asked the two by themselves, and such an op with one that
    passes in another place. An op that does so, or one in a model of two ops, is asked with the rest of the model but
    what is next to it.
    """
    seen = seen_to_fail(universe, oracle, state)
    facts = [it for it in state.suspects if it.single and not it.contested and it.everywhere & seen]
    facts.sort(key=lambda it: it.units)
    together = [it for it in state.suspects if not it.single]
    others = [it.everywhere for it in facts] if len(facts) <= (_MOST_NAMED if named else _MOST_REFUSED) else []
    if named:
        others += [universe.variant_members[variant] for variant in state.only_alone]
    for fact in facts:
        beside = [it for it in others if not it & fact.everywhere]
        for other in beside if named or not others else [*beside, fact.everywhere]:
            pairs = _far_pairs(universe, fact.everywhere, other, with_what_one_reads=not named)
            pairs = [pair for pair in pairs if not any(it.held_by(pair) for it in together)]
            if not any(oracle.answers(oracle.probe(pair)) for pair in pairs):
                yield from pairs[:1]
        variant = universe.variant[lowest(fact.units)]
        if named and (variant in state.only_alone or len(universe.variant_members) <= _FEW_OPS):
            place = 1 << lowest(fact.everywhere & seen)
            yield remainder & ~universe.neighbours(place) | place
    if facts and not named and len(universe) <= _FEWEST_UNITS:
        pieces = (universe.everything & ~(1 << unit) for unit in range(len(universe)))
        yield from (piece for piece in pieces if any(it.held_by(piece) for it in facts))


def _far_pairs(universe: Universe, units: UnitSet, others: UnitSet, *, with_what_one_reads: bool) -> list[UnitSet]:
    """A unit of each, not next to each other; or these with what the first reads, if it reads anything."""
    found = []
    for unit in members(units):
        read = universe.predecessors[unit] if with_what_one_reads else 0
        if read or not with_what_one_reads:
            far = others & ~(universe.neighbours(1 << unit) | 1 << unit)
            found += [1 << unit | 1 << other | read for other in members(far)]
    return found


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


def many_unconnected(universe: Universe, suspects: Sequence[Suspect]) -> list[Suspect]:
    """Interactions of so many units, none next to another, if there are several of as many: it may be their number that
    is too much, as where a compiler takes so many unconnected pieces.
    """
    apart = [
        it
        for it in suspects
        if it.interaction and size(it.units) >= _MANY_PIECES and len(universe.components(it.units)) == size(it.units)
    ]
    counted = Counter(size(it.units) for it in apart)
    return [it for it in apart if counted[size(it.units)] >= _MANY_ALIKE]
