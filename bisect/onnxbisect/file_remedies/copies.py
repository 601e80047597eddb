"""Nodes that only copy a tensor are removed."""

from onnxbisect.file_remedies.editing import annotated, copied, drop_unread, forget, read_instead, set_nodes
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.copying import is_copy
from onnxbisect.model.scopes import reads
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.rewrites import NotApplicable


@file_remedy("remove-copies", answers="no-op-node")
def remove_copies(file: File, reader: Reader) -> Change:
    """Identity, and Dropout outside of training, removed: what read their result reads the tensor itself."""
    graph, facts = file.proto.graph, file.facts
    outputs = {value.name for value in graph.output}
    kept = outputs | annotated(graph)
    read = {name for node in graph.node for name in reads(node)} | outputs
    opset = facts.opsets.get("", 0)
    original: dict[str, str] = {}
    removed = set()
    for index, node in enumerate(graph.node):
        if is_copy(node, opset, read, facts.value) and node.output[0] not in kept:
            original[node.output[0]] = original.get(node.input[0], node.input[0])
            removed.add(index)
    if not removed:
        raise NotApplicable("no node that copies a tensor can be removed: each makes an output of the graph")
    result = copied(file.proto)
    set_nodes(result.graph, [node for index, node in enumerate(graph.node) if index not in removed])
    gone = [graph.node[index] for index in removed]
    forget(result.graph, {name for node in gone for name in node.output})
    readers = [node for node in result.graph.node if not original.keys().isdisjoint(reads(node))]
    read_instead(readers, original)
    drop_unread(result.graph, {name for node in gone for name in reads(node)})
    ops = " and ".join(sorted({node.op_type for node in gone}))
    return Change(proto=result, sentence=f"{count(len(removed), f'{ops} node')} removed")
