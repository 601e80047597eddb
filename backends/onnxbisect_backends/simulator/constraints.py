"""How a node uses its op: against a profile's limits, and as a line of text.

Unknown properties (such as a rank that is neither stated nor inferred) count as within the limit: a simulator that
refuses what it cannot read would invent culprits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxbisect.model.external import constant_tensor
from onnxbisect.model.scopes import attribute_value, bodies, domain_of, is_constant, schema_of
from onnxbisect.model.shapeops import RANDOM
from onnxbisect_backends.simulator.profiles import (
    AttrConstraint,
    Constraint,
    Effect,
    InputConstraint,
    InputsConstraint,
    Scalar,
)


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
            if isinstance(value := constant_tensor(node), TensorProto):
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


def small_values(tensor: TensorProto) -> list[bool | int | float] | None:
    """The elements of a small tensor that lies in the file itself; None for large or external ones."""
    count = 1
    for dim in tensor.dims:
        count *= dim
    if tensor.data_location == TensorProto.EXTERNAL or count > 64:
        return None
    values: list[bool | int | float] = numpy_helper.to_array(tensor).ravel().tolist()
    return values


def violation(constraint: Constraint, node: onnx.NodeProto, scope: GraphScope) -> str | None:
    """How the node violates this limit, as a phrase that quotes the limit; None if it does not.

    Limits with the effect silent_wrong are never violated here.
    """
    if constraint.effect is Effect.SILENT_WRONG:
        return None
    match constraint:
        case AttrConstraint():
            return _attribute(constraint, node, scope)
        case InputConstraint():
            return _input(constraint, node, scope)
        case InputsConstraint():
            given = sum(1 for name in node.input if name)
            most = constraint.value
            broken = given != most if constraint.rule == "count_eq" else given > most
            limit = "exactly" if constraint.rule == "count_eq" else "at most"
            return f"{given} inputs, takes {limit} {most}" if broken else None


def _attribute(constraint: AttrConstraint, node: onnx.NodeProto, scope: GraphScope) -> str | None:
    name, rule, allowed = constraint.name, constraint.rule, _tuple(constraint.value)
    written = scope.attribute(node, name)
    value = attribute_value(written) if written is not None else default_of(node, name, scope)
    shown = f"attribute {name} {'=' if written is not None else 'left at its default'} {value!r}"
    match rule:
        case "absent" | "absent_or":
            if written is not None and not _among(value, allowed):
                return f"attribute {name} is given, must be absent" + (f" or {_list(allowed)}" if allowed else "")
        case "present":
            return None if written is not None else f"attribute {name} is not written out"
        case "present_in":
            if written is None:
                return f"attribute {name} is not written out"
            return None if _among(value, allowed) else f"{shown}, takes {_list(allowed)}"
        case "in":
            return None if value is None or _among(value, allowed) else f"{shown}, takes {_list(allowed)}"
        case "not_in":
            return f"{shown}, which it does not take" if _among(value, allowed) else None
        case "in_if_mode_nearest":
            mode = scope.attribute(node, "mode")
            if (attribute_value(mode) if mode is not None else "nearest") == "nearest" and not _among(value, allowed):
                return f"{shown} with mode nearest, takes {_list(allowed)}"
        case "all_eq":
            items = value if isinstance(value, list) else [] if value is None else [value]
            return None if all(_among(item, allowed) for item in items) else f"{shown}, takes {_list(allowed)}"
        case "in_last":
            data = scope.type_of(node.input[0]) if node.input else None
            rank = len(data.dims) if data is not None and data.dims is not None else None
            if isinstance(value, int) and value >= 0 and rank is not None:
                value -= rank
            undecided = isinstance(value, int) and value >= 0
            return None if value is None or undecided or _among(value, allowed) else f"{shown}, takes {_list(allowed)}"
    return None


def _input(constraint: InputConstraint, node: onnx.NodeProto, scope: GraphScope) -> str | None:
    schema = scope.schema(node)
    formals = () if schema is None else schema.inputs
    given = {formal.name: name for formal, name in zip(formals, node.input, strict=False)}
    tensor = given.get(constraint.name) or None  # it may be omitted, or missing in this opset
    allowed = _tuple(constraint.value)
    if tensor is None:
        return None
    match constraint.rule:
        case "absent":
            return f"input {constraint.name} is given, must be absent" if scope.is_given(tensor) else None
        case "absent_or_const":
            known = scope.tensor(tensor)
            values = small_values(known) if known is not None else None
            if values is not None and all(_among(value, allowed) for value in values):
                return None
            return f"input {constraint.name} must be absent or {_list(allowed)}"
        case "initializer":
            return None if scope.is_constant(tensor) else f"input {constraint.name} is computed, must be constant"
        case "initializer_scalar":
            data = scope.type_of(tensor)
            single = data is None or data.dims is None or all(dim == 1 for dim in data.dims)
            if scope.is_constant(tensor) and single:
                return None
            return f"input {constraint.name} must be a constant scalar"
        case "rank_in":
            data = scope.type_of(tensor)
            if data is None or data.dims is None or _among(len(data.dims), allowed):
                return None
            return f"input {constraint.name} has rank {len(data.dims)}, takes {_list(allowed)}"
        case "rank_not_in":
            data = scope.type_of(tensor)
            if data is None or data.dims is None or not _among(len(data.dims), allowed):
                return None
            return f"input {constraint.name} has rank {len(data.dims)}, which it does not take"
        case "dtype_in" | "dtype_not_in":
            data = scope.type_of(tensor)
            if data is None or data.dtype == 0:
                return None
            dtype = TensorProto.DataType.Name(data.dtype)
            if _among(dtype, allowed) == (constraint.rule == "dtype_in"):
                return None
            wish = "which it does not take" if constraint.rule == "dtype_not_in" else f"takes {_list(allowed)}"
            return f"input {constraint.name} is {dtype}, {wish}"
        case "note" | "shape_note":
            return None


def default_of(node: onnx.NodeProto, name: str, scope: GraphScope) -> Scalar | list[Scalar] | None:
    """The default of an attribute; None if the schema has none."""
    schema = scope.schema(node)
    known = schema.attributes.get(name) if schema is not None else None
    if known is None or known.default_value.type == AttributeProto.UNDEFINED:
        return None
    return attribute_value(known.default_value)


def _tuple(value: Scalar | tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,)


def _among(value: Scalar | list[Scalar] | None, allowed: Iterable[Scalar]) -> bool:
    return not isinstance(value, list) and value is not None and value in set(allowed)


def _list(allowed: tuple[Scalar, ...]) -> str:
    return " or ".join(str(item) for item in allowed)


#: An optional input that is left out.
OMITTED = "-"


def spelled(node: onnx.NodeProto, scope: GraphScope, *, exact: bool) -> str | None:
    """Attributes, then the inputs with dtype, rank and whether constant; None if the type of an input is unknown.

    `exact` gives dimensions in place of ranks, and the values of small constants.
    """
    inputs = [_input_spelled(name, scope, exact=exact) for name in node.input]
    if None in inputs:
        return None
    attributes = {}
    for attribute in node.attribute:
        written = scope.attribute(node, attribute.name)
        if written is not None:
            value = attribute_value(written)
            if value is None or value != default_of(node, attribute.name, scope):
                attributes[attribute.name] = value
    return use_text(attributes, list(map(str, inputs)), sum(1 for name in node.output if name))


def use_text(attributes: Mapping[str, Scalar | list[Scalar] | None], inputs: Sequence[str], outputs: int) -> str:
    """The line for a use; an attribute that is a tensor or a graph is None."""
    written = sorted(f"{name}={_text(value)}" for name, value in attributes.items())
    more = f" to {outputs} outputs" if outputs != 1 else ""
    return f"{' '.join([*written, ''])}({', '.join(inputs)}){more}"


def input_text(dtype: str, dims: Sequence[str], *, constant: bool) -> str:
    """One input in the line, without values."""
    return f"{'constant ' if constant else ''}{dtype}[{','.join(dims)}]"


def _input_spelled(name: str, scope: GraphScope, *, exact: bool) -> str | None:
    if not name:
        return OMITTED
    known = scope.type_of(name)
    if known is None or not known.dtype or known.dims is None:
        return None
    dims = [str(dim) if exact and dim is not None else "?" for dim in known.dims]
    constant = scope.is_constant(name)
    text = input_text(TensorProto.DataType.Name(known.dtype), dims, constant=constant)
    tensor = scope.tensor(name) if exact and constant else None
    values = small_values(tensor) if tensor is not None and known.dtype != TensorProto.STRING else None
    return f"{text} {_text(values)}" if values else text


def _text(value: object) -> str:
    if value is None:
        return "…"
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
