"""Pools of a tensor without a batch, which PyTorch computes, its older exporter writes, and ONNX does not allow."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxbisect.model.facts import fixed_dims
from onnxbisect.model.scopes import domain_of, opset_versions, reads

#: The type of a tensor by its name, None where it is not known.
TypeOf = Callable[[str], onnx.TypeProto | None]
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
#: From this operator set on, axes are an input of Squeeze and Unsqueeze.
_AXES_AS_INPUT = 13


def unbatched_pools(graph: onnx.GraphProto, type_of: TypeOf) -> list[int]:
    """The indices of pools whose kernel has one dimension less than their input; ONNX asks for two, batch and channels.

    A pool whose input has no known rank is not among them.
    """
    return [index for index, node in enumerate(graph.node) if node.op_type in _POOLS and _is_unbatched(node, type_of)]


def _is_unbatched(pool: onnx.NodeProto, type_of: TypeOf) -> bool:
    kind = type_of(pool.input[0]) if pool.input and not domain_of(pool) else None
    dims = None if kind is None else fixed_dims(kind)
    kernel = next((it.ints for it in pool.attribute if it.name == "kernel_shape"), ())
    return dims is not None and len(dims) == len(kernel) + 1


def batch_pools(model: onnx.ModelProto, type_of: TypeOf) -> int:
    """Put an Unsqueeze and a Squeeze around such pools of the main graph, in place; returns how many there are.

    The type of a pool's result may not be known before this: where pools follow each other, there may be more then.
    """
    graph, nodes = model.graph, onnx.GraphProto()
    unbatched = frozenset(unbatched_pools(graph, type_of))
    axes_as_input = opset_versions(model.opset_import).get("", 0) >= _AXES_AS_INPUT
    taken = {name for node in graph.node for name in (node.name, *reads(node), *node.output)}

    def unused(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    def add(op: str, source: str, result: str, name: str) -> None:
        node = nodes.node.add(op_type=op, input=[source], output=[result], name=unused(f"{name}/{op}"))
        if axes_as_input:
            node.input.append(unused(f"{node.name}/axes"))
            graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), node.input[1]))
        else:
            node.attribute.append(helper.make_attribute("axes", [0]))

    for index, node in enumerate(graph.node):
        pool = onnx.NodeProto()
        pool.CopyFrom(node)
        if index not in unbatched:
            nodes.node.append(pool)
            continue
        pool.input[0] = unused(f"{node.input[0]}/batched")
        add("Unsqueeze", node.input[0], pool.input[0], node.name)
        results = {slot: name for slot, name in enumerate(node.output) if name}
        for slot, name in results.items():
            pool.output[slot] = unused(f"{name}/batched")
        nodes.node.append(pool)
        for slot, name in results.items():
            add("Squeeze", pool.output[slot], name, node.name)
    if unbatched:
        del graph.node[:]
        graph.node.extend(nodes.node)
    return len(unbatched)
