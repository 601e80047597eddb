"""A model as the checks see it: views that several of them need, each made once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import onnx
from onnx import TensorProto

from onnxbisect.model.model import Model
from onnxbisect.model.scopes import bodies, domain_of, is_constant, reads
from onnxbisect.preflight.typetext import type_text

#: Calls nested deeper than this are a recursion, which ONNX forbids.
_MAX_DEPTH = 32


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a check found: names in model order, and a phrase that says what exactly."""

    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    detail: str


@dataclass(frozen=True, kw_only=True)
class Site:
    """A node somewhere in the model; `holder` names the main graph's node that it is, that holds it or calls it."""

    node: onnx.NodeProto
    holder: str
    is_inner: bool


class Subject:
    """The views of one model. `filed` is the file as it was given, before intake put it in order."""

    def __init__(self, model: Model, filed: onnx.ModelProto) -> None:
        self.model, self.filed = model, filed
        self.graph = model.proto.graph

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Every node but Constants of the main graph, bodies and called functions included."""
        return tuple(
            Site(node=inner, holder=node.name, is_inner=inner is not node)
            for node in self.graph.node
            for inner in self._within(node, 0)
            if not is_constant(inner)
        )

    def holders(self, *ops: str) -> tuple[str, ...]:
        """Names of the main graph's nodes that are, hold or call one of these default-domain ops."""
        wanted = frozenset(ops)
        return unique(s.holder for s in self.sites if s.node.op_type in wanted and not domain_of(s.node))

    @cached_property
    def nodes(self) -> tuple[onnx.NodeProto, ...]:
        """The main graph's nodes in topological order, without Constants."""
        return tuple(node for node in self.graph.node if not is_constant(node))

    @cached_property
    def consumers(self) -> Mapping[str, list[onnx.NodeProto]]:
        """For each tensor the nodes that read it, captures of bodies included."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in reads(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def producers(self) -> Mapping[str, onnx.NodeProto]:
        """For each computed tensor its node."""
        return {name: node for node in self.graph.node for name in node.output if name}

    @cached_property
    def constants(self) -> frozenset[str]:
        """Tensors that do not depend on the model's inputs."""
        stored = {tensor.name for tensor in self.graph.initializer}
        stored |= {tensor.values.name for tensor in self.graph.sparse_initializer}
        stored |= {node.output[0] for node in self.graph.node if is_constant(node)}
        return frozenset(stored | self.model.known.keys())

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return tuple(value.name for value in self.graph.input)

    @cached_property
    def activations(self) -> tuple[str, ...]:
        """Graph inputs, then everything that nodes compute and that depends on them, in model order."""
        computed = [name for node in self.nodes for name in node.output if name and name not in self.constants]
        return (*self.inputs, *computed)

    @cached_property
    def opset(self) -> int | None:
        """The default domain's opset version; None where the model imports none."""
        versions = [item.version for item in self.model.proto.opset_import if item.domain in ("", "ai.onnx")]
        return versions[0] if versions else None

    def stored(self, name: str) -> TensorProto | None:
        """The initializer or Constant node's tensor of this name; None for everything computed."""
        return self._stored.get(name)

    def dtype(self, name: str) -> int:
        """The tensor's element type as TensorProto numbers it, 0 where it has none or none is known."""
        known = self.model.types.get(name)
        return known.tensor_type.elem_type if known is not None and known.HasField("tensor_type") else 0

    def dims(self, name: str) -> tuple[int | None, ...] | None:
        """The tensor's dimensions, None for each that is not a number, or None where not even their number is known."""
        known = self.model.types.get(name)
        if known is None or not known.HasField("tensor_type") or not known.tensor_type.HasField("shape"):
            return None
        return tuple(d.dim_value if d.HasField("dim_value") else None for d in known.tensor_type.shape.dim)

    def of_dtype(self, *dtypes: int) -> tuple[str, ...]:
        """Activations of one of these element types."""
        return tuple(name for name in self.activations if self.dtype(name) in dtypes)

    def type_text(self, name: str) -> str:
        """The tensor's type for people."""
        known = self.model.types.get(name)
        if known is None and name in self.inputs:
            known = next(value.type for value in self.graph.input if value.name == name)
        return type_text(known) if known is not None else "of unknown type"

    def _within(self, node: onnx.NodeProto, depth: int) -> Iterator[onnx.NodeProto]:
        yield node
        function = self._functions.get((domain_of(node), node.op_type, node.overload))
        inner = [*(n for body in bodies(node) for n in body.node), *(function.node if function else ())]
        for child in inner if depth < _MAX_DEPTH else ():
            yield from self._within(child, depth + 1)

    @cached_property
    def _stored(self) -> Mapping[str, TensorProto]:
        constants = {
            node.output[0]: attribute.t
            for node in self.graph.node
            if is_constant(node)
            for attribute in node.attribute
            if attribute.name == "value"
        }
        return constants | {tensor.name: tensor for tensor in self.graph.initializer}

    @cached_property
    def _functions(self) -> Mapping[tuple[str, str, str], onnx.FunctionProto]:
        return {(domain_of(f), f.name, f.overload): f for f in self.model.proto.functions}


def unique(names: Iterator[str]) -> tuple[str, ...]:
    """The names once each, in order of first appearance."""
    return tuple(dict.fromkeys(names))


def dtype_name(dtype: int) -> str:
    """The element type as ONNX spells it, in lower case."""
    return str(TensorProto.DataType.Name(dtype)).lower()


def count(number: int, thing: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def some(items: tuple[str, ...], most: int = 4) -> str:
    """The first few of many, as a list for people."""
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
