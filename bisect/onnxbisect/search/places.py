"""Which probes on record blame a suspect in its place inside the model, and what fails only where it is cut out."""

from collections import Counter
from collections.abc import Sequence

from onnxbisect.search.context import (
    FEW_NEAR,
    NEAR,
    PATTERN,
    REACH,
    VERY_FEW_UNITS,
    windows,
)
from onnxbisect.search.excuses import open_context
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone, identical
from onnxbisect.search.state import SearchState, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Suspects that are put back into the remainder by themselves, after which no more are for this reason alone.
_MOST_PUT_BACK = 3


def _names_are_believed(universe: Universe, oracle: Oracle) -> bool:
    """Whether what a log names counts as refused; in a very small model all contexts are asked instead."""
    return len(universe) > VERY_FEW_UNITS and not oracle.names_mislead


def is_named(universe: Universe, oracle: Oracle, suspect: Suspect) -> bool:
    """Whether the compiler names the op of a single suspect, and its names are believed; then fewer probes are needed.

    A table of tensors names the op only because it is alone in the probe, which says nothing about a pattern.
    """
    if oracle.look(suspect.fails) is None or not suspect.single or oracle.has_wrong_numbers(suspect.fails):
        return False
    if not _names_are_believed(universe, oracle):
        return False
    alike = universe.units_by_op[universe.op[lowest(suspect.units)]]
    return bool(oracle.of_named_ops(suspect.fails) & alike or oracle.named_in(suspect.fails))


def is_named_for_itself(universe: Universe, oracle: Oracle, suspect: Suspect) -> bool:
    """Whether the compiler names the op when it is alone, or gives the same message for a larger probe."""
    if is_named(universe, oracle, suspect):
        return True
    verdict = oracle.look(suspect.fails)
    if len(universe) <= VERY_FEW_UNITS or verdict is None or not verdict.fingerprint:
        return False
    larger = [failing for failing in oracle.failing if size(failing) > size(suspect.fails)]
    words = (oracle.look(failing) for failing in larger if suspect.held_by(failing))
    return any(said is not None and said.fingerprint == verdict.fingerprint for said in words)


def seen_to_fail(universe: Universe, oracle: Oracle, state: SearchState) -> UnitSet:
    """The units of single suspects that a failing probe blames in their place, and those in equal places.

    Such a probe contains no culprit but one single suspect, with all its neighbours except those left out to break
    interactions. Other single suspects near it could make it pass, so each group of `windows` needs a probe too.
    Units of variants that fail alone and pass among others may be what fails, cut off from those, so a probe with any
    of them counts only if it passes without the suspect. Places that a log names (`refused_by_name`) count as seen.
    Units of variants that a profile lacks cannot be in a passing probe, so no probe has to contain them. Places are
    equal if their surroundings within three steps look alike.

    In a model of few units a place that a log names counts only if no context of it is worth a call (`open_context`),
    unless a log lists the ops of several suspects: what fails with more may be another culprit that it is part of. Of
    what no log names these were asked before it was confirmed.
    """
    suspects = state.suspects
    doubted = union(universe.variant_members[variant] for variant in state.only_alone)
    singles = union(suspect.everywhere for suspect in suspects if suspect.single)
    others = [suspect for suspect in suspects if not suspect.single]
    broken = state.not_known | union(other.everywhere for other in others if not other.capacity)
    around = universe.neighbourhoods
    by_themselves: UnitSet = 0
    groups: set[UnitSet] = set()
    for failing in oracle.failing:
        inside = failing & singles
        if 2 <= size(inside) <= 3:
            groups.add(inside)
        clean = not failing & doubted & ~inside or oracle.passes_within(failing & ~inside)
        alike = len({around[unit] for unit in members(inside)}) == 1
        if clean and alike and not any(other.held_by(failing) for other in others):
            beside = {unit: universe.neighbours(1 << unit) & ~singles & ~broken for unit in members(inside)}
            by_themselves |= of(unit for unit, kept in beside.items() if is_subset(kept, failing))
    seen = of(refused_by_name(universe, oracle, broken)) & singles | of(
        unit
        for unit in members(by_themselves)
        if all(group in groups for group in windows(universe, unit, singles, NEAR, FEW_NEAR))
    )
    if universe.is_small and not lists_ops(universe, oracle, suspects):
        for suspect in suspects:
            if not is_named_for_itself(universe, oracle, suspect):
                continue
            beside_all = bool(named_beside_all(universe, oracle, suspect, suspects))
            for unit in members(seen & suspect.everywhere):
                if open_context(universe, oracle, 1 << unit, suspects, named=True, beside_all=beside_all):
                    seen &= ~(1 << unit)
    return union(suspect.alike(universe, seen & suspect.everywhere) for suspect in suspects if suspect.single)


