"""Several models on the same targets, such as the parts of one network: `onnx-bisect/parts@1`, made from reports."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxbisect.json_form import to_json
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CauseEntry, CulpritEntry
from onnxbisect.report.links import op_name
from onnxbisect.report.overview import AskedModel, TargetReport

#: The value of `format`; a change that breaks readers counts the number up.
FORMAT = "onnx-bisect/parts@1"


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """One model under its label, with its result on each target. `subject` is None if it could not be read."""

    label: str
    name: str
    subject: AskedModel | None
    asked: Sequence[TargetReport]


@dataclass(frozen=True, kw_only=True)
class RefusedOps:
    """Culprits of the same ops in one report. `established` is false where all of them are only suspected."""

    ops: tuple[str, ...]
    places: int
    established: bool


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The result of a model on a target. `state` is the verdict, `unusable` or `not_asked`.

    `sentence` is that of the certificate, or why there is no report. `compiles_after` is the change of the whole file
    after which the target accepts the model, such as "ir_version 10 → 9"; then its parts were not searched. Without a
    report the rest is empty.
    """

    state: str
    sentence: str
    certificate: str | None = None
    compiles_after: str | None = None
    culprits: int = 0
    refused: tuple[RefusedOps, ...] = ()
    compiler_calls: int = 0
    wall_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """One model. `cells` are by target label; `sha256` is empty if the model could not be read."""

    label: str
    name: str
    sha256: str
    nodes: int
    units: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of a cause that is in one model."""

    model: str
    places: int
    culprits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SharedCause:
    """A cause on one target, with every model that has it.

    If the cause is only the name of an op, `passes_in` are the models in which some node of that op compiles, with
    other inputs or attributes.
    """

    target: str
    text: str
    state: str
    established: bool
    shares: tuple[Share, ...]
    passes_in: tuple[str, ...]

    @property
    def places(self) -> int:
        """The number of places in all models."""
        return sum(share.places for share in self.shares)


@dataclass(frozen=True, kw_only=True)
class PartsTable:
    """The whole table. `targets` describes each label, such as `whitelist (profile=edgesam)`."""

    targets: Mapping[str, str]
    models: tuple[PartRow, ...]
    causes: tuple[SharedCause, ...]

    def to_json(self) -> dict[str, Any]:
        """The table as JSON values."""
        return {"format": FORMAT, **to_json(self)}


def parts_table(parts: Sequence[ModelPart], targets: Mapping[str, str]) -> PartsTable:
    """The models in order. `targets` describes each label; every model was compiled for all of them."""
    return PartsTable(
        targets=dict(targets),
        models=tuple(_row(part) for part in parts),
        causes=tuple(cause for label in targets for cause in _causes(label, parts)),
    )


def _row(part: ModelPart) -> PartRow:
    subject = part.subject
    return PartRow(
        label=part.label,
        name=part.name,
        sha256=subject.sha256 if subject else "",
        nodes=subject.nodes if subject else 0,
        units=len(subject.names) if subject else 0,
        cells={asked.label: _cell(asked) for asked in part.asked},
    )


def _cell(asked: TargetReport) -> Cell:
    report = asked.report
    if report is None:
        return Cell(state="not_asked" if asked.ended else "unusable", sentence=asked.reason)
    after = report.get("compiles_after")  # reports of earlier versions have none
    return Cell(
        state=report["verdict"],
        sentence=report["certificate"]["sentence"],
        certificate=report["certificate"]["status"],
        compiles_after=None if after is None else after["sentence"],
        culprits=len(report["culprits"]),
        refused=tuple(_refused(report)),
        compiler_calls=report["stats"]["compiler_calls"],
        wall_seconds=report["stats"]["wall_seconds"],
    )


def _refused(report: Report) -> Iterator[RefusedOps]:
    """The refused ops, in the order of the culprits."""
    alike: dict[tuple[str, ...], list[CulpritEntry]] = {}
    for culprit in report["culprits"]:
        alike.setdefault(tuple(culprit["ops"]), []).append(culprit)
    for ops, culprits in alike.items():
        places = sum(len(culprit["occurrence_units"]) for culprit in culprits)
        established = any(culprit["certainty"] != "suspected" for culprit in culprits)
        yield RefusedOps(ops=ops, places=places, established=established)


def _causes(target: str, parts: Sequence[ModelPart]) -> list[SharedCause]:
    """The causes in all reports on a target: those in several models first, then by number of places."""
    reports = {part.label: asked.report for part in parts for asked in part.asked if asked.label == target}
    found: dict[str, list[tuple[str, CauseEntry]]] = {}
    for label, report in reports.items():
        for cause in report.get("causes", ()) if report else ():  # reports of earlier versions have none
            same = json.dumps(cause["conditions"], sort_keys=True) if cause["conditions"] else cause["text"]
            found.setdefault(same, []).append((label, cause))
    causes = [
        SharedCause(
            target=target,
            text=entries[0][1]["text"],
            state=entries[0][1]["state"],
            established=any(cause["established"] for _, cause in entries),
            shares=tuple(
                Share(model=label, places=cause["places"]["refused"], culprits=tuple(cause["culprits"]))
                for label, cause in entries
            ),
            passes_in=tuple(_passes_in(entries[0][1], reports)),
        )
        for entries in found.values()
    ]
    return sorted(causes, key=lambda cause: (-len(cause.shares), -cause.places))


def _passes_in(cause: CauseEntry, reports: Mapping[str, Report | None]) -> Iterator[str]:
    conditions = cause["conditions"]
    if len(conditions) != 1 or conditions[0]["aspect"] != "op":
        return
    for label, report in reports.items():
        for row in report["op_table"] if report else ():
            if row["passing"] and op_name(row["domain"], row["op"]) == conditions[0]["op"]:
                yield label
