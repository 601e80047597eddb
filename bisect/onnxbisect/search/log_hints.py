"""What the logs on record name: which units that makes suspect, and which questions it suggests."""

from collections.abc import Callable
from functools import cached_property

from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone
from onnxbisect.unitset import UnitSet, is_subset, members, size, union
from onnxbisect.universe import Universe

#: Asks whether a set fails, with the phrase that says why (`Minimiser.fails`).
Fails = Callable[[UnitSet, str], bool]


class LogHints:
    """Reads the logs for one replay, during which nothing is added to them."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    @cached_property
    def informative(self) -> bool:
        """Whether this compiler's logs name anything: then asking everything else is asking for the next name."""
        verdicts = [self._oracle.look(failing) for failing in self._oracle.failing]
        return any(verdict is not None and bool(verdict.hints) for verdict in verdicts)

    @cached_property
    def nodes(self) -> UnitSet:
        """All units whose nodes or tensors the log of some failing probe names."""
        named = 0
        for failing in self._oracle.failing:
            named |= self._oracle.named_in(failing)
        return named

    @cached_property
    def units(self) -> UnitSet:
        """The same with all units whose op a log names that names no node, as far as they were in its probe."""
        named = self.nodes
        for failing in self._oracle.failing:
            verdict = self._oracle.look(failing)
            # A log that names nodes has said all; the op type beside it would only widen the suspicion.
            if verdict is not None and not self._oracle.named_in(failing):
                for op in verdict.hints.ops:
                    named |= self._universe.units_by_op.get(op, 0) & failing
        return named

    def interacting(self, region: UnitSet, fails: Fails) -> UnitSet:
        """What a log names, or that with what surrounds it, where it fails although each named unit passed alone.

        Where wrong numbers begin the unit itself may be what fails: what was asked in its op's name has another shape.
        """
        inside = (probe for probe in self._oracle.failing if is_subset(probe, region))
        failing = next((probe for probe in inside if not self._oracle.passes_within(probe)), 0)
        named = self._oracle.named_in(failing)
        numeric = self._oracle.has_wrong_numbers(failing)
        if numeric:
            for unit in members(named):
                if fails(1 << unit, f"{self._universe.op[unit]} alone, where wrong numbers begin"):
                    return 1 << unit
        if not named or not all(map(self._passes_alone, members(named))):
            return 0
        groups = [(named, "what the log names")]
        if numeric:
            feeding = union(self._universe.predecessors[unit] for unit in members(named)) & failing
            groups.append((named | feeding, "where wrong numbers begin and what feeds it"))
            groups.append((named | self._oracle.unlisted_in(failing), "what may have begun the wrong numbers"))
        groups.append((named | self._universe.neighbours(named) & failing, "what the log names and what surrounds it"))
        for units, why in groups:
            if units == failing or (1 < size(units) <= size(failing) // 2 and fails(units, why)):
                return units
        return 0

    def _passes_alone(self, unit: int) -> bool:
        known = self._oracle.look(alone(self._universe, unit))
        return self._oracle.passes_within(1 << unit) or (known is not None and known.passed)
