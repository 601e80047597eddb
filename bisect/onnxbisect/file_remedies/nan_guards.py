"""Removes guards against NaN that exporters put after Softmax."""

from dataclasses import dataclass

import onnx

from onnxbisect.file_remedies.editing import annotated, copied, drop_unread, read_instead, set_nodes, trace
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.scopes import domain_of, reads
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.rewrites import Exactness, NotApplicable


@dataclass(frozen=True, kw_only=True)
class _Guard:
    """A Where, and the tensor that it returns wherever that is not NaN."""

    where: int
    tensor: str


@file_remedy(
    "remove-nan-guards",
    answers="isnan-guard",
    exactness=Exactness.DOMAIN,
    domain="none of the guarded tensors has a NaN, as a row of attention that is masked entirely would",
)
def remove_nan_guards(file: File, reader: Reader) -> Change:
    """Where(IsNaN(x), constant, x) becomes x."""
    graph = file.proto.graph
    guards = _guards(file)
    if not guards:
        raise NotApplicable("no Where replaces the NaNs of a tensor by a constant")
    kept = {value.name for value in graph.output} | annotated(graph)
    original: dict[str, str] = {}
    nodes = []
    for index, node in enumerate(graph.node):
        guard = guards.get(index)
        if guard is None:
            nodes.append(node)
            continue
        tensor = original.get(guard.tensor, guard.tensor)
        if node.output[0] in kept:
            copy = onnx.helper.make_node("Identity", [tensor], [node.output[0]], name=node.name)
            trace(node, copy)
            nodes.append(copy)
        else:
            original[node.output[0]] = tensor
    result = copied(file.proto)
    set_nodes(result.graph, nodes)
    read_instead([node for node in result.graph.node if not original.keys().isdisjoint(reads(node))], original)
    suspects = {name for index in guards for name in reads(graph.node[index])} | original.keys()
    drop_unread(result.graph, suspects)
    return Change(proto=result, sentence=f"{count(len(guards), 'guard')} against NaN removed")


def _guards(file: File) -> dict[int, _Guard]:
    graph, facts = file.proto.graph, file.facts
    guarded = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "IsNaN" and not domain_of(node)}
    found = {}
    for index, node in enumerate(graph.node):
        if node.op_type != "Where" or domain_of(node) or node.input[0] not in guarded:
            continue
        tensor = node.input[2]
        # the constant must not broadcast the result to a larger shape
        same_shape = facts.shape(node.output[0]) is not None and facts.shape(node.output[0]) == facts.shape(tensor)
        if tensor == guarded[node.input[0]] and facts.is_constant(node.input[1]) and same_shape:
            found[index] = _Guard(where=index, tensor=tensor)
    return found
