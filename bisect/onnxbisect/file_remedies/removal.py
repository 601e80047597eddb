"""What a file can do without: nodes that no input changes, empty tensors, copies, guards, factors of 1, low masks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from onnxbisect.file_remedies.remedy import (
    LARGEST_FILE,
    File,
    RemediedFile,
    annotated,
    copied,
    drop_unread,
    file_remedy,
    forget,
    read_instead,
    set_nodes,
)
from onnxbisect.language import count, english
from onnxbisect.model.external import is_external
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import domain_of, is_constant, is_copy, reads
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import Exactness, NotApplicable
from onnxbisect.rewrites.apply import trace

#: Most bytes of one folded tensor, and of all together.
_LARGEST, _MOST = 16 << 20, 256 << 20
#: Elements of the largest factor that is looked at.
_LARGEST_FACTOR = 1 << 20
#: They return their first input where there are no updates.
_SCATTERING = ("Scatter", "ScatterElements", "ScatterND")
#: Their outputs stand for quantised weights, which must not be stored as floats.
_QUANTISERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")


@file_remedy(
    "fold-constants",
    answers="shape-subgraph-not-folded non-constant-weights dynamic-internal-dim data-dependent-shape-op",
)
def fold_constants(file: File, limits: ToolLimits) -> RemediedFile:
    """Whatever no input changes, stored instead of computed, up to 16 MB each."""
    graph = file.proto.graph
    if file.proto.ir_version < 4:
        raise NotApplicable("initializers have to be inputs up to IR version 3")
    kept = {value.name for value in graph.output} | annotated(graph)
    dequantised: set[str] = set()  # constants computed from a quantised tensor stay computed
    for node in graph.node:
        if node.op_type in _QUANTISERS or not dequantised.isdisjoint(reads(node)):
            dequantised.update(name for name in node.output if name in file.known)
    kept |= dequantised
    storable = {name for name, it in file.known.items() if it.nbytes <= _LARGEST and it.dtype != np.object_}
    folded = {
        index
        for index, node in enumerate(graph.node)
        if not is_constant(node)
        and any(node.output)
        and all(name not in kept and name in storable for name in node.output if name)
    }
    if not folded:
        raise NotApplicable("every node depends on an input")
    left = [node for index, node in enumerate(graph.node) if index not in folded]
    needed = {name for node in left for name in reads(node)}
    values = {
        name: file.known[name] for index in folded for name in graph.node[index].output if name and name in needed
    }
    size = sum(value.nbytes for value in values.values())
    if size > _MOST or size + file.proto.ByteSize() > LARGEST_FILE:
        raise NotApplicable(f"the constants would take {size >> 20} MB")
    result = copied(file.proto)
    set_nodes(result.graph, left)
    gone = [graph.node[index] for index in sorted(folded)]
    forget(result.graph, {name for node in gone for name in node.output})
    result.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    drop_unread(result.graph, {name for node in gone for name in reads(node)})
    nodes = count(len(folded), "node")
    sentence = (
        english("{nodes} folded into {constants}", nodes=nodes, constants=count(len(values), "constant"))
        if values
        else english("{nodes} removed that compute nothing for the outputs", nodes=nodes)
    )
    return RemediedFile(proto=result, sentence=sentence)


@file_remedy("drop-empty-tensors", answers="zero-size-dim")
def drop_empty_tensors(file: File, limits: ToolLimits) -> RemediedFile:
    """Tensors without elements: left out of Concat, and what they would be scattered into taken as it is."""
    graph, facts = file.proto.graph, file.facts

    def empty(name: str) -> bool:
        return 0 in (facts.shape(name) or ())

    joined: dict[int, list[str]] = {}
    same: dict[int, str] = {}
    for index, node in enumerate(graph.node):
        if domain_of(node) or not any(map(empty, node.input)) or empty(node.output[0]):
            continue
        if node.op_type == "Concat":
            joined[index] = [name for name in node.input if not empty(name)]
        elif node.op_type in _SCATTERING and empty(node.input[2]):
            same[index] = node.input[0]
    same |= {index: names[0] for index, names in joined.items() if len(names) == 1}
    if not joined and not same:
        raise NotApplicable("no Concat or scatter reads a tensor without elements beside others")
    result = copied(file.proto)
    for index, names in joined.items():
        del result.graph.node[index].input[:]
        result.graph.node[index].input.extend(names)
    result = _without(file.after(result), same)
    unread = {name for index in joined.keys() | same.keys() for name in graph.node[index].input}
    drop_unread(result.graph, unread)
    number = len({name for name in unread if empty(name)})
    return RemediedFile(
        proto=result, sentence=english("{tensors} without elements left out", tensors=count(number, "tensor"))
    )


@file_remedy("remove-copies", answers="no-op-node")
def remove_copies(file: File, limits: ToolLimits) -> RemediedFile:
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
    ops, number = {node.op_type for node in gone}, len(gone)
    sentence = english("{number} Dropout and Identity nodes removed", number=number)
    if len(ops) == 1:
        op = ops.pop()
        sentence = english("{number} {op} nodes removed", number=number, op=op)
        if number == 1:
            sentence = english("1 {op} node removed", op=op)
    return RemediedFile(proto=result, sentence=sentence)


@file_remedy(
    "remove-nan-guards",
    answers="isnan-guard",
    exactness=Exactness.DOMAIN,
    domain="none of the guarded tensors has a NaN, as a row of attention that is masked entirely would",
)
def remove_nan_guards(file: File, limits: ToolLimits) -> RemediedFile:
    """Where(IsNaN(x), constant, x) becomes x."""
    graph, facts = file.proto.graph, file.facts
    guarded = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "IsNaN" and not domain_of(node)}
    guards: dict[int, str] = {}  # the tensor that each Where returns wherever that is not NaN
    for index, node in enumerate(graph.node):
        if node.op_type != "Where" or domain_of(node) or node.input[0] not in guarded:
            continue
        tensor = node.input[2]
        # the constant must not broadcast the result to a larger shape
        same_shape = facts.shape(node.output[0]) is not None and facts.shape(node.output[0]) == facts.shape(tensor)
        if tensor == guarded[node.input[0]] and facts.is_constant(node.input[1]) and same_shape:
            guards[index] = tensor
    if not guards:
        raise NotApplicable("no Where replaces the NaNs of a tensor by a constant")
    result = _without(file, guards)
    return RemediedFile(proto=result, sentence=f"{count(len(guards), 'guard')} against NaN removed")


@file_remedy("remove-neutral-factors", answers="")
def remove_neutral_factors(file: File, limits: ToolLimits) -> RemediedFile:
    """x · 1 and x / 1 become x."""
    gone = neutral_factors(file.proto.graph, file.facts)
    if not gone:
        raise NotApplicable("nothing is multiplied or divided by 1")
    return RemediedFile(proto=_without(file, gone), sentence=f"{count(len(gone), 'product')} with 1 removed")


def neutral_factors(graph: onnx.GraphProto, facts: TensorFacts) -> dict[int, str]:
    """The nodes that return one of their inputs, multiplied or divided by 1, by index, and that input."""
    found: dict[int, str] = {}
    for index, node in enumerate(graph.node):
        if node.op_type not in ("Mul", "Div") or domain_of(node):
            continue
        shape = facts.shape(node.output[0])
        for tensor, factor in (node.input, reversed(node.input)) if node.op_type == "Mul" else (node.input,):
            value = facts.value_up_to(factor, _LARGEST_FACTOR)
            if value is not None and bool(np.all(value == 1)) and shape is not None and shape == facts.shape(tensor):
                found[index] = tensor
                break
    return found


def _without(file: File, gone: Mapping[int, str]) -> onnx.ModelProto:
    """The file without the nodes of these indices, each with the tensor that it returns; outputs get a copy of it."""
    graph = file.proto.graph
    kept = {value.name for value in graph.output} | annotated(graph)
    original: dict[str, str] = {}
    nodes = []
    for index, node in enumerate(graph.node):
        if index not in gone:
            nodes.append(node)
            continue
        tensor = original.get(gone[index], gone[index])
        if node.output[0] in kept:
            copy = onnx.helper.make_node("Identity", [tensor], [node.output[0]], name=node.name)
            trace(node, copy)
            nodes.append(copy)
        else:
            original[node.output[0]] = tensor
    result = copied(file.proto)
    set_nodes(result.graph, nodes)
    read_instead([node for node in result.graph.node if not original.keys().isdisjoint(reads(node))], original)
    drop_unread(result.graph, {name for index in gone for name in reads(graph.node[index])} | original.keys())
    return result


#: Low enough that exp is 0 in float32 and float16, and high enough that sums and integer scales keep their digits.
_LOWEST = -1e4
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
#: Elements of the largest mask that is looked at: larger constants are weights.
_LARGEST_MASK = 4 << 20
#: Ops between a mask and the Softmax that it is for.
_BETWEEN = frozenset(
    {"Add", "Cast", "Concat", "Expand", "Gather", "Identity", "Max", "Mul", "Reshape", "Slice", "Squeeze", "Tile"}
    | {"Transpose", "Unsqueeze", "Where"}
)
_SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
_STORED = frozenset({"Constant", "ConstantOfShape"})


@file_remedy(
    "bound-masks",
    answers="",
    exactness=Exactness.DOMAIN,
    domain="scores stay above -5000, no row of them is masked entirely, and what multiplies a mask is 0 or 1",
)
def bound_masks(file: File, limits: ToolLimits) -> RemediedFile:
    """Constants below -10000 that mask scores before Softmax become -10000, which exp turns into 0 as well."""
    result = copied(file.proto)
    wanted = set(low_masks(result.graph))
    if not wanted:
        raise NotApplicable("no constant below -10000 masks scores before a Softmax")
    for name, tensor in _stored(result.graph):
        if name in wanted:
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.maximum(values, values.dtype.type(_LOWEST)), tensor.name))
    return RemediedFile(
        proto=result,
        sentence=english("{masks} raised to {lowest}", masks=count(len(wanted), "mask"), lowest=f"{_LOWEST:.0f}"),
    )


def low_masks(graph: onnx.GraphProto) -> list[str]:
    """The constants of a graph with values below -10000 from which every path leads to a Softmax."""
    low = [name for name, tensor in _stored(graph) if _is_low(tensor)]
    if not low:
        return []
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in reads(node):
            readers[name].append(node)
    ends = {value.name for value in graph.output}
    return [name for name in low if _only_masks(name, readers, ends)]


def _stored(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        if node.op_type in _STORED and not domain_of(node):
            yield from ((node.output[0], it.t) for it in node.attribute if it.name == "value" and it.HasField("t"))


def _is_low(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type not in _FLOATS or is_external(tensor) or prod(tensor.dims) > _LARGEST_MASK:
        return False
    values = numpy_helper.to_array(tensor)
    return values.size > 0 and bool(np.min(values) < _LOWEST)


def _only_masks(name: str, readers: dict[str, list[onnx.NodeProto]], ends: set[str]) -> bool:
    reached, seen, left = False, {name}, [name]
    while left:
        tensor = left.pop()
        if tensor in ends:
            return False
        for node in readers[tensor]:
            if domain_of(node) or node.op_type not in _BETWEEN | _SOFTMAX:
                return False
            reached |= node.op_type in _SOFTMAX
            if node.op_type in _BETWEEN and node.output[0] not in seen:
                seen.add(node.output[0])
                left.append(node.output[0])
    return reached