def unseen_in_place(
    universe: Universe, oracle: Oracle, state: SearchState, seen: UnitSet, remainder: UnitSet
) -> list[UnitSet]:
    """Probes that are missing to see single suspects fail in their place; `seen` is that of `seen_to_fail`.

    Each suspect is put back into the remainder in each group of `windows`, which suspects near each other share, and by
    itself until `_MOST_PUT_BACK` suspects were. A unit next to it that gets no answer may only lack what it makes.
    """
    singles = [suspect for suspect in state.suspects if suspect.single and not (suspect.contested or suspect.like)]
    everywhere = union(suspect.everywhere for suspect in state.suspects if suspect.single and not suspect.contested)
    unanswered = state.unresolved & ~state.not_known | state.impossible

    def possible(units: UnitSet) -> UnitSet:
        return units & ~universe.impossible_without(everywhere & ~units)

    near = [
        universe.ball(suspect.units, REACH, remainder | suspect.units)
        | possible(suspect.units | universe.neighbours(suspect.units) & unanswered)
        for suspect in singles
    ]
    left = max(0, _MOST_PUT_BACK - sum(oracle.look(probe) is not None for probe in near))
    unseen = [(suspect, probe) for suspect, probe in zip(singles, near, strict=True) if not suspect.everywhere & seen]
    missing = [probe for _, probe in unseen if oracle.look(probe) is None][:left]
    together = {failing & everywhere for failing in oracle.failing}
    for suspect, _ in unseen:
        groups = windows(universe, lowest(suspect.units), everywhere, NEAR, FEW_NEAR)
        groups = [group for group in groups if group not in together and possible(group) == group]
        missing += [universe.ball(group, PATTERN, remainder | group) for group in groups]
    return list(dict.fromkeys(missing))


def refused_by_name(universe: Universe, oracle: Oracle, broken: UnitSet) -> dict[int, UnitSet]:
    """The units that a log names beside everything within three steps, each with the largest such probe.

    A log that names units of several variants may list what the compiler had in hand. It counts once a variant that
    it lists most often, the likeliest one to be fine there, failed in its place without the others. A unit listed next
    to one of another variant may be refused because of that one: it counts once it failed without it (`listed_apart`).

    The probe may lack `broken`, and other units already known to be refused in their place: those belong to no pattern
    that the compiler fuses there.
    """
    found: dict[int, UnitSet] = {}
    if not _names_are_believed(universe, oracle):
        return found
    listed = {failing: _listed_most(universe, oracle.refused_by_log(failing)) for failing in reversed(oracle.failing)}
    for failing, commonest in listed.items():
        if not commonest:
            _add_refused(universe, oracle, failing, broken, found)
    for failing, commonest in listed.items():
        listing = oracle.refused_by_log(failing)
        likeliest = (unit for unit in members(listing) if universe.variant[unit] in commonest)
        if any(_fails_without(universe, oracle, unit, listing, broken) for unit in likeliest):
            _add_refused(universe, oracle, failing, broken, found)
    return found


