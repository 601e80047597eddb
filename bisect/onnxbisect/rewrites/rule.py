"""A rewrite rule: one node, or several, replaced by others, under a condition, with a stated exactness."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING

import onnx

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import NO_DIFFERENCE, Bound, Domain
from onnxbisect.rewrites.patterns import Pattern, ops_of

if TYPE_CHECKING:
    from onnxbisect.rewrites.site import Site

#: Emits the replacement through the site and returns the tensors that take the place of the node's outputs, one for
#: each. Raises NotApplicable where the rule's condition does not hold.
Builder = Callable[["Site"], "str | tuple[str, ...]"]
#: `Rule.takes` of a rule for every op.
ANY_OP = "*"


class NotApplicable(Exception):  # noqa: N818 - no error: the answer that a rule's condition does not hold
    """The condition of a rule does not hold at a node; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How to replace one node, or with a `pattern` all its nodes.

    `takes` and `gives` are op names as in reports: bare, or `domain::Op`. `rank` orders rules by how often users needed
    them, most often first. `pytorch` is the source line with the same effect when the model is exported.
    """

    id: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    summary: str
    exactness: Exactness
    bound: Bound
    domain: Domain | None
    rank: int
    source: str
    pytorch: str
    build: Builder
    pattern: Pattern | None = None

    @property
    def order(self) -> tuple[int, int, str]:
        """The sort key: the rank, then the exactness."""
        return (self.rank, list(Exactness).index(self.exactness), self.id)

    def takes_op(self, op: str) -> bool:
        """Whether the rule is for nodes of this op."""
        return op in self.takes or ANY_OP in self.takes


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """The nodes that replace one node, in topological order, with the tensors that they need besides its inputs.

    `opsets` are versions of operator sets that the model must import in addition. `removes` are nodes removed with the
    replaced one, in graph order.
    """

    nodes: tuple[onnx.NodeProto, ...]
    initializers: tuple[onnx.TensorProto, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)
    removes: tuple[onnx.NodeProto, ...] = ()


def rule(
    change: str,
    exactness: Exactness,
    bound: Bound = NO_DIFFERENCE,
    *,
    rank: int,
    source: str,
    domain: Domain | None = None,
    pattern: Pattern | None = None,
) -> Callable[[Builder], Rule]:
    """Make a rule of a builder, whose name becomes the id and whose docstring the summary.

    `change` names the ops that the rule takes and those that it gives: "Cos -> Add Sin", "* -> *" for any op. A rule
    with a pattern takes the pattern's ops, and nothing stands before the arrow.
    """
    takes, gives = change.split("->")

    def rule_of(build: Builder) -> Rule:
        return Rule(
            id=build.__name__.replace("_", "-"),
            takes=tuple(takes.split()) if pattern is None else ops_of(pattern),
            gives=tuple(gives.split()),
            summary=" ".join((build.__doc__ or "").split()),
            exactness=exactness,
            bound=bound,
            domain=domain,
            rank=rank,
            source=source,
            pytorch="",
            build=build,
            pattern=pattern,
        )

    return rule_of


def pytorch(line: str) -> Callable[[Rule], Rule]:
    """Add to a rule what to write in the PyTorch model instead, before it is exported."""
    return lambda rule: replace(rule, pytorch=line)


def rules_in(module: ModuleType) -> tuple[Rule, ...]:
    """The rules among the names of a module, in the order of their definition."""
    return tuple(value for value in vars(module).values() if isinstance(value, Rule))
