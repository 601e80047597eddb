"""A replacement of one node that is worth trying."""

from collections.abc import Hashable
from dataclasses import dataclass

from onnxbisect.model.scopes import is_constant, qualified
from onnxbisect.remedies.known import SeenVariants
from onnxbisect.rewrites import Domain, Exactness, Replacement, Rule

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
