"""The whole search, run from the start each time: find, confirm, prove."""

from dataclasses import replace

from onnxbisect.search.confirm import Confirmer
from onnxbisect.search.hitting import hitting_sets
from onnxbisect.search.interaction import CapacityError
from onnxbisect.search.locate import Locator
from onnxbisect.search.oracle import BlockedError, Oracle
from onnxbisect.search.suspect import Artefact, Suspect
from onnxbisect.unitset import UnitSet, lowest, members, size
from onnxbisect.universe import Universe


class Search:
    """One replay. After `run` the attributes say how far the verdicts on record carry."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle
        self._confirmer = Confirmer(universe, oracle)
        self.locator = Locator(universe, oracle)
        self.suspects: tuple[Suspect, ...] = ()
        self.artefacts: list[Artefact] = []
        #: The remainders that passed, one for each minimal way to break all culprits.
        self.proof: tuple[UnitSet, ...] = ()
        #: Whether `proof` covers every minimal hitting set, and whether it had to be cut short.
        self.exhaustive = True
        self.cut_short = False
        self.finished = False
        #: Set where the compiler contradicts itself in a way that the search cannot settle.
        self.stuck = False

    def run(self) -> None:
        """Go as far as the verdicts on record allow; what is missing is in `Oracle.wanted`."""
        try:
            whole = self._universe.everything
            if not whole or self._compiles(whole):
                self.proof = (whole,)
            else:
                self._search()
            self.finished = True
        except BlockedError:
            return

    def _compiles(self, whole: UnitSet) -> bool:
        """Only a pass ends the search here, so only a pass has to be sure."""
        passed = self._oracle.ask(whole, "the whole model").passed
        return passed and self._oracle.ask(whole, "the whole model", sure=True).passed

    def _search(self) -> None:
        # Every turn settles a suspect or an artefact for good; a compiler that breaks this is not to be understood.
        for _ in range(4 * len(self._universe) + 16):
            self._find_all()
            if self._settle():
                return
        self.stuck = True

    def _find_all(self) -> None:
        """Add suspects until the model passes whichever way they are broken."""
        for _ in range(len(self._universe) + 16):
            patterns = [suspect.occurrences for suspect in self.suspects if not suspect.capacity]
            breaks, self.exhaustive, self.cut_short = hitting_sets(patterns)
            found = None
            proof = []
            for broken in breaks:
                region = self._universe.everything & ~broken & ~self.locator.unresolved
                self._oracle.masked = broken
                found = self._find(region)
                if found is not None:
                    break
                proof.append(region & ~self.locator.unresolved)
            if found is None:
                self.proof = tuple(proof)
                return
            self.suspects = (*self.suspects, found)
        self.stuck = True

    def _find(self, region: UnitSet) -> Suspect | None:
        try:
            return self.locator.find(region)
        except CapacityError as error:
            largest = self._oracle.best_passing(region)
            if self.locator.capacity or not largest:
                self.locator.unresolved |= error.units & ~largest
                return None
            self.locator.capacity = largest
            return Suspect(
                units=error.units,
                fails=error.units,
                occurrences=(tuple(members(error.units)),),
                capacity=True,
                verified=True,
            )

    def _settle(self) -> bool:
        """Confirm the suspects; True when all of them stand as they are."""
        outcome = self._confirmer.confirm(self.suspects, self.remainder, self.locator.artefacts)
        self.suspects = (*outcome.suspects, *outcome.narrowed)
        for suspect in outcome.narrowed:
            self.locator.split.setdefault(self._universe.variant[lowest(suspect.units)], 1)
        for suspect in outcome.artefacts:
            variant = self._universe.variant[lowest(suspect.units)]
            if size(suspect.units) > 1 or variant not in self.locator.artefacts:
                self.artefacts.append(self._confirmer.surroundings_that_pass(suspect))
            if size(suspect.units) == 1:
                self.locator.artefacts.add(variant)
        if outcome.artefacts:
            # What was blamed in a remainder without the artefacts is blamed again with them.
            self.suspects = tuple(suspect if suspect.capacity else self._unblamed(suspect) for suspect in self.suspects)
        return not (outcome.artefacts or outcome.flukes or outcome.narrowed)

    def _unblamed(self, suspect: Suspect) -> Suspect:
        return replace(suspect, context=None, blame=None)

    @property
    def remainder(self) -> UnitSet:
        """The model without its culprits; beyond capacity, the largest piece that passed."""
        if self.locator.capacity:
            return self.locator.capacity
        if self.proof:
            return self.proof[0]
        broken = 0
        for suspect in self.suspects:
            broken |= suspect.everywhere
        return self._oracle.best_passing(self._universe.everything & ~broken)
