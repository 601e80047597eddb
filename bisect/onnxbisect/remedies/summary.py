"""A repair in words: what `fix` prints, and `repair.md`, which begins with the same and goes on with the details."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from onnxbisect.exactness import Exactness
from onnxbisect.finished import clauses, phrase, translated
from onnxbisect.language import _
from onnxbisect.proof import OutputDifference
from onnxbisect.remedies.advisor import Left
from onnxbisect.remedies.candidate import Advice
from onnxbisect.remedies.document import AlternativeRow, Change, LeftRow, NodeRow, RepairDocument, left_row
from onnxbisect.report import words
from onnxbisect.report.culprit_words import with_count
from onnxbisect.report.text import (
    Code,
    Heading,
    Item,
    Quoted,
    Section,
    TextTable,
    as_markdown,
    below,
    clean,
    clip,
    plural,
    quoted,
    terminal_lines,
)
from onnxbisect.verdict import Status

#: Most ops named for a replacement, and most culprits that other options take.
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


def lines(document: RepairDocument, *, width: int = 100) -> list[str]:
    """What `fix` prints, in about `width` columns."""
    return terminal_lines(_sections(document), width)


def markdown(document: RepairDocument) -> str:
    """`repair.md`: what `fix` prints, and the details."""
    return as_markdown(chain(_sections(document), _details(document)))


def _sections(document: RepairDocument) -> Iterator[Section]:
    """The outcome, what was changed, what is left, and what other options do."""
    yield Heading(headline(document))
    yield from numbers(document)
    if document.input_shapes:
        shapes = ", ".join(
            _("{name} as {dims}", name=name, dims=list(dims)) for name, dims in document.input_shapes.items()
        )
        yield _("Proven only for the inputs {shapes}; other shapes may not work.", shapes=shapes)
    if document.input_values:
        values = ", ".join(
            _("{name} is {value}", name=name, value=clip(str(it), 200)) for name, it in document.input_values.items()
        )
        yield _("Constants in place of inputs, as they were bound: {values}.", values=values)
    changes = [_changed(group) for group in groups(document.changes)]
    if file := document.file_change:
        sentence = f"{clauses(file.sentence)} ({words.named(file.exactness)})"
        changes.insert(0, Item(_("the whole file"), sentence))
    if changes:
        yield Heading(_("What was changed"), 2)
        yield changes
    if document.left:
        yield Heading(_("What is left"), 2)
        beyond = [it.allow for it in document.left if it.allow is not None]
        if beyond:
            yield _(
                "With --allow {exactness}, rules would be tried for what is left at {places}.",
                exactness=max(beyond, key=list(Exactness).index),
                places=plural(len(beyond), "place"),
            )
        yield from _staying(document.left)
    if document.alternatives:
        yield Heading(_("The model as it was, with other options"), 2)
        yield [Item(Quoted(called(it)), outcome(it)) for it in document.alternatives]


def _changed(group: Sequence[Change]) -> Item:
    first = group[0]
    worst = max((it for change in group for it in change.differences), key=lambda it: it.absolute, default=None)
    said = [
        " + ".join(rule.id for rule in first.rules),
        words.named(first.exactness),
        _("difference {size}", size="0" if worst is None else _apart(worst)),
        _("compiles") if first.compiles else _("not seen to compile"),
    ]
    named = f"{_times(clip(first.op, 40), len(group))} → {_ops(first)}"
    return Item(named, _(", ").join(said), _sources(it.source for it in group))


def _staying(left: Iterable[LeftRow]) -> Iterator[Section]:
    for stay in left_groups(left):
        first = stay[0]
        yield Heading(_times(clip(" → ".join(first.ops), 80), len(stay)), 3)
        yield [
            Item(_("at"), quoted([name for it in stay for name in it.nodes])),
            Item(_("the compiler"), Quoted(first.message) if first.message else _("says nothing")),
            *below(_("from"), map(Quoted, _sources(line for it in stay for line in it.sources))),
            *below(_("no remedy"), map(phrase, first.reasons)),
        ]


def _sources(lines: Iterable[str]) -> list[str]:
    """Each line of source once, with the number of nodes that came from it where there are several."""
    counts = Counter(line for line in lines if line)
    shown = [with_count(line, count) for line, count in counts.items()]
    return [*shown[:_LINES], *([_("and {count} more lines", count=len(shown) - _LINES)] if len(shown) > _LINES else [])]


def _details(document: RepairDocument) -> Iterator[Section]:
    """Each replacement before and after, what was given up, and each output."""
    if document.changes:
        yield Heading(_("Each replacement"), 2)
    for group in groups(document.changes):
        first = group[0]
        yield Heading(f"{first.op} → {_ops(first)}", 3)
        facts: list[Item] = []
        for rule in first.rules:
            promise = [phrase(rule.bound), rule.domain and _("for {domain}", domain=phrase(rule.domain))]
            promised = f" ({'; '.join(filter(None, promise))})" if any(promise) else ""
            exactness = _("It is {exactness}.", exactness=f"{words.named(rule.exactness)}{promised}")
            facts += [
                Item(Quoted(rule.id, rule.source), f"{translated(rule.summary)} {exactness}"),
                Item(_("in PyTorch, before the export"), Quoted(rule.pytorch)),
            ]
        facts.append(Item(_("at"), quoted([it.node for it in group])))
        low = max((it for change in group for it in change.low), key=lambda it: it.absolute, default=None)
        if low is not None:
            computed = _(
                "Computed in {type}, as the target does, it differs by at most {size}.",
                type=document.computes_in,
                size=_apart(low),
            )
            facts.append(Item(computed))
        yield facts
        before = (f"- {_line(row)}" for row in (*first.removed, first.before))
        yield Code([*before, *(f"+ {_line(row)}" for row in first.after)], "diff")
    if document.struck:
        yield Heading(_("What was tried and given up"), 2)
        yield TextTable(
            head=[_("node"), _("rule"), _("reason")],
            rows=[[Quoted(it.node), ", ".join(it.rules), phrase(it.reason)] for it in document.struck],
            limits=[40, 40, 200],
            keep_end=(0,),
        )
    if document.outputs:
        yield Heading(_("The model's outputs"), 2)
        yield TextTable(
            head=[_("output"), _("largest difference"), _("relative"), _("numbers compared")],
            rows=[[Quoted(it.output), _apart(it), f"{it.relative:.3g}", str(it.elements)] for it in document.outputs],
            limits=[40, 20, 12, 20],
            keep_end=(0,),
        )
        yield _(
            "Allowed: {absolute} + {relative} times the largest magnitude of an output.",
            absolute=f"{document.outputs_allowed.absolute:g}",
            relative=f"{document.outputs_allowed.relative:g}",
        )


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


def plan_sections(advice: Advice, left: Iterable[Left], files: Sequence[str] = ()) -> Iterator[Section]:
    """What would be tried: changes of the whole file, then each culprit op; and what is left."""
    asked = {it.question for it in advice.questions}
    counts: Counter[tuple[str, str, str]] = Counter()
    for it in advice.chosen:
        seen = _("asked first") if it.question in asked else _("seen to pass")
        said = _(", ").join([it.name, words.named(it.exactness), seen])
        counts[clip(it.op, 40), ", ".join(it.gives) or _("a constant"), said] += 1
    tried = [Item(_("first, the whole file"), clauses(it)) for it in files]
    tried += [Item(f"{_times(op, count)} → {gives}", said) for (op, gives, said), count in counts.items()]
    if tried:
        yield Heading(_("What would be tried"), 2)
        yield tried
    repaired = {it.node for it in advice.chosen}
    if staying := [left_row(it) for it in left if repaired.isdisjoint(it.place.nodes)]:
        yield Heading(_("What is left"), 2)
        yield from _staying(staying)
    yield _("Nothing was changed, and nothing of this is proven yet.")


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
