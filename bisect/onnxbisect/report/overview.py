"""Several targets beside each other: `onnx-bisect/overview@1`, culprits by targets, made from their reports; and its
forms as text lines, as Markdown, and as one HTML file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict

from onnxbisect.diagnosis import CertificateStatus, TargetEntry
from onnxbisect.finished import translated
from onnxbisect.language import _, marked
from onnxbisect.report import words
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.contents import OpVerdict, StatsEntry, op_name
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.html import environment
from onnxbisect.report.text import (
    NARROWEST,
    Heading,
    Item,
    Quoted,
    Section,
    TextTable,
    as_markdown,
    duration,
    op_chain,
    plural,
    terminal_lines,
)
from onnxbisect.unitset import UnitSet, is_subset, members
from onnxbisect.verdict import Status

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


class _Row(NamedTuple):
    """Culprits of the same ops, in any target, that have a place in common."""

    ops: tuple[str, ...]
    capacity: bool
    places: frozenset[UnitSet]


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
    targets: list[OverviewTarget] = [
        {
            "label": it.label,
            "backend": it.backend,
            "state": it.state,
            "sentence": it.sentence,
            "report": None
            if it.report is None
            else {
                "headline": it.report["headline"],
                "target": it.report["target"],
                "certificate": it.report["certificate"]["status"],
                "culprits": len(it.report["culprits"]),
                "stats": it.report["stats"],
            },
        }
        for it in asked
    ]
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
            ops, capacity = tuple(culprit["ops"]), culprit["kind"] == "capacity"
            places = frozenset(it.units(text) for text in culprit["occurrence_units"])
            shared = [row for row in rows if row[:2] == (ops, capacity) and row.places & places]
            rows = [row for row in rows if row not in shared]
            rows.append(_Row(ops, capacity, places.union(*(row.places for row in shared))))
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


#: How the headline of a model ends that compiles, and whose numbers are wrong.
_OTHER_NUMBERS = "and computes other numbers"


@dataclass(frozen=True, kw_only=True)
class OverviewRow:
    """Rows of the overview that read the same: variants of one op with the same results on every target."""

    ops: str
    first: str
    places: int
    variants: int
    refused: Sequence[int]
    states: Sequence[str]

    def cell(self, target: int) -> str:
        """The result on one target: `refused`, `3 of 5 refused`, `passes`, `unknown`."""
        if self.states[target] == "in_part":
            return _("{refused} of {places} refused", refused=self.refused[target], places=self.places)
        return words.named(self.states[target])


def rows(overview: Overview) -> list[OverviewRow]:
    """The table's lines, those that most targets refuse first, then in model order."""
    alike: dict[tuple[str, ...], list[OverviewCulprit]] = {}
    labels = [target["label"] for target in overview["targets"]]
    for row in overview["culprits"]:
        states = (row["cells"][label]["state"] for label in labels)
        alike.setdefault((row["kind"], op_chain(row["ops"]), *states), []).append(row)
    found = [
        OverviewRow(
            ops=ops,
            first=next(chain.from_iterable(same[0]["places"][:1]), ""),
            places=sum(len(row["places"]) for row in same),
            variants=len(same),
            refused=[sum(row["cells"][label]["refused"] for row in same) for label in labels],
            states=states,
        )
        for (_kind, ops, *states), same in alike.items()
    ]
    return sorted(found, key=lambda line: -sum(state in ("refused", "in_part") for state in line.states))


def summary(overview: Overview, target: OverviewTarget) -> str:
    """`does not compile: 3 ops at 7 places, proven; 24 compiler calls, 12 s (9.8 s compiling)`, or why not."""
    state, report = state_name(target), target["report"]
    if report is None:
        return _("{state}: {sentence}", state=state, sentence=translated(target["sentence"]))
    stats = report["stats"]
    found = ""
    if report["culprits"]:  # what the target's column of the table shows
        label = target["label"]
        shown = [row for row in overview["culprits"] if row["cells"][label]["culprits"]]
        culprits = plural(len(shown), "culprit")
        if all(row["kind"] == "single" for row in shown):
            culprits = plural(len({tuple(row["ops"]) for row in shown}), "op")
        places = plural(sum(row["cells"][label]["refused"] for row in shown), "place")
        found = _(": {culprits}", culprits=_("{culprits} at {places}", culprits=culprits, places=places))
    cost = _(
        "{calls}, {seconds} ({compiling} compiling)",
        calls=plural(stats["compiler_calls"], "compiler call"),
        seconds=duration(stats["wall_seconds"]),
        compiling=duration(stats["compile_seconds"]),
    )
    certificate = words.named(report["certificate"])
    return _("{state}{found}, {certificate}; {cost}", state=state, found=found, certificate=certificate, cost=cost)


