"""Nodes that a file can do without: those that no input changes, copies, and guards against NaN after Softmax."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from onnxbisect.file_remedies.editing import annotated, copied, drop_unread, forget, read_instead, set_nodes, trace
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import RemediedFile, file_remedy
from onnxbisect.model.copying import is_copy
from onnxbisect.model.scopes import domain_of, is_constant, reads
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.rewrites import Exactness, NotApplicable

#: Most bytes of one folded tensor, and of all together.
_LARGEST, _MOST = 16 << 20, 256 << 20
#: Most bytes of the resulting file: protobuf ends at 2 GB.
_LARGEST_FILE = (1 << 31) - (1 << 20)
#: Their outputs stand for quantised weights, which must not be stored as floats.
_QUANTISERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")


@file_remedy(
    "fold-constants",
    answers="shape-subgraph-not-folded non-constant-weights dynamic-internal-dim data-dependent-shape-op",
)
def fold_constants(file: File, reader: Reader) -> RemediedFile:
    """Whatever no input changes, stored instead of computed, up to 16 MB each."""
    graph = file.proto.graph
    if file.proto.ir_version < 4:
        raise NotApplicable("initializers have to be inputs up to IR version 3")
    folded = _foldable(file)
    if not folded:
        raise NotApplicable("every node depends on an input")
    left = [node for index, node in enumerate(graph.node) if index not in folded]
    needed = {name for node in left for name in reads(node)}
    values = {
        name: file.known[name] for index in folded for name in graph.node[index].output if name and name in needed
    }
    size = sum(value.nbytes for value in values.values())
    if size > _MOST or size + file.proto.ByteSize() > _LARGEST_FILE:
        raise NotApplicable(f"the constants would take {size >> 20} MB")
    result = copied(file.proto)
    set_nodes(result.graph, left)
    gone = [graph.node[index] for index in sorted(folded)]
    forget(result.graph, {name for node in gone for name in node.output})
    result.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    drop_unread(result.graph, {name for node in gone for name in reads(node)})
    return RemediedFile(
        proto=result, sentence=f"{count(len(folded), 'node')} folded into {count(len(values), 'constant')}"
    )


def _foldable(file: File) -> set[int]:
    graph = file.proto.graph
    kept = {value.name for value in graph.output} | annotated(graph) | _dequantised(file)
    return {
        index
        for index, node in enumerate(graph.node)
        if not is_constant(node)
        and any(node.output)
        and all(name not in kept and _is_storable(file.known.get(name)) for name in node.output if name)
    }


def _is_storable(value: np.ndarray | None) -> bool:
    return value is not None and value.nbytes <= _LARGEST and value.dtype != np.object_


def _dequantised(file: File) -> set[str]:
    """Constants computed from a quantised tensor; the nodes must be sorted."""
    found: set[str] = set()
    for node in file.proto.graph.node:
        if node.op_type in _QUANTISERS or not found.isdisjoint(reads(node)):
            found.update(name for name in node.output if name in file.known)
    return found


@file_remedy("remove-copies", answers="no-op-node")
def remove_copies(file: File, reader: Reader) -> RemediedFile:
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
    return RemediedFile(proto=result, sentence=f"{count(len(removed), f'{ops} node')} removed")


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
def remove_nan_guards(file: File, reader: Reader) -> RemediedFile:
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
    return RemediedFile(proto=result, sentence=f"{count(len(guards), 'guard')} against NaN removed")


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
