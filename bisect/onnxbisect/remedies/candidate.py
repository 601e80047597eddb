"""Replacements of one node that are worth trying, and the choice of one for each place by what is known."""

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass

from onnxbisect.model.scopes import is_constant, qualified
from onnxbisect.rewrites import Domain, Exactness, Replacement, Rule


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
    def gives(self) -> tuple[str, ...]:
        """The ops of the new nodes, each once."""
        return tuple(dict.fromkeys(qualified(node) for node in self.replacement.nodes if not is_constant(node)))

    def unknown(self, known: SeenVariants) -> int:
        """How many new nodes are support questions that never passed."""
        return sum(not known.passes(variant) for variant in self.variants)

    def order(self, known: SeenVariants) -> tuple[int, int, int, int, int, int, str]:
        """The sort key: exactness, ops refused in other variants, new nodes that never passed, ops of which no variant
        did, size, rank.
        """
        doubtful = sum(known.doubts(op) for op in self.gives)
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
