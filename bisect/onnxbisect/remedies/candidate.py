"""Replacements of one node: what they are, how they are found, and the choice of one for each place."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, islice

import onnx

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import bodies, is_constant, qualified
from onnxbisect.rewrites import (
    Domain,
    Exactness,
    NotApplicable,
    Replacement,
    Rewrite,
    Rule,
    RuleRefusal,
    rewrite,
    unused_prefix,
)

#: Most rules applied in turn at one place.
_DEPTH = 3
#: The ops whose replacements contain a node, outermost first.
_Outer = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SeenVariants:
    """Variants (`onnxbisect.model.variants`) that were in a passing probe, and those that were to blame.

    A variant can be both, if it passes in one shape and not in another; then nothing is known about a third shape.
    `passing_ops` and `refused_ops` are the ops of these variants: a guess for variants that were never compiled.
    """

    passing: frozenset[Hashable] = frozenset()
    refused: frozenset[Hashable] = frozenset()
    passing_ops: frozenset[str] = frozenset()
    refused_ops: frozenset[str] = frozenset()

    def passes(self, variant: Hashable) -> bool:
        """Whether it has passed and was never refused."""
        return variant in self.passing and variant not in self.refused

    def refuses(self, variant: Hashable) -> bool:
        """Whether it was to blame and has never passed."""
        return variant in self.refused and variant not in self.passing

    def doubts(self, op: str) -> bool:
        """Whether every variant of this op with a verdict was refused."""
        return op in self.refused_ops and op not in self.passing_ops

    def joined(self, other: "SeenVariants") -> "SeenVariants":
        """What is known from both."""
        return SeenVariants(
            passing=self.passing | other.passing,
            refused=self.refused | other.refused,
            passing_ops=self.passing_ops | other.passing_ops,
            refused_ops=self.refused_ops | other.refused_ops,
        )


_ORDER = list(Exactness)


@dataclass(frozen=True, kw_only=True)
class DomainCheck:
    """A domain that a replacement requires, and the tensors whose values must be in it ("" for an omitted one)."""

    rule: Rule
    domain: Domain
    inputs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A replacement of one node by one rule, or by several if new nodes are replaced in turn.

    A rule with a pattern replaces `node`, the last of its nodes, and removes the others; `op` then has the ops of all.

    `variants` and `solos` have one entry for each new node except Constants: its support question, without and with
    shapes.
    """

    node: str
    op: str
    outputs: tuple[str, ...]
    rules: tuple[Rule, ...]
    #: The rules, with the new nodes that they replace in turn.
    steps: tuple[str, ...]
    replacement: Replacement
    variants: tuple[Hashable, ...]
    solos: tuple[Hashable, ...]
    checks: tuple[DomainCheck, ...]

    @property
    def name(self) -> str:
        """The rules in the order of their use."""
        return " + ".join(rule.id for rule in self.rules)

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the candidate."""
        return (self.node, "; ".join(self.steps))

    @property
    def gone(self) -> frozenset[str]:
        """The nodes that it removes."""
        return frozenset([self.node, *(node.name for node in self.replacement.removes)])

    @property
    def question(self) -> Hashable:
        """Equal for candidates whose new nodes are the same support questions."""
        return (self.name, self.variants, self.solos)

    @property
    def exactness(self) -> Exactness:
        """The exactness of the least exact rule."""
        return max((rule.exactness for rule in self.rules), key=_ORDER.index)

    @property
    def new_nodes(self) -> tuple[str, ...]:
        """The names of the new nodes, except Constants."""
        return tuple(node.name for node in self.replacement.nodes if not is_constant(node))

    @property
    def new_ops(self) -> tuple[str, ...]:
        """The op of each of the `new_nodes`."""
        return tuple(qualified(node) for node in self.replacement.nodes if not is_constant(node))

    @property
    def gives(self) -> tuple[str, ...]:
        """The ops of the new nodes, each once."""
        return tuple(dict.fromkeys(self.new_ops))

    def unknown(self, known: SeenVariants) -> int:
        """How many new nodes are support questions that never passed."""
        return sum(not known.passes(variant) for variant in self.variants)

    def order(self, known: SeenVariants) -> tuple[int, int, int, int, int, int, str]:
        """The sort key: exactness, ops refused in other variants, new nodes that never passed, ops of which no variant
        did, size, rank. Doing without the op that a rule gives another form is no better than that form.
        """
        doubtful = sum(known.doubts(op) for op in {*self.gives, *({self.op} & set(self.rules[0].gives))})
        rank = max(rule.rank for rule in self.rules)
        exactness = _ORDER.index(self.exactness)
        unseen = sum(op not in known.passing_ops for op in self.gives)
        return (exactness, doubtful, self.unknown(known), unseen, len(self.variants), rank, self.name)


def allowed(rule: Rule, most: Exactness) -> bool:
    """Whether a rule is at least as exact as `most`."""
    return _ORDER.index(rule.exactness) <= _ORDER.index(most)


@dataclass(frozen=True)
class CulpritPlace:
    """One occurrence of a culprit. Replacing any of these nodes repairs it.

    `beside` are the keys of candidates that must be in use for the place to exist: the nodes fail together with what
    these candidates insert.
    """

    nodes: tuple[str, ...]
    beside: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One candidate for each place that has one, in the order of places; `left` are the places without one.

    `questions` are chosen candidates with an op that never passed. Their new nodes should be compiled first, as a small
    piece. Candidates with equal questions are listed once.
    """

    chosen: tuple[Candidate, ...]
    questions: tuple[Candidate, ...]
    left: tuple[CulpritPlace, ...]