def listed_apart(universe: Universe, oracle: Oracle, suspects: Sequence[Suspect], remainder: UnitSet) -> list[UnitSet]:
    """Groups of suspects, each with those that a log lists beside each other, no two of them next to each other.

    Put back into the remainder, a group tells which of its units are refused whatever is next to them.
    """
    if not _names_are_believed(universe, oracle):
        return []
    broken = universe.everything & ~(remainder | union(suspect.everywhere for suspect in suspects if suspect.single))
    lists = [oracle.refused_by_log(failing) for failing in oracle.failing if size(failing) > 1]
    groups: list[UnitSet] = []
    for suspect in suspects:
        if not suspect.single or suspect.verified:
            continue
        places = [(unit, listing) for listing in lists for unit in members(listing & suspect.everywhere)]
        if not places or any(
            not _listed_beside(universe, unit, listing) or _fails_apart(universe, oracle, unit, listing, broken)
            for unit, listing in places
        ):
            continue
        unit = places[0][0]
        apart = (index for index, group in enumerate(groups) if not universe.neighbours(1 << unit) & group)
        index = next(apart, len(groups))
        groups[index : index + 1] = [union(groups[index : index + 1]) | 1 << unit]
    return groups


def _listed_beside(universe: Universe, unit: int, listing: UnitSet) -> UnitSet:
    """The listed units of other variants next to this one."""
    return universe.neighbours(1 << unit) & listing & ~universe.variant_members[universe.variant[unit]]


def _fails_apart(universe: Universe, oracle: Oracle, unit: int, listing: UnitSet, broken: UnitSet) -> bool:
    """As `_fails_without`, or alone where all that is next to the unit is listed: beside what is not it would be in a
    piece of its own, too.
    """
    cut_off = is_subset(universe.neighbours(1 << unit), listing)
    is_named = cut_off and bool(oracle.refused_by_log(alone(universe, unit)))
    return is_named or _fails_without(universe, oracle, unit, listing, broken)


def _fails_without(universe: Universe, oracle: Oracle, unit: int, listing: UnitSet, broken: UnitSet) -> bool:
    """Whether a log names the unit, or one like it, for a probe with all that is near it and not listed with it.

    Units of other variants may be named there, but none next to it.
    """
    alike = universe.variant_members[universe.variant[unit]]
    for failing in oracle.failing:
        named = oracle.refused_by_log(failing)
        if size(failing) > 1 and not is_subset(listing, failing):
            for other in members(named & alike):
                near = universe.ball(1 << other, PATTERN) & ~(listing | broken)
                if is_subset(near, failing) and not _listed_beside(universe, other, named):
                    return True
    return False


def commonest_of_lists(universe: Universe, oracle: Oracle) -> set[int]:
    """The variants that some log with units of several variants lists most often; none where names are not believed."""
    if not _names_are_believed(universe, oracle):
        return set()
    return set().union(*(_listed_most(universe, oracle.refused_by_log(failing)) for failing in oracle.failing))


def listed_beside(universe: Universe, oracle: Oracle, suspect: Suspect) -> UnitSet:
    """The units of other variants in logs that list the suspect's most often: these are believed once it failed in its
    place without them (`refused_by_name`)."""
    own = universe.variant[lowest(suspect.units)]
    lists = map(oracle.refused_by_log, oracle.failing)
    return union(it for it in lists if own in _listed_most(universe, it)) & ~suspect.everywhere


def _listed_most(universe: Universe, units: UnitSet) -> set[int]:
    """The variants with most of these units; none if they are of one variant."""
    counted = Counter(universe.variant[unit] for unit in members(units))
    most = max(counted.values(), default=0)
    return {variant for variant, count in counted.items() if count == most and len(counted) > 1}


def _add_refused(
    universe: Universe, oracle: Oracle, failing: UnitSet, broken: UnitSet, found: dict[int, UnitSet]
) -> None:
    listing = oracle.refused_by_log(failing)
    for unit in members(listing & ~of(found)):
        near = universe.ball(1 << unit, PATTERN, universe.everything & ~of(found))
        if is_subset(near & ~broken, failing) and (
            not _listed_beside(universe, unit, listing) or _fails_apart(universe, oracle, unit, listing, broken)
        ):
            found[unit] = failing


