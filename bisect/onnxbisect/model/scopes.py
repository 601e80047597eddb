"""Resolve names: the default domain, subgraphs of control flow, the outer tensors that they capture; and copies."""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache

import numpy as np
import onnx

_GRAPH, _GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS
#: From this opset on Dropout has no `is_test` attribute; from opset 12 on an input turns training on.
_DROPOUT_SINCE = 7
#: The largest version that onnx accepts in a schema lookup; a file may claim any version and gets the newest schema.
_LATEST = (1 << 31) - 1
#: Attributes that name a dtype.
_DTYPE_ATTRIBUTES = frozenset({"to", "dtype"})
#: What the values of attributes are made of.
Scalar = bool | int | float | str
#: Domain, name and overload of a model-local function or operator.
Call = tuple[str, str, str]


def domain_of(node: onnx.NodeProto | onnx.FunctionProto | onnx.OperatorSetIdProto) -> str:
    """The domain, with `ai.onnx` replaced by the empty string: both name the default domain."""
    return "" if node.domain == "ai.onnx" else node.domain


def opset_versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The version of each imported operator set, by domain."""
    return {domain_of(entry): entry.version for entry in imports}


@lru_cache(maxsize=4096)
def schema_of(op: str, version: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """The schema of an op at an opset version, None where ONNX has none."""
    try:
        return onnx.defs.get_schema(op, min(version, _LATEST), domain)
    except onnx.defs.SchemaError:
        return None


def call_of(node: onnx.NodeProto) -> Call:
    """The function or operator that a node calls."""
    return domain_of(node), node.op_type, node.overload


def functions_of(model: onnx.ModelProto) -> dict[Call, onnx.FunctionProto]:
    """The model-local functions, by what calls them."""
    return {(domain_of(function), function.name, function.overload): function for function in model.functions}


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


def every_node(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the graph and of the model-local functions, including nodes in subgraphs."""
    yield from walk(model.graph)
    for function in model.functions:
        yield from walk(function)


def captures(node: onnx.NodeProto) -> list[str]:
    """Outer tensors that the node's subgraphs read, in order of first use."""
    names: dict[str, None] = {}
    for body in bodies(node):
        own = {value.name for value in body.input} | constant_names(body)
        own.update(name for inner in body.node for name in inner.output)
        read = [*(name for inner in body.node for name in reads(inner)), *(value.name for value in body.output)]
        names.update(dict.fromkeys(name for name in read if name and name not in own))
    return list(names)


def reads(node: onnx.NodeProto) -> list[str]:
    """All tensors that the node reads, once each: inputs that are not omitted, then captures."""
    names = dict.fromkeys(filter(None, node.input))
    if node.attribute:
        names.update(dict.fromkeys(captures(node)))
    return list(names)


def constant_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the initializers, dense and sparse."""
    return {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}


def fed_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that are no initializers, which up to IR version 3 are listed as inputs, too."""
    stored = constant_names(graph)
    return [value for value in graph.input if value.name not in stored]


def is_copy(node: onnx.NodeProto, opset: int, read: Collection[str], value: Callable[[str], np.ndarray | None]) -> bool:
    """Whether the node is an Identity, or a Dropout outside of training whose mask nothing reads.

    `read` are the tensors that are read by nodes or are graph outputs; `value` returns a tensor's constant value or
    None.
    """
    if domain_of(node) or not node.input or not node.input[0] or not node.output[0]:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type != "Dropout" or opset < _DROPOUT_SINCE or any(name in read for name in node.output[1:] if name):
        return False
    if len(node.input) < 3 or not node.input[2]:
        return True
    training = value(node.input[2])
    return training is not None and not training.any()


def attribute_value(attribute: onnx.AttributeProto) -> Scalar | list[Scalar] | None:
    """The value as profiles write it, dtypes by name; None for tensors and graphs."""
    match attribute.type:
        case onnx.AttributeProto.FLOAT:
            return float(attribute.f)
        case onnx.AttributeProto.INT:
            if attribute.name in _DTYPE_ATTRIBUTES and attribute.i in onnx.TensorProto.DataType.values():
                return str(onnx.TensorProto.DataType.Name(attribute.i))
            return int(attribute.i)
        case onnx.AttributeProto.STRING:
            return str(attribute.s.decode("utf-8", "replace"))
        case onnx.AttributeProto.FLOATS:
            return list(attribute.floats)
        case onnx.AttributeProto.INTS:
            return list(attribute.ints)
        case onnx.AttributeProto.STRINGS:
            return [item.decode("utf-8", "replace") for item in attribute.strings]
    return None
