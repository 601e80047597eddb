"""Cached views of a model that several checks need."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto

from onnxbisect.model.external import array_of
from onnxbisect.model.facts import fixed_dims
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import Call, call_of, constant_names, domain_of, functions_of, is_constant, reads, walk

#: Domain, name and overload of a function.


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of a check: names in model order, a phrase with the details, and whether its remedy may help."""

    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    detail: str
    remediable: bool = True


@dataclass(frozen=True, kw_only=True)
class NodeSite:
    """A node in the main graph, a subgraph or a function.

    `holders` names the main graph's nodes that are this node, contain it or call its function. Tensor names in a
    function are local to it.
    """

    node: onnx.NodeProto
    holders: tuple[str, ...]
    in_function: bool = False


class InspectedModel:
    """The views of one model. `original` is the file as stored, before normalisation."""

    def __init__(self, model: Model, original: onnx.ModelProto) -> None:
        self.model, self.original = model, original
        self.graph = model.proto.graph

    @cached_property
    def sites(self) -> tuple[NodeSite, ...]:
        """Every node but Constants of the main graph, bodies and called functions included.

        A function's nodes are listed once, however often it is called: nested calls multiply.
        """
        own = [
            NodeSite(node=inner, holders=(node.name,))
            for node in self.graph.node
            for inner in walk([node])
            if not is_constant(inner)
        ]
        called = [
            NodeSite(node=inner, holders=holders, in_function=True)
            for key, holders in self._callers(own).items()
            for inner in walk(self._functions[key])
            if not is_constant(inner)
        ]
        return (*own, *called)

    def holders(self, sites: Iterable[NodeSite]) -> tuple[str, ...]:
        """The main graph's nodes where these sites are found, in model order."""
        held = {name for site in sites for name in site.holders}
        return tuple(node.name for node in self.graph.node if node.name in held)

    def sites_of(self, *ops: str) -> list[NodeSite]:
        """The sites of these ops of the default domain."""
        return [s for s in self.sites if s.node.op_type in ops and not domain_of(s.node)]

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
        made = {node.output[0] for node in self.graph.node if is_constant(node)}
        return frozenset(constant_names(self.graph) | made | self.model.known.keys())

    @property
    def foldable(self) -> bool:
        """Whether more tensors may become constants; with every input bound, all of them are known already."""
        return bool(self.model.unbound)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs, without weights listed as inputs."""
        return tuple(value.name for value in self.graph.input if value.name not in self.constants)

    @cached_property
    def activations(self) -> tuple[str, ...]:
        """Graph inputs, then all computed tensors that depend on them, in model order."""
        computed = [name for node in self.nodes for name in node.output if name and name not in self.constants]
        return (*self.inputs, *computed)

    @cached_property
    def opset(self) -> int | None:
        """The default domain's opset version; None where the model imports none."""
        versions = [item.version for item in self.model.proto.opset_import if item.domain in ("", "ai.onnx")]
        return versions[0] if versions else None

    def value(self, name: str) -> np.ndarray | None:
        """The value of a tensor that does not depend on the inputs; None for any other."""
        stored = self.stored_tensors.get(name)
        if stored is None:
            return self.model.known.get(name)
        return array_of(stored, self.model.path.parent)

    def trains(self, node: onnx.NodeProto) -> bool:
        """Whether a BatchNormalization or Dropout is in training mode."""
        if node.op_type == "BatchNormalization":
            return any(it.name == "training_mode" and it.i for it in node.attribute)
        value = self.value(node.input[2]) if len(node.input) > 2 else None
        return value is not None and bool(np.any(value))

    def dtype(self, name: str) -> int:
        """The tensor's element type as a TensorProto number; 0 where it has none or none is known."""
        known = self.model.types.get(name)
        return known.tensor_type.elem_type if known is not None and known.HasField("tensor_type") else 0

    def dims(self, name: str) -> tuple[int | None, ...] | None:
        """The tensor's dimensions, None for each that is not a number, or None where not even their number is known."""
        known = self.model.types.get(name)
        return None if known is None else fixed_dims(known)

    def of_dtype(self, *dtypes: int) -> tuple[str, ...]:
        """Activations of one of these element types."""
        return tuple(name for name in self.activations if self.dtype(name) in dtypes)

    def type_text(self, name: str) -> str:
        """The tensor's type in words."""
        known = self.model.types.get(name)
        if known is None and name in self.inputs:
            known = next(value.type for value in self.graph.input if value.name == name)
        return type_text(known) if known is not None else "of unknown type"

    def _callers(self, own: Iterable[NodeSite]) -> Mapping[Call, tuple[str, ...]]:
        """For each called function the main graph's nodes that call it directly or indirectly."""
        calls = {
            key: {call_of(node) for node in walk(function)} & self._functions.keys()
            for key, function in self._functions.items()
        }
        found: dict[Call, dict[str, None]] = {}
        work = [(call_of(site.node), site.holders[0]) for site in own if call_of(site.node) in self._functions]
        while work:
            key, holder = work.pop()
            if holder not in found.setdefault(key, {}):
                found[key][holder] = None
                work += [(inner, holder) for inner in calls[key]]
        return {key: tuple(holders) for key, holders in found.items()}

    @cached_property
    def stored_tensors(self) -> Mapping[str, TensorProto]:
        """The initializers, and then the tensors of Constant nodes, by name."""
        constants = {
            node.output[0]: attribute.t
            for node in self.graph.node
            if is_constant(node)
            for attribute in node.attribute
            if attribute.name == "value"
        }
        return {tensor.name: tensor for tensor in self.graph.initializer} | constants

    @cached_property
    def _functions(self) -> Mapping[Call, onnx.FunctionProto]:
        return functions_of(self.model.proto)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names once each, in order of first appearance."""
    return tuple(dict.fromkeys(names))


def type_text(kind: onnx.TypeProto) -> str:
    """A type in words, with `?` for what is unknown."""
    if kind.HasField("sequence_type"):
        return f"sequence({type_text(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if kind.HasField("map_type"):
        return f"map({type_text(kind.map_type.value_type)})"
    tensor = kind.sparse_tensor_type if kind.HasField("sparse_tensor_type") else kind.tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower() if tensor.elem_type else "?"
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if not tensor.HasField("shape"):
        return f"{name}[…]"
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    return f"{name}[{','.join(dims)}]"