def lists_ops(universe: Universe, oracle: Oracle, suspects: Sequence[Suspect]) -> bool:
    """Whether one log names the ops of several suspects, so the compiler does not stop at the first."""
    if oracle.names_mislead:
        return False
    ops = {universe.op[lowest(suspect.units)] for suspect in suspects if suspect.single}
    for failing in oracle.failing:
        named = oracle.named_in(failing) | oracle.of_named_ops(failing)
        if len(ops & {universe.op[unit] for unit in members(named)}) > 1:
            return True
    return False


def named_beside_all(universe: Universe, oracle: Oracle, suspect: Suspect, suspects: Sequence[Suspect]) -> UnitSet:
    """The model without what its logs name before they name a suspect, if they blame it for nothing but itself; else 0.

    That is where the other suspects are ops in a single place each, the logs name nothing else before this one, and
    then all places of this one, in the words that it gets alone; and the model without suspects passes.
    """
    others = [other for other in suspects if other != suspect]
    few = all(other.single and len(other.occurrences) == 1 for other in others)
    if not few or not is_named(universe, oracle, suspect):
        return 0
    masked = union(other.everywhere for other in others)
    beside = oracle.without_named(universe.everything, suspect.everywhere)
    said, said_alone = oracle.look(beside), oracle.look(suspect.fails)
    alike = said is not None and said_alone is not None and said.fingerprint == said_alone.fingerprint
    if not alike or oracle.refused_by_log(beside) != suspect.everywhere or universe.everything & ~(beside | masked):
        return 0
    return beside if oracle.passes_within(universe.everything & ~(masked | suspect.everywhere)) else 0


def rests_on_a_part(universe: Universe, oracle: Oracle, suspect: Suspect) -> bool:
    """Whether an interaction of a small model, found by a log that names ops, may fail because of some of its units.

    Units that fail by themselves pass in some context, else they would be a culprit. The interaction may just lack
    what makes them pass. Only a compiler that names nothing is asked enough contexts to tell (`open_context`).
    """
    verdict = oracle.look(suspect.fails)
    if not universe.is_small or not suspect.interaction or verdict is None or not verdict.hints:
        return False
    if any(is_subset(part, suspect.units) and part != suspect.units for part in oracle.failing):
        return True
    answers = (oracle.look(alone(universe, unit)) for unit in members(suspect.units))
    return any(answer is None or not answer.passed for answer in answers)


def with_what_excuses_a_part(universe: Universe, oracle: Oracle, suspect: Suspect) -> list[UnitSet]:
    """An interaction with the smallest probe in which a part of it passes that fails by itself, and with all of these.

    None where it is not stated as a fact in any case (`rests_on_a_part`).
    """
    if not suspect.interaction or rests_on_a_part(universe, oracle, suspect):
        return []
    parts = [part for part in oracle.failing if is_subset(part, suspect.units) and part != suspect.units]
    for unit in members(suspect.units):
        answer = oracle.look(alone(universe, unit))
        parts += [1 << unit] if answer is not None and answer.failed else []
    passing = [oracle.smallest_passing(part, universe.everything) for part in dict.fromkeys(parts)]
    return [suspect.units | probe for probe in (*passing, union(passing)) if probe]


def may_be_excused(oracle: Oracle, suspect: Suspect, suspects: Sequence[Suspect]) -> bool:
    """Whether a part of an interaction fails by itself and passes in a context that holds another culprit beside the
    rest of it: then nothing tells whether the interaction passes in that context.
    """
    if not suspect.interaction:
        return False
    others = [other for other in suspects if other is not suspect and not other.capacity]
    parts = [part for part in oracle.failing if is_subset(part, suspect.units) and part != suspect.units]
    contexts = (oracle.smallest_passing(part, oracle.universe.everything) for part in parts)
    return any(other.held_by(context | suspect.units) for context in contexts if context for other in others)


