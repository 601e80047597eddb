"""Finding the probe that proves something among all that were asked."""

import hashlib
from collections.abc import Iterable
from functools import cached_property

from onnxbisect.job import ProbeRecord
from onnxbisect.unitset import UnitSet, is_subset, size
from onnxbisect.verdict import Status


class Records:
    """The probes of a job, in the order in which they were answered.

    A probe is called after its question, not after its number: with several workers the order is another one each
    time, and what a report says of its culprits is the same.
    """

    def __init__(self, probes: Iterable[ProbeRecord]) -> None:
        self.named_probes = tuple((probe_name(probe.units, probe.attempt), probe) for probe in probes)
        self._first: dict[tuple[UnitSet, Status], str] = {}
        # by attempts, not by time: answers taken over from an earlier job have come all at once
        for name, probe in sorted(self.named_probes, key=lambda it: it[1].attempt):
            self._first.setdefault((probe.units, probe.verdict.status), name)

    def named(self, units: UnitSet | None, status: Status) -> str | None:
        """The first probe of exactly these units that ended so."""
        return None if units is None else self._first.get((units, status))

    @cached_property
    def passing(self) -> tuple[tuple[str, UnitSet], ...]:
        """Every passing probe, the smallest first."""
        found = [(name, probe.units) for name, probe in self.named_probes if probe.verdict.passed]
        return tuple(sorted(found, key=lambda item: (size(item[1]), item[1], item[0])))

    @cached_property
    def passed(self) -> UnitSet:
        """Units that were part of some passing probe."""
        union = 0
        for _, units in self.passing:
            union |= units
        return union

    def covering(self, units: UnitSet) -> list[str]:
        """The smallest passing probe with all of `units`, else a few that have them between them; may fall short."""
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
    """What reports call the question whether these units compile, asked for the nth time."""
    question = f"{units:x} {attempt}"
    return f"p{hashlib.sha256(question.encode()).hexdigest()[:10]}"
