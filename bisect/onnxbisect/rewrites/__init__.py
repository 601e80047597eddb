"""Rewrite rules: replace an op that a compiler refuses by others, with a stated exactness.

A rule is a function of a `Site`, a node with the facts of its tensors: it demands its conditions and returns what
replaces the node. `families/` has all rules, `rewriting` says which apply to a node, `apply` puts a replacement into a
model. Nothing here knows a compiler. Start with a short family, such as `families/trigonometry.py`, then `rule`.
"""

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.apply import apply, names_in, replaced, unused_prefix
from onnxbisect.rewrites.families import BrokenRules, Installed, installed
from onnxbisect.rewrites.rewriting import Rewrite, RuleRefusal, candidates, judged, rewrite
from onnxbisect.rewrites.rule import ANY_OP, Bound, Domain, NotApplicable, Replacement, Rule, pytorch, rule
from onnxbisect.rewrites.site import Site

__all__ = [
    "ANY_OP",
    "Bound",
    "BrokenRules",
    "Domain",
    "Exactness",
    "Installed",
    "NotApplicable",
    "Replacement",
    "Rewrite",
    "Rule",
    "RuleRefusal",
    "Site",
    "apply",
    "candidates",
    "installed",
    "judged",
    "names_in",
    "pytorch",
    "replaced",
    "rewrite",
    "rule",
    "unused_prefix",
]
