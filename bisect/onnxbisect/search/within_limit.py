"""A compiler that takes only so much at a time (`state.CutLimit`): each op is asked by itself, and then pieces.

That costs at most one call for each kind of op, and ends where a search that joins ops would take each set of them that
exceeds the limit for an interaction. What fails within the limit though each op passes is narrowed to a stretch of the
model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

from onnxbisect.language import english
from onnxbisect.search.context import neighbours_kept, place_with_most_neighbours
from onnxbisect.search.limits import pieces
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone
from onnxbisect.search.state import FEWEST_UNITS, CutLimit, Gauge, Measure, SearchState, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe, remembered
from onnxbisect.verdict import Verdict

#: Failing probes that exceed a limit, from which on it is tested.
_FEWEST = 3
#: Most failing probes, and most ops of a model, of which each two are taken for what stays on the host.
_MOST_FAILED, _MOST_OPS = 40, 24
_REST = english("the model without the ops that fail alone")
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
        universe, oracle = self._universe, self._oracle
        gauges = map(Gauge, Measure)
        exceeded = [it for it in gauges if it.amount(universe, found.fails) > most_passed(universe, oracle, it)]
        exceeded.sort(key=lambda it: len(self._failed_within(it)))
        if any((limit := self._tested(gauge, found)) and self._concludes(limit, found) for gauge in exceeded):
            return True
        tried: set[Gauge] = set()
        while (gauge := pieces_on_target(universe, oracle, (*self._state.suspects, found))) and gauge not in tried:
            tried.add(gauge)
            if (limit := self._tested(gauge, found)) and self._concludes(limit, found):
                return True
        return False

    def _failed_within(self, gauge: Gauge) -> list[UnitSet]:
        """The failing probes that a limit of this does not explain, without those that hold a suspect."""
        universe, suspects = self._universe, self._state.suspects
        most = most_passed(universe, self._oracle, gauge)
        within = (it for it in self._oracle.failing if gauge.amount(universe, it) <= most)
        return [it for it in within if not any(suspect.held_by(it) for suspect in suspects)]

    def _tested(self, gauge: Gauge, found: Suspect) -> CutLimit | None:
        """The limit of this, if units that were not found fail for it too; between the most that passes and the least
        that fails is halved.

        The other units lack an op of what was found, as far as the model has others: the ops may be refused together
        wherever they stand, so that each set of them that exceeds the limit fails for that.
        """
        universe, oracle, suspects = self._universe, self._oracle, self._state.suspects
        kinds = dict.fromkeys(universe.variant[unit] for unit in members(found.units))
        # a small model has too few others: there without one unit of what was found
        avoided = (*(universe.variant_members[it] for it in kinds), found.units, 1 << lowest(found.units))
        singles = union(suspect.everywhere for suspect in suspects if suspect.single)
        counts = [it for it in (*suspects, found) if it.pool]

        def without_found(wanted: int, *, last: bool = False) -> UnitSet:
            choices = (others(universe, gauge, wanted, it | singles, counts, last=last) for it in avoided)
            return next((it for it in choices if it), 0)

        why = english("other units that exceed what passed")
        tried: set[UnitSet] = {0}
        while limit := possible_limit(universe, oracle, suspects, gauge):
            if not limit.exceeded(universe, found.fails):
                break
            other = without_found((limit.most + limit.refused + 1) // 2)
            if other in tried:
                break
            tried.add(other)
            answer = oracle.ask(other, why)
            if answer.failed and gauge.amount(universe, other) >= limit.refused:
                if not universe.is_small and not gauge.aside:
                    return limit
                # a few interactions in a small model fit some limit as well, or if enough ops are taken out, until the
                # last units are asked
                last = without_found(limit.refused, last=True)
                if not last or oracle.ask(last, why).failed:
                    return limit
        return None

    def _concludes(self, limit: CutLimit, found: Suspect) -> bool:
        """Ask within the limit; False if a probe gets no answer, or if an op that fails alone passes in its context."""
        universe, oracle = self._universe, self._oracle
        parts = pieces_within(universe, limit, universe.everything)
        if 4 * len(parts) < len(self._unseen):  # a piece that passes spares the calls for each of its ops
            self._ask_pieces(parts)
        # A suspect for each variant of which units fail by themselves, perhaps since each exceeds the limit.
        probes = {unit: alone(universe, unit) for unit in self._unseen}
        oracle.ask_all(((it, english("{op} alone", op=universe.op[unit])) for unit, it in probes.items()), firm=True)
        failed = {
            universe.solo[unit]: probe
            for unit, probe in probes.items()
            if (answer := oracle.look(probe)) and answer.failed
        }
        suspects = []
        for variant in universe.variant_members:
            places = [unit for unit in members(variant) if universe.solo[unit] in failed]
            if places:
                probe = failed[universe.solo[places[0]]]
                suspects.append(Suspect(units=probe, fails=probe, occurrences=tuple((unit,) for unit in places)))
        region = universe.everything & ~union(suspect.everywhere for suspect in suspects)
        together: list[Suspect] = []
        while failing := self._failing_within(limit, region):
            verdict = oracle.look(failing)
            if verdict is None or not verdict.failed:
                return False
            on_target = pieces_on_target(universe, oracle, self._state.suspects)
            other = self._tested(on_target, found) if on_target and not limit.gauge.aside else None
            if other and other.exceeded(universe, failing):
                return self._concludes(other, found)
            stretch = self._stretch(limit, failing)
            together.append(Suspect(units=stretch, fails=stretch, occurrences=(tuple(members(stretch)),)))
            region &= ~(1 << lowest(stretch))
        rest = oracle.ask(region, _REST, sure=True)
        proof = (region,) if rest.passed else tuple(pieces_within(universe, limit, region))
        suspects = [self._in_context(limit, suspect, proof) for suspect in suspects]
        blamed = ((it.blame, universe.op[lowest(it.units)]) for it in suspects if it.blame)
        blames = [(probe, english("{op} in its context", op=op)) for probe, op in blamed]
        if not all(it.failed for it in oracle.ask_all(blames, sure=True)):
            return False
        largest = max(proof, key=size)
        for it in together:
            # what stands apart may be refused for what is left out between
            joined = len(universe.components(it.units)) == 1
            suspects.append(replace(it, context=largest, blame=it.units, verified=joined))
        if rest.failed and limit.exceeded(universe, universe.everything):
            every = tuple(members(region))
            # what is left may be refused for ops that are refused together, as others are, or as in a model of so few
            sure = size(region) >= FEWEST_UNITS and not together
            suspects.append(Suspect(units=region, fails=region, occurrences=(every,), capacity=True, verified=sure))
            self._state.capacity = largest
        fitting = (possible_limit(universe, oracle, suspects, Gauge(it)) for it in Measure)
        limits = (limit, *(it for it in fitting if it and it.gauge != limit.gauge))
        # of several limits that may be the one, what exceeds any is no fact
        self._state.suspects = tuple(
            replace(it, verified=False)
            if it.interaction and any(one.exceeded(universe, it.units) for one in limits)
            else it
            for it in suspects
        )
        self._state.proof, self._state.limits = proof, limits
        self._state.exhaustive, self._state.cut_short = not together, bool(together)
        return True

    def _failing_within(self, limit: CutLimit, region: UnitSet) -> UnitSet:
        """A probe that fails, or has no answer, without exceeding the limit: one on record, the region or a piece of
        it; else 0.
        """
        for failing in self._oracle.failing:
            if is_subset(failing, region) and not limit.exceeded(self._universe, failing):
                return failing
        rest = self._oracle.ask(region, _REST, sure=True)
        if rest.passed:
            return 0
        if not limit.exceeded(self._universe, region):
            return region
        proof = pieces_within(self._universe, limit, region)
        return next((it for it, answer in zip(proof, self._ask_pieces(proof), strict=True) if not answer.passed), 0)

    def _ask_pieces(self, proof: Sequence[UnitSet]) -> Sequence[Verdict]:
        return self._oracle.ask_all(
            [(it, english("a piece within what the compiler takes")) for it in proof], sure=True
        )

    def _stretch(self, limit: CutLimit, failing: UnitSet) -> UnitSet:
        """The shortest part of a failing probe from one unit to another, in the model's order, that fails as well."""
        why = english("half of a failing set")
        for from_the_end in (True, False):
            units = list(members(failing))
            fine, fails = 0, len(units)
            while fails - fine > 1:
                kept = (fine + fails) // 2
                part = of(units[:kept] if from_the_end else units[-kept:])
                if not limit.exceeded(self._universe, part) and self._oracle.ask(part, why).failed:
                    fails = kept
                else:
                    fine = kept
            failing = of(units[:fails] if from_the_end else units[-fails:])
        return failing

    @property
    def _unseen(self) -> list[int]:
        """A unit of each kind, of those that are in no passing probe."""
        return [unit for unit in self._universe.exemplars.values() if not self._oracle.exonerated >> unit & 1]

    def _in_context(self, limit: CutLimit, suspect: Suspect, proof: Sequence[UnitSet]) -> Suspect:
        """The suspect with the probe that blames it: one of its places in what passed without it, within the limit."""
        placed = [(place_with_most_neighbours(self._universe, suspect, it, 1), it) for it in proof]
        fitting = [(unit, it) for unit, it in placed if not limit.exceeded(self._universe, it | 1 << unit)]
        if not fitting:
            return replace(suspect, verified=True)
        unit, around = max(fitting, key=lambda it: neighbours_kept(self._universe, it[0], it[1], 1))
        return replace(suspect, units=1 << unit, context=around, blame=around | 1 << unit, verified=True)


