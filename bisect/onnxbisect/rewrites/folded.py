"""Folds the small graph of an operator's function body: most of it is arithmetic on known shapes."""

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxbisect.model.external import constant_tensor
from onnxbisect.model.scopes import bodies, is_constant, reads

#: Most elements of a folded constant.
_LARGEST = 1 << 16
#: Rounds of inference and folding; each finds shapes that the next one folds.
_ROUNDS = 8


def fold(model: onnx.ModelProto) -> None:
    """Compute, in place, what depends on no input, bypass copies, and remove what nothing reads."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for _ in range(_ROUNDS):
        before = len(model.graph.node)
        shapes = _shapes(model)
        kept = [node for node in model.graph.node if not _computed(node, values, shapes, model)]
        _replace(model.graph, _without_copies(kept, {value.name for value in model.graph.output}))
        del model.graph.initializer[:]
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
        if len(model.graph.node) == before:
            break
    _drop_unread(model.graph)


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    found = {}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            found[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    return found


def _computed(
    node: onnx.NodeProto, values: dict[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], model: onnx.ModelProto
) -> bool:
    """Whether the node's outputs are known; they are added to `values`."""
    if is_constant(node):
        tensor = constant_tensor(node)
        if isinstance(tensor, onnx.TensorProto):
            values[node.output[0]] = numpy_helper.to_array(tensor)
        return isinstance(tensor, onnx.TensorProto)
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        dims = np.array(shapes[node.input[0]], np.int64)
        span = {attribute.name: attribute.i for attribute in node.attribute}
        part = dims[span.get("start", 0) : span.get("end")]
        values[node.output[0]] = part if node.op_type == "Shape" else np.array(dims.prod(), np.int64)
        return True
    if bodies(node) or not all(name in values for name in reads(node)):
        return False
    if any(prod(shapes.get(name, (_LARGEST + 1,))) > _LARGEST for name in node.output if name):
        return False
    graph = onnx.helper.make_graph(
        [node],
        "constant",
        [],
        [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        [numpy_helper.from_array(values[name], name) for name in reads(node)],
    )
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    results = ReferenceEvaluator(alone).run(None, {})
    values.update(zip((name for name in node.output if name), map(np.asarray, results), strict=True))
    return True


def _without_copies(nodes: list[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """The nodes without Identity nodes, except those that produce a graph output."""
    original: dict[str, str] = {}
    kept = []
    for node in nodes:
        node.input[:] = [original.get(name, name) for name in node.input]
        if node.op_type == "Identity" and node.output[0] not in outputs:
            original[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    return kept


def _drop_unread(graph: onnx.GraphProto) -> None:
    read = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read.update(reads(node))
    _replace(graph, kept[::-1])
    constants = [tensor for tensor in graph.initializer if tensor.name in read]
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in constants]
    del graph.initializer[:]
    graph.initializer.extend(copies)


def _replace(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
