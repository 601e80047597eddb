"""The nodes of a graph: unique names, and topological orders.

A unique name in a compiler's log or on the command line means one node. An order is the graph's own, or one that keeps
branches together, for intervals with few cut tensors.
"""

from collections.abc import Sequence

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.language import did_you_mean
from onnxbisect.model.scopes import bodies, constant_names, is_constant, reads, walk


def make_unique(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """Name nameless nodes and rename all but the first of each duplicate, in place; returns the new names.

    A generated name consists of the op and its first output, so edits elsewhere in the model do not change it.
    Names from the file are never given to another node.
    """
    taken = {node.name for node in nodes if node.name}
    seen: set[str] = set()
    given: list[str] = []
    for index, node in enumerate(nodes):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        output = next((name for name in node.output if name), str(index))
        base = node.name or f"{node.op_type}_{output}"
        name, count = base, 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        node.name = name
        taken.add(name)
        seen.add(name)
        given.append(name)
    return given


def with_unique_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy with duplicate node names replaced; nameless nodes stay nameless.

    The new names are those of `make_unique`. onnxruntime refuses models with duplicate names in one graph.
    """
    if not any(_shared_names(graph) for graph in _graphs(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in _graphs(copy):
        if _shared_names(graph):
            make_unique([node for node in graph.node if node.name])
    return copy


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    return [model.graph, *(body for node in walk(model.graph) for body in bodies(node))]


def _shared_names(graph: onnx.GraphProto) -> bool:
    names = [node.name for node in graph.node if node.name]
    return len(set(names)) < len(names)


def is_topological(graph: onnx.GraphProto) -> bool:
    """Whether each node stands behind those whose results it or its subgraphs read."""
    position = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    return all(position.get(name, -1) < index for index, node in enumerate(graph.node) for name in reads(node))


def depth_first(graph: onnx.GraphProto) -> list[int]:
    """Indices of `graph.node` with producers before consumers, one branch completed before the next begins.

    This is the post-order of a depth-first search from each node without consumers, in file order, through its inputs
    and then the captures of its subgraphs. A Constant node comes right before its first consumer, unused ones last.
    Raises ModelError when the graph is cyclic, when two nodes produce one tensor, or when a tensor that is read has no
    producer.
    """
    sources = {value.name for value in graph.input} | constant_names(graph)
    producers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in node.output:
            if not name:
                continue
            if name in producers or name in sources:
                raise ModelError(
                    f"Tensor {name!r} is produced by node {node.name!r} and by something before it: "
                    "in ONNX every tensor is assigned once. Export the model again."
                )
            producers[name] = index
    needed = [reads(node) for node in graph.node]
    sources = {value.name for value in graph.input} | constant_names(graph)
    for node, names in zip(graph.node, needed, strict=True):
        for name in names:
            if name not in producers and name not in sources:
                raise ModelError(
                    f"Node {node.name!r} ({node.op_type}) reads tensor {name!r}, which nothing produces"
                    f"{did_you_mean(name, [*producers, *sources])}"
                )
    for value in graph.output:
        if value.name not in producers and value.name not in sources:
            raise ModelError(
                f"The graph output {value.name!r} is produced by nothing"
                f"{did_you_mean(value.name, [*producers, *sources])}"
            )
    constant = [is_constant(node) for node in graph.node]
    consumed = {producers[name] for names in needed for name in names if name in producers}
    order: list[int] = []
    state = bytearray(len(graph.node))  # 0 not seen, 1 on the path, 2 placed
    for root in range(len(graph.node)):
        if root not in consumed and not constant[root]:
            _visit(graph, root, needed, producers, constant, state, order)
    # The remaining nodes are Constants or belong to a cycle; the visit tells which.
    for root in range(len(graph.node)):
        if not state[root] and not constant[root]:
            _visit(graph, root, needed, producers, constant, state, order)
    order.extend(index for index in range(len(graph.node)) if not state[index])
    return order


def by_depth(graph: onnx.GraphProto) -> list[int]:
    """Indices of `graph.node`, those that the longest chains lead to last; those of one depth as in the file.

    The graph has a `depth_first` order.
    """
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    depth = [0] * len(graph.node)
    for index in depth_first(graph):
        before = [depth[producers[name]] for name in reads(graph.node[index]) if name in producers]
        depth[index] = 1 + max(before, default=-1)
    return sorted(range(len(graph.node)), key=depth.__getitem__)


def another_order(graph: onnx.GraphProto) -> list[int] | None:
    """The depth-first order, or for a file that has it the one by depth; None where the file has both, as a chain does.

    Constant nodes do not count. Raises ModelError as `depth_first` does.
    """
    for order in (depth_first(graph), by_depth(graph)):
        computing = [index for index in order if not is_constant(graph.node[index])]
        if computing != sorted(computing):
            return order
    return None


def _visit(
    graph: onnx.GraphProto,
    root: int,
    needed: Sequence[list[str]],
    producers: dict[str, int],
    constant: Sequence[bool],
    state: bytearray,
    order: list[int],
) -> None:
    state[root] = 1
    stack = [(root, iter(needed[root]))]
    while stack:
        node, inputs = stack[-1]
        for name in inputs:
            producer = producers.get(name)
            if producer is None or state[producer] == 2 or constant[producer]:
                continue
            if state[producer] == 1:
                path = [index for index, _ in stack]
                cycle = path[path.index(producer) :]
                names = " -> ".join(repr(graph.node[index].name) for index in [*cycle[:6][::-1], cycle[-1]])
                raise ModelError(f"The graph is cyclic: {names}. Export it again.")
            state[producer] = 1
            stack.append((producer, iter(needed[producer])))
            break
        else:
            for name in needed[node]:
                producer = producers.get(name)
                if producer is not None and not state[producer]:
                    state[producer] = 2
                    order.append(producer)
            state[node] = 2
            order.append(node)
            stack.pop()
