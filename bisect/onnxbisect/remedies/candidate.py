"""A replacement of one node that is worth trying."""

from collections.abc import Hashable
from dataclasses import dataclass

from onnxbisect.model.scopes import is_constant, qualified
from onnxbisect.remedies.known import Known
from onnxbisect.rewrites import Domain, Exactness, Replacement, Rule

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

    A rule with a pattern replaces `node`, its end, and removes the others; `op` then has the ops of all of them.

    `variants` and `solos` have one entry for each new node that is no Constant: what it asks of a compiler, without
    and with shapes.
    """

    node: str
    op: str
    outputs: tuple[str, ...]
    rules: tuple[Rule, ...]
    #: The rules with the new nodes that they replace in their turn.
    steps: tuple[str, ...]
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
        return (self.node, "; ".join(self.steps))

    @property
    def gone(self) -> frozenset[str]:
        """The nodes that are not there any more."""
        return frozenset([self.node, *(node.name for node in self.replacement.removes)])

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
