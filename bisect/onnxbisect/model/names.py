"""Make node names unique, so that a name in a compiler's log or on the command line means one node."""

from collections.abc import Sequence

import onnx

from onnxbisect.model.scopes import bodies, walk


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
