"""Whether a node means the same under an older schema, and what must be written out for that."""

from functools import cache

import onnx
from onnx import AttributeProto, TensorProto, defs, helper

from onnxbisect.file_remedies.editing import node_copy
from onnxbisect.rewrites import Facts, NotApplicable

#: Values that an attribute accepts only from an operator set on, though its schema is unchanged.
_NEWER_VALUES = {
    ("Pad", "mode"): {"wrap": 19},
    ("Resize", "coordinate_transformation_mode"): {"half_pixel_symmetric": 19},
    ("ScatterElements", "reduction"): {"max": 18, "min": 18},
    ("ScatterND", "reduction"): {"max": 18, "min": 18},
}
#: Operators whose meaning changed in an operator set while their schema did not.
_CHANGED = {"DFT": 20}
#: Attributes without a default that are ones if absent.
_ONES = ("dilations",)


def schema_at(op: str, version: int) -> defs.OpSchema | None:
    """The schema of an ONNX operator in an operator set; None if it has none or a withdrawn one."""
    schema = _schema(op, version)
    return None if schema is None or schema.deprecated else schema


@cache
def _schema(op: str, version: int) -> defs.OpSchema | None:
    return defs.get_schema(op, version) if defs.has(op, version) else None


def fitted(node: onnx.NodeProto, facts: Facts, now: int, to: int) -> onnx.NodeProto:
    """The node for operator set `to`; raises NotApplicable if it has no equal there.

    Attributes of later versions are omitted if they have their default; defaults that have changed are written out.
    """
    newer, older = schema_at(node.op_type, now), schema_at(node.op_type, to)
    if older is None or newer is None:
        raise NotApplicable(f"operator set {to} has no {node.op_type}")
    if newer.since_version == older.since_version:
        return node
    if to < _CHANGED.get(node.op_type, 0):
        raise NotApplicable(f"{node.op_type} has another meaning in operator set {to}")
    given = len(node.input)
    while given and not node.input[given - 1]:
        given -= 1
    if not older.min_input <= given <= older.max_input or not _outputs_fit(node, older):
        raise NotApplicable(f"{node.op_type} of operator set {to} has other inputs or outputs")
    for slot, name in enumerate(node.input):
        formal = older.inputs[min(slot, len(older.inputs) - 1)]
        if not name and formal.option == defs.OpSchema.FormalParameterOption.Single:
            raise NotApplicable(f"operator set {to} demands the input {formal.name} of {node.op_type}")
    _demand_types(node, facts, older, to)
    return _with_attributes(node, newer, older, to)


def _outputs_fit(node: onnx.NodeProto, older: defs.OpSchema) -> bool:
    used = [slot for slot, name in enumerate(node.output) if name]
    if node.op_type == "BatchNormalization" and len(used) > 1:
        return False
    return len(used) == 0 or used[-1] < older.max_output


def _with_attributes(node: onnx.NodeProto, newer: defs.OpSchema, older: defs.OpSchema, to: int) -> onnx.NodeProto:
    result = node_copy(node)
    kept = []
    for attribute in node.attribute:
        if attribute.name in older.attributes:
            since = _NEWER_VALUES.get((node.op_type, attribute.name), {}).get(attribute.s.decode("utf-8", "replace"))
            if since is not None and to < since:
                raise NotApplicable(f"{attribute.name}={attribute.s.decode()} of {node.op_type} is newer than {to}")
            kept.append(attribute)
        elif not _says_default(attribute, newer):
            raise NotApplicable(f"{node.op_type} of operator set {to} has no attribute {attribute.name}")
    written = {attribute.name for attribute in node.attribute}
    for name, formal in older.attributes.items():
        if name not in newer.attributes or name in written:
            continue
        default = newer.attributes[name].default_value
        if default.type != AttributeProto.UNDEFINED and default != formal.default_value:
            kept.append(default)
    copies = [AttributeProto.FromString(attribute.SerializeToString()) for attribute in kept]
    del result.attribute[:]
    result.attribute.extend(copies)
    return result


def _says_default(attribute: AttributeProto, newer: defs.OpSchema) -> bool:
    value = helper.get_attribute_value(attribute)
    if attribute.name in _ONES:
        return all(one == 1 for one in value)
    formal = newer.attributes.get(attribute.name)
    if formal is None or formal.default_value.type == AttributeProto.UNDEFINED:
        return False
    return bool(value == helper.get_attribute_value(formal.default_value))


def _demand_types(node: onnx.NodeProto, facts: Facts, older: defs.OpSchema, to: int) -> None:
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in older.type_constraints}
    bound: dict[str, str] = {}
    for names, formals in ((node.input, older.inputs), (node.output, older.outputs)):
        for slot, name in enumerate(names):
            if not name or not formals:
                continue
            formal = formals[min(slot, len(formals) - 1)]
            kind = type_string(facts.type(name))
            if kind is None:
                continue
            if kind not in allowed.get(formal.type_str, [formal.type_str]):
                raise NotApplicable(f"{node.op_type} of operator set {to} does not take {kind}")
            if formal.is_homogeneous and bound.setdefault(formal.type_str, kind) != kind:
                raise NotApplicable(f"{node.op_type} of operator set {to} does not take {kind} beside others")


def type_string(kind: onnx.TypeProto | None) -> str | None:
    """The type as schemas write it, such as `tensor(float)`; None if it is not fully known."""
    if kind is None:
        return None
    form = kind.WhichOneof("value")
    if form == "tensor_type":
        dtype = kind.tensor_type.elem_type
        return f"tensor({TensorProto.DataType.Name(dtype).lower()})" if dtype else None
    if form == "sequence_type":
        inner = type_string(kind.sequence_type.elem_type)
        return None if inner is None else f"seq({inner})"
    if form == "optional_type":
        inner = type_string(kind.optional_type.elem_type)
        return None if inner is None else f"optional({inner})"
    return None