def asked(target: OverviewTarget) -> str:
    """`rknn (target=rk3588), RKNN-Toolkit2 2.3.2`; empty if nothing is known about the tool."""
    if target["report"] is None:
        return ""
    about = target["report"]["target"]
    return f"{words.target(about)}, {words.tool(about)}"


def state_name(target: OverviewTarget) -> str:
    """`does not compile`, `cannot be asked`."""
    if target["report"] is not None and target["report"]["headline"].endswith(_OTHER_NUMBERS):
        return _("compiles and computes other numbers")
    return words.of_whole(target["state"])


def headline(overview: Overview) -> str:
    """The result in one sentence."""
    states = [target["state"] for target in overview["targets"]]
    open_ = sum(state not in ("pass", "fail") for state in states)
    unknown = _("; no answer for {open_}", open_=open_) if open_ else ""
    passing = states.count(Status.PASS)
    return _(
        "{name} compiles for {passing} of {targets}{unknown}",
        name=overview["model"]["name"],
        passing=passing,
        targets=plural(len(states), "target"),
        unknown=unknown,
    )


_VERDICTS = {
    "pass": marked("✓ compiles"),
    "fail": marked("✗ refused"),
    "needs_context": marked("✓ in context"),
    "unknown": marked("unknown"),
}
_ORDER = ("fail", "mixed", "unknown", "needs_context", "pass")


def overview_page(overview: Overview, href: Callable[[str], str]) -> dict[str, object]:
    """The values of the page: rows of the document with their words; `href` returns where the report of a label is."""
    ops = []
    for row in overview.get("ops", ()):  # earlier servers do not send it
        cells = []
        for target in overview["targets"]:
            cell = row["cells"][target["label"]]
            some = _("✗ {failing} of {nodes}", failing=cell["failing"], nodes=row["nodes"])
            cells.append((cell["verdict"], _(_VERDICTS[cell["verdict"]]) if cell["verdict"] in _VERDICTS else some))
        ops.append((row["op"], row["nodes"], cells))
    return {
        "targets": [
            {
                **target,
                "name": state_name(target),
                "answer": summary(overview, target),
                "asked": asked(target),
                "href": href(target["label"]) if target["report"] else "",
            }
            for target in overview["targets"]
        ],
        "culprits": rows(overview),
        # those that most targets refuse come first
        "ops": sorted(ops, key=lambda it: sorted((*_ORDER, verdict).index(verdict) for verdict, _said in it[2])),
    }


def lines(overview: Overview, *, width: int = 100, files: str = "") -> list[str]:
    """The overview in about `width` columns, without line ends; `files` says where its files were written.

    A target's line may be longer, and of the table only the column of nodes is shortened.
    """
    where = [_("Overview: {files}", files=files)] if files else []
    return terminal_lines([*_sections(overview, max(width, NARROWEST)), *where], width)


#: Where a file is, from a label and the file's name; the default is the label's folder.
Link = Callable[[str, str], str]
_BESIDE: Link = "{}/{}".format


def markdown(overview: Overview, link: Link = _BESIDE) -> str:
    """For a pull request or an issue; `link` returns where the reports are."""
    return as_markdown(_sections(overview, NARROWEST, link))


def _sections(overview: Overview, width: int, link: Link | None = None) -> Iterator[Section]:
    targets = overview["targets"]
    yield Heading(headline(overview))
    where = {it["label"]: link(it["label"], "report.md") if link and it["report"] else "" for it in targets}
    yield [Item(Quoted(it["label"], where[it["label"]]), summary(overview, it), [asked(it)]) for it in targets]
    if found := rows(overview):
        cells: list[list[str | Quoted]] = [
            [Quoted(line.ops), str(line.places), Quoted(line.first), *(line.cell(it) for it in range(len(targets)))]
            for line in found
        ]
        ops, nodes = min(34, width // 3), _("first node")
        wide = [max(len(str(row[i])) for row in cells) for i in range(3, 3 + len(targets))]
        others = [max(len(it["label"]), size) + 2 for it, size in zip(targets, wide, strict=True)]
        left = width - sum(min(26, it) for it in others) - min(ops, max(len(line.ops) for line in found)) - 10
        yield TextTable(
            head=[_("op"), _("places"), nodes, *(Quoted(it["label"]) for it in targets)],
            rows=cells,
            limits=[ops, 6, max(12, left), *([24] * len(targets))],
            right=(1,),
            keep_end=(2,),
        )


def html(overview: Overview, link: Link = _BESIDE) -> str:
    """One file that opens offline, without scripts; links to the reports of the targets, as `link` says."""
    return (
        environment()
        .get_template("overview.html.j2")
        .render(
            headline=headline(overview),
            overview=overview_page(overview, lambda label: link(label, "report.html")),
            doc=overview,
        )
    )