def advise(
    places: Sequence[CulpritPlace],
    candidates: Callable[[str], Sequence[Candidate]],
    known: SeenVariants,
    *,
    struck: Set[tuple[str, str]] = frozenset(),
    asked: Mapping[Hashable, bool] | None = None,
) -> Advice:
    """Choose among candidates with what is known.

    `candidates` returns those of a node, `struck` are the keys of excluded candidates, and `asked` are earlier answers
    by question: whether the compiler accepted the new nodes.
    """
    asked = asked or {}
    chosen: dict[str, Candidate] = {}
    gone: dict[str, Candidate] = {}
    left = []
    for place in places:
        if any(node in gone for node in place.nodes) or not place.beside <= {it.key for it in chosen.values()}:
            continue
        open_ = [
            candidate
            for node in place.nodes
            for candidate in candidates(node)
            if candidate.key not in struck
            and asked.get(candidate.question, True)
            and all(len(gone[node].gone) == 1 for node in candidate.gone & gone.keys())
        ]
        if not open_:
            left.append(place)
            continue
        best = min(open_, key=lambda candidate: candidate.order(known))
        for node in best.gone & chosen.keys():  # a pattern that a replaced node is a part of
            del chosen[node]
        chosen[best.node] = best
        gone |= dict.fromkeys(best.gone, best)
    questions: dict[Hashable, Candidate] = {}
    for it in chosen.values():
        if it.question not in asked and it.unknown(known):
            questions.setdefault(it.question, it)
    return Advice(chosen=tuple(chosen.values()), questions=tuple(questions.values()), left=tuple(left))


#: Most new nodes replaced because groups fail together, and most choices of them that are considered.
_MOST_WANTED, _MOST_CHOICES = 3, 1000


