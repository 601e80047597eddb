"""A repair in words: the lines of the terminal, and `repair.md`."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from onnxbisect.proof import Difference
from onnxbisect.remedies.advise import Advice
from onnxbisect.remedies.advisor import Left
from onnxbisect.remedies.document import AlternativeRow, Change, LeftRow, NodeRow, RepairDocument, left_row
from onnxbisect.report import source_lines, words
from onnxbisect.report.markdown_text import code, plain, table
from onnxbisect.report.text import clean, clip, plural
from onnxbisect.verdict import Status

#: Most ops named for a replacement, and most places named for a culprit.
_MOST = 6
#: Most lines of source named for a culprit.
_LINES = 3


def headline(document: RepairDocument) -> str:
    """The outcome in one sentence."""
    name, about = clean(document.model), document.target
    command = words.own_command({"backend": about.backend, "options": about.options})
    tool = clip(shlex.join(command), 200) if command else about.tool or about.backend
    parts = [f"input {clip(name, 60)} made a constant" for name in document.input_values] if document.repaired else []
    parts += [] if document.file_change is None else [clean(document.file_change.sentence)]
    parts += [plural(len(document.changes), "replaced node")] if document.changes else []
    changed = ", and ".join(parts)
    if document.verdict == "pass":
        return f"{name} compiles with {tool} {f'after {changed}' if changed else 'as it is'}."
    if not document.complete:
        return f"The repair of {name} was cancelled, or its budget spent; run it again to go on from the kept verdicts."
    if not document.left:
        return f"There is no answer whether {name} compiles with {tool}{f' after {changed}' if changed else ''}."
    still = plural(len(document.left), "place")
    if not changed:
        return f"{name} does not compile with {tool}, and there is no remedy for {still}; nothing was changed."
    return f"{name} does not compile with {tool} yet: {changed}, and {still} with no remedy."


def groups(changes: Iterable[Change]) -> list[list[Change]]:
    """Changes of one op by the same rules to the same ops, with the same outcome."""
    found: dict[tuple[object, ...], list[Change]] = {}
    for it in changes:
        key = (it.op, tuple(rule.id for rule in it.rules), tuple(row.op for row in it.after), it.compiles)
        found.setdefault(key, []).append(it)
    return list(found.values())


def left_groups(left: Iterable[LeftRow]) -> list[list[LeftRow]]:
    """Places with the same ops that stay for the same reasons, apart from numbers in them."""
    found: dict[tuple[object, ...], list[LeftRow]] = {}
    for it in left:
        found.setdefault((it.ops, it.kind, tuple(map(_without_numbers, it.reasons))), []).append(it)
    return list(found.values())


def _without_numbers(reason: str) -> str:
    return re.sub(r"[0-9][-+.e0-9]*", "0", reason)


def lines(document: RepairDocument) -> list[str]:
    """One line for each culprit op and its remedy, then what is left, then the outcome."""
    changed = groups(document.changes)
    rows = [_cells(group) for group in changed]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    shown = []
    for row, group in zip(rows, changed, strict=True):
        shown.append(
            "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip(),
        )
        shown += [f"    {clip(line, 200)}" for line in sources(it.source for it in group)]
    for stay in left_groups(document.left):
        shown.append(f"{_times(' → '.join(stay[0].ops), len(stay))}  no remedy")
        shown += [f"    {clip(line, 200)}" for line in sources(line for it in stay for line in it.sources)]
        shown += [f"    {clip(reason, 200)}" for reason in stay[0].reasons[:_MOST]]
    others = [f"With {called(it)}: {outcome(it)}" for it in document.alternatives]
    return [*shown, *([""] if shown else []), headline(document), *numbers(document), *others]


def sources(lines: Iterable[str]) -> list[str]:
    """Each line of source once, with the number of nodes that came from it where there are several."""
    counts = Counter(line for line in lines if line)
    shown = [source_lines.counted(line, count) for line, count in counts.items()]
    return [*shown[:_LINES], *([f"and {len(shown) - _LINES} more lines"] if len(shown) > _LINES else [])]


def markdown(document: RepairDocument) -> str:
    """`repair.md`."""
    parts = [f"# {plain(headline(document))}", *map(plain, numbers(document))]
    if document.input_shapes:
        shapes = ", ".join(f"{code(name)} as {list(dims)}" for name, dims in document.input_shapes.items())
        parts.append(f"Proven only for the inputs {shapes}; other shapes may not work.")
    if document.input_values:
        values = ", ".join(f"{code(name)} is {clip(str(it), 200)}" for name, it in document.input_values.items())
        parts.append(f"Constants in place of inputs, as they were bound: {values}.")
    if document.file_change is not None:
        change = document.file_change
        parts += ["## What was changed in the whole file", f"{plain(change.sentence)} ({change.exactness})."]
    if document.changes:
        head = ("culprit", "places", "remedy", "exactness", "largest difference", "compiles")
        rows = []
        for group in groups(document.changes):
            op, gives, exactness, apart, compiles = _cells(group, count=False)
            rules = ", ".join(code(rule.id, cell=True) for rule in group[0].rules)
            rows.append((op, str(len(group)), f"{rules}: {plain(gives)}", exactness, apart, compiles))
        parts += ["## What was changed", table(head, rows)]
        parts += [part for group in groups(document.changes) for part in _about(group, document.computes_in)]
    if document.left:
        parts += ["## What is left", *(part for stay in left_groups(document.left) for part in _stays(stay))]
    if document.alternatives:
        cells_ = [(code(called(it), cell=True), plain(outcome(it))) for it in document.alternatives]
        parts += ["## The model as it was, with other options", table(("options", "the compiler"), cells_)]
    if document.struck:
        rows_ = [(code(it.node, cell=True), ", ".join(it.rules), plain(it.reason)) for it in document.struck]
        parts += ["## What was tried and given up", table(("node", "rule", "reason"), rows_)]
    if document.outputs:
        cells = [
            (code(it.output, cell=True), _apart(it), f"{it.relative:.3g}", str(it.elements)) for it in document.outputs
        ]
        allowed = document.outputs_allowed
        parts += [
            "## The model's outputs",
            table(("output", "largest difference", "relative", "numbers compared"), cells),
            f"Allowed: {allowed.absolute:g} + {allowed.relative:g} times the largest magnitude of an output.",
        ]
    return "\n\n".join(parts) + "\n"


def called(row: AlternativeRow) -> str:
    """The options that are changed, as they are typed."""
    return clip(", ".join(f"{key}={value}" for key, value in row.options.items()), 80)


def outcome(row: AlternativeRow) -> str:
    """What the compiler says with them, in one phrase."""
    if row.problem:
        return f"not asked: {clip(row.problem, 200)}"
    if row.whole == Status.PASS:
        return "the whole model compiles"
    if row.whole:
        return f"takes every culprit, and not the whole model: {clip(row.message, 200) or 'no answer'}"
    taken = [clip(" + ".join(it.ops), 80) for it in row.culprits if it.verdict == Status.PASS]
    named = f": {', '.join(taken[:_MOST])}" if taken else ""
    return f"takes {len(taken)} of {plural(len(row.culprits), 'culprit')}{named}"


def plan_lines(advice: Advice, left: Iterable[Left], files: Sequence[str] = ()) -> list[str]:
    """What would be tried: changes of the whole file, by their sentences, then a line for each culprit op."""
    counts: dict[tuple[str, ...], int] = {}
    asked = {it.question for it in advice.questions}
    for it in advice.chosen:
        seen = "asked first" if it.question in asked else "seen to pass"
        key = (it.op, f"→ {', '.join(it.gives) or 'a constant'}", it.name, str(it.exactness), seen)
        counts[key] = counts.get(key, 0) + 1
    rows = [(_times(clip(op, 40), count), *rest) for (op, *rest), count in counts.items()]
    repaired = {it.node for it in advice.chosen}
    staying = [left_row(it) for it in left if repaired.isdisjoint(it.place.nodes)]
    shown = [f"first, the whole file: {clip(sentence, 200)}" for sentence in files] + _columns(rows)
    for stay in left_groups(staying):
        shown += _staying(stay[0].ops, len(stay), stay[0].reasons)
    return [*shown, "", "Nothing was changed, and nothing of this is proven yet."]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _staying(ops: Sequence[str], count: int, reasons: Sequence[str]) -> list[str]:
    head = f"{_times(clip(' → '.join(ops), 80), count)}  no remedy"
    return [head, *(f"    {clip(reason, 200)}" for reason in reasons[:_MOST])]


def _about(group: Sequence[Change], computes_in: str) -> Iterator[str]:
    first = group[0]
    yield f"### {plain(first.op)} → {plain(_ops(first))}"
    for rule in first.rules:
        promise = "; ".join(part for part in (rule.bound, rule.domain and f"for {rule.domain}") if part)
        exactness = f"{rule.exactness}{f' ({promise})' if promise else ''}"
        yield f"[{code(rule.id)}]({rule.source}): {plain(rule.summary)} It is {plain(exactness)}."
        yield f"In PyTorch, before the export: {code(rule.pytorch)}"
    yield f"At {', '.join(code(it.node) for it in group[:_MOST])}" + (
        f" and {len(group) - _MOST} more." if len(group) > _MOST else "."
    )
    if found := sources(it.source for it in group):
        yield f"From {', '.join(map(code, found))}."
    low = max((it for change in group for it in change.low), key=lambda it: it.absolute, default=None)
    if low is not None:
        yield f"Computed in {computes_in}, as the target does, it differs by at most {_apart(low)}."
    before, after = [_line(row) for row in (*first.removed, first.before)], [_line(row) for row in first.after]
    yield "\n".join(["```diff", *(f"- {line}" for line in before), *(f"+ {line}" for line in after), "```"])


def _stays(stay: Sequence[LeftRow]) -> Iterator[str]:
    first = stay[0]
    yield f"### {plain(' → '.join(first.ops))}"
    nodes = [name for it in stay for name in it.nodes]
    more = f" and {len(nodes) - _MOST} more" if len(nodes) > _MOST else ""
    yield f"At {', '.join(map(code, nodes[:_MOST]))}{more}. The compiler says: {code(first.message) or 'nothing'}"
    if found := sources(line for it in stay for line in it.sources):
        yield f"From {', '.join(map(code, found))}."
    yield "\n".join(f"- {plain(reason)}" for reason in first.reasons)


def _cells(group: Sequence[Change], *, count: bool = True) -> tuple[str, str, str, str, str]:
    first = group[0]
    worst = max((it for change in group for it in change.differences), key=lambda it: it.absolute, default=None)
    return (
        _times(clip(first.op, 40), len(group) if count else 1),
        f"{'→ ' if count else ''}{_ops(first)}",
        str(first.exactness),
        f"{'difference ' if count else ''}{'0' if worst is None else _apart(worst)}",
        "compiles" if first.compiles else "not seen to compile",
    )


def _ops(change: Change) -> str:
    ops = [clip(row.op, 40) for row in change.after]
    distinct = list(dict.fromkeys(ops))
    if not ops:
        return "a constant"
    if len(ops) > _MOST:
        return f"{plural(len(ops), 'node')} of {', '.join(distinct[:_MOST])}"
    return ", ".join(ops)


def numbers(document: RepairDocument) -> list[str]:
    """How far the outputs are apart, and what it cost: a sentence each."""
    shown = []
    if document.repaired:
        worst = max(document.outputs, key=lambda it: it.absolute, default=None)
        samples = plural(document.samples, "sample")
        if worst is not None and not worst.absolute and not worst.form:
            shown.append(f"The outputs are identical in onnxruntime on {samples}.")
        else:
            where = "" if worst is None else f"; the largest difference is {_apart(worst)}, at {clip(worst.output, 60)}"
            shown.append(f"The outputs agree in onnxruntime on {samples}{where}.")
    calls = plural(document.diagnosis_calls, "compiler call")
    tried = sum(it.compiler_calls for it in document.alternatives)
    others = f", {tried} for other options" if document.alternatives else ""
    shown.append(f"{calls} for the diagnosis, {document.repair_calls} for the repair{others}.")
    return shown


def _apart(found: Difference) -> str:
    return found.form or f"{found.absolute:.3g}"


def _times(op: str, count: int) -> str:
    return op if count == 1 else f"{count} {op}"


def _line(row: NodeRow) -> str:
    made = f"{', '.join(row.outputs)} = {row.op}({', '.join(row.inputs)})"
    return clip(made, 400)
