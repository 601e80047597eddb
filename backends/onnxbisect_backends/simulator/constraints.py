"""How a node uses its op: against a profile's limits, and as a line of text.

Unknown properties (such as a rank that is neither stated nor inferred) count as within the limit: a simulator that
refuses what it cannot read would invent culprits.
"""

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import AttributeProto, TensorProto

from onnxbisect_backends.simulator.profiles import (
    AttrConstraint,
    Constraint,
    Effect,
    InputConstraint,
    InputsConstraint,
    Scalar,
)
from onnxbisect_backends.simulator.scope import GraphScope, small_values

_DTYPE_ATTRIBUTES = frozenset({"to", "dtype"})


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
    value = value_of(written) if written is not None else default_of(node, name, scope)
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
            if (value_of(mode) if mode is not None else "nearest") == "nearest" and not _among(value, allowed):
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
    return value_of(known.default_value)


def value_of(attribute: AttributeProto) -> Scalar | list[Scalar] | None:
    """An attribute's value in profile notation, dtypes by name; None for tensors and graphs."""
    match attribute.type:
        case AttributeProto.FLOAT:
            return float(attribute.f)
        case AttributeProto.INT:
            if attribute.name in _DTYPE_ATTRIBUTES and attribute.i in TensorProto.DataType.values():
                return str(TensorProto.DataType.Name(attribute.i))
            return int(attribute.i)
        case AttributeProto.STRING:
            return str(attribute.s.decode("utf-8", "replace"))
        case AttributeProto.FLOATS:
            return list(attribute.floats)
        case AttributeProto.INTS:
            return list(attribute.ints)
        case AttributeProto.STRINGS:
            return [item.decode("utf-8", "replace") for item in attribute.strings]
    return None


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
            value = value_of(written)
            if value is None or value != default_of(node, attribute.name, scope):
                attributes[attribute.name] = value
    return use_text(attributes, list(map(str, inputs)), sum(1 for name in node.output if name))


def use_text(attributes: Mapping[str, Scalar | list[Scalar] | None], inputs: Sequence[str], outputs: int) -> str:
    """The line for a use; an attribute that is a tensor or a graph is None."""
    written = sorted(f"{name}={_value(value)}" for name, value in attributes.items())
    more = f" to {outputs} outputs" if outputs != 1 else ""
    return f"{' '.join([*written, ''])}({', '.join(inputs)}){more}"


def input_text(dtype: str, dims: Sequence[str], *, constant: bool) -> str:
    """One input in the line, without values."""
    return f"{'constant ' if constant else ''}{dtype}[{','.join(dims)}]"


def _value(value: Scalar | list[Scalar] | None) -> str:
    if value is None:
        return "…"
    return ",".join(map(_number, value)) if isinstance(value, list) else _number(value)


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
    return f"{text} {','.join(map(_number, values))}" if values else text


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
