"""Rename tensors of a graph and of its subgraphs."""

from collections.abc import Mapping

import onnx

from onnxbisect.model.scopes import bodies


def tensor_names(graph: onnx.GraphProto) -> set[str]:
    """Every tensor name in the graph and in the subgraphs of its nodes."""
    names = {value.name for value in (*graph.input, *graph.output, *graph.value_info)}
    names.update(tensor.name for tensor in graph.initializer)
    names.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        names.update(node.input)
        names.update(node.output)
        for body in bodies(node):
            names |= tensor_names(body)
    return names


def rename_tensors(graph: onnx.GraphProto, new_names: Mapping[str, str]) -> None:
    """Rename in place, in the graph and its subgraphs.

    A subgraph's own tensor of such a name is renamed too; its references follow, so the meaning stays.
    """
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.name in new_names:
            value.name = new_names[value.name]
    for tensor in graph.initializer:
        if tensor.name in new_names:
            tensor.name = new_names[tensor.name]
    for sparse in graph.sparse_initializer:
        if sparse.values.name in new_names:
            sparse.values.name = new_names[sparse.values.name]
    for annotation in graph.quantization_annotation:
        if annotation.tensor_name in new_names:
            annotation.tensor_name = new_names[annotation.tensor_name]
        for parameter in annotation.quant_parameter_tensor_names:
            if parameter.value in new_names:
                parameter.value = new_names[parameter.value]
    for node in graph.node:
        rename_in_node(node, new_names)


def rename_in_node(node: onnx.NodeProto, new_names: Mapping[str, str]) -> None:
    """Rename in place what the node and its subgraphs read and make."""
    for names in (node.input, node.output):
        for position, name in enumerate(names):
            if name in new_names:
                names[position] = new_names[name]
    for body in bodies(node):
        rename_tensors(body, new_names)


def unused_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, or that with underscores behind it, so that it is not in `taken`; it is added to `taken`."""
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted
