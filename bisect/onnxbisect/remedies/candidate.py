"""Replacements of one node that are worth trying, the best first."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnxbisect.model.scopes import is_constant, qualified
from onnxbisect.remedies.known import Known
from onnxbisect.rewrites import (
    Domain,
    Exactness,
    Facts,
    NotApplicable,
    Refusal,
    Replacement,
    Rewrite,
    Rule,
    rewrite,
    unused_prefix,
)

#: How many rules may be used inside of each other.
_DEPTH = 3
_ORDER = list(Exactness)


@dataclass(frozen=True, kw_only=True)
class Check:
    """A domain that a replacement needs, and the tensors whose values must be in it ("" for one that is left out)."""

    rule: Rule
    domain: Domain
    inputs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A replacement of one node by one rule, or by several where a node of the first is replaced again.

    `variants` and `solos` have one entry for each new node that is no Constant: what it asks of a compiler, without
    and with shapes.
    """

    node: str
    op: str
    outputs: tuple[str, ...]
    rules: tuple[Rule, ...]
    replacement: Replacement
    variants: tuple[Hashable, ...]
    solos: tuple[Hashable, ...]
    checks: tuple[Check, ...]

    @property
    def name(self) -> str:
        """The rules in the order of their use."""
        return " + ".join(rule.id for rule in self.rules)

    @property
    def key(self) -> tuple[str, str]:
        """What tells candidates apart."""
        return (self.node, self.name)

    @property
    def question(self) -> Hashable:
        """Equal for candidates at two nodes of which a compiler is asked the same."""
        return (self.name, self.variants, self.solos)

    @property
    def exactness(self) -> Exactness:
        """That of the worst rule."""
        return max((rule.exactness for rule in self.rules), key=_ORDER.index)

    @property
    def new_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that are put there, Constants excepted."""
        return tuple(node.name for node in self.replacement.nodes if not is_constant(node))

    @property
    def gives(self) -> tuple[str, ...]:
        """The ops that are put there, each once."""
        return tuple(dict.fromkeys(qualified(node) for node in self.replacement.nodes if not is_constant(node)))

    def unknown(self, known: Known) -> int:
        """How many new nodes ask what nobody has seen to pass."""
        return sum(not known.passes(variant) for variant in self.variants)

    def order(self, known: Known) -> tuple[int, int, int, int, int, str]:
        """What candidates are sorted by: exactness, ops that are refused in other variants, new nodes that were not
        seen to pass, size, rank of the rules.
        """
        doubtful = sum(known.doubts(op) for op in self.gives)
        rank = max(rule.rank for rule in self.rules)
        exactness = _ORDER.index(self.exactness)
        return (exactness, doubtful, self.unknown(known), len(self.variants), rank, self.name)


def allowed(rule: Rule, most: Exactness) -> bool:
    """Whether a rule is at least as exact as `most`."""
    return _ORDER.index(rule.exactness) <= _ORDER.index(most)


class Finder:
    """Finds candidates at the nodes of one model. `rules` are those that the user allows, `taken` the model's names."""

    def __init__(self, facts: Facts, rules: Iterable[Rule], taken: set[str]) -> None:
        self._facts, self._rules, self._taken = facts, tuple(rules), taken
        self._rewrites: dict[tuple[str, str], Rewrite | Refusal] = {}

    def candidates(self, node: onnx.NodeProto, known: Known) -> list[Candidate]:
        """Those that hold nothing which is known to be refused, the best first."""
        return self._candidates(node, self._facts, known, ())

    def considered(self, node: onnx.NodeProto, known: Known) -> list[Candidate | Refusal]:
        """What becomes of each rule that takes the op of a node."""
        found: list[Candidate | Refusal] = []
        for rule in self._rules:
            if not rule.takes_op(qualified(node)):
                continue
            made = self._rewrite(rule, node, self._facts)
            if isinstance(made, Rewrite):
                candidate = self._expanded(made, known, ())
                gives = ", ".join(dict.fromkeys(self._refused(made, known)))
                found.append(candidate or Refusal(rule=rule, reason=f"it gives {gives} in a form that is refused"))
            elif qualified(node) in rule.takes:  # that a rule of any op does not apply is no news
                found.append(made)
        return found

    def _refused(self, made: Rewrite, known: Known) -> list[str]:
        pairs = zip(made.replacement.nodes, made.variants(), strict=True)
        return [qualified(node) for node, variant in pairs if known.refuses(variant)]

    def _candidates(self, node: onnx.NodeProto, facts: Facts, known: Known, outer: tuple[str, ...]) -> list[Candidate]:
        found = []
        for rule in self._rules:
            if rule.takes_op(qualified(node)):
                made = self._rewrite(rule, node, facts)
                candidate = self._expanded(made, known, outer) if isinstance(made, Rewrite) else None
                if candidate is not None:
                    found.append(candidate)
        return sorted(found, key=lambda candidate: candidate.order(known))

    def _expanded(self, made: Rewrite, known: Known, outer: tuple[str, ...]) -> Candidate | None:
        """The rewrite with each new node that is known to be refused replaced in its turn; None where one has to stay.

        `outer` are the ops of nodes that this one is a part of a replacement of; one of them is not replaced again.
        """
        around = (*outer, qualified(made.node))
        parts: list[tuple[onnx.NodeProto, Candidate | None]] = []
        variants: list[Hashable] = []
        solos: list[Hashable] = []
        for node, variant, solo in zip(made.replacement.nodes, made.variants(), made.solos(), strict=True):
            inner = None
            if known.refuses(variant):
                if len(around) >= _DEPTH or qualified(node) in around:
                    return None
                inner = next(iter(self._candidates(node, made.inside(), known, around)), None)
                if inner is None:
                    return None
            elif not is_constant(node):
                variants.append(variant)
                solos.append(solo)
            parts.append((node, inner))
            if inner is not None:
                variants += inner.variants
                solos += inner.solos
        return _joined(made, parts, variants, solos)

    def _rewrite(self, rule: Rule, node: onnx.NodeProto, facts: Facts) -> Rewrite | Refusal:
        key = (node.name, rule.id)  # names of new nodes tell which rules made them
        if key not in self._rewrites:
            self._rewrites[key] = self._tried(rule, node, facts)
        return self._rewrites[key]

    def _tried(self, rule: Rule, node: onnx.NodeProto, facts: Facts) -> Rewrite | Refusal:
        try:
            made = rewrite(rule, node, facts)
            if not self._taken.isdisjoint(_names(made.replacement).difference(node.output)):
                made = rewrite(rule, node, facts, prefix=unused_prefix(node.name, rule, self._taken))
        except NotApplicable as reason:
            return Refusal(rule=rule, reason=str(reason))
        except Exception as error:  # a third party's bug, or a node that is not what its op demands
            return Refusal(rule=rule, reason=f"the rule failed: {type(error).__name__}: {error}")
        return made


