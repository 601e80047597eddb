"""Edits of a protobuf graph that leave all other nodes, names and tensors unchanged."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx

from onnxbisect.cut.rename import rename_tensors, tensor_names
from onnxbisect.model.scopes import bodies, reads, walk


def copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def node_copy(node: onnx.NodeProto) -> onnx.NodeProto:
    """A copy that belongs to no graph."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def set_nodes(owner: onnx.GraphProto | onnx.FunctionProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Replace the nodes of a graph or function; the new nodes may be among the present ones."""
    copies = [node_copy(node) for node in nodes]
    del owner.node[:]
    owner.node.extend(copies)


def every_name(graph: onnx.GraphProto) -> set[str]:
    """The names of all tensors and nodes of a graph, including its subgraphs."""
    return tensor_names(graph) | {node.name for node in walk(graph)}


def beginnings(names: Iterable[str]) -> set[str]:
    """All prefixes of the names that end before a slash."""
    return {name[: place + 1] for name in names for place, sign in enumerate(name) if sign == "/"}


def unused_prefix(wanted: str, taken: set[str]) -> str:
    """A prefix of names that is not in `taken`, with a slash at its end; it is added to `taken`."""
    prefix, count = f"{wanted}/", 1
    while prefix in taken:
        count += 1
        prefix = f"{wanted}_{count}/"
    taken.add(prefix)
    return prefix


def read_instead(nodes: Iterable[onnx.NodeProto], instead: Mapping[str, str]) -> None:
    """Make nodes and their subgraphs read other tensors."""
    for node in nodes:
        for slot, name in enumerate(node.input):
            if name in instead:
                node.input[slot] = instead[name]
        for body in bodies(node):
            rename_tensors(body, instead)


def drop_unread(graph: onnx.GraphProto, suspects: Iterable[str]) -> None:
    """Remove those `suspects` that nothing reads any more, and the nodes that only they needed."""
    readers = Counter(name for node in graph.node for name in reads(node))
    readers.update(value.name for value in graph.output)
    readers.update(value.name for value in graph.input)
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    gone: set[int] = set()
    unread: set[str] = set()
    work = list(suspects)
    while work:
        name = work.pop()
        if readers[name] or name in unread:
            continue
        index = makers.get(name)
        if index is not None and any(readers[output] for output in graph.node[index].output if output):
            continue
        unread.add(name)
        if index is None or index in gone:
            continue
        gone.add(index)
        unread.update(output for output in graph.node[index].output if output)
        for read in reads(graph.node[index]):
            readers[read] -= 1
            work.append(read)
    for index in sorted(gone, reverse=True):
        del graph.node[index]
    forget(graph, unread)


def forget(graph: onnx.GraphProto, names: Collection[str]) -> None:
    """Remove the initializers and the declared types of these tensors."""
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name in names:
            del graph.initializer[index]
    for index in reversed(range(len(graph.sparse_initializer))):
        if graph.sparse_initializer[index].values.name in names:
            del graph.sparse_initializer[index]
    for index in reversed(range(len(graph.value_info))):
        if graph.value_info[index].name in names:
            del graph.value_info[index]


def annotated(graph: onnx.GraphProto) -> set[str]:
    """The tensors that the graph's quantization annotations name."""
    names = {annotation.tensor_name for annotation in graph.quantization_annotation}
    for annotation in graph.quantization_annotation:
        names.update(parameter.value for parameter in annotation.quant_parameter_tensor_names)
    return names
