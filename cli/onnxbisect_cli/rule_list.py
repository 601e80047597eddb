"""`onnx-bisect rules`: the rewrite rules, and where in a model they would apply."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue
from onnxbisect.model import load
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import is_constant, qualified
from onnxbisect.report.text import clean, clip_left, plural
from onnxbisect.rewrites import BrokenRules, Rule, RuleRefusal, installed, judged
from onnxbisect_backends.probing.forked import forked
from onnxbisect_cli.parameters import ListFormat
from onnxbisect_cli.speech import show_table

#: Rules for any op apply to few nodes, so their refusals are not listed.
_ANY = "*"
#: Most ops listed in a cell; the JSON form has all.
_MOST_OPS = 6


class RuleEntry(TypedDict):
    """A rule as JSON."""

    id: str
    takes: list[str]
    gives: list[str]
    exactness: str
    bound: str
    domain: str
    summary: str
    pytorch: str
    source: str
    rank: int


class MatchRow(TypedDict):
    """A rule that applies at a node, or the reason why it does not, as JSON."""

    node: str
    op: str
    rule: str
    exactness: str
    gives: list[str]
    refused: str


def show(form: ListFormat, ops: Collection[str] = ()) -> None:
    """Print the rules that take one of `ops`, all if there are none, and the packages whose rules cannot be loaded.

    Those that users needed most often come first. Raises OptionError if no rule takes any of `ops`.
    """
    found = installed()
    wanted = {op.lower() for op in ops}
    rules = [rule for rule in found.rules if not wanted or not wanted.isdisjoint(op.lower() for op in rule.takes)]
    if not rules and ops:
        raise OptionError(f"No rule takes {', '.join(ops)}; `onnx-bisect rules` lists what rules take.")
    if form is ListFormat.JSON:
        broken = [{"name": it.name, "origin": it.origin, "reason": it.reason} for it in found.broken]
        print(json.dumps({"rules": [row(rule) for rule in rules], "broken": broken}, indent=2))
        return
    if form is ListFormat.MD:
        print("\n".join(markdown(rules)))
        return
    show_table(
        ("rule", "takes", "exactness", "gives", "PyTorch"),
        [(rule.id, _ops(rule.takes), rule.exactness, _ops(rule.gives), rule.pytorch) for rule in rules],
    )
    _warn(found.broken)


def match(
    path: Path, input_shapes: Mapping[str, Sequence[int]], input_values: Mapping[str, InputValue], form: ListFormat
) -> None:
    """Print each rule that would apply at a node of the model. Changes nothing; raises ModelError."""
    found = installed()
    model = load(path, input_shapes=input_shapes, input_values=input_values, bounded=forked)
    facts = TensorFacts.of(model)
    rows = []
    for node in model.proto.graph.node:
        if is_constant(node):
            continue
        for it in judged(facts, node, found.rules):
            if isinstance(it, RuleRefusal) and _ANY in it.rule.takes:
                continue
            made = [] if isinstance(it, RuleRefusal) else list(dict.fromkeys(map(qualified, it.replacement.nodes)))
            rows.append(
                MatchRow(
                    node=node.name,
                    op=qualified(node),
                    rule=it.rule.id,
                    exactness=it.rule.exactness,
                    gives=made,
                    refused=it.reason if isinstance(it, RuleRefusal) else "",
                )
            )
    if form is ListFormat.JSON:
        print(json.dumps({"matches": rows}, indent=2))
        return
    applying = [it for it in rows if not it["refused"]]
    columns = ("node", "op", "rule", "exactness", "gives")
    cells = [(clip_left(it["node"], 60), it["op"], it["rule"], it["exactness"], _ops(it["gives"])) for it in applying]
    if form is ListFormat.MD:
        print("\n".join(_markdown(columns, cells)))
        return
    show_table(columns, cells)
    nodes = len({it["node"] for it in applying})
    print(f"{plural(len(applying), 'rewrite')} at {plural(nodes, 'node')}; the model was not changed.")
    _warn(found.broken)


def row(rule: Rule) -> RuleEntry:
    """A rule as JSON."""
    return RuleEntry(
        id=rule.id,
        takes=list(rule.takes),
        gives=list(rule.gives),
        exactness=rule.exactness,
        bound=rule.bound.text,
        domain=rule.domain.text if rule.domain else "",
        summary=rule.summary,
        pytorch=rule.pytorch,
        source=rule.source,
        rank=rule.rank,
    )


def markdown(rules: Iterable[Rule]) -> Iterator[str]:
    """The table of docs/rules.md."""
    cells = []
    for rule in rules:
        promise = "; ".join(part for part in (rule.bound.text, rule.domain.text if rule.domain else "") if part)
        exactness = f"{rule.exactness}: {promise}" if promise else str(rule.exactness)
        made = (_ops(rule.takes), rule.summary, exactness, _ops(rule.gives), f"`{rule.pytorch}`")
        cells.append((f"[`{rule.id}`]({rule.source})", *made))
    yield from _markdown(("rule", "takes", "what it puts there", "exactness", "gives", "PyTorch"), cells)


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for cells in rows:
        yield f"| {' | '.join(clean(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _ops(ops: Sequence[str], most: int = _MOST_OPS) -> str:
    shown = ["any op" if op == _ANY else op for op in ops[:most]]
    more = f" and {len(ops) - most} more" if len(ops) > most else ""
    return ", ".join(shown) + more if ops else "a constant"


def _warn(broken: Iterable[BrokenRules]) -> None:
    for it in broken:
        print(clean(f"The rules of {it.name} ({it.origin}) cannot be loaded: {it.reason}"))