def possible_limit(universe: Universe, oracle: Oracle, suspects: Sequence[Suspect], gauge: Gauge) -> CutLimit | None:
    """The limit that would explain most of what failed for no known op: such a probe exceeds what passed.

    The others may hold ops that are refused together.
    """
    failed = _failed_together(universe, oracle, suspects)
    most = most_passed(universe, oracle, gauge)
    if not most or sum(gauge.amount(universe, probe) > most for probe in failed) < _FEWEST:
        return None
    within = [suspect for suspect in suspects if gauge.amount(universe, suspect.units) <= most]
    amounts = [gauge.amount(universe, probe) for probe in failed if not any(it.held_by(probe) for it in within)]
    exceeding = [it for it in amounts if it > most]
    if len(exceeding) < _FEWEST or 2 * len(exceeding) <= len(amounts):
        return None
    return CutLimit(gauge, most, min(exceeding))


def _failed_together(universe: Universe, oracle: Oracle, suspects: Sequence[Suspect]) -> list[UnitSet]:
    """Failing probes but the whole model, without a known op: a single suspect, or an op that failed alone."""
    known = union(suspect.everywhere for suspect in suspects if suspect.single)
    known |= union(
        universe.variant_members[universe.variant[unit]]
        for failing in oracle.failing
        if size(failing) == 1
        for unit in members(failing)
    )
    return [probe for probe in oracle.failing if not probe & known and probe != universe.everything]


