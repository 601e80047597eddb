"""The table of several models as text lines, as Markdown, and as one HTML file."""

from collections.abc import Callable, Sequence

from onnxbisect.language import _
from onnxbisect.report.html import environment
from onnxbisect.report.overview_forms import STATES
from onnxbisect.report.parts import Cell, PartRow, PartsTable, RefusedOps, SharedCause
from onnxbisect.report.text import aligned, clean, clip, code, duration, plural, table

_NARROW = 60
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
        return _("compiles after: {compiles_after}", compiles_after=cell.compiles_after)
    if cell.state != "fail":
        return STATES[cell.state]
    shown = ", ".join(map(_refused, cell.refused[:_OPS]))
    more = len(cell.refused) - _OPS
    counted = (" " + _("and {more} more", more=more)) if more > 0 else ""
    bounded = _(", bounded") if cell.certificate == "bounded" else ""
    return f"{shown}{counted}{bounded}" if shown else STATES[cell.state] + bounded


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
    return f"{cause.text}: {where}{suspected}{passes}"


def lines(found: PartsTable, *, width: int = 100, files: str = "") -> list[str]:
    """The table in about `width` columns, without line ends; `files` says where its files were written."""
    width = max(width, _NARROW)
    shown = [clean(headline(found)), ""]
    cells = [("model", *found.targets), *((row.label, *map(answer, row.cells.values())) for row in found.models)]
    first = min(max(len(row[0]) for row in cells), 40)
    each = max(16, (width - first - 2) // len(found.targets) - 2)
    shown += aligned(cells, [first, *([each] * len(found.targets))])
    shown += [f"  {clean(sentence)}" for sentence in _reasons(found)]
    shown += ["", *_cause_lines(found, width), _cost(found)]
    if files:
        shown.append(_("Reports: {files}", files=f"{clean(files)}/parts.html"))
    return [line.rstrip() for line in shown]


def markdown(found: PartsTable, link: Link) -> str:
    """For a pull request or an issue. Text from a model or a compiler is in code spans."""

    def cell(row: PartRow, target: str) -> str:
        said = row.cells[target]
        text = answer(said) if answer(said) in map(_, STATES.values()) else code(answer(said), cell=True)
        return f"[{text}]({link(row.label, target, 'report.md')})" if said.certificate else text

    rows = [(code(row.label, cell=True), *(cell(row, target) for target in found.targets)) for row in found.models]
    blocks = [
        f"# {clean(headline(found))}",
        table((_("model"), *(code(target, cell=True) for target in found.targets)), rows),
        *(code(sentence) for sentence in _reasons(found)),
    ]
    if causes := telling(found):
        blocks += [
            ("## " + _("Causes")),
            "\n".join(f"- {code(_with_target(found, cause))}" for cause in causes[:_CAUSES]),
        ]
    return "\n\n".join([*blocks, _cost(found)]) + "\n"


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


def _refused(refused: RefusedOps) -> str:
    ops = " + ".join(refused.ops[:4]) + (
        " " + _("+ {more} more", more=len(refused.ops) - 4) if len(refused.ops) > 4 else ""
    )
    places = f" {refused.places}" if refused.places > 1 else ""
    return f"{ops}{places}" if refused.established else f"{ops}{places} " + _("(suspected)")


def _reasons(found: PartsTable) -> list[str]:
    """Why there is no result, each reason once."""
    reasons = {
        cell.sentence: row.label
        for row in reversed(found.models)
        for cell in row.cells.values()
        if not cell.certificate
    }
    return [f"{label}: {sentence}" for sentence, label in reversed(reasons.items())]


def _cause_lines(found: PartsTable, width: int) -> Sequence[str]:
    causes = telling(found)
    if not causes:
        return ()
    shown = [clip(f"  {_with_target(found, cause)}", 2 * width) for cause in causes[:_CAUSES]]
    more = [("  " + _("and {more} more", more=len(causes) - _CAUSES))] if len(causes) > _CAUSES else []
    return ("Causes", *shown, *more, "")


def _with_target(found: PartsTable, cause: SharedCause) -> str:
    sentence = cause_sentence(cause)
    return f"{cause.target}: {sentence}" if len(found.targets) > 1 else sentence


def _cost(found: PartsTable) -> str:
    cells = [cell for row in found.models for cell in row.cells.values()]
    calls = sum(cell.compiler_calls for cell in cells)
    return f"{plural(calls, 'compiler call')}, {duration(sum(cell.wall_seconds for cell in cells))}"
