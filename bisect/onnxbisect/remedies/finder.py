"""Find the candidates of a node: the result of each rule, and of rules applied to new nodes in turn."""

from collections.abc import Hashable, Iterable, Sequence, Set
from itertools import combinations, islice

import onnx

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import bodies, is_constant, qualified
from onnxbisect.remedies.candidate import Candidate, DomainCheck, SeenVariants
from onnxbisect.rewrites import NotApplicable, Replacement, Rewrite, Rule, RuleRefusal, rewrite, unused_prefix

#: Most rules applied in turn at one place.
_DEPTH = 3
#: Most new nodes replaced because groups fail together, and most choices of them that are considered.
_MOST_WANTED, _MOST_CHOICES = 3, 1000
#: The ops whose replacements contain a node, outermost first.
_Outer = tuple[str, ...]


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
                pairs = zip(made.replacement.nodes, made.variants(), strict=True)
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
        for node, variant, solo in zip(made.replacement.nodes, made.variants(), made.solos(), strict=True):
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
        """The best replacement of a new node. An If may be replaced by an If that comes out of a branch."""
        if len(outer) >= _DEPTH or (qualified(node) in outer and not bodies(node)):
            return None
        rules = (rule for rule in self._rules if rule.pattern is None and rule.takes_op(qualified(node)))
        made = (self._rewrite(rule, node, facts) for rule in rules)
        found = [self._expanded(it, known, outer, wanted, doubting=doubting) for it in made if isinstance(it, Rewrite)]
        return min(filter(None, found), key=lambda candidate: candidate.order(known), default=None)

    def _rewrite(self, rule: Rule, node: onnx.NodeProto, facts: TensorFacts) -> Rewrite | RuleRefusal:
        key = (node.name, rule.id)  # names of new nodes contain the rules that made them
        if key not in self._rewrites:
            self._rewrites[key] = self._tried(rule, node, facts)
        return self._rewrites[key]

    def _tried(self, rule: Rule, node: onnx.NodeProto, facts: TensorFacts) -> Rewrite | RuleRefusal:
        try:
            made = rewrite(rule, node, facts)
            if not self._taken.isdisjoint(_names(made.replacement).difference(made.node.output)):
                made = rewrite(rule, node, facts, prefix=unused_prefix(made.node.name, rule, self._taken))
        except NotApplicable as reason:
            return RuleRefusal(rule=rule, reason=str(reason))
        except Exception as error:  # a bug of a third party's rule, or an invalid node
            return RuleRefusal(rule=rule, reason=f"the rule failed: {type(error).__name__}: {error}")
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


def _names(replacement: Replacement) -> set[str]:
    names = {tensor.name for tensor in replacement.initializers}
    for node in replacement.nodes:
        names.update((node.name, *node.output))
    return names