def pieces_on_target(universe: Universe, oracle: Oracle, suspects: Sequence[Suspect]) -> Gauge | None:
    """Unconnected pieces without ops that a compiler may leave to the host; None if no such ops explain every failing
    probe without a known op or too many of one: that it has more such pieces than all that passed.
    """
    counts = [it for it in suspects if it.pool]
    failed = _failed_together(universe, oracle, suspects)
    failed = [probe for probe in failed if not any(it.held_by(probe) for it in counts)]
    aside = 0
    if len(failed) >= _FEWEST and oracle.passing:
        aside = _left_to_the_host(universe, tuple(failed), tuple(oracle.passing))
    return Gauge(Measure.PIECES, aside) if aside else None


@remembered(64)
def _left_to_the_host(universe: Universe, failed: Sequence[UnitSet], passed: Sequence[UnitSet]) -> UnitSet:
    """One op or two, without which each of these failing probes has more unconnected pieces than all that passed, which
    have some: of several such choices the one that leaves least in these; 0 if there are none.
    """
    ops = [it for it in universe.variant_members if it & union(passed)]
    if len(failed) > _MOST_FAILED or len(ops) > _MOST_OPS:
        return 0
    for count in (1, 2):
        fitting = []
        for aside in map(union, combinations(ops, count)):
            amount = partial(Gauge(Measure.PIECES, aside).amount, universe)
            least = amount(failed[0])
            if all(amount(it) < least for it in passed) and (most := max(map(amount, passed))):
                fitting += [(most, aside)] * all(amount(it) > most for it in failed)
        if fitting:
            return min(fitting)[1]
    return 0


def most_passed(universe: Universe, oracle: Oracle, gauge: Gauge) -> int:
    """The most of it in a passing probe."""
    return max((gauge.amount(universe, probe) for probe in oracle.passing), default=0)


def others(
    universe: Universe, gauge: Gauge, wanted: int, avoid: UnitSet, counts: Sequence[Suspect], *, last: bool = False
) -> UnitSet:
    """Units none of which is in `avoid`, with so much of it, the first or the last of them that hold none of `counts`;
    0 if there are too few.
    """
    chosen: UnitSet = 0
    has = 0
    units = list(members(universe.everything & ~avoid))
    for unit in reversed(units) if last else units:
        grown = gauge.amount(universe, chosen | 1 << unit)
        if grown > has and not any(it.held_by(chosen | 1 << unit) for it in counts):
            chosen, has = chosen | 1 << unit, grown
        if has >= wanted:
            return chosen
        if size(chosen) == _MOST_UNITS:
            break
    return 0


def pieces_within(universe: Universe, limit: CutLimit, region: UnitSet) -> list[UnitSet]:
    """Parts of a region that do not exceed the limit, in which each unit stands with its neighbours; a unit by itself
    where no such part is small enough.
    """
    found: list[UnitSet] = []
    for part in _within(universe, limit, region):
        if found and not limit.exceeded(universe, found[-1] | part):
            found[-1] |= part
        else:
            found.append(part)
    return [it for it in dict.fromkeys(found) if it and not any(it != one and is_subset(it, one) for one in found)]


def _within(universe: Universe, limit: CutLimit, region: UnitSet) -> Iterator[UnitSet]:
    if size(region) == 1 or not limit.exceeded(universe, region):
        yield region
    elif size(region) == 2:
        yield from (1 << unit for unit in members(region))
    else:
        for half in pieces(universe, region, -(-size(region) // 2)):
            yield from _within(universe, limit, half)
