"""What the logs on record name: which units that makes suspect, and which probes it suggests."""

from collections.abc import Callable
from functools import cached_property

from onnxbisect.language import english
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone
from onnxbisect.unitset import UnitSet, is_subset, members, size, union
from onnxbisect.universe import Universe

#: Asks whether a set fails, with the phrase that says why (`Minimiser.fails`).
Fails = Callable[[UnitSet, str], bool]


class LogHints:
    """The hints of all logs in one replay, during which no log is added."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    @cached_property
    def informative(self) -> bool:
        """Whether this compiler's logs name anything; then a probe of everything else reveals the next name."""
        verdicts = [self._oracle.look(failing) for failing in self._oracle.failing]
        return any(verdict is not None and bool(verdict.hints) for verdict in verdicts)

    @cached_property
    def nodes(self) -> UnitSet:
        """All units whose nodes or tensors the log of a failing probe names."""
        named = 0
        for failing in self._oracle.failing:
            named |= self._oracle.named_in(failing)
        return named

    @cached_property
    def units(self) -> UnitSet:
        """`nodes`, and for logs that name no node the probe's units of every op they name."""
        named = self.nodes
        for failing in self._oracle.failing:
            verdict = self._oracle.look(failing)
            # In a log that names nodes, op types would only widen the suspicion.
            if verdict is not None and not self._oracle.named_in(failing):
                for op in verdict.hints.ops:
                    named |= self._universe.units_by_op.get(op, 0) & failing
        return named

    def interacting(self, region: UnitSet, fails: Fails) -> UnitSet:
        """A failing set of named units, or of them and their surroundings, whose units each passed alone; else 0.

        Where wrong numbers begin, the unit itself may fail: the unit that passed for its op had another shape.
        """
        inside = (probe for probe in self._oracle.failing if is_subset(probe, region))
        failing = next((probe for probe in inside if not self._oracle.passes_within(probe)), 0)
        named = self._oracle.named_in(failing)
        numeric = self._oracle.has_wrong_numbers(failing)
        if numeric:
            for unit in members(named):
                if fails(1 << unit, english("{op} alone, the first with wrong numbers", op=self._universe.op[unit])):
                    return 1 << unit
        if not named or not all(map(self._passes_alone, members(named))):
            return 0
        groups = [(named, english("the nodes that the log names"))]
        if numeric:
            feeding = union(self._universe.predecessors[unit] for unit in members(named)) & failing
            groups.append((named | feeding, english("the first node with wrong numbers and its producers")))
            groups.append(
                (named | self._oracle.unlisted_in(failing), english("nodes that may have caused the wrong numbers"))
            )
        groups.append(
            (
                named | self._universe.neighbours(named) & failing,
                english("the nodes that the log names, with neighbours"),
            )
        )
        for units, why in groups:
            if units == failing or (1 < size(units) <= size(failing) // 2 and fails(units, why)):
                return units
        return 0

    def _passes_alone(self, unit: int) -> bool:
        known = self._oracle.look(alone(self._universe, unit))
        return self._oracle.passes_within(1 << unit) or (known is not None and known.passed)
