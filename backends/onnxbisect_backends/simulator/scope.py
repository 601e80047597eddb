"""What a compiler knows about tensors while it walks over a graph: types, constants, small values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxbisect.model.scopes import bodies, domain_of, is_constant
from onnxbisect.model.shapeops import RANDOM


@dataclass(frozen=True, kw_only=True)
class TensorType:
    """Element type as a TensorProto number, and the dimensions, None if unknown."""

    dtype: int
    dims: tuple[int | None, ...] | None

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a number."""
        return self.dims is not None and None not in self.dims


@dataclass(kw_only=True)
class GraphScope:
    """One graph or function body during the walk. `constant` grows as nodes are folded.

    `opsets` are the versions by domain. `attributes` are those of the current function call, for `ref_attr_name`.
    `infer` returns types missing in the file; it is called once, on the first miss.
    """

    opsets: Mapping[str, int]
    types: dict[str, TensorType] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    tensors: dict[str, TensorProto] = field(default_factory=dict)
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    outer: "GraphScope | None" = None
    infer: Callable[[], Mapping[str, TensorType]] | None = None

    def type_of(self, name: str) -> TensorType | None:
        """The type of a visible tensor, None if unknown."""
        if name not in self.types and self.infer is not None:
            infer, self.infer = self.infer, None
            self.types = {**infer(), **self.types}
        if name in self.types:
            return self.types[name]
        return self.outer.type_of(name) if self.outer else None

    def is_constant(self, name: str) -> bool:
        """Whether the tensor depends on constants and static shapes only."""
        return name in self.constant or (self.outer is not None and self.outer.is_constant(name))

    def is_given(self, name: str) -> bool:
        """Whether an optional input is present; one without elements, as axes or scales may be, counts as absent."""
        known = self.type_of(name) if name else None
        return bool(name) and (known is None or known.dims is None or 0 not in known.dims)

    def tensor(self, name: str) -> TensorProto | None:
        """The value of an initializer or a Constant node; None for computed tensors."""
        if name in self.tensors:
            return self.tensors[name]
        return self.outer.tensor(name) if self.outer else None

    def attribute(self, node: onnx.NodeProto, name: str) -> AttributeProto | None:
        """The attribute, with a function's reference resolved to its caller's; None if absent."""
        for attribute in node.attribute:
            if attribute.name == name:
                return self.attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        return None

    def schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        """The op's schema at this scope's opset; None for custom domains and unknown names."""
        domain = domain_of(node)
        return schema_of(node.op_type, self.opsets.get(domain, 1), domain)

    def fold(self, node: onnx.NodeProto) -> bool:
        """Mark the node's outputs as constant if they are; returns whether they are."""
        if is_constant(node):
            if (value := _constant_value(node)) is not None:
                self.tensors[node.output[0]] = value
        elif not self._foldable(node):
            return False
        self.constant.update(name for name in node.output if name)
        return True

    def _foldable(self, node: onnx.NodeProto) -> bool:
        if domain_of(node) or node.op_type in RANDOM or bodies(node):
            return False
        inputs = [name for name in node.input if name]
        if not inputs:
            return False
        if all(self.is_constant(name) for name in inputs):
            return True
        if node.op_type in ("Shape", "Size"):
            known = self.type_of(inputs[0])
            return known is not None and known.is_static
        return False


def types_in(infos: Iterable[onnx.ValueInfoProto]) -> dict[str, TensorType]:
    """The tensor types that value infos state."""
    found = {}
    for info in infos:
        if info.type.HasField("tensor_type"):
            kind = info.type.tensor_type
            dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
            found[info.name] = TensorType(dtype=kind.elem_type, dims=dims if kind.HasField("shape") else None)
    return found


def enter(graph: onnx.GraphProto, *, opsets: Mapping[str, int], outer: GraphScope | None) -> GraphScope:
    """The scope of a graph before its first node.

    Initializers that are also graph inputs count as constant: old exporters list every weight there, and compilers
    treat them as weights.
    """
    scope = GraphScope(opsets=opsets, outer=outer, attributes=outer.attributes if outer else {})
    scope.types = types_in([*graph.input, *graph.output, *graph.value_info])
    for tensor in graph.initializer:
        scope.tensors[tensor.name] = tensor
        scope.constant.add(tensor.name)
        scope.types[tensor.name] = TensorType(dtype=tensor.data_type, dims=tuple(tensor.dims))
    for sparse in graph.sparse_initializer:
        scope.constant.add(sparse.values.name)
        scope.types[sparse.values.name] = TensorType(dtype=sparse.values.data_type, dims=tuple(sparse.dims))
    return scope


@lru_cache(maxsize=4096)
def schema_of(op: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    """The schema of an op at an opset version, None where ONNX has none."""
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def _constant_value(node: onnx.NodeProto) -> TensorProto | None:
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor: TensorProto = attribute.t
            return tensor
        if attribute.name in ("value_float", "value_floats", "value_int", "value_ints"):
            value = onnx.helper.get_attribute_value(attribute)
            dtype = TensorProto.FLOAT if "float" in attribute.name else TensorProto.INT64
            flat = value if isinstance(value, (list, tuple)) else [value]
            dims = [len(flat)] if attribute.name.endswith("s") else []
            return onnx.helper.make_tensor(node.output[0], dtype, dims, flat)
    return None


def small_values(tensor: TensorProto) -> list[bool | int | float] | None:
    """The elements of a small tensor that lies in the file itself; None for large or external ones."""
    count = 1
    for dim in tensor.dims:
        count *= dim
    if tensor.data_location == TensorProto.EXTERNAL or count > 64:
        return None
    values: list[bool | int | float] = numpy_helper.to_array(tensor).ravel().tolist()
    return values
