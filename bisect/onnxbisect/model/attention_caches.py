"""onnxruntime's MultiHeadAttention beside a cache, in a form in which it neither crashes nor computes with garbage."""

import onnx
from onnx import TensorProto, helper

from onnxbisect.model.scopes import bodies, domain_of, walk

#: The input of MultiHeadAttention from which on a cache is given.
_PAST_KEY = 6
#: The rank of keys that a cache is put before.
_NEW_KEYS = 3
#: How many outputs it has with a cache: its result, the new cached keys and the new cached values.
_OUTPUTS = 3
#: The first operator set with all that `with_sound_caches` adds.
_EXPAND = 8


def with_sound_caches(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy in which onnxruntime's MultiHeadAttention with a cache does no harm: where there are no new
    keys it would end the process, so a Gather fails before; where the new cache is no output, it would compute with
    memory that it never wrote, so it is one.
    """
    versions = {domain_of(entry): entry.version for entry in model.opset_import}
    if versions.get("", 0) < _EXPAND or not any(map(_has_cache, walk(model.graph))):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graphs = [copy.graph, *(body for node in walk(copy.graph) for body in bodies(node))]
    for graph in reversed(graphs):  # a graph's nodes are copied together with what was changed within them
        ranks = _ranks(copy) if graph is copy.graph else {}
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        del graph.node[:]
        for node in nodes:
            if _has_cache(node):
                if ranks.get(node.input[1]) == _NEW_KEYS:
                    made = [*node.output, *[""] * (_OUTPUTS - len(node.output))]
                    node.output[:] = [name or f"{made[0]}/onnxbisect_cache_{slot}" for slot, name in enumerate(made)]
                graph.node.extend(_demanding_a_key(node))
            graph.node.append(node)
    return copy


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    """The ranks of the tensors of the main graph, as far as onnx finds them."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # inference raises several types for contradictory models
        graph = model.graph
    known = {it.name: len(it.dims) for it in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            known[value.name] = len(value.type.tensor_type.shape.dim)
    return known


def _has_cache(node: onnx.NodeProto) -> bool:
    return node.op_type == "MultiHeadAttention" and any(node.input[_PAST_KEY:]) and bool(node.input[1])


def _demanding_a_key(node: onnx.NodeProto) -> tuple[onnx.NodeProto, ...]:
    """Nodes that fail where there is no new key, and else give the keys as they are, which the node reads then."""
    keys, said = node.input[1], f"{node.name or node.output[0]}: onnxruntime would crash, for want of a new key"
    first, axes, node.input[1] = f"{said}/first", f"{said}/shape", f"{said}/keys"
    zero = helper.make_tensor(f"{said}/zero", TensorProto.INT64, [1], [0])
    return (
        helper.make_node("Constant", [], [zero.name], value=zero),
        helper.make_node("Gather", [keys, zero.name], [first], name=said, axis=1),
        helper.make_node("Shape", [first], [axes]),
        helper.make_node("Expand", [keys, axes], [node.input[1]]),
    )
