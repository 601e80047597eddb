"""Format causes and culprits as plain lines."""

from onnxbisect.language import _
from onnxbisect.report import cause_words, culprit_groups, source_lines, words
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import PassingVariant, Subgraph
from onnxbisect.report.culprit_groups import Row
from onnxbisect.report.grid import aligned
from onnxbisect.report.text import clean, clip, plural

#: Most characters of a sentence about a cause; only very long names in the model exceed it.
_SENTENCE = 400
#: Most lines of source shown of a culprit.
_LINES = 3


def cause_lines(document: Report, width: int) -> list[str]:
    """The causes that say more than which ops are refused, each with what compiles instead."""
    causes = cause_words.leading(document)
    if not causes:
        return []
    shown = [clip(cause_words.summary(document), _SENTENCE)]
    for cause in causes:
        if len(causes) > 1:
            shown.append(clip(f"  {cause_words.sentence(cause)}", _SENTENCE))
        shown += [
            clip("    " + _("compiles: {passing}", passing=cause_words.compiles(one)), width)
            for one in cause["contrast"]
        ]
        if cause["fits_too"]:
            shown.append(clip(("    " + _("or it is: {fits_too}", fits_too=_("; ").join(cause["fits_too"]))), width))
    return shown


def culprit_lines(document: Report, width: int) -> list[str]:
    """A table of the culprits, grouped by cause."""
    sections = culprit_groups.rows(document)
    found = [row for _, rows in sections for row in rows]
    if not found:
        return []
    traced = any(row.sources for row in found)
    cells = [("#", *([_("where")] if traced else []), _("op"), _("places"), _("first node"))]
    for row in found:
        where = row.sources[0].where if row.sources else ""
        number, *more = str(row.number), ops_of(row.culprit), str(row.places), clean(first_node(row.culprit))
        cells.append((number, clean(where), *more) if traced else (number, *more))
    room = width - 2 - 8
    limits = [3, *([min(34, room // 3)] if traced else []), min(34, room * 2 // 5), 6]
    room -= sum(min(limit, max(len(row[i]) for row in cells)) for i, limit in enumerate(limits))
    last = len(limits)
    head, *grid = aligned(cells, [*limits, room], right=(0, last - 1), keep_end=(last, *([1] if traced else [])))
    shown = [_count(document), head]
    for heading, rows in sections:
        if heading and len(sections) > 1:
            shown.append(clip(heading, width))
        for row in rows:
            shown += [grid.pop(0), *_source(row, width), *_about(row, width)]
    if sentence := source_lines.missing(document):
        shown.append(sentence)
    return shown


def _source(row: Row, width: int) -> list[str]:
    """The code of the line in the row, or all lines where there are several."""
    found = row.sources
    if len(found) == 1:
        return [clip(f"       {found[0].code}", width)] if found[0].code else []
    shown = [clip(f"       {it.counted}", width) for it in found[:_LINES]]
    return [*shown, *([f"       {_('and {more} more', more=len(found) - _LINES)}"] if len(found) > _LINES else [])]


def _about(row: Row, width: int) -> list[str]:
    """The lines below a row."""
    culprit = row.culprit
    shown = [clip(f"       {words.failure(culprit)}", width)]
    if len(row.members) > 1:
        numbers = ", ".join(map(str, row.numbers))
        said = _("in {count} variants: culprits {numbers}", count=len(row.members), numbers=numbers)
        shown.append(clip(f"       {said}", width))
        if row.variants:
            shown.append(clip(f"       {row.variants}", width))
    if doubt := words.certainty(culprit):
        shown.append(f"       {clean(doubt)}")
    if len(row.members) == 1 and (sentence := words.inferred(culprit)):
        shown.append(f"       {sentence}")
    if limit := words.at_most(culprit):
        shown.append(f"       {limit}")
    if culprit["largest_passing"]:
        shown.append(
            "       "
            + _(
                "the largest piece that compiles has {units}",
                units=plural(culprit["largest_passing"]["size"], "unit"),
            )
        )
    if row.replace_by:
        shown.append(clip(("       " + _("replace by {replace_by}", replace_by=row.replace_by)), width))
    return shown


def _count(document: Report) -> str:
    culprits = document["culprits"]
    units = {name for culprit in culprits for nodes in culprit["occurrences"] for name in nodes}
    total = document["model"]["units"]
    return _(
        "{count}, {units} of {total}",
        count=culprit_groups.count(document),
        units=plural(len(units), "unit"),
        total=total,
    )


def instead_lines(document: Report, width: int) -> list[str]:
    """What passes instead of each culprit, unless the causes already say it."""
    if cause_words.leading(document):
        return []
    shown = []
    for number, culprit in enumerate(document["culprits"], 1):
        cause = cause_words.of_culprit(document, culprit)
        if cause is not None:
            shown.append(clip(f"{number:>3}  {cause_words.instead(cause['contrast'][0])}", width))
            if cause["fits_too"]:
                shown.append(clip(("     " + _("or not {fits_too}", fits_too=_("; ").join(cause["fits_too"]))), width))
            continue
        if cause_words.in_company(document, culprit):
            continue
        # A variant with many differences tells little; report.json lists all variants.
        close = sorted((one for one in culprit["passes_instead"] if len(one["differs"]) <= 2), key=_differences)
        for variant in close[:1]:
            differences = _("; ").join(words.difference(entry) for entry in variant["differs"])
            said = _("{op} with {differences}", op=variant["op"], differences=differences)
            shown.append(clip(f"{number:>3}  {said}", width))
    return [_("Passes instead"), *shown] if shown else []


def _differences(variant: PassingVariant) -> int:
    return len(variant["differs"])


def ops_of(entry: Subgraph) -> str:
    """`ReduceMean + BatchNormalization`."""
    ops = entry["ops"]
    return clean(" + ".join(ops[:4]) + ((" " + _("+ {more} more", more=len(ops) - 4)) if len(ops) > 4 else ""))


def first_node(entry: Subgraph) -> str:
    """The name of the first node; empty where there is none."""
    return str(entry["nodes"][0]) if entry["nodes"] else ""
