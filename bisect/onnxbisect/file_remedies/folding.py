"""Nodes that no input changes become initializers."""

import numpy as np
from onnx import numpy_helper

from onnxbisect.file_remedies.editing import annotated, copied, drop_unread, forget, set_nodes
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.scopes import is_constant, reads
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.rewrites import NotApplicable

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
def fold_constants(file: File, reader: Reader) -> Change:
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
    return Change(proto=result, sentence=f"{count(len(folded), 'node')} folded into {count(len(values), 'constant')}")


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
