"""Control flow that is decided before the model runs."""

from collections import Counter

import onnx

from onnxbisect.file_remedies.editing import drop_unread
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.file_remedies.unrolling import loop_unroll, scan_unroll
from onnxbisect.model.names import make_unique
from onnxbisect.model.scopes import domain_of, reads, walk
from onnxbisect.preflight import Reader
from onnxbisect.rewrites import NotApplicable, Rule, apply, rewrite
from onnxbisect.rewrites.families.bodies import if_constant

_RULES = {"If": if_constant, "Loop": loop_unroll, "Scan": scan_unroll}
#: Most nodes added at a time: nested loops multiply.
_MOST_NODES = 2_000
_ITS_BRANCH = "the branch that it takes"
_DONE = {"If": f"If replaced by {_ITS_BRANCH}", "Loop": "Loop written out", "Scan": "Scan written out"}


def of_several(done: str) -> str:
    """What was done to more than one node, in the words that `resolve_control_flow` has for one."""
    return done.replace(_ITS_BRANCH, "the branches that they take")


@file_remedy("resolve-control-flow", answers="control-flow control-flow-constant-condition outer-scope-capture")
def resolve_control_flow(file: File, reader: Reader) -> Change:
    """If with a constant condition becomes its branch; Loop and Scan with a constant number of rounds, the rounds."""
    named = [onnx.NodeProto.FromString(node.SerializeToString()) for node in file.proto.graph.node]
    make_unique(named)
    changes: dict[str, Rule] = {}
    read: set[str] = set()
    done: Counter[str] = Counter()
    left = _MOST_NODES
    reason = "the main graph has no If, Loop or Scan"
    for node in named:
        rule = None if domain_of(node) else _RULES.get(node.op_type)
        if rule is None:
            continue
        try:
            made = sum(1 for _ in walk(list(rewrite(rule, node, file.facts).replacement.nodes)))
        except NotApplicable as why:
            reason = f"{node.op_type} {node.name}: {why}"
            continue
        if made > left:
            reason = f"{node.op_type} {node.name}: more than {_MOST_NODES:,} nodes would be put in"
            break
        left -= made
        changes[node.name] = rule
        read.update(reads(node))
        done[node.op_type] += 1
    if not changes:
        raise NotApplicable(reason)
    result = apply(file.proto, changes, file.facts)
    drop_unread(result.graph, read)
    sentence = ", ".join(f"{number} {_DONE[op]}" for op, number in sorted(done.items()))
    return Change(proto=result, sentence=sentence, structure=True)