def failing_only_alone(universe: Universe, oracle: Oracle) -> dict[int, UnitSet]:
    """For each variant that fails alone although one of its units passed among others: the unit that was asked."""
    found: dict[int, UnitSet] = {}
    for failing in oracle.failing:
        if size(failing) > 1 and not universe.required_producers:
            break
        unit = asked_alone(oracle, failing)
        if unit and any(passing & identical(universe, unit) for passing in oracle.passing):
            found.setdefault(universe.variant[lowest(unit)], unit)
    return found


def asked_alone(oracle: Oracle, probe: UnitSet) -> UnitSet:
    """The unit that the probe asks about alone, with required producers that pass by themselves; 0 if there is none."""
    unit = 1 << probe.bit_length() - 1
    along = probe & ~unit
    return unit if oracle.probe(unit) == probe and (not along or oracle.passes_within(along)) else 0


def without_others(probe: UnitSet, suspect: Suspect, suspects: Sequence[Suspect]) -> UnitSet:
    """The probe without the units that complete another culprit, or another occurrence of this one."""
    if suspect.single:
        return probe
    for other in suspects:
        if other.capacity or other.pool:
            continue
        for occurrence in other.occurrences:
            units = of(occurrence)
            if is_subset(units, probe) and units != suspect.units and (spare := units & ~suspect.units):
                probe &= ~(1 << lowest(spare))
    return probe


def blamed_on_record(
    oracle: Oracle,
    suspect: Suspect,
    suspects: Sequence[Suspect],
    remainder: UnitSet,
    context: UnitSet,
    *,
    by_words: bool,
) -> UnitSet | None:
    """A failing probe that blames the suspect in its context; `context` is the part of the remainder near it.

    Either the probe contains the context and, beyond the remainder, only occurrences whose neighbourhood looks like
    the suspect's. Or its message is the one for the suspect alone and differs from that of another probe that
    contains the remainder, all occurrences it may be about look alike, and one of them has no other culprit beside
    it.
    """
    universe = oracle.universe
    # of an interaction only its own units, and none that completes another one, as a unit that both share may
    most = remainder | (suspect.alike(universe, suspect.units) if suspect.single else suspect.units)
    most = without_others(most, suspect, suspects)
    context = without_others(context | suspect.units, suspect, suspects)
    for failing in oracle.failing:
        is_here = is_subset(context, failing) and is_subset(failing, most)
        if is_here and (is_subset(remainder, failing) or not is_about_others(oracle, failing, suspect)):
            return failing
    cut = oracle.look(suspect.fails)
    if not by_words or oracle.names_mislead or cut is None or not cut.fingerprint or not cut.hints:
        return None
    words = _words(oracle, suspect.fails)
    holding = [failing for failing in oracle.failing if is_subset(remainder, failing)]
    if all(_words(oracle, failing) == words for failing in holding):
        return None
    for failing in holding:
        others = failing & ~remainder & ~suspect.everywhere
        meant = oracle.named_in(failing) & suspect.everywhere or failing & suspect.everywhere
        alike = len({universe.neighbourhoods[unit] for unit in members(meant)}) == 1
        beside = (universe.neighbours(of(occurrence)) & others for occurrence in suspect.occurrences)
        if _words(oracle, failing) == words and alike and not all(beside):
            return failing
    return None


def is_about_others(oracle: Oracle, probe: UnitSet, suspect: Suspect) -> bool:
    """Whether the log of a failing probe names units, and none of the suspect's: one may lack what was cut off."""
    verdict = oracle.look(probe)
    named = oracle.refused_by_log(probe) if verdict is not None and verdict.failed else 0
    return bool(named) and not named & suspect.everywhere


def _words(oracle: Oracle, failing: UnitSet) -> tuple[str, frozenset[str]] | None:
    """The message of a failing probe and the ops it is about; some messages differ only in node names."""
    verdict = oracle.look(failing)
    if verdict is None:
        return None
    ops = {oracle.universe.op[unit] for unit in members(oracle.named_in(failing))}
    return verdict.fingerprint, frozenset(ops or verdict.hints.ops)
