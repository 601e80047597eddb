"""The state of each unit of a target, from its report or, while the search runs, from the probes answered so far."""

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from onnxbisect.diagnosis import Certainty
from onnxbisect.report.contents import Report, UnitState
from onnxbisect.report.ranges import indices, spell
from onnxbisect.unitset import UnitSet, full, of
from onnxbisect_db import probe_queries
from onnxbisect_db.probe_queries import PassedUnits
from onnxbisect_db.tables import Search

#: Searches in the cache; each entry has up to about 100 kB, for a set of units and the ids of counted probes.
_KEPT = 64


class CulpritUnits(BaseModel):
    """The units of a culprit."""

    number: int = Field(description="as the report counts culprits, or until then as they are found, from 1")
    units: str = Field(description="the one that was asked about")
    places: str = Field(description="all units of all its occurrences")
    name: str = Field(description="its ops")


class StatesView(BaseModel):
    """The units in each state, as ranges of their numbers such as `3,5-7`. Every unit has one state."""

    units: int = Field(description="how many there are; 0 until the model is read")
    states: dict[UnitState, str] = Field(description="by pass, culprit, suspected, needs_context, unknown")
    culprits: list[CulpritUnits]
    final: bool = Field(description="whether this is the report's")


class PassedUnitsCache:
    """Caches the passing units of searches, because their probes are megabytes for large models. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._passed: OrderedDict[str, PassedUnits] = OrderedDict()

    def passed(self, session: Session, search: Search) -> UnitSet:
        """The units of all passing probes of the search so far."""
        with self._lock:
            before = self._passed.get(search.id)
        now = probe_queries.passed_units(session, search.id, before)
        with self._lock:
            self._passed[search.id] = now
            self._passed.move_to_end(search.id)
            while len(self._passed) > _KEPT:
                self._passed.popitem(last=False)
        return now.units


def so_far(search: Search, passed: UnitSet) -> StatesView:
    """The states during a search, as far as they are known; `onnxbisect.report.unit_entries` defines them."""
    culprit = suspected = 0
    for found in search.found.values():
        places = of(indices(found.get("places", "")))
        if found.get("certainty") == Certainty.CONFIRMED:
            culprit |= places
        else:
            suspected |= places
    suspected &= ~culprit
    passing = passed & ~(culprit | suspected)
    return StatesView(
        units=search.units,
        states={
            "culprit": spell(culprit),
            "suspected": spell(suspected),
            "needs_context": "",
            "pass": spell(passing),
            "unknown": spell(full(search.units) & ~(culprit | suspected | passing)),
        },
        culprits=[
            CulpritUnits(number=number, units=found.get("units", ""), places=found.get("places", ""), name=_name(found))
            for number, found in enumerate(search.found.values(), 1)
        ],
        final=False,
    )


def of_report(document: Report) -> StatesView:
    """The states of the units in a finished report."""
    units = document["units"]
    return StatesView(
        units=len(units["names"]),
        states=units["states"],
        culprits=[
            CulpritUnits(
                number=number, units=found["units"], places=",".join(found["occurrence_units"]), name=_name(found)
            )
            for number, found in enumerate(document["culprits"], 1)
        ],
        final=True,
    )


def _name(found: Mapping[str, Any]) -> str:
    return " + ".join(found["ops"][:8])
