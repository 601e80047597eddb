"""Finds the probe that proves a statement."""

import hashlib
from collections.abc import Iterable
from functools import cached_property

from onnxbisect.diagnosis import ProbeRecord
from onnxbisect.unitset import UnitSet, is_subset, size, union
from onnxbisect.verdict import Hints, Status


class Records:
    """The probes of a job, in the order of their answers.

    A probe is named after its units and attempt, not numbered: with several workers the order differs each time, and
    what a report says about its culprits does not.
    """

    def __init__(self, probes: Iterable[ProbeRecord]) -> None:
        self.named_probes = tuple((probe_name(probe.units, probe.attempt), probe) for probe in probes)
        self._first: dict[tuple[UnitSet, Status], str] = {}
        # by attempt, not by time: answers reused from an earlier job all arrive at once
        for name, probe in sorted(self.named_probes, key=lambda it: it[1].attempt):
            self._first.setdefault((probe.units, probe.verdict.status), name)

    def named(self, units: UnitSet | None, status: Status) -> str | None:
        """The name of the first probe of exactly these units with this status."""
        return None if units is None else self._first.get((units, status))

    def hints(self, units: UnitSet) -> Hints:
        """What the log of the first failing probe of exactly these units names."""
        failing = (it.verdict.hints for _, it in self.named_probes if it.units == units and it.verdict.failed)
        return next(failing, Hints())

    @cached_property
    def passing(self) -> tuple[tuple[str, UnitSet], ...]:
        """Every passing probe, smallest first."""
        found = [(name, probe.units) for name, probe in self.named_probes if probe.verdict.passed]
        return tuple(sorted(found, key=lambda item: (size(item[1]), item[1], item[0])))

    @cached_property
    def passed(self) -> UnitSet:
        """The units in a passing probe."""
        return union(units for _, units in self.passing)

    @cached_property
    def passed_alone(self) -> UnitSet:
        """The units that passed with nothing beside them."""
        return union(units for _, units in self.passing if size(units) == 1)

    def covering(self, units: UnitSet) -> list[str]:
        """The smallest passing probe with all of `units`, or a few that contain them together; may be incomplete."""
        for name, probe in self.passing:
            if is_subset(units, probe):
                return [name]
        names: list[str] = []
        left = units & self.passed
        while left:
            name, probe = max(self.passing, key=lambda item: (size(item[1] & left), -size(item[1])))
            names.append(name)
            left &= ~probe
        return names


def probe_name(units: UnitSet, attempt: int) -> str:
    """The name of a probe in reports, from its units and attempt."""
    question = f"{units:x} {attempt}"
    return f"p{hashlib.sha256(question.encode()).hexdigest()[:10]}"
