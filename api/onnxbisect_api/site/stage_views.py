"""The values for the templates of repairs, with their places as small graphs, and of precision.

Their documents are validated, because a model process wrote them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxbisect.errors import OnnxBisectError
from onnxbisect.json_form import from_json
from onnxbisect.precision.report import PrecisionReport
from onnxbisect.proof import OutputDifference
from onnxbisect.remedies.document import Change, LeftRow, NodeRow, RepairDocument
from onnxbisect.remedies.summary import called, groups, headline, left_groups, numbers, outcome
from onnxbisect_api.views.found import PRECISION_FOLDER, file_address
from onnxbisect_db.tables import Search

#: Most nodes of a replacement that is drawn.
_DRAWN = 12


@dataclass(frozen=True, kw_only=True)
class Remedied:
    """Changes of one op by the same replacement. `worst` is the largest difference of their outputs.

    `pictures` show the first of these places before and after the change; None if they would be too large.
    """

    changes: list[Change]
    worst: OutputDifference | None
    pictures: tuple[Mapping[str, Any], Mapping[str, Any]] | None


@dataclass(frozen=True, kw_only=True)
class RepairOnPage:
    """A finished repair. `alternatives` are other options that were tried, with the compiler's verdicts."""

    document: RepairDocument
    headline: str
    sentences: list[str]
    remedied: list[Remedied]
    alternatives: list[tuple[str, str]]
    left: list[list[LeftRow]]
    has_model: bool
    has_report: bool


def repair_on_page(found: object, search: Search) -> RepairOnPage | None:
    """A target's repair from the stored document `found`; None if this version cannot read it."""
    try:
        document = RepairDocument.of_json(found)
    except OnnxBisectError:
        return None
    return RepairOnPage(
        document=document,
        headline=headline(document),
        sentences=numbers(document),
        remedied=[
            Remedied(
                changes=group,
                worst=max(
                    (it for change in group for it in change.differences), key=lambda it: it.absolute, default=None
                ),
                pictures=before_and_after(group[0]),
            )
            for group in groups(document.changes)
        ],
        alternatives=[(called(it), outcome(it)) for it in document.alternatives],
        left=left_groups(document.left),
        has_model="repair/repaired.onnx" in search.files,
        has_report="repair/report.json" in search.files,
    )


def before_and_after(change: Change) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """In the form of a culprit's surroundings in a report (`report.culprits`).

    None if the graphs are too large or the replacement is a constant. The inputs drawn are the node's own, without the
    replacement's constants.
    """
    if not 0 < len(change.after) <= _DRAWN:
        return None
    before = [*change.removed, change.before]
    made = {_name(it) for row in before for it in row.outputs}
    own = [_name(it) for row in before for it in row.inputs if it and _name(it) not in made]
    return _graph(before, own, "culprit"), _graph(change.after, own, "replaced")


def _graph(rows: Sequence[NodeRow], inputs: Sequence[str], role: str) -> dict[str, Any]:
    nodes = [{"name": row.name, "op": row.op, "role": role} for row in rows]
    made = {_name(it): place for place, row in enumerate(rows) for it in row.outputs if it}
    edges: list[dict[str, Any]] = []
    read: set[str] = set()
    places: dict[str, int] = {}
    for place, row in enumerate(rows):
        for it in _distinct(row.inputs):
            name = _name(it)
            if name in made:
                read.add(name)
                edges.append(_edge(made[name], place, it))
            elif name in inputs:
                if name not in places:
                    places[name] = len(nodes)
                    nodes.append({"name": name, "op": "input", "role": "input"})
                edges.append(_edge(places[name], place, it))
    for place, row in enumerate(rows):
        for it in _distinct(row.outputs):
            if _name(it) not in read:
                nodes.append({"name": _name(it), "op": "output", "role": "output"})
                edges.append(_edge(place, len(nodes) - 1, it))
    return {"nodes": nodes, "edges": edges}


def _distinct(tensors: Iterable[str]) -> list[str]:
    return [it for it in dict.fromkeys(tensors) if it]


def _name(tensor: str) -> str:
    """The tensor's name without its type, which the document appends."""
    return tensor.rpartition(": ")[0] or tensor


def _edge(source: int, target: int, tensor: str) -> dict[str, Any]:
    name = _name(tensor)
    return {"from": source, "to": target, "tensor": name, "type": tensor.removeprefix(name).removeprefix(": ")}


#: Files that are shown, not offered below.
_SHOWN = ("precision.json", "precision.md")


@dataclass(frozen=True, kw_only=True)
class PrecisionOnPage:
    """A finished search for nodes that must stay precise. `pictures` and `files` have addresses by file name."""

    report: PrecisionReport
    document: str
    pictures: dict[str, str]
    files: dict[str, str]


def precision_on_page(found: object, search: Search) -> PrecisionOnPage | None:
    """A target's precision from the stored document `found`; None if this version cannot read it."""
    try:
        report = from_json(found, PrecisionReport)
        report.headline  # noqa: B018 - it is made of the document's values
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None
    url, target = f"/v1/jobs/{search.job_id}", search.ordinal + 1
    address = {
        path.removeprefix(PRECISION_FOLDER): file_address(url, path, target)
        for path in sorted(search.files)
        if path.startswith(PRECISION_FOLDER)
    }
    return PrecisionOnPage(
        report=report,
        document=address["precision.json"],
        pictures={name: at for name, at in address.items() if name.endswith(".svg")},
        files={name: at for name, at in address.items() if name not in _SHOWN and not name.endswith(".svg")},
    )
