"""The units of a target: their names, their network, and the state of each, from files that workers stored."""

import gzip
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from onnxbisect.diagnosis import Certainty
from onnxbisect.drawing.network import Network, read_drawing, read_network
from onnxbisect.report.contents import Report, UnitState
from onnxbisect.unitset import UnitSet, full, indices_of, of, spell
from onnxbisect_db import probe_queries
from onnxbisect_db.files import FileStore
from onnxbisect_db.tables import Search

#: Entries of the cache; one with ten thousand units has 2 MB.
_NAMES_KEPT = 16


@dataclass(frozen=True, kw_only=True)
class UnitNames:
    """The name of each unit's node, and its op, in the order of the units."""

    names: tuple[str, ...]
    ops: tuple[str, ...]


class Names:
    """A cache of the last few models' names, by the SHA-256 of the stored universe. Threads may share it."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._kept = lru_cache(maxsize=_NAMES_KEPT)(self._read)

    def of(self, universe: str) -> UnitNames:
        """The names in the universe with this SHA-256; FileNotFoundError if it is not stored any more."""
        return self._kept(universe)

    def _read(self, universe: str) -> UnitNames:
        with self._files.open(universe) as file:
            # `Prepared` is not used, because its unit sets cost more than the names. Only the first line is read,
            # because the others contain facts about the model.
            read = json.loads(file.readline())["universe"]
        return UnitNames(names=tuple(names[0] if names else "" for names in read["names"]), ops=tuple(read["op"]))


#: Entries of the caches: with ten thousand units, a network has 10 MB, its drawing in gzip 0.25 MB.
_NETWORKS, _DRAWINGS = 3, 8
#: The level of gzip; higher ones take several times as long and save a tenth.
_LEVEL = 5


class Networks:
    """A cache of the last few networks, by the SHA-256 of their file. Threads may share it.

    Every method raises FileNotFoundError if the file is not stored any more.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._network = lru_cache(maxsize=_NETWORKS)(self._read)
        self._drawing = lru_cache(maxsize=_DRAWINGS)(self._drawn)

    def network(self, sha256: str) -> Network:
        """The network as an object, to draw a part of it or to show a unit."""
        return self._network(sha256)

    def drawing(self, sha256: str) -> bytes:
        """The drawing of the whole model, in gzip."""
        return self._drawing(sha256)

    def _read(self, sha256: str) -> Network:
        with self._files.open(sha256) as file:
            return read_network(file)

    def _drawn(self, sha256: str) -> bytes:
        with self._files.open(sha256) as file:
            return packed(read_drawing(file))


def packed(content: bytes) -> bytes:
    """The content in gzip without a time, so that equal content gives equal bytes."""
    return gzip.compress(content, _LEVEL, mtime=0)


#: Searches in the cache; each entry has up to about 100 kB, for a set of units and the ids of counted probes.
_STATES_KEPT = 64


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
        self._passed: OrderedDict[str, probe_queries.PassedUnits] = OrderedDict()

    def passed(self, session: Session, search: Search) -> UnitSet:
        """The units of all passing probes of the search so far."""
        with self._lock:
            before = self._passed.get(search.id)
        now = probe_queries.passed_units(session, search.id, before)
        with self._lock:
            self._passed[search.id] = now
            self._passed.move_to_end(search.id)
            while len(self._passed) > _STATES_KEPT:
                self._passed.popitem(last=False)
        return now.units


def so_far(search: Search, passed: UnitSet) -> StatesView:
    """The states during a search, as far as they are known; `onnxbisect.report.established` defines them."""
    culprit = suspected = 0
    for found in search.found.values():
        places = of(indices_of(found.get("places", "")))
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
