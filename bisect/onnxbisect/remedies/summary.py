"""A repair in words: the lines of the terminal, and `repair.md`."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from onnxbisect.exactness import Exactness
from onnxbisect.finished import clauses, phrase, translated
from onnxbisect.language import _
from onnxbisect.proof import OutputDifference
from onnxbisect.remedies.advisor import Left
from onnxbisect.remedies.candidate import Advice
from onnxbisect.remedies.document import AlternativeRow, Change, LeftRow, NodeRow, RepairDocument, left_row
from onnxbisect.report import words
from onnxbisect.report.culprit_words import with_count
from onnxbisect.report.text import aligned, clean, clip, code, fence, plain, plural, table
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
    parts: list[str] = []
    if document.repaired:
        parts = [_("input {name} made a constant", name=clip(name, 60)) for name in document.input_values]
    parts += [] if document.file_change is None else [clean(clauses(document.file_change.sentence))]
    parts += [plural(len(document.changes), "replaced node")] if document.changes else []
    parts += [_("option {option}", option=f"{key}={clip(value, 120)}") for key, value in document.options.items()]
    changed = _(", and ").join(parts)
    if document.verdict == "pass":
        if not changed:
            return _("{model} compiles with {tool} as it is.", model=name, tool=tool)
        return _("{model} compiles with {tool} after {changed}.", model=name, tool=tool, changed=changed)
    if not document.complete and (document.repaired or document.left):
        return _(
            "The repair of {model} was ended after {calls} without a file that compiles; run it again to go on from "
            "the kept verdicts.",
            model=name,
            calls=plural(document.repair_calls, "compiler call"),
        )
    if not document.complete:
        return _(
            "The repair of {model} was cancelled, or its budget spent; run it again to go on from the kept verdicts.",
            model=name,
        )
    if not document.left:
        if not changed:
            return _("There is no answer whether {model} compiles with {tool}.", model=name, tool=tool)
        return _(
            "There is no answer whether {model} compiles with {tool} after {changed}.",
            model=name,
            tool=tool,
            changed=changed,
        )
    still = plural(len(document.left), "place")
    if not changed:
        return _(
            "{model} does not compile with {tool}, and there is no remedy for {places}; nothing was changed.",
            model=name,
            tool=tool,
            places=still,
        )
    return _(
        "{model} does not compile with {tool} yet: {changed}, and {places} with no remedy.",
        model=name,
        tool=tool,
        changed=changed,
        places=still,
    )


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
        reasons = tuple(re.sub(r"[0-9][-+.e0-9]*", "0", reason) for reason in it.reasons)
        found.setdefault((it.ops, it.kind, reasons), []).append(it)
    return list(found.values())


def lines(document: RepairDocument) -> list[str]:
    """One line for each culprit op and its remedy, then what is left, then the outcome."""
    changed = groups(document.changes)
    rows = _columns([_cells(group) for group in changed])
    shown: list[str] = []
    for row, group in zip(rows, changed, strict=True):
        shown += [row, *(f"    {clip(line, 200)}" for line in sources(it.source for it in group))]
    for stay in left_groups(document.left):
        head, *reasons = _staying(stay[0].ops, len(stay), stay[0].reasons)
        lines_ = [f"    {clip(line, 200)}" for line in sources(line for it in stay for line in it.sources)]
        shown += [head, *lines_, *reasons]
    others = [_("With {options}: {outcome}", options=called(it), outcome=outcome(it)) for it in document.alternatives]
    return [*shown, *([""] if shown else []), headline(document), *numbers(document), *_permitted(document), *others]


def _permitted(document: RepairDocument) -> list[str]:
    """What `--allow` would change about what is left."""
    beyond = [it.allow for it in document.left if it.allow is not None]
    if not beyond:
        return []
    most, places = max(beyond, key=list(Exactness).index), plural(len(beyond), "place")
    return [
        _("With --allow {exactness}, rules would be tried for what is left at {places}.", exactness=most, places=places)
    ]


def sources(lines: Iterable[str]) -> list[str]:
    """Each line of source once, with the number of nodes that came from it where there are several."""
    counts = Counter(line for line in lines if line)
    shown = [with_count(line, count) for line, count in counts.items()]
    return [*shown[:_LINES], *([_("and {count} more lines", count=len(shown) - _LINES)] if len(shown) > _LINES else [])]


def markdown(document: RepairDocument) -> str:
    """`repair.md`."""
    parts = [f"# {plain(headline(document))}", *map(plain, numbers(document))]
    if document.input_shapes:
        shapes = ", ".join(f"{code(name)} as {list(dims)}" for name, dims in document.input_shapes.items())
        parts.append(_("Proven only for the inputs {shapes}; other shapes may not work.", shapes=shapes))
    if document.input_values:
        values = ", ".join(f"{code(name)} is {clip(str(it), 200)}" for name, it in document.input_values.items())
        parts.append(_("Constants in place of inputs, as they were bound: {values}.", values=values))
    if document.file_change is not None:
        change = document.file_change
        parts += [
            f"## {_('What was changed in the whole file')}",
            f"{plain(clauses(change.sentence))} ({words.named(change.exactness)}).",
        ]
    if document.changes:
        head = (_("culprit"), _("places"), _("remedy"), _("exactness"), _("largest difference"), _("compiles"))
        rows = []
        for group in groups(document.changes):
            op, gives, exactness, apart, compiles = _cells(group, count=False)
            rules = ", ".join(code(rule.id, cell=True) for rule in group[0].rules)
            rows.append((op, str(len(group)), f"{rules}: {plain(gives)}", exactness, apart, compiles))
        parts += [f"## {_('What was changed')}", table(head, rows)]
        parts += [part for group in groups(document.changes) for part in _about(group, document.computes_in)]
    if document.left:
        parts += [f"## {_('What is left')}", *_permitted(document)]
        parts += [part for stay in left_groups(document.left) for part in _stays(stay)]
    if document.alternatives:
        cells_ = [(code(called(it), cell=True), plain(outcome(it))) for it in document.alternatives]
        title = _("The model as it was, with other options")
        parts += [f"## {title}", table((_("options"), _("the compiler")), cells_)]
    if document.struck:
        rows_ = [(code(it.node, cell=True), ", ".join(it.rules), plain(phrase(it.reason))) for it in document.struck]
        title = _("What was tried and given up")
        parts += [f"## {title}", table((_("node"), _("rule"), _("reason")), rows_)]
    if document.outputs:
        cells = [
            (code(it.output, cell=True), _apart(it), f"{it.relative:.3g}", str(it.elements)) for it in document.outputs
        ]
        allowed = document.outputs_allowed
        parts += [
            "## " + _("The model's outputs"),
            table((_("output"), _("largest difference"), _("relative"), _("numbers compared")), cells),
            _(
                "Allowed: {absolute} + {relative} times the largest magnitude of an output.",
                absolute=f"{allowed.absolute:g}",
                relative=f"{allowed.relative:g}",
            ),
        ]
    return "\n\n".join(parts) + "\n"


def called(row: AlternativeRow) -> str:
    """The options that are changed, as they are typed."""
    return clip(", ".join(f"{key}={value}" for key, value in row.options.items()), 80)


def outcome(row: AlternativeRow) -> str:
    """What the compiler says with them, in one phrase."""
    if row.problem:
        return _("not asked: {why}", why=clip(translated(row.problem), 200))
    if row.whole == Status.PASS:
        return _("the whole model compiles")
    if row.whole:
        said = clip(row.message, 200) or _("no answer")
        return _("takes every culprit, and not the whole model: {said}", said=said)
    taken = [clip(" + ".join(it.ops), 80) for it in row.culprits if it.verdict == Status.PASS]
    counted = _("takes {count} of {culprits}", count=len(taken), culprits=plural(len(row.culprits), "culprit"))
    return _("{what}: {them}", what=counted, them=", ".join(taken[:_MOST])) if taken else counted


def plan_lines(advice: Advice, left: Iterable[Left], files: Sequence[str] = ()) -> list[str]:
    """What would be tried: changes of the whole file, by their sentences, then a line for each culprit op."""
    counts: dict[tuple[str, ...], int] = {}
    asked = {it.question for it in advice.questions}
    for it in advice.chosen:
        seen = _("asked first") if it.question in asked else _("seen to pass")
        key = (it.op, f"→ {', '.join(it.gives) or _('a constant')}", it.name, words.named(it.exactness), seen)
        counts[key] = counts.get(key, 0) + 1
    rows = [(_times(clip(op, 40), count), *rest) for (op, *rest), count in counts.items()]
    repaired = {it.node for it in advice.chosen}
    staying = [left_row(it) for it in left if repaired.isdisjoint(it.place.nodes)]
    shown = [_("first, the whole file: {change}", change=clip(clauses(it), 200)) for it in files] + _columns(rows)
    for stay in left_groups(staying):
        shown += _staying(stay[0].ops, len(stay), stay[0].reasons)
    return [*shown, "", _("Nothing was changed, and nothing of this is proven yet.")]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    return [line.rstrip() for line in aligned(rows, [1000] * len(rows[0]), indent=0)] if rows else []


def _staying(ops: Sequence[str], count: int, reasons: Sequence[str]) -> list[str]:
    head = f"{_times(clip(' → '.join(ops), 80), count)}  {_('no remedy')}"
    return [head, *(f"    {clip(phrase(reason), 200)}" for reason in reasons[:_MOST])]


def _about(group: Sequence[Change], computes_in: str) -> Iterator[str]:
    first = group[0]
    yield f"### {plain(first.op)} → {plain(_ops(first))}"
    for rule in first.rules:
        promise = "; ".join(
            part for part in (phrase(rule.bound), rule.domain and _("for {domain}", domain=phrase(rule.domain))) if part
        )
        exactness = f"{words.named(rule.exactness)}{f' ({promise})' if promise else ''}"
        about = _("It is {exactness}.", exactness=plain(exactness))
        yield f"[{code(rule.id)}]({rule.source}): {plain(translated(rule.summary))} {about}"
        yield f"{_('In PyTorch, before the export:')} {code(rule.pytorch)}"
    yield _at([it.node for it in group])
    if found := sources(it.source for it in group):
        yield _("From {lines}.", lines=", ".join(map(code, found)))
    low = max((it for change in group for it in change.low), key=lambda it: it.absolute, default=None)
    if low is not None:
        yield _(
            "Computed in {type}, as the target does, it differs by at most {size}.", type=computes_in, size=_apart(low)
        )
    before = (f"- {_line(row)}" for row in (*first.removed, first.before))
    yield fence(*before, *(f"+ {_line(row)}" for row in first.after), language="diff")


def _stays(stay: Sequence[LeftRow]) -> Iterator[str]:
    first = stay[0]
    yield f"### {plain(' → '.join(first.ops))}"
    said = _("The compiler says: {said}", said=code(first.message) or _("nothing"))
    yield f"{_at([name for it in stay for name in it.nodes])} {said}"
    if found := sources(line for it in stay for line in it.sources):
        yield _("From {lines}.", lines=", ".join(map(code, found)))
    yield "\n".join(f"- {plain(phrase(reason))}" for reason in first.reasons)


def _at(nodes: Sequence[str]) -> str:
    places, more = ", ".join(map(code, nodes[:_MOST])), len(nodes) - _MOST
    return _("At {places} and {more} more.", places=places, more=more) if more > 0 else _("At {places}.", places=places)


def _cells(group: Sequence[Change], *, count: bool = True) -> tuple[str, str, str, str, str]:
    first = group[0]
    worst = max((it for change in group for it in change.differences), key=lambda it: it.absolute, default=None)
    apart = "0" if worst is None else _apart(worst)
    return (
        _times(clip(first.op, 40), len(group) if count else 1),
        f"{'→ ' if count else ''}{_ops(first)}",
        words.named(first.exactness),
        _("difference {size}", size=apart) if count else apart,
        _("compiles") if first.compiles else _("not seen to compile"),
    )


def _ops(change: Change) -> str:
    ops = [clip(row.op, 40) for row in change.after]
    distinct = list(dict.fromkeys(ops))
    if not ops:
        return _("a constant")
    if len(ops) > _MOST:
        return _("{nodes} of {ops}", nodes=plural(len(ops), "node"), ops=", ".join(distinct[:_MOST]))
    return ", ".join(ops)


def numbers(document: RepairDocument) -> list[str]:
    """How far the outputs are apart, and what it cost: a sentence each."""
    shown = []
    if document.repaired:
        worst = max(document.outputs, key=lambda it: it.absolute, default=None)
        samples = plural(document.samples, "sample")
        if worst is not None and not worst.absolute and not worst.form:
            shown.append(_("The outputs are identical in onnxruntime on {samples}.", samples=samples))
        elif worst is None:
            shown.append(_("The outputs agree in onnxruntime on {samples}.", samples=samples))
        else:
            sentence = _(
                "The outputs agree in onnxruntime on {samples}; the largest difference is {size}, at {output}.",
                samples=samples,
                size=_apart(worst),
                output=clip(worst.output, 60),
            )
            shown.append(sentence)
    calls = plural(document.diagnosis_calls, "compiler call")
    tried = sum(it.compiler_calls for it in document.alternatives)
    counted = {"calls": calls, "repair": document.repair_calls, "tried": tried}
    if document.alternatives:
        shown.append(_("{calls} for the diagnosis, {repair} for the repair, {tried} for other options.", **counted))
    else:
        shown.append(_("{calls} for the diagnosis, {repair} for the repair.", **counted))
    return shown


def _apart(found: OutputDifference) -> str:
    return phrase(found.form) or f"{found.absolute:.3g}"


def _times(op: str, count: int) -> str:
    return op if count == 1 else f"{count} {op}"


def _line(row: NodeRow) -> str:
    made = f"{', '.join(row.outputs)} = {row.op}({', '.join(row.inputs)})"
    return clip(made, 400)
