"""Resolve names: the default domain, subgraphs of control flow, and the outer tensors that they capture."""

from collections.abc import Iterable, Iterator

import onnx

_GRAPH, _GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS


def domain_of(node: onnx.NodeProto | onnx.FunctionProto | onnx.OperatorSetIdProto) -> str:
    """The domain, with `ai.onnx` replaced by the empty string: both name the default domain."""
    return "" if node.domain == "ai.onnx" else node.domain


def opset_versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The version of each imported operator set, by domain."""
    return {domain_of(entry): entry.version for entry in imports}


def qualified(node: onnx.NodeProto) -> str:
    """The op's name in reports: `Op` in the default domain, else `domain::Op`."""
    domain = domain_of(node)
    return f"{domain}::{node.op_type}" if domain else node.op_type


def is_constant(node: onnx.NodeProto) -> bool:
    """Whether this is a Constant node of the default domain."""
    return node.op_type == "Constant" and not domain_of(node)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The node's subgraphs: branches of an If, the body of a Loop, Scan or SequenceMap."""
    return [body for _, body in named_bodies(node)] if node.attribute else []


def named_bodies(node: onnx.NodeProto) -> list[tuple[str, onnx.GraphProto]]:
    """The node's subgraphs, each with the name of its attribute, such as `body` or `then_branch`."""
    found: list[tuple[str, onnx.GraphProto]] = []
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            found.append((attribute.name, attribute.g))
        elif attribute.type == _GRAPHS:
            found.extend((attribute.name, body) for body in attribute.graphs)
    return found


def label(node: onnx.NodeProto) -> str:
    """The node's name, or if it has none its op and first output."""
    return node.name or f"{node.op_type} of {next(filter(None, node.output), '')}"


def walk(nodes: "list[onnx.NodeProto] | onnx.GraphProto | onnx.FunctionProto") -> Iterator[onnx.NodeProto]:
    """Every node, including nodes in subgraphs, outer before inner."""
    for node in nodes if isinstance(nodes, list) else nodes.node:
        yield node
        for body in bodies(node):
            yield from walk(body)


def captures(node: onnx.NodeProto) -> list[str]:
    """Outer tensors that the node's subgraphs read, in order of first use."""
    names: dict[str, None] = {}
    for body in bodies(node):
        names.update(dict.fromkeys(_free(body)))
    return list(names)


def reads(node: onnx.NodeProto) -> list[str]:
    """All tensors that the node reads, once each: inputs that are not omitted, then captures."""
    return list(dict.fromkeys([*(name for name in node.input if name), *captures(node)]))


def constant_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the initializers, dense and sparse."""
    return {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}


def _free(graph: onnx.GraphProto) -> Iterator[str]:
    defined = {value.name for value in graph.input} | constant_names(graph)
    for node in graph.node:
        defined.update(node.output)
    for node in graph.node:
        yield from (name for name in reads(node) if name not in defined)
    yield from (value.name for value in graph.output if value.name and value.name not in defined)
