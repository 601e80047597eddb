"""A search within a limit of what the compiler takes at a time (`cut_limits`), which asks each op by itself.

It costs one call for each kind of op, and ends where a search that joins ops would take each set of them that exceeds
the limit for an interaction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnxbisect.language import english
from onnxbisect.search.context import neighbours_kept, place_with_most_neighbours
from onnxbisect.search.cut_limits import FEWEST_UNITS, CutLimit, Measure, amount
from onnxbisect.search.oracle import Oracle, pieces
from onnxbisect.search.pattern import alone
from onnxbisect.search.state import SearchState
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, lowest, members, size, union
from onnxbisect.universe import Universe

#: Failing probes that exceed a limit, from which on it is tested.
_FEWEST = 3
#: Most units that a probe is made of to exceed a limit with other units.
_MOST_UNITS = 64


class WithinLimit:
    """A search that asks each op by itself, and then all that is left, or pieces of it that the limit allows."""

    def __init__(self, universe: Universe, oracle: Oracle, state: SearchState, *, brief: bool = False) -> None:
        self._brief = brief
        self._universe = universe
        self._oracle = oracle
        self._state = state

    def explains(self, found: Suspect) -> bool:
        """Whether a limit explains an interaction or a count, and with it all that failed; then the search is over.

        `SearchState.limits` and what else the search established are set.
        """
        few = len(self._universe) < FEWEST_UNITS
        if few or self._brief or not (found.interaction or found.pool):
            return False
        for limit in possible_limits(self._universe, self._oracle, self._state.suspects):
            other = others_that_exceed(self._universe, limit, found, self._state.suspects)
            if other and self._oracle.ask(other, english("other units that exceed what passed")).failed:
                return self._concludes(limit)
        return False

    def _concludes(self, limit: CutLimit) -> bool:
        """Ask within the limit; False if that leaves a failure that neither the limit nor an op by itself explains."""
        suspects = self._alone()
        region = self._universe.everything & ~union(suspect.everywhere for suspect in suspects)
        rest = self._oracle.ask(region, english("the model without the ops that fail alone"), sure=True)
        proof: tuple[UnitSet, ...] = (region,)
        if not rest.passed:
            if not rest.failed or not limit.exceeded(self._universe, region):
                return False
            proof = tuple(pieces_within(self._universe, limit, region))
            why = english("a piece within what the compiler takes")
            if not proof or not all(it.passed for it in self._oracle.ask_all([(it, why) for it in proof], sure=True)):
                return False
        suspects = [self._in_context(limit, suspect, proof) for suspect in suspects]
        blames = [(it.blame, english("{op} in its context", op=self._op(it))) for it in suspects if it.blame]
        if not all(it.failed for it in self._oracle.ask_all(blames, sure=True)):
            return False
        if rest.failed and limit.exceeded(self._universe, self._universe.everything):
            every = tuple(members(region))
            suspects.append(Suspect(units=region, fails=region, occurrences=(every,), capacity=True, verified=True))
            self._state.capacity = max(proof, key=size)
        self._state.suspects, self._state.proof = tuple(suspects), proof
        fitting = possible_limits(self._universe, self._oracle, self._state.suspects)
        self._state.limits = (limit, *(it for it in fitting if it != limit))
        self._state.exhaustive, self._state.cut_short = True, False
        return True

    def _alone(self) -> list[Suspect]:
        """A suspect for each variant of which units fail by themselves, perhaps since each exceeds the limit."""
        universe, oracle = self._universe, self._oracle
        probes = {unit: alone(universe, unit) for unit in universe.exemplars.values()}
        oracle.ask_all(((it, english("{op} alone", op=universe.op[unit])) for unit, it in probes.items()), firm=True)
        failed = {
            universe.solo[unit]: probe
            for unit, probe in probes.items()
            if (answer := oracle.look(probe)) and answer.failed
        }
        found = []
        for variant in universe.variant_members:
            places = [unit for unit in members(variant) if universe.solo[unit] in failed]
            if places:
                probe = failed[universe.solo[places[0]]]
                found.append(Suspect(units=probe, fails=probe, occurrences=tuple((unit,) for unit in places)))
        return found

    def _in_context(self, limit: CutLimit, suspect: Suspect, proof: Sequence[UnitSet]) -> Suspect:
        """The suspect with the probe that blames it: one of its places in what passed without it, within the limit."""
        placed = [(place_with_most_neighbours(self._universe, suspect, it, 1), it) for it in proof]
        fitting = [(unit, it) for unit, it in placed if not limit.exceeded(self._universe, it | 1 << unit)]
        if not fitting:
            return replace(suspect, verified=True)
        unit, around = max(fitting, key=lambda it: neighbours_kept(self._universe, it[0], it[1], 1))
        return replace(suspect, units=1 << unit, context=around, blame=around | 1 << unit, verified=True)

    def _op(self, suspect: Suspect) -> str:
        return self._universe.op[lowest(suspect.units)]


def possible_limits(universe: Universe, oracle: Oracle, suspects: Sequence[Suspect]) -> Iterator[CutLimit]:
    """The limits that would explain all that failed for no known op: every such probe exceeds what passed.

    Nothing is explained so by probes of one unit, nor by the whole model.
    """
    known = union(suspect.everywhere for suspect in suspects if suspect.single)
    known |= union(
        universe.variant_members[universe.variant[unit]]
        for failing in oracle.failing
        if size(failing) == 1
        for unit in members(failing)
    )
    failed = [probe for probe in oracle.failing if not probe & known and probe != universe.everything]
    if len(failed) < _FEWEST or not oracle.passing:
        return
    for measure in Measure:
        most = max(amount(universe, measure, probe) for probe in oracle.passing)
        if all(amount(universe, measure, probe) > most for probe in failed):
            yield CutLimit(measure, most)


def others_that_exceed(universe: Universe, limit: CutLimit, found: Suspect, suspects: Sequence[Suspect]) -> UnitSet:
    """Units that hold none of these at any place, with as much of it as the one that was found; 0 if too few."""
    wanted = amount(universe, limit.measure, found.fails)
    chosen: UnitSet = 0
    has = 0
    for unit in (*members(universe.everything & ~found.units), *members(found.units)):
        grown = chosen | 1 << unit
        more = amount(universe, limit.measure, grown)
        if more > has and not any(suspect.held_by(grown) for suspect in (found, *suspects)):
            chosen, has = grown, more
        if has >= wanted:
            return chosen
        if size(chosen) == _MOST_UNITS:
            break
    return 0


def pieces_within(universe: Universe, limit: CutLimit, region: UnitSet) -> list[UnitSet]:
    """Parts of a region that do not exceed the limit, in which each unit stands with its neighbours; empty if none
    are small enough.
    """
    most = size(region)
    while most > 1:
        most = -(-most // 2)
        found = list(pieces(universe, region, most))
        if not any(limit.exceeded(universe, piece) for piece in found):
            return found
        if most == 2:
            break
    return []
