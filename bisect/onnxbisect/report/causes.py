"""The causes of a diagnosis as entries of the document."""

from collections.abc import Sequence

from onnxbisect.causes.cause import Cause, Contrast
from onnxbisect.causes.condition import Condition
from onnxbisect.causes.explain import causes
from onnxbisect.causes.wording import nothing_passed
from onnxbisect.job import Job
from onnxbisect.report.culprit_contents import CauseEntry, ConditionEntry, ContrastEntry
from onnxbisect.report.culprits import Entries
from onnxbisect.report.ranges import spell
from onnxbisect.report.records import Records
from onnxbisect.unitset import lowest, members, of, size

_EXAMPLES = 3


def cause_entries(job: Job, records: Records, entries: Entries, identities: Sequence[str]) -> list[CauseEntry]:
    """One entry for each cause; those that say more than which ops are refused come first."""
    found = causes(job.model, job.diagnosis, records.passed, job.neighbours, alone=records.passed_alone)
    return [_entry(cause, records, entries, identities) for cause in found]


def _entry(cause: Cause, records: Records, entries: Entries, identities: Sequence[str]) -> CauseEntry:
    return {
        "text": cause.text,
        "state": cause.state,
        "telling": cause.telling,
        "established": cause.established,
        "culprits": [identities[number] for number in cause.culprits],
        "conditions": [_condition(condition) for condition in cause.conditions],
        "refused_units": spell(cause.refused),
        "places": {"refused": size(cause.refused), "unknown": size(cause.unknown)},
        "nothing_passed": nothing_passed(cause.conditions) if cause.conditions else "",
        "contrast": [_contrast(contrast, records, entries) for contrast in cause.contrast],
        "fits_too": list(cause.fits_too),
    }


def _condition(condition: Condition) -> ConditionEntry:
    return {
        "text": condition.phrase or condition.subject.op,
        "op": condition.subject.op or None,
        "aspect": condition.subject.aspect,
        "name": condition.subject.name,
        "relation": condition.relation,
        "value": condition.value,
    }


def _contrast(contrast: Contrast, records: Records, entries: Entries) -> ContrastEntry:
    first = list(members(contrast.units))[:_EXAMPLES]
    return {
        "condition": contrast.condition.phrase or contrast.condition.subject.op,
        "passes": contrast.passes,
        "places": size(contrast.units),
        "nodes": entries.names(of(first)),
        "probe": next(iter(records.covering(1 << lowest(contrast.units))), None) if first else None,
    }
