"""Several targets beside each other: `onnx-bisect/overview@1`, culprits by targets, made from their reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NotRequired

from typing_extensions import TypedDict

from onnxbisect.diagnosis import CertificateStatus, TargetEntry
from onnxbisect.report.contents import OpVerdict, Report, StatsEntry, op_name
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, size, union, units_in
from onnxbisect.verdict import Status

if TYPE_CHECKING:
    from onnxbisect.model.model import Model  # brings onnx along, which readers of reports do without


#: The value of `format`; a change that breaks readers counts the number up.
FORMAT: Final = "onnx-bisect/overview@1"


CellState = Literal["refused", "in_part", "suspected", "passes", "unknown"]


class OverviewModel(TypedDict):
    """The model that all targets were asked about."""

    name: str
    """The file name."""
    sha256: str
    """Of the bytes, external data included."""
    nodes: int
    units: int


class OverviewReport(TypedDict):
    """The head of the report on one target."""

    headline: str
    target: TargetEntry
    certificate: CertificateStatus
    culprits: int
    stats: StatsEntry


class OverviewTarget(TypedDict):
    """One target, and its answer."""

    label: str
    """Names the target here and the folder of its report."""
    backend: str
    """As it was typed."""
    state: Status | Literal["unusable", "not_asked"]
    """The verdict of the whole model; or it cannot be used here; or the run was interrupted before its turn."""
    sentence: str
    """What the certificate says, or why there is no report."""
    report: OverviewReport | None


class OverviewCell(TypedDict):
    """What one target makes of the places of a row."""

    state: CellState
    """Refused at all of the places, or at some; only suspected; all of them were in probes that compiled; or none of
    this is known."""
    refused: int
    """Places that the target refuses, or a part of them."""
    passing: int
    """Places seen to compile."""
    culprits: list[str]
    """`id` of the culprits in the target's report."""


class OverviewCulprit(TypedDict):
    """Culprits of the same ops, in any target, that have a place in common."""

    ops: list[str]
    """In topological order; `domain::Op` outside the default domain."""
    kind: Literal["single", "interaction", "capacity"]
    places: list[list[str]]
    """Every place at which some target refuses it, as node names."""
    cells: dict[str, OverviewCell]
    """By label of the target."""


class OverviewOpCell(TypedDict):
    """What one target makes of an op."""

    verdict: OpVerdict
    """As in the `op_table` of the target's report."""
    failing: int
    """Nodes that the target refuses."""


class OverviewOp(TypedDict):
    """An op of the model by targets."""

    op: str
    """`domain::Op` outside the default domain."""
    nodes: int
    cells: dict[str, OverviewOpCell]
    """By label of the target."""


class Overview(TypedDict):
    """One ONNX model on several compiler targets. Strings from the model and from the compilers are unescaped and
    hostile.
    """

    format: Literal["onnx-bisect/overview@1"]
    model: OverviewModel
    targets: list[OverviewTarget]
    """In the order in which they were asked."""
    culprits: list[OverviewCulprit]
    """In model order. Culprits of several targets are one row where their ops are the same and they share a place."""
    ops: NotRequired[list[OverviewOp]]
    """Every op of the model, by name."""


@dataclass(frozen=True, kw_only=True)
class AskedModel:
    """The model that all targets compiled. `names` has the node name of each unit."""

    name: str
    sha256: str
    nodes: int
    names: Sequence[str]

    @classmethod
    def of(cls, model: "Model") -> "AskedModel":
        """From the model itself."""
        nodes = model.proto.graph.node
        names = tuple(nodes[unit.node].name for unit in model.units)
        return cls(name=model.path.name, sha256=model.sha256, nodes=len(nodes), names=names)

    @classmethod
    def of_report(cls, report: Report) -> "AskedModel":
        """From the report of any target, if the model is not at hand."""
        about = report["model"]
        return cls(name=about["name"], sha256=about["sha256"], nodes=about["nodes"], names=report["units"]["names"])


@dataclass(frozen=True, kw_only=True)
class TargetReport:
    """One target under its label. `report` is its document; if None, `reason` says why, and `ended` that its turn never
    came.
    """

    label: str
    backend: str
    report: Report | None = None
    reason: str = ""
    ended: bool = False

    @cached_property
    def passing(self) -> list[UnitSet]:
        """The sets of units that compiled, largest first."""
        probes = self.report["probes"] if self.report else ()
        return sorted(
            (self.units(it["units"]) for it in probes if it["verdict"] == Status.PASS), key=size, reverse=True
        )

    @cached_property
    def passed(self) -> UnitSet:
        """The units that were in one of these sets."""
        return union(self.passing)

    @cached_property
    def culprits(self) -> Mapping[int, list[tuple[int, UnitSet, CulpritEntry]]]:
        """Every occurrence of every culprit by its lowest unit, with its number in the report, and its culprit."""
        found: dict[int, list[tuple[int, UnitSet, CulpritEntry]]] = {}
        culprits = self.report["culprits"] if self.report else ()
        for number, (culprit, text) in enumerate((it, text) for it in culprits for text in it["occurrence_units"]):
            if units := self.units(text):
                found.setdefault(lowest(units), []).append((number, units, culprit))
        return found

    def units(self, text: str) -> UnitSet:
        """The set in text of the report."""
        return units_in(text, len(self.report["units"]["names"]) if self.report else 0)