class Finder:
    """Finds candidates for the nodes of one model. `rules` are the allowed ones, `taken` the model's names."""

    def __init__(self, facts: TensorFacts, rules: Iterable[Rule], taken: set[str]) -> None:
        self._facts, self._rules, self._taken = facts, tuple(rules), taken
        self._rewrites: dict[tuple[str, str], Rewrite | RuleRefusal] = {}
        self._together: dict[str, set[frozenset[str]]] = {}

    def candidates(self, node: onnx.NodeProto, known: SeenVariants) -> list[Candidate]:
        """The candidates without a new node known to be refused, best first."""
        made = (self._rewrite(rule, node, self._facts) for rule in self._rules if rule.takes_op(qualified(node)))
        found = [it for one in made if isinstance(one, Rewrite) for it in self._variations(one, known)]
        return sorted(found, key=lambda candidate: candidate.order(known))

    def considered(self, node: onnx.NodeProto, known: SeenVariants) -> list[Candidate | RuleRefusal]:
        """The result of each rule that takes the op of a node."""
        found: list[Candidate | RuleRefusal] = []
        for rule in self._rules:
            if not rule.takes_op(qualified(node)):
                continue
            made = self._rewrite(rule, node, self._facts)
            if isinstance(made, Rewrite):
                pairs = zip(made.replacement.nodes, made.variants, strict=True)
                gives = ", ".join(dict.fromkeys(qualified(new) for new, variant in pairs if known.refuses(variant)))
                found += self._variations(made, known) or [
                    RuleRefusal(rule=rule, reason=f"it makes {gives} in a form that the compiler refuses")
                ]
            elif qualified(node) in rule.takes and rule.pattern is None:  # other refusals are expected
                found.append(made)
        return found

    def learn_together(self, candidate: Candidate, nodes: Iterable[str]) -> None:
        """Record that these new nodes of a candidate fail together, so each use of its rule replaces one of them."""
        rule, own = candidate.rules[0], f"{candidate.node}/"
        if all(name.startswith(own) for name in nodes):
            self._together.setdefault(rule.id, set()).add(frozenset(name.removeprefix(own) for name in nodes))

    def _variations(self, made: Rewrite, known: SeenVariants) -> list[Candidate]:
        """The rewrite, and variations: with new nodes replaced so that no group that fails together remains, and with
        ops replaced that were refused wherever they were seen.
        """
        own, groups = f"{made.node.name}/", self._together.get(made.rule.id, set())
        wanted = [{own + name for name in choice} for choice in _hitting(groups)]
        found = [self._expanded(made, known, (), it) for it in (frozenset[str](), *wanted)]
        found.append(self._expanded(made, known, (), doubting=True))
        return list({it.key: it for it in found if it is not None}.values())

    def _expanded(
        self,
        made: Rewrite,
        known: SeenVariants,
        outer: _Outer,
        wanted: Set[str] = frozenset(),
        *,
        doubting: bool = False,
    ) -> Candidate | None:
        """The rewrite with each new node replaced that is known to be refused or `wanted`; None if one has no
        replacement. With `doubting`, nodes whose op is doubted are replaced, too, if they can be.

        `outer` are the ops whose replacements contain this node; they are not introduced again.
        """
        around = (*outer, qualified(made.node))
        parts: list[tuple[onnx.NodeProto, Candidate | None]] = []
        variants: list[Hashable] = []
        solos: list[Hashable] = []
        for node, variant, solo in zip(made.replacement.nodes, made.variants, made.solos, strict=True):
            inner = None
            if known.refuses(variant) or node.name in wanted:
                inner = self._inner(node, made.inside(), known, around, wanted, doubting)
                if inner is None:
                    return None
            elif doubting and known.doubts(qualified(node)):
                inner = self._inner(node, made.inside(), known, around, wanted, doubting)
            if inner is not None:
                variants += inner.variants
                solos += inner.solos
            elif not is_constant(node):
                variants.append(variant)
                solos.append(solo)
            parts.append((node, inner))
        return _joined(made, parts, variants, solos)

    def _inner(
        self,
        node: onnx.NodeProto,
        facts: TensorFacts,
        known: SeenVariants,
        outer: _Outer,
        wanted: Set[str],
        doubting: bool,
    ) -> Candidate | None:
        """The best replacement of a new node.

        An If may be replaced by an If that comes out of a branch, and an op that a rule only gave another form, as an
        LSTM of one direction, by others.
        """
        op = qualified(node)
        again = op in outer and not (outer[-1] == op and outer.count(op) == 1)
        if len(outer) >= _DEPTH or (again and not bodies(node)):
            return None
        rules = (rule for rule in self._rules if rule.pattern is None and rule.takes_op(op))
        made = (self._rewrite(rule, node, facts) for rule in rules)
        found = [self._expanded(it, known, outer, wanted, doubting=doubting) for it in made if isinstance(it, Rewrite)]
        return min(filter(None, found), key=lambda candidate: candidate.order(known), default=None)

    def _rewrite(self, rule: Rule, node: onnx.NodeProto, facts: TensorFacts) -> Rewrite | RuleRefusal:
        key = (node.name, rule.id)  # names of new nodes contain the rules that made them
        if key in self._rewrites:
            return self._rewrites[key]
        made: Rewrite | RuleRefusal
        try:
            made = rewrite(rule, node, facts)
            names = {tensor.name for tensor in made.replacement.initializers}
            names.update(name for it in made.replacement.nodes for name in (it.name, *it.output))
            if not self._taken.isdisjoint(names.difference(made.node.output)):
                made = rewrite(rule, node, facts, prefix=unused_prefix(made.node.name, rule, self._taken))
        except NotApplicable as reason:
            made = RuleRefusal(rule=rule, reason=str(reason))
        except Exception as error:  # a bug of a third party's rule, or an invalid node
            made = RuleRefusal(rule=rule, reason=f"the rule failed: {type(error).__name__}: {error}")
        self._rewrites[key] = made
        return made


def _hitting(groups: Set[frozenset[str]]) -> list[frozenset[str]]:
    """The smallest sets with at least one node of each group, up to `_MOST_WANTED` nodes; empty without groups."""
    names = sorted(frozenset().union(*groups))
    found: list[frozenset[str]] = []
    for count in range(1, _MOST_WANTED + 1):
        for choice in map(frozenset, islice(combinations(names, count), _MOST_CHOICES)):
            if all(choice & group for group in groups) and not any(other < choice for other in found):
                found.append(choice)
    return found


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
        opsets={
            name: one for it in (made.replacement, *(it.replacement for it in inner)) for name, one in it.opsets.items()
        },
        removes=made.replacement.removes,
    )
    own, own_name = made.rule.domain, f"{made.node.name}/"
    checks = () if own is None else (DomainCheck(rule=made.rule, domain=own, inputs=made.inputs),)
    return Candidate(
        node=made.node.name,
        op=" + ".join(map(qualified, (*made.replacement.removes, made.node))),
        outputs=tuple(name for name in made.node.output if name),
        rules=tuple(dict.fromkeys([made.rule, *(rule for it in inner for rule in it.rules)])),
        steps=(made.rule.id, *(f"{it.node.removeprefix(own_name)}: {step}" for it in inner for step in it.steps)),
        replacement=replacement,
        variants=tuple(variants),
        solos=tuple(solos),
        checks=(*checks, *(check for it in inner for check in it.checks)),
    )
