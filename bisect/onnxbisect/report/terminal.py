"""The report as plain lines for the terminal. No colours: the command line may add them."""

from collections.abc import Iterator
from itertools import chain

from rich.cells import cell_len

from onnxbisect.language import _
from onnxbisect.report import culprit_words, reading, words
from onnxbisect.report.contents import Report, op_name
from onnxbisect.report.culprit_contents import Subgraph
from onnxbisect.report.culprit_words import CulpritGroup
from onnxbisect.report.reading import TypedCommand, next_steps, translated_report
from onnxbisect.report.text import NARROWEST, aligned, clean, clip, duration, op_chain, padded, plural, wrapped

#: Most characters of a sentence about a cause; only very long names in the model exceed it.
_SENTENCE = 400
#: Most lines of source shown of a culprit.
_LINES = 3


def cause_lines(document: Report, width: int) -> list[str]:
    """The causes that say more than which ops are refused, each with what compiles instead."""
    causes = culprit_words.leading(document)
    if not causes:
        return []
    shown = [clip(culprit_words.summary(document), _SENTENCE)]
    for cause in causes:
        if len(causes) > 1:
            shown.append(clip(f"  {culprit_words.sentence(cause)}", _SENTENCE))
        shown += [
            clip("    " + _("compiles: {passing}", passing=culprit_words.compiles(one)), width)
            for one in cause["contrast"]
        ]
        if cause["fits_too"]:
            shown.append(clip(("    " + _("or it is: {fits_too}", fits_too=_("; ").join(cause["fits_too"]))), width))
    return shown


def culprit_lines(document: Report, width: int) -> list[str]:
    """A table of the culprits, grouped by cause."""
    groups = culprit_words.rows(document)
    found = [row for _, rows in groups for row in rows]
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
    culprits = document["culprits"]
    units = {name for culprit in culprits for nodes in culprit["occurrences"] for name in nodes}
    total = document["model"]["units"]
    shown = [
        _(
            "{count}, {units} of {total}",
            count=culprit_words.place_count(document),
            units=plural(len(units), "unit"),
            total=total,
        ),
        head,
    ]
    for heading, rows in groups:
        if heading and len(groups) > 1:
            shown.append(clip(heading, width))
        for row in rows:
            shown += [grid.pop(0), *_about(row, width)]
    if sentence := culprit_words.lines_missing(document):
        shown.append(sentence)
    return shown


def _about(row: CulpritGroup, width: int) -> list[str]:
    """The lines below a row: its lines of source, of which the table names the first, and what is known of it."""
    culprit, sources, largest = row.culprit, row.sources, row.culprit["largest_passing"]
    clipped = [sources[0].code] if len(sources) == 1 else [it.counted for it in sources[:_LINES]]
    clipped += [_("and {more} more", more=len(sources) - _LINES)] if len(sources) > _LINES else []
    clipped += [words.failure(culprit), words.refused_within(culprit)]
    whole = [clean(words.certainty(culprit)), "" if len(row.members) > 1 else words.inferred(culprit)]
    if len(row.members) > 1:
        numbers = ", ".join(map(str, row.numbers))
        clipped += [_("in {count} variants: culprits {numbers}", count=len(row.members), numbers=numbers), row.variants]
    whole.append(words.at_most(culprit))
    if largest:
        whole.append(_("the largest piece that compiles has {units}", units=plural(largest["size"], "unit")))
    below = [clip(f"       {it}", width) for it in clipped if it] + [f"       {it}" for it in whole if it]
    if row.replace_by:
        below.append(clip("       " + _("replace by {replace_by}", replace_by=row.replace_by), width))
    return below


def instead_lines(document: Report, width: int) -> list[str]:
    """What passes instead of each culprit, unless the causes already say it."""
    if culprit_words.leading(document):
        return []
    shown = []
    for number, culprit in enumerate(document["culprits"], 1):
        cause = culprit_words.of_culprit(document, culprit)
        if cause is not None:
            shown.append(clip(f"{number:>3}  {culprit_words.instead(cause['contrast'][0])}", width))
            if cause["fits_too"]:
                shown.append(clip(("     " + _("or not {fits_too}", fits_too=_("; ").join(cause["fits_too"]))), width))
            continue
        if culprit_words.in_company(document, culprit):
            continue
        # A variant with many differences tells little; report.json lists all variants.
        close = [one for one in culprit["passes_instead"] if len(one["differs"]) <= 2]
        for variant in sorted(close, key=lambda one: len(one["differs"]))[:1]:
            differences = _("; ").join(words.difference(entry) for entry in variant["differs"])
            said = _("{op} with {differences}", op=variant["op"], differences=differences)
            shown.append(clip(f"{number:>3}  {said}", width))
    return [_("Passes instead"), *shown] if shown else []


def ops_of(entry: Subgraph) -> str:
    """`ReduceMean + BatchNormalization`."""
    return clean(op_chain(entry["ops"]))


def first_node(entry: Subgraph) -> str:
    """The name of the first node; empty where there is none."""
    return str(entry["nodes"][0]) if entry["nodes"] else ""


_CERTIFICATE_LINES = 6
#: Most pieces whose sizes are listed.
_PIECES = 12
#: The finding that is shown in full: it names an option with a value.
_ADVICE = "input-decides"