@dataclass(kw_only=True)
class _Row:
    """Culprits of the same ops, in any target, that have a place in common."""

    ops: tuple[str, ...]
    capacity: bool
    places: set[UnitSet] = field(default_factory=set)


def overview(model: AskedModel, asked: Sequence[TargetReport]) -> Overview:
    """The overview as JSON values. Names and messages are unescaped."""
    rows = sorted(_rows(asked), key=lambda row: min((next(members(place), 0) for place in row.places), default=0))
    culprits: list[OverviewCulprit] = []
    for row in rows:
        places = sorted(row.places, key=lambda place: list(members(place)))
        culprits.append(
            {
                "ops": list(row.ops),
                "kind": "capacity" if row.capacity else "single" if len(row.ops) == 1 else "interaction",
                "places": [[model.names[unit] for unit in members(it)] for it in places],
                "cells": {it.label: _cell(row, places, it) for it in asked},
            }
        )
    targets: list[OverviewTarget] = []
    for it in asked:
        report = it.report
        targets.append(
            {
                "label": it.label,
                "backend": it.backend,
                "state": report["verdict"] if report else "not_asked" if it.ended else "unusable",
                "sentence": report["certificate"]["sentence"] if report else it.reason,
                "report": None
                if report is None
                else {
                    "headline": report["headline"],
                    "target": report["target"],
                    "certificate": report["certificate"]["status"],
                    "culprits": len(report["culprits"]),
                    "stats": report["stats"],
                },
            }
        )
    return {
        "format": FORMAT,
        "model": {"name": model.name, "sha256": model.sha256, "nodes": model.nodes, "units": len(model.names)},
        "targets": targets,
        "culprits": culprits,
        "ops": _ops(asked),
    }


def _rows(asked: Sequence[TargetReport]) -> list[_Row]:
    rows: list[_Row] = []
    for it in asked:
        for culprit in it.report["culprits"] if it.report else ():
            row = _Row(ops=tuple(culprit["ops"]), capacity=culprit["kind"] == "capacity")
            row.places = {it.units(text) for text in culprit["occurrence_units"]}
            alike = [other for other in rows if (other.ops, other.capacity) == (row.ops, row.capacity)]
            for other in alike:
                if other.places & row.places:
                    row.places |= other.places
                    rows.remove(other)
            rows.append(row)
    return rows


def _cell(row: _Row, places: Sequence[UnitSet], asked: TargetReport) -> OverviewCell:
    refused, passing = 0, 0
    state: CellState
    involved: dict[str, CulpritEntry] = {}
    for place in places:
        found = sorted(
            (number, culprit)
            for unit in members(place)
            for number, units, culprit in asked.culprits.get(unit, ())
            if is_subset(units, place) and (culprit["kind"] == "capacity") == row.capacity
        )
        refused += bool(found)
        if not found and is_subset(place, asked.passed):
            passing += any(is_subset(place, units) for units in asked.passing)
        involved.update({culprit["id"]: culprit for _, culprit in found})
    if involved:
        certain = any(culprit["certainty"] != "suspected" for culprit in involved.values())
        state = "suspected" if not certain else "refused" if refused == len(places) else "in_part"
    else:
        state = "passes" if passing == len(places) else "unknown"
    return {"state": state, "refused": refused, "passing": passing, "culprits": list(involved)}


def _ops(asked: Sequence[TargetReport]) -> list[OverviewOp]:
    """Each op of the model by target, by name."""
    tables = {
        it.label: {(row["domain"], row["op"]): row for row in (it.report["op_table"] if it.report else ())}
        for it in asked
    }
    unasked: OverviewOpCell = {"verdict": "unknown", "failing": 0}
    found = {op: row["nodes"] for table in tables.values() for op, row in table.items()}
    return [
        {
            "op": op_name(*op),
            "nodes": found[op],
            "cells": {
                label: {"verdict": table[op]["verdict"], "failing": table[op]["failing"]} if op in table else unasked
                for label, table in tables.items()
            },
        }
        for op in sorted(found)
    ]
