"""Ops in the forms that compilers know best, for a tool that breaks off on a file and names nothing of it.

Such a tool often fuses what exporters write today, and dies of an older way to write the same. One compile of the whole
file says so; a search would blame pairs of ops wherever a cut goes through what the tool fuses.
"""

import onnx

from onnxbisect.file_remedies.form import raise_opset
from onnxbisect.file_remedies.remedy import File, RemediedFile, file_remedy
from onnxbisect.language import count
from onnxbisect.preflight import Reader
from onnxbisect.rewrites import Exactness, NotApplicable, Rule, apply, rewrite
from onnxbisect.rewrites.families.activations import erf_tanh_closer
from onnxbisect.rewrites.families.arithmetic import div_mul
from onnxbisect.rewrites.families.fusing import layernorm_fuse

#: The first operator set that has LayerNormalization.
_HAS_NORMS = 17


@file_remedy("whole-norms", answers="", exactness=Exactness.ROUNDING)
def whole_norms(file: File, reader: Reader) -> RemediedFile:
    """LayerNormalization instead of the nodes that it was written as before operator set 17."""
    older = file.facts.opsets.get("", 0) < _HAS_NORMS
    raised = raise_opset.apply(file, reader) if older else None
    proto, places = _replaced(file if raised is None else file.after(raised.proto), "Sqrt", layernorm_fuse)
    done = f"{count(places, 'normalisation')} written as LayerNormalization"
    return RemediedFile(proto=proto, sentence=done if raised is None else f"{raised.sentence}; {done}")


@file_remedy("divisions-to-products", answers="", exactness=Exactness.ROUNDING)
def divisions_to_products(file: File, reader: Reader) -> RemediedFile:
    """Mul by the reciprocal instead of Div by a constant."""
    proto, places = _replaced(file, "Div", div_mul)
    return RemediedFile(proto=proto, sentence=f"{count(places, 'division')} by a constant written as Mul")


@file_remedy("erf-to-tanh", answers="", exactness=Exactness.APPROXIMATE)
def erf_to_tanh(file: File, reader: Reader) -> RemediedFile:
    """Tanh of a polynomial instead of Erf."""
    proto, places = _replaced(file, "Erf", erf_tanh_closer)
    return RemediedFile(proto=proto, sentence=f"{count(places, 'Erf node')} written as Tanh of a polynomial")


def _replaced(file: File, op: str, rule: Rule) -> tuple[onnx.ModelProto, int]:
    """The file with the rule applied at each node of this op where it holds, and at how many."""
    facts, places = file.facts, dict[str, Rule]()
    for node in file.proto.graph.node:
        if node.op_type == op and node.name:
            try:
                rewrite(rule, node, facts)
            except NotApplicable:
                continue
            places[node.name] = rule
    if not places:
        raise NotApplicable(f"{rule.id} holds for no node")
    return apply(file.proto, places, facts), len(places)
