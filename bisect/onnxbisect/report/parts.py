"""Several models on the same targets, such as the parts of one network: `onnx-bisect/parts@1`, made from reports.

The table has forms as text lines, as Markdown, and as one HTML file.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from onnxbisect.finished import clauses, phrase, translated
from onnxbisect.json_form import to_json
from onnxbisect.language import _
from onnxbisect.report import words
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.contents import op_name
from onnxbisect.report.culprit_contents import CauseEntry, CulpritEntry
from onnxbisect.report.html import environment
from onnxbisect.report.text import (
    NARROWEST,
    Heading,
    Item,
    Quoted,
    Section,
    TextTable,
    as_markdown,
    clip,
    duration,
    listed,
    op_chain,
    plural,
    terminal_lines,
)

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
        models=tuple(
            PartRow(
                label=part.label,
                name=part.name,
                sha256=part.subject.sha256 if part.subject else "",
                nodes=part.subject.nodes if part.subject else 0,
                units=len(part.subject.names) if part.subject else 0,
                cells={asked.label: _cell(asked) for asked in part.asked},
            )
            for part in parts
        ),
        causes=tuple(cause for label in targets for cause in _causes(label, parts)),
    )


def _cell(asked: TargetReport) -> Cell:
    report = asked.report
    if report is None:
        return Cell(state=asked.state, sentence=asked.sentence)
    alike: dict[tuple[str, ...], list[CulpritEntry]] = {}
    for culprit in report["culprits"]:
        alike.setdefault(tuple(culprit["ops"]), []).append(culprit)
    after = report.get("compiles_after")  # reports of earlier versions have none
    return Cell(
        state=asked.state,
        sentence=asked.sentence,
        certificate=report["certificate"]["status"],
        compiles_after=None if after is None else after["sentence"],
        culprits=len(report["culprits"]),
        refused=tuple(
            RefusedOps(
                ops=ops,
                places=sum(len(culprit["occurrence_units"]) for culprit in culprits),
                established=any(culprit["certainty"] != "suspected" for culprit in culprits),
            )
            for ops, culprits in alike.items()
        ),
        compiler_calls=report["stats"]["compiler_calls"],
        wall_seconds=report["stats"]["wall_seconds"],
    )


def _causes(target: str, parts: Sequence[ModelPart]) -> list[SharedCause]:
    """The causes in all reports on a target: those in several models first, then by number of places."""
    reports = {part.label: asked.report for part in parts for asked in part.asked if asked.label == target}
    passing = {
        label: {op_name(row["domain"], row["op"]) for row in report["op_table"] if row["passing"]}
        for label, report in reports.items()
        if report
    }
    found: dict[str, list[tuple[str, CauseEntry]]] = {}
    for label, report in reports.items():
        for cause in report.get("causes", ()) if report else ():  # reports of earlier versions have none
            same = json.dumps(cause["conditions"], sort_keys=True) if cause["conditions"] else cause["text"]
            found.setdefault(same, []).append((label, cause))
    causes = []
    for entries in found.values():
        first, conditions = entries[0][1], entries[0][1]["conditions"]
        op = conditions[0]["op"] if len(conditions) == 1 and conditions[0]["aspect"] == "op" else ""
        causes.append(
            SharedCause(
                target=target,
                text=first["text"],
                state=first["state"],
                established=any(cause["established"] for _, cause in entries),
                shares=tuple(
                    Share(model=label, places=cause["places"]["refused"], culprits=tuple(cause["culprits"]))
                    for label, cause in entries
                ),
                passes_in=tuple(label for label, ops in passing.items() if op in ops),
            )
        )
    return sorted(causes, key=lambda cause: (-len(cause.shares), -cause.places))


#: Most ops of a cell, and most causes, that are named; the rest is counted.
_OPS, _CAUSES = 6, 12

#: Returns where a file is, from the model's label, the target's label and the file's name.
Link = Callable[[str, str, str], str]


def headline(found: PartsTable) -> str:
    """`3 models: 1 compiles for whitelist (profile=edgesam), 3 compile for qnn`."""
    count = len(found.models)
    said = []
    for label, name in found.targets.items():
        states = [row.cells[label].state for row in found.models]
        passing, open_ = states.count("pass"), sum(state not in ("pass", "fail") for state in states)
        unknown = (" " + _("({open} without an answer)", open=open_)) if open_ else ""
        target = name if len(found.targets) == 1 else label
        if passing > 1:
            text = _("{passing} compile for {target}{unknown}", passing=passing, target=target, unknown=unknown)
        elif passing:
            text = _("1 compiles for {target}{unknown}", target=target, unknown=unknown)
        else:
            text = _("none compiles for {target}{unknown}", target=target, unknown=unknown)
        said.append(text)
    return f"{plural(count, 'model')}: {', '.join(said)}"


def answer(cell: Cell) -> str:
    """`compiles`; `Sin, Cos, Abs 5`; `Gemm 15, bounded`; `compiles after: ir_version 10 → 9`; `no answer`."""
    if cell.compiles_after:
        return _("compiles after: {compiles_after}", compiles_after=clauses(cell.compiles_after))
    if cell.state != "fail":
        return words.of_whole(cell.state)
    named = []
    for it in cell.refused:
        places = f" {it.places}" if it.places > 1 else ""
        named.append(f"{op_chain(it.ops)}{places}" + ("" if it.established else " " + _("(suspected)")))
    refused = listed(named, _OPS)
    bounded = _(", bounded") if cell.certificate == "bounded" else ""
    return (refused or words.of_whole(cell.state)) + bounded


def telling(found: PartsTable) -> list[SharedCause]:
    """The causes in several models, then those that say more than the op's name, which the cell has."""
    return [cause for cause in found.causes if len(cause.shares) > 1 or cause.state in ("observed", "confirmed")]


