"""Which rules apply at a node, in order of rank, and why others do not."""

from collections.abc import Iterable
from dataclasses import dataclass

import onnx

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import qualified
from onnxbisect.rewrites.rewriting import Rewrite, rewrite
from onnxbisect.rewrites.rule import NotApplicable, Rule


@dataclass(frozen=True, kw_only=True)
class RuleRefusal:
    """A rule for the node's op that does not apply at the node, with the reason."""

    rule: Rule
    reason: str


def candidates(facts: TensorFacts, node: onnx.NodeProto, rules: Iterable[Rule]) -> list[Rewrite]:
    """The rewrites of a node, in order of the rules' ranks."""
    return [it for it in judged(facts, node, rules) if isinstance(it, Rewrite)]


def judged(facts: TensorFacts, node: onnx.NodeProto, rules: Iterable[Rule]) -> list[Rewrite | RuleRefusal]:
    """The result of every rule for the node's op: its rewrite, or why there is none; in order of rank.

    A rule with a pattern is included if the node is the pattern's last one.
    """
    op = qualified(node)
    found: list[Rewrite | RuleRefusal] = []
    for rule in sorted(rules, key=lambda rule: rule.order):
        if not rule.takes_op(op):
            continue
        try:
            made = rewrite(rule, node, facts)
            if made.node.output == node.output:
                found.append(made)
        except NotApplicable as reason:
            if rule.pattern is None:
                found.append(RuleRefusal(rule=rule, reason=str(reason)))
        except Exception as error:  # a bug of a third party's rule, or an invalid node
            found.append(RuleRefusal(rule=rule, reason=f"the rule failed: {type(error).__name__}: {error}"))
    return found