def _joined(
    made: Rewrite,
    parts: Sequence[tuple[onnx.NodeProto, Candidate | None]],
    variants: Sequence[Hashable],
    solos: Sequence[Hashable],
) -> Candidate:
    inner = [candidate for _, candidate in parts if candidate is not None]
    replacement = Replacement(
        nodes=tuple(new for node, it in parts for new in (it.replacement.nodes if it else (node,))),
        initializers=(
            *made.replacement.initializers,
            *(tensor for it in inner for tensor in it.replacement.initializers),
        ),
        opsets=_opsets(made.replacement, inner),
    )
    own = made.rule.domain
    checks = () if own is None else (Check(rule=made.rule, domain=own, inputs=tuple(made.node.input)),)
    return Candidate(
        node=made.node.name,
        op=qualified(made.node),
        outputs=tuple(name for name in made.node.output if name),
        rules=tuple(dict.fromkeys([made.rule, *(rule for it in inner for rule in it.rules)])),
        replacement=replacement,
        variants=tuple(variants),
        solos=tuple(solos),
        checks=(*checks, *(check for it in inner for check in it.checks)),
    )


def _opsets(own: Replacement, inner: Sequence[Candidate]) -> Mapping[str, int]:
    found = dict(own.opsets)
    for it in inner:
        found.update(it.replacement.opsets)
    return found


def _names(replacement: Replacement) -> set[str]:
    names = {tensor.name for tensor in replacement.initializers}
    for node in replacement.nodes:
        names.update((node.name, *node.output))
    return names