def cause_sentence(cause: SharedCause) -> str:
    """`tensors of rank 6 or more: 13 places in 2 models (encoder 9, decoder 4)`."""
    shares = ", ".join(f"{share.model} {share.places}" for share in cause.shares)
    where = _(
        "{places} in {models} ({shares})",
        places=plural(cause.places, "place"),
        models=plural(len(cause.shares), "model"),
        shares=shares,
    )
    suspected = "" if cause.established else _(", suspected")
    passes = _("; compiles in {passes_in}", passes_in=", ".join(cause.passes_in)) if cause.passes_in else ""
    return f"{phrase(cause.text)}: {where}{suspected}{passes}"


def lines(found: PartsTable, *, width: int = 100, files: str = "") -> list[str]:
    """The table in about `width` columns, without line ends; `files` says where its files were written."""
    where = [_("Reports: {files}", files=f"{files}/parts.html")] if files else []
    return terminal_lines([*_sections(found, max(width, NARROWEST)), *where], width)


def markdown(found: PartsTable, link: Link) -> str:
    """For a pull request or an issue; `link` returns where the reports are."""
    return as_markdown(_sections(found, NARROWEST, link))


def _sections(found: PartsTable, width: int, link: Link | None = None) -> Iterator[Section]:
    yield Heading(headline(found))
    model = _("model")
    first = min(max(cell_len(text) for text in (model, *(row.label for row in found.models))), 40)
    each = max(16, (width - first - 2) // len(found.targets) - 2)

    def cell(row: PartRow, target: str) -> Quoted:
        reported = link is not None and row.cells[target].certificate
        return Quoted(answer(row.cells[target]), link(row.label, target, "report.md") if link and reported else "")

    yield TextTable(
        head=[model, *map(Quoted, found.targets)],
        rows=[[Quoted(row.label), *(cell(row, target) for target in found.targets)] for row in found.models],
        limits=[first, *([each] * len(found.targets))],
    )
    if reasons := _reasons(found):
        yield [Item(Quoted(sentence)) for sentence in reasons]
    if causes := telling(found):
        yield Heading(_("Causes"), 2)
        shown = [_with_target(found, cause) for cause in causes[:_CAUSES]]
        more = [_("and {more} more", more=len(causes) - _CAUSES)] if len(causes) > _CAUSES else []
        yield [Item(Quoted(clip(sentence, 2 * width))) for sentence in (*shown, *more)]
    yield _cost(found)


def html(found: PartsTable, link: Link) -> str:
    """One file that opens offline, without scripts; links to the reports, as `link` says."""
    return (
        environment()
        .get_template("parts.html.j2")
        .render(
            headline=headline(found),
            table=found,
            answer=answer,
            link=lambda row, target: link(row.label, target, "report.html"),
            reasons=_reasons(found),
            causes=[_with_target(found, cause) for cause in telling(found)],
            cost=_cost(found),
        )
    )


def _reasons(found: PartsTable) -> list[str]:
    """Why there is no result, each reason once."""
    reasons = {
        cell.sentence: row.label
        for row in reversed(found.models)
        for cell in row.cells.values()
        if not cell.certificate
    }
    return [f"{label}: {translated(sentence)}" for sentence, label in reversed(reasons.items())]


def _with_target(found: PartsTable, cause: SharedCause) -> str:
    sentence = cause_sentence(cause)
    return f"{cause.target}: {sentence}" if len(found.targets) > 1 else sentence


def _cost(found: PartsTable) -> str:
    cells = [cell for row in found.models for cell in row.cells.values()]
    calls = sum(cell.compiler_calls for cell in cells)
    return f"{plural(calls, 'compiler call')}, {duration(sum(cell.wall_seconds for cell in cells))}"
