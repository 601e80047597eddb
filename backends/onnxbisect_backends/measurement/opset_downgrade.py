"""Writes a node as before its op's inputs or attributes last changed, for compilers that read older forms.

Many compilers ignore the opset: they read the axes of a ReduceMean either as an attribute, as until opset 17, or as an
input. Their answer on the other form says little about the op.
"""

from itertools import pairwise

import onnx
from onnx import AttributeProto, helper, numpy_helper
from onnx.defs import OpSchema

#: The oldest opset to write.
_OLDEST_OPSET = 9

#: Types of attributes that later became inputs.
_NUMBERS = {
    OpSchema.AttrType.FLOAT: AttributeProto.FLOAT,
    OpSchema.AttrType.FLOATS: AttributeProto.FLOATS,
    OpSchema.AttrType.INT: AttributeProto.INT,
    OpSchema.AttrType.INTS: AttributeProto.INTS,
}


def downgraded(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model of one node in the newest opset in which its op had other inputs or attributes than now.

    Constant inputs become attributes if they were. None if there is no such opset, the node is of another domain, or it
    has no form there.
    """
    node = model.graph.node[0]
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
    if node.domain or not onnx.defs.has(node.op_type, opset):
        return None
    now = onnx.defs.get_schema(node.op_type, opset)
    history = [it for it in onnx.defs.get_all_schemas_with_history() if (it.name, it.domain) == (now.name, "")]
    history.sort(key=lambda it: it.since_version, reverse=True)
    for later, then in pairwise(it for it in history if it.since_version <= now.since_version):
        if _signature(then) != _signature(now):
            until = later.since_version - 1
            return _written(model, now, then, until) if until >= _OLDEST_OPSET else None
    return None


def _signature(schema: OpSchema) -> tuple[list[str], list[str]]:
    return [it.name for it in schema.inputs], sorted(schema.attributes)


def _written(model: onnx.ModelProto, now: OpSchema, then: OpSchema, opset: int) -> onnx.ModelProto | None:
    older = onnx.ModelProto()
    older.CopyFrom(model)
    for entry in older.opset_import:
        if entry.domain == "":
            entry.version = opset
    graph, node = older.graph, older.graph.node[0]
    weights = {tensor.name: tensor for tensor in graph.initializer}
    moved = {name for name, it in then.attributes.items() if it.type in _NUMBERS} - {it.name for it in then.inputs}
    inputs = []
    for formal, name in zip(now.inputs, node.input, strict=False):
        if formal.name in moved and name in weights:
            node.attribute.append(_attribute(formal.name, weights[name], then))
            graph.initializer.remove(weights[name])
        else:
            inputs.append(name)
    inputs += node.input[len(now.inputs) :]
    while inputs and not inputs[-1]:
        inputs.pop()
    node.input[:] = inputs
    for attribute in [it for it in node.attribute if it.name not in then.attributes]:
        if helper.get_attribute_value(attribute) == _default(now, attribute.name):
            node.attribute.remove(attribute)
    try:
        onnx.checker.check_model(older, full_check=True)
    except Exception:  # its own errors, protobuf's, plain RuntimeErrors
        return None
    return older


def _attribute(name: str, value: onnx.TensorProto, then: OpSchema) -> AttributeProto:
    kind = _NUMBERS[then.attributes[name].type]
    number = float if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS) else int
    numbers = [number(it) for it in numpy_helper.to_array(value).ravel()]
    single = kind in (AttributeProto.FLOAT, AttributeProto.INT) and len(numbers) == 1
    return helper.make_attribute(name, numbers[0] if single else numbers, attr_type=kind)


def _default(schema: OpSchema, name: str) -> object:
    default = schema.attributes[name].default_value
    return helper.get_attribute_value(default) if default.type else None
