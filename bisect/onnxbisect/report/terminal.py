"""The report as plain lines: what a user sees first. No colours: the command line may add them."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnxbisect.report import words
from onnxbisect.report.tables import summary
from onnxbisect.report.text import clean, clip, clip_left, duration, plural

_NARROW = 60
_CERTIFICATE_LINES = 6
#: Sizes of more pieces are not listed one by one.
_PIECES = 12


def lines(document: Mapping[str, Any], *, width: int = 100, files: str = "") -> list[str]:
    """The report in at most `width` columns, without line ends; `files` says where its files were written.

    Names and sentences that must be read whole (the headline, what is unknown) may be longer than `width`.
    """
    width = max(width, _NARROW)
    shown = [clean(document["headline"])]
    if words.tool(document):
        shown.append(f"  asked: {clean(words.tool(document))}")
    shown += _certificate(document)
    if doubt := words.doubt(document):
        shown.append(f"  {doubt}")
    for block in (
        _culprits(document, width),
        _instead(document, width),
        _needs_context(document, width),
        _ops(document, width),
        _partition(document, width),
        _tables(document, width),
        _preflight(document, width),
        _notes(document),
        [_cost(document), *([f"Report: {clean(files)}"] if files else [])],
    ):
        if block:
            shown += ["", *block]
    return [line.rstrip() for line in shown]


def _certificate(document: Mapping[str, Any]) -> list[str]:
    certificate = document["certificate"]
    shown = [f"  {clean(certificate['sentence'])}"]
    unknown = certificate["unknown"]
    shown += [f"  unknown: {clean(text)}" for text in unknown[:_CERTIFICATE_LINES]]
    if len(unknown) > _CERTIFICATE_LINES:
        shown.append(f"  and {len(unknown) - _CERTIFICATE_LINES} more unknowns")
    return shown


def _culprits(document: Mapping[str, Any], width: int) -> list[str]:
    groups = _alike(document)
    if not groups:
        return []
    traced = any(_source(culprit) for group in groups for _, culprit in group)
    rows = [("#", "op", "places", "first node", "where") if traced else ("#", "op", "places", "first node")]
    for group in groups:
        number, culprit = group[0]
        places = sum(len(culprit["occurrences"]) for _, culprit in group)
        row = (str(number), _ops_of(culprit), str(places), clean(_first(culprit)))
        rows.append((*row, clean(_source(culprit))) if traced else row)
    room = width - 2 - 8
    limits = [3, min(34, room * 2 // 5), 6]
    room -= sum(min(limit, max(len(row[i]) for row in rows)) for i, limit in enumerate(limits))
    limits += [room - min(34, room // 2), min(34, room // 2)] if traced else [room]
    grid = aligned(rows, limits, right=(0, 2), keep_end=(3,))
    shown = [_count(document), grid[0]]
    for group, line in zip(groups, grid[1:], strict=True):
        _, culprit = group[0]
        shown += [line, clip(f"       {words.failure(culprit)}", width)]
        if len(group) > 1:
            numbers = ", ".join(str(number) for number, _ in group)
            shown.append(clip(f"       in {len(group)} variants: culprits {numbers}", width))
        if doubt := words.certainty(culprit):
            shown.append(f"       {clean(doubt)}")
        if len(group) == 1 and (sentence := words.inferred(culprit)):
            shown.append(f"       {sentence}")
        if limit := words.at_most(culprit):
            shown.append(f"       {limit}")
        if culprit["largest_passing"]:
            shown.append(f"       the largest piece that compiles has {culprit['largest_passing']['size']} units")
    return shown


def _alike(document: Mapping[str, Any]) -> list[list[tuple[int, Mapping[str, Any]]]]:
    """Culprits with their numbers, those of which a reader sees no difference together: variants of one op."""
    groups: dict[tuple[str, ...], list[tuple[int, Mapping[str, Any]]]] = {}
    for number, culprit in enumerate(document["culprits"], 1):
        said = culprit["fingerprint"] or words.failure(culprit)
        seen = (culprit["kind"], _ops_of(culprit), said, words.certainty(culprit))
        groups.setdefault(seen, []).append((number, culprit))
    return list(groups.values())


def _count(document: Mapping[str, Any]) -> str:
    culprits = document["culprits"]
    units = {name for culprit in culprits for nodes in culprit["occurrences"] for name in nodes}
    total = document["model"]["units"]
    return f"{plural(len(culprits), 'culprit').capitalize()}, {plural(len(units), 'unit')} of {total}"


def _instead(document: Mapping[str, Any], width: int) -> list[str]:
    shown = []
    for number, culprit in enumerate(document["culprits"], 1):
        # The more a variant differs, the less it tells; the files have them all.
        close = sorted((one for one in culprit["passes_instead"] if len(one["differs"]) <= 2), key=_differences)
        for variant in close[:1]:
            differences = "; ".join(words.difference(entry) for entry in variant["differs"])
            shown.append(clip(f"{number:>3}  {variant['op']} with {differences}", width))
    return ["Passes instead", *shown] if shown else []


def _differences(variant: Mapping[str, Any]) -> int:
    return len(variant["differs"])


def _needs_context(document: Mapping[str, Any], width: int) -> list[str]:
    groups = document["needs_context"]
    if not groups:
        return []
    rows = []
    for group in groups:
        around = group["passes_with"]
        within = f"within {plural(around['size'], 'unit')}" if around else "within the remainder"
        rows.append((_ops_of(group), plural(len(group["occurrences"]), "place"), f"passes {within}", _first(group)))
    grid = aligned(rows, [34, 12, 24, max(12, width - 80)], indent=5, keep_end=(3,))
    return ["Needs context: fails only where it is cut out, nothing is wrong with it in the model", *grid]


def _ops(document: Mapping[str, Any], width: int) -> list[str]:
    groups: dict[str, list[str]] = {}
    for row in document["op_table"]:
        groups.setdefault(words.op_verdict(document, row), []).append(_op_item(row))
    labels = max((len(verdict) for verdict in groups), default=0)
    shown = []
    for verdict, items in groups.items():
        shown += _wrap(f"  {verdict:<{labels}}  ", items, width, at_most=3 if verdict == "compiles" else 8)
    return ["Ops", *shown] if shown else []


def _op_item(row: Mapping[str, Any]) -> str:
    name = clip(f"{row['domain']}::{row['op']}" if row["domain"] else row["op"], 40)
    return f"{name} {row['failing']}/{row['nodes']}" if row["verdict"] == "mixed" else f"{name} {row['nodes']}"


def _partition(document: Mapping[str, Any], width: int) -> list[str]:
    pieces = document["partition"]
    if not pieces or (len(pieces) == 1 and not document["culprits"]):
        return []
    if len(pieces) == 1:
        return [f"On the NPU: 1 piece of {plural(pieces[0]['size'], 'unit')}"]
    sizes = [str(piece["size"]) for piece in pieces]
    label = f"On the NPU: {len(pieces)} pieces of "
    if len(pieces) > _PIECES:
        largest = sorted((piece["size"] for piece in pieces), reverse=True)[:_PIECES]
        return [f"{label}{', '.join(map(str, largest))} and fewer units"]
    return _wrap(label, sizes, width - len(" units"), at_most=2, end=" units")


def _tables(document: Mapping[str, Any], width: int) -> list[str]:
    sizes = {probe["id"]: probe["size"] for probe in document["probes"]}
    shown = []
    for table in document["tables"]:
        part = sizes[table["probe"]]
        of_what = f" ({plural(part, 'unit')})" if part < document["model"]["units"] else ""
        shown.append(clip(f"{table['title']}{of_what}: {summary(table)}", width))
    return shown


def _preflight(document: Mapping[str, Any], width: int) -> list[str]:
    found = [finding for finding in document["preflight"] if finding["severity"] == "error"]
    return (
        ["Preflight", *(clip(f"  {finding['id']}: {finding['detail']}", width) for finding in found)] if found else []
    )


def _notes(document: Mapping[str, Any]) -> list[str]:
    """What intake could not establish: a diagnosis rests on it, so it is read whole."""
    notes = document["model"]["notes"]
    return ["About the model", *(f"  {clean(note)}" for note in notes)] if notes else []


def _cost(document: Mapping[str, Any]) -> str:
    stats = document["stats"]
    cached = f" and {plural(stats['cached'], 'known answer')}" if stats["cached"] else ""
    return (
        f"{plural(stats['compiler_calls'], 'compiler call')}{cached} in {plural(stats['rounds'], 'round')}, "
        f"{duration(stats['wall_seconds'])} ({duration(stats['compile_seconds'])} compiling)"
    )


def _ops_of(entry: Mapping[str, Any]) -> str:
    ops = entry["ops"]
    return clean(" + ".join(ops[:4]) + (f" + {len(ops) - 4} more" if len(ops) > 4 else ""))


def _first(entry: Mapping[str, Any]) -> str:
    return str(entry["nodes"][0]) if entry["nodes"] else ""


def _source(culprit: Mapping[str, Any]) -> str:
    return next((words.where(origin) for origin in words.sources(culprit)), "")


def aligned(
    rows: Sequence[Sequence[str]],
    limits: Sequence[int],
    *,
    indent: int = 2,
    right: Sequence[int] = (),
    keep_end: Sequence[int] = (),
) -> list[str]:
    """Rows in aligned columns, each at most as wide as its limit; `keep_end` columns lose their start instead."""
    widths = [min(limit, max(len(row[i]) for row in rows)) for i, limit in enumerate(limits)]
    shown = []
    for row in rows:
        cells = []
        for i, cell in enumerate(row):
            text = clip_left(cell, widths[i]) if i in keep_end else clip(cell, widths[i])
            cells.append(text.rjust(widths[i]) if i in right else text.ljust(widths[i]))
        shown.append(" " * indent + "  ".join(cells))
    return shown


def _wrap(label: str, items: Sequence[str], width: int, *, at_most: int, end: str = "") -> list[str]:
    """Items separated by commas in lines under `label`, at most so many lines; the rest is counted."""
    shown = [label]
    for index, item in enumerate(items):
        piece = item + ("," if index < len(items) - 1 else end)
        if len(shown[-1]) + len(piece) > width and shown[-1].strip():
            if len(shown) == at_most:
                # Room for the count was not kept free: it may stick out by some columns.
                shown[-1] += f" and {len(items) - index} more{end}"
                return shown
            shown.append(" " * len(label))
        shown[-1] += ("" if shown[-1].endswith(" ") else " ") + piece
    return shown
