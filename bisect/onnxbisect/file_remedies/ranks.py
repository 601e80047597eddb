"""Tensors of high rank at a lower one, over whole regions of a graph.

The elements of a tensor keep their order whatever its shape is. So every node that reads or makes a tensor of too many
dimensions is written with fewer: axes that it treats alike are merged, axes of size 1 are left out. Between two nodes
stands a Reshape only where they merged different axes, and an op that merely gives a tensor another shape disappears.
What has no such form stays as it is, with a Reshape to the full shape before it.
"""

from onnxbisect.file_remedies.rank_forms import FORMS
from onnxbisect.file_remedies.rank_region import Region
from onnxbisect.file_remedies.remedy import File, FileRemedy, RemediedFile
from onnxbisect.language import count
from onnxbisect.model.order import is_topological
from onnxbisect.rewrites import Exactness, NotApplicable

#: The id of the remedy.
LOWER_RANKS = "lower-ranks"
#: The most dimensions that nearly every compiler takes.
USUAL_RANK = 4
#: Ops with the same bits in any shape. A runtime adds up in another order if other axes are neighbours, and computes a
#: function of the last elements of a row in another way than that of the others.
_SAME_BITS = frozenset(
    {"Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr"}
    | {"BitwiseXor", "Cast", "Ceil", "Clip", "Concat", "DequantizeLinear", "Div", "Equal", "Expand", "Flatten"}
    | {"Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Hardmax", "Identity"}
    | {"IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "PRelu"}
    | {"Pad", "QuantizeLinear", "ReduceMax", "ReduceMin", "Relu", "Reshape", "Round", "Shape", "Sign", "Size"}
    | {"Slice", "Split", "Sqrt", "Squeeze", "Sub", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu"}
    | {"Unsqueeze", "Where", "Xor"}
)


def lower_ranks(most: int) -> FileRemedy:
    """The remedy that writes tensors of more than `most` dimensions with fewer, wherever that is possible."""
    return FileRemedy(
        id=LOWER_RANKS,
        answers=(),
        exactness=Exactness.EXACT,
        summary=f"Tensors of more than {most} dimensions with fewer.",
        apply=lambda file, limits: lowered_ranks(file, most),
    )


#: For a tool that says nothing of how many it takes.
few_dimensions = lower_ranks(USUAL_RANK)


def lowered_ranks(file: File, most: int) -> RemediedFile:
    """The file with at most `most` dimensions of every tensor for which that is possible.

    `most` is at least 4, in which every permutation can be written: an axis moves within (before, between, axis,
    behind). Graph inputs and outputs keep their shapes. Raises NotApplicable if nothing is lowered.
    """
    graph, facts = file.proto.graph, file.facts
    if not is_topological(graph):
        raise NotApplicable("the nodes are not sorted")
    region = Region(file.proto, facts, most, FORMS)
    for node in graph.node:
        region.take(node)
    result = region.result()
    high = []
    for nodes in (graph.node, result.graph.node):
        names = {name for node in nodes for name in (*node.input, *node.output)}
        high.append(sum(len(facts.shape(name) or ()) > most for name in names))
    before, after = high
    if after >= before:
        raise NotApplicable(f"no tensor of more than {most} dimensions can have fewer")
    return RemediedFile(
        proto=result,
        sentence=f"{count(before - after, 'tensor')} of more than {most} dimensions written with fewer",
        exactness=Exactness.EXACT if region.ops <= _SAME_BITS else Exactness.ROUNDING,
    )


def form_of_lower_rank(op: str) -> Exactness | None:
    """How exact a node of this op is with fewer dimensions; None if it has no such form."""
    if op not in FORMS:
        return None
    return Exactness.EXACT if op in _SAME_BITS else Exactness.ROUNDING
