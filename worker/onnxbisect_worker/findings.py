"""The culprits that stand while a search goes on, in a few words each: for watchers and webhooks."""

import hashlib
from collections.abc import Mapping
from typing import Any

from onnxbisect.diagnosis import Certainty, Culprit, CulpritKind, Diagnosis
from onnxbisect.report.ranges import spell
from onnxbisect.report.text import clip
from onnxbisect.unitset import members, size
from onnxbisect.universe import Universe

_SHOWN = 8


def found(universe: Universe, diagnosis: Diagnosis, *, over: bool) -> Mapping[str, Mapping[str, Any]]:
    """By a name that stays the same while the culprit does. What is only suspected may prove innocent, so nobody is
    told of it before the search is `over`.
    """
    return {
        _name(culprit): _words(universe, culprit)
        for culprit in diagnosis.culprits
        if over or culprit.certainty is not Certainty.SUSPECTED
    }


def _name(culprit: Culprit) -> str:
    return hashlib.sha256(f"{culprit.units:x}".encode()).hexdigest()[:16]


def _words(universe: Universe, culprit: Culprit) -> dict[str, Any]:
    units = list(members(culprit.units))[:_SHOWN]
    places = 0
    if culprit.kind is not CulpritKind.CAPACITY:  # of which no unit is to blame
        for place in culprit.places:
            places |= place
    return {
        "ops": [clip(universe.op[unit], 80) for unit in units],
        "nodes": [clip(name, 200) for unit in units for name in universe.names[unit][:1]],
        "size": size(culprit.units),
        "units": spell(culprit.units),
        "places": spell(places),
        "occurrences": len(culprit.places),
        "kind": culprit.kind.value,
        "certainty": culprit.certainty.value,
        "failure": culprit.failure.value,
        "message": clip(culprit.message, 300),
    }
