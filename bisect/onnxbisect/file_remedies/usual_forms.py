"""Ops in the forms that compilers know best, for a tool that breaks off on a file and names nothing of it.

Such a tool often fuses what exporters write today, and dies of an older way to write the same. One compile of the whole
file says so; a search would blame pairs of ops wherever a cut goes through what the tool fuses.
"""

import onnx

from onnxbisect.file_remedies.form import raise_opset
from onnxbisect.file_remedies.remedy import File, RemediedFile, file_remedy
from onnxbisect.language import BETWEEN, count, english
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import Exactness, NotApplicable, Rule, apply, rewrite
from onnxbisect.rewrites.families.activations import erf_tanh_closer
from onnxbisect.rewrites.families.arithmetic import div_mul, reciprocal_div
from onnxbisect.rewrites.families.fusing import layernorm_fuse, layernorm_half_fuse

#: The first operator set that has LayerNormalization.
_HAS_NORMS = 17


#: The most exact first.
_NORMS = (layernorm_fuse, layernorm_half_fuse)


@file_remedy("whole-norms", answers="", exactness=Exactness.ROUNDING)
def whole_norms(file: File, limits: ToolLimits) -> RemediedFile:
    """LayerNormalization instead of the nodes that it was written as before operator set 17."""
    older = file.facts.opsets.get("", 0) < _HAS_NORMS
    raised = raise_opset.apply(file, limits) if older else None
    proto, used = _replaced(file if raised is None else file.after(raised.proto), "Sqrt", *_NORMS)
    norms, last = count(len(used), "normalisation"), max(used, key=_NORMS.index)
    done = english("{norms} written as LayerNormalization", norms=norms)
    if last.domain is not None:
        done = english("{norms} written as LayerNormalization, for {phrase}", norms=norms, phrase=last.domain.text)
    sentence = done if raised is None else f"{raised.sentence}{BETWEEN}{done}"
    return RemediedFile(proto=proto, sentence=sentence, exactness=last.exactness)


@file_remedy("reciprocals-to-divisions", answers="", exactness=Exactness.EXACT)
def reciprocals_to_divisions(file: File, limits: ToolLimits) -> RemediedFile:
    """Div of one instead of Reciprocal, which `torch.rsqrt` is exported with in each RMSNorm."""
    proto, used = _replaced(file, "Reciprocal", reciprocal_div)
    return RemediedFile(proto=proto, sentence=f"{count(len(used), 'Reciprocal node')} written as Div")


@file_remedy("divisions-to-products", answers="", exactness=Exactness.ROUNDING)
def divisions_to_products(file: File, limits: ToolLimits) -> RemediedFile:
    """Mul by the reciprocal instead of Div by a constant."""
    proto, used = _replaced(file, "Div", div_mul)
    return RemediedFile(proto=proto, sentence=f"{count(len(used), 'division')} by a constant written as Mul")


@file_remedy("erf-to-tanh", answers="", exactness=Exactness.APPROXIMATE)
def erf_to_tanh(file: File, limits: ToolLimits) -> RemediedFile:
    """Tanh of a polynomial instead of Erf."""
    proto, used = _replaced(file, "Erf", erf_tanh_closer)
    return RemediedFile(proto=proto, sentence=f"{count(len(used), 'Erf node')} written as Tanh of a polynomial")


BY_RULES = (whole_norms, reciprocals_to_divisions, divisions_to_products, erf_to_tanh)


def _replaced(file: File, op: str, *rules: Rule) -> tuple[onnx.ModelProto, list[Rule]]:
    """The file with a rule applied at each node of this op where one holds, and which were."""
    facts, places = file.facts, dict[str, Rule]()
    for node in file.proto.graph.node:
        for rule in rules if node.op_type == op and node.name else ():
            try:
                rewrite(rule, node, facts)
            except NotApplicable:
                continue
            places[node.name] = rule
            break
    if not places:
        raise NotApplicable(f"{rules[0].id} holds for no node")
    return apply(file.proto, places, facts), list(places.values())