def lines(document: Report, *, width: int = 100, files: str = "", typed: TypedCommand | None = None) -> list[str]:
    """The report in at most `width` columns, without line ends; `files` says where its files were written.

    `typed` is how the user named model and target.

    Names and sentences that must be complete (the headline, what is unknown) may be longer than `width`.
    """
    document, width = translated_report(document), max(width, NARROWEST)
    shown = [clean(document["headline"])]
    if tool := words.tool(document["target"]):
        shown.append("  " + _("asked: {tool}", tool=clean(tool)))
    certificate = document["certificate"]
    shown.append(f"  {clean(certificate['sentence'])}")
    unknown = certificate["unknown"]
    shown += [("  " + _("unknown: {text}", text=clean(text))) for text in unknown[:_CERTIFICATE_LINES]]
    if len(unknown) > _CERTIFICATE_LINES:
        shown.append("  " + _("and {more} more unknowns", more=len(unknown) - _CERTIFICATE_LINES))
    for step in next_steps(document, typed):
        shown.append("  " + _("next: {sentence}", sentence=clean(step.sentence)) + (":" if step.command else ""))
        if step.command:
            shown.append(f"        {clean(step.command)}")
    culprits = (cause_lines(document, width), culprit_lines(document, width), instead_lines(document, width))
    for block in filter(None, (*culprits, *_of_the_model(document, width))):
        shown += ["", *block]
    stats = document["stats"]
    cached = (" " + _("and {answers}", answers=plural(stats["cached"], "known answer"))) if stats["cached"] else ""
    cost = _(
        "{calls}{cached} in {rounds}, {seconds} ({compiling} compiling)",
        calls=plural(stats["compiler_calls"], "compiler call"),
        cached=cached,
        rounds=plural(stats["rounds"], "round"),
        seconds=duration(stats["wall_seconds"]),
        compiling=duration(stats["compile_seconds"]),
    )
    shown += ["", cost, *([_("Report: {files}", files=f"{clean(files)}/report.html")] if files else [])]
    return [line.rstrip() for line in shown]


def _of_the_model(document: Report, width: int) -> Iterator[list[str]]:
    """What is said beside the culprits, a section each; those without anything to say are left out."""
    if tried := document.get("alternatives"):
        outcomes = [(reading.options_text(one), reading.options_outcome(document, one)) for one in tried]
        grid = aligned(outcomes, [34, max(24, width - 38)])
        yield [_("Other options"), *grid, f"  {reading.options_cost(document)}"]
    groups = []
    for group in document["needs_context"]:
        around, places = group["passes_with"], plural(len(group["occurrences"]), "place")
        within = _("within {units}", units=plural(around["size"], "unit")) if around else _("within the remainder")
        groups.append((ops_of(group), places, _("passes {within}", within=within), first_node(group)))
    if groups:
        grid = aligned(groups, [34, 12, 24, max(12, width - 80)], indent=5, keep_end=(3,))
        yield [_("Needs context: fails only when cut out; compiles inside the model"), *grid]
    if modules := reading.telling_modules(document):
        answers = [
            (reading.module_name(it), plural(it["size"], "unit"), reading.module_answer(it))
            for it in modules[: reading.MODULES]
        ]
        left = len(modules) - reading.MODULES
        more = ["  " + _("and {more} more", more=left)] if left > 0 else []
        yield [_("Modules"), *aligned(answers, [40, 12, max(20, width - 60)], keep_end=(0,)), *more]
    ops: dict[str, list[str]] = {}
    for row in document["op_table"]:
        count = f"{row['failing']}/{row['nodes']}" if row["verdict"] == "mixed" else str(row["nodes"])
        name = clip(op_name(row["domain"], row["op"]), 40)
        ops.setdefault(words.op_verdict(document, row), []).append(f"{name} {count}")
    if ops:
        column, most = max(map(cell_len, ops)), {_("compiles"): 3}
        lists = (wrapped(f"  {padded(it, column)}  ", ops[it], width, at_most=most.get(it, 8)) for it in ops)
        yield [_("Ops"), *chain.from_iterable(lists)]
    pieces = [piece["size"] for piece in document["partition"]]
    label, units = _("On the NPU: {pieces} of", pieces=plural(len(pieces), "piece")) + " ", _(" units")
    if len(pieces) > _PIECES:
        largest = ", ".join(map(str, sorted(pieces, reverse=True)[:_PIECES]))
        yield [label + _("{sizes} and fewer units", sizes=largest)]
    elif len(pieces) > 1:
        yield wrapped(label, list(map(str, pieces)), width - len(units), at_most=2, end=units)
    elif pieces and document["culprits"]:
        yield [_("On the NPU: 1 piece of {units}", units=plural(pieces[0], "unit"))]
    sizes = {probe["id"]: probe["size"] for probe in document["probes"]}
    tables = []
    for table in document.get("tables", ()):
        part = sizes[table["probe"]]
        of_what = f" ({plural(part, 'unit')})" if part < document["model"]["units"] else ""
        tables.append(clip(f"{table['title']}{of_what}: {reading.table_summary(table)}", width))
    yield list(dict.fromkeys(tables))  # several ways to break a pattern up mostly say the same
    if errors := [finding for finding in document["preflight"] if finding["severity"] == "error"]:
        yield [_("Preflight"), *(clip(f"  {finding['id']}: {finding['detail']}", width) for finding in errors)]
    # what loading the model could not establish, in full, because the diagnosis rests on it
    notes = document["model"]["notes"]
    if document["verdict"] != "pass":  # a value that the user knows may be all that the model lacks
        notes = [*notes, *(words.stop(it["detail"]) for it in document["preflight"] if it["id"] == _ADVICE)]
    if notes:
        yield [_("About the model"), *(f"  {clean(note)}" for note in notes)]
