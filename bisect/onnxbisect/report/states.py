"""What is known about each unit when the search has ended."""

from dataclasses import dataclass

from onnxbisect.diagnosis import Certainty, CulpritKind, Diagnosis
from onnxbisect.report.records import Records
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe


@dataclass(frozen=True, kw_only=True)
class States:
    """Five disjoint sets that together are the whole model.

    `culprit`: in an occurrence of a confirmed culprit. `suspected`: in one that is not confirmed. `context`: fails only
    when cut out. `passing`: in a passing probe and none of the above. `unknown`: the rest.
    """

    culprit: UnitSet
    suspected: UnitSet
    context: UnitSet
    passing: UnitSet
    unknown: UnitSet


def states(universe: Universe, diagnosis: Diagnosis, records: Records) -> States:
    """The state of every unit of the model."""
    culprit = suspected = context = 0
    for found in diagnosis.culprits:
        if found.kind is CulpritKind.CAPACITY:
            continue  # too much of it; no unit of it is to blame
        for occurrence in found.places:
            if found.certainty is Certainty.CONFIRMED:
                culprit |= occurrence
            else:
                suspected |= occurrence
    for group in diagnosis.needs_context:
        for occurrence in group.occurrences or (group.units,):
            context |= occurrence
    suspected &= ~culprit
    context &= ~(culprit | suspected)
    passing = records.passed & ~(culprit | suspected | context)
    unknown = universe.everything & ~(culprit | suspected | context | passing)
    return States(culprit=culprit, suspected=suspected, context=context, passing=passing, unknown=unknown)
