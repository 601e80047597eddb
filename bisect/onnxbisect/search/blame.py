"""Finds a failing probe on record that blames a suspect in its context, so that it need not be asked."""

from collections.abc import Sequence

from onnxbisect.search.oracle import Oracle
from onnxbisect.search.state import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of
from onnxbisect.universe import Universe


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


class Blame:
    """Searches the record of one replay."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    def on_record(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet, context: UnitSet, *, by_words: bool
    ) -> UnitSet | None:
        """A failing probe that blames the suspect; `context` is the part of the remainder near it.

        Either the probe contains the context and, beyond the remainder, only occurrences whose neighbourhood looks like
        the suspect's. Or its message is the one for the suspect alone and differs from that of another probe that
        contains the remainder, all occurrences it may be about look alike, and one of them has no other culprit beside
        it.
        """
        # of an interaction only its own units, and none that completes another one, as a unit that both share may
        most = remainder | (suspect.alike(self._universe, suspect.units) if suspect.single else suspect.units)
        most = without_others(most, suspect, suspects)
        context = without_others(context | suspect.units, suspect, suspects)
        for failing in self._oracle.failing:
            is_here = is_subset(context, failing) and is_subset(failing, most)
            if is_here and (is_subset(remainder, failing) or not self.is_about_others(failing, suspect)):
                return failing
        alone = self._oracle.look(suspect.fails)
        if not by_words or self._oracle.names_mislead or alone is None or not alone.fingerprint or not alone.hints:
            return None
        words = self._words(suspect.fails)
        holding = [failing for failing in self._oracle.failing if is_subset(remainder, failing)]
        if all(self._words(failing) == words for failing in holding):
            return None
        for failing in holding:
            others = failing & ~remainder & ~suspect.everywhere
            meant = self._oracle.named_in(failing) & suspect.everywhere or failing & suspect.everywhere
            alike = len({self._universe.neighbourhoods[unit] for unit in members(meant)}) == 1
            beside = (self._universe.neighbours(of(occurrence)) & others for occurrence in suspect.occurrences)
            if self._words(failing) == words and alike and not all(beside):
                return failing
        return None

    def is_about_others(self, probe: UnitSet, suspect: Suspect) -> bool:
        """Whether the log of a failing probe names units, and none of the suspect's: one may lack what was cut off."""
        verdict = self._oracle.look(probe)
        named = self._oracle.refused_by_log(probe) if verdict is not None and verdict.failed else 0
        return bool(named) and not named & suspect.everywhere

    def _words(self, failing: UnitSet) -> tuple[str, frozenset[str]] | None:
        """The message of a failing probe and the ops it is about; some messages differ only in node names."""
        verdict = self._oracle.look(failing)
        if verdict is None:
            return None
        ops = {self._universe.op[unit] for unit in members(self._oracle.named_in(failing))}
        return verdict.fingerprint, frozenset(ops or verdict.hints.ops)
