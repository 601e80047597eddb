"""Rewrite a piece into the form that a target accepts (`ProbeFormat`)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import onnx
from onnx import helper

from onnxbisect.cut.neutral_boundary import make_neutral
from onnxbisect.cut.rename import rename_tensors, tensor_names
from onnxbisect.cut.wiring import IR_WITH_INITIALIZERS_AS_INPUTS, list_as_inputs
from onnxbisect.model.scopes import bodies, domain_of, is_constant, opset_versions, schema_of
from onnxbisect.probe_format import ProbeFormat

#: Ops that take `kernel_shape` from the weight's shape where the attribute is missing.
_CONVOLUTIONS = ("Conv", "ConvTranspose")


def apply_format(piece: onnx.ModelProto, probe_format: ProbeFormat) -> dict[str, str]:
    """Change `piece` in place as `probe_format` says; returns the old name of each renamed tensor by its new name."""
    if probe_format.constants_as_initializers:
        _constants_to_initializers(piece.graph)
        if piece.ir_version <= IR_WITH_INITIALIZERS_AS_INPUTS:
            list_as_inputs(piece.graph, piece.graph.initializer)
    if probe_format.explicit_defaults or probe_format.unwritten_defaults:
        _settle_defaults(piece.graph.node, opset_versions(piece.opset_import), probe_format)
        for function in piece.functions:
            _settle_defaults(function.node, opset_versions(function.opset_import), probe_format)
    if probe_format.explicit_defaults:
        _write_kernel_shapes(piece.graph, {})
    neutral = make_neutral(piece, probe_format)
    named = _rename_boundary(piece.graph, probe_format)
    return {**neutral, **{new: neutral.get(old, old) for new, old in named.items()}}


def _rename_boundary(graph: onnx.GraphProto, probe_format: ProbeFormat) -> dict[str, str]:
    """Give inputs and outputs names that the target takes; returns the old name of each renamed one by its new name."""

    def wanted(name: str) -> str:
        return shortened(safe_name(name) if probe_format.safe_names else name, probe_format.longest_name)

    graph.name = wanted(graph.name)
    boundary = dict.fromkeys(value.name for value in (*graph.input, *graph.output))
    unsafe = [name for name in boundary if wanted(name) != name]
    if not unsafe:
        return {}
    taken = tensor_names(graph)
    new_names = {}
    for name in unsafe:
        new = base = wanted(name)
        count = 1
        while new in taken:
            count += 1
            suffix = f"_{count}"
            longest = probe_format.longest_name
            new = shortened(base, None if longest is None else longest - len(suffix)) + suffix
        taken.add(new)
        new_names[name] = new
    rename_tensors(graph, new_names)
    return {new: old for old, new in new_names.items()}


def shortened(name: str, longest: int | None) -> str:
    """The name without what exceeds so many bytes; None is no limit."""
    return name if longest is None else name.encode("utf-8", "replace")[:longest].decode("utf-8", "ignore") or "_"


def safe_name(name: str) -> str:
    """The boundary name that `ProbeFormat.safe_names` gives to `name`, unless the piece already uses that name."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    kept = []
    found = False
    for node in graph.node:
        for body in bodies(node):
            _constants_to_initializers(body)
        if is_constant(node) and _move(node, graph):
            found = True
        else:
            kept.append(node)
    if found:
        moved_names = {tensor.name for tensor in graph.initializer}
        moved_names.update(tensor.values.name for tensor in graph.sparse_initializer)
        remaining = onnx.GraphProto()
        remaining.node.extend(kept)
        del graph.node[:]
        graph.node.extend(remaining.node)
        shapes = [value for value in graph.value_info if value.name not in moved_names]
        if len(shapes) < len(graph.value_info):
            remaining.value_info.extend(shapes)
            del graph.value_info[:]
            graph.value_info.extend(remaining.value_info)


def _move(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    """Turn a Constant node into an initializer; returns False for values that an initializer cannot hold."""
    (name,) = node.output
    attributes = {attribute.name: attribute for attribute in node.attribute if not attribute.ref_attr_name}
    if "value" in attributes:
        graph.initializer.add().CopyFrom(attributes["value"].t)
        graph.initializer[-1].name = name
        return True
    if "sparse_value" in attributes:
        graph.sparse_initializer.add().CopyFrom(attributes["sparse_value"].sparse_tensor)
        graph.sparse_initializer[-1].values.name = name
        return True
    for key, dtype in (
        ("value_float", onnx.TensorProto.FLOAT),
        ("value_int", onnx.TensorProto.INT64),
        ("value_string", onnx.TensorProto.STRING),
    ):
        if key in attributes:
            graph.initializer.append(helper.make_tensor(name, dtype, [], [helper.get_attribute_value(attributes[key])]))
            return True
        if key + "s" in attributes:
            values = helper.get_attribute_value(attributes[key + "s"])
            graph.initializer.append(helper.make_tensor(name, dtype, [len(values)], values))
            return True
    return False


def _settle_defaults(nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int], probe_format: ProbeFormat) -> None:
    for node in nodes:
        for body in bodies(node):
            _settle_defaults(body.node, opsets, probe_format)
        domain = domain_of(node)
        written = {attribute.name for attribute in node.attribute}
        for default in _schema_defaults(node.op_type, domain, opsets.get(domain, 0)):
            if f"{node.op_type}.{default.name}" in probe_format.unwritten_defaults:
                if default in node.attribute:
                    node.attribute.remove(default)
            elif probe_format.explicit_defaults and default.name not in written:
                node.attribute.append(default)


def _write_kernel_shapes(graph: onnx.GraphProto, outer: Mapping[str, Sequence[int]]) -> None:
    weights = {**outer, **{tensor.name: tensor.dims for tensor in graph.initializer}}
    for node in graph.node:
        for body in bodies(node):
            _write_kernel_shapes(body, weights)
        if node.op_type not in _CONVOLUTIONS or domain_of(node):
            continue
        # An invalid file may have a convolution without a weight; it is the compiler that says so.
        dims = next((weights[name] for name in node.input[1:2] if name in weights), None)
        if dims is not None and "kernel_shape" not in {attribute.name for attribute in node.attribute}:
            node.attribute.append(helper.make_attribute("kernel_shape", list(dims)[2:]))


@cache
def _schema_defaults(op_type: str, domain: str, version: int) -> tuple[onnx.AttributeProto, ...]:
    """The attributes of an operator that have a default value; empty for ops that onnx does not know."""
    schema = schema_of(op_type, version, domain)
    if schema is None:
        return ()
    # Attributes without a default, such as the axes of Clip-6 or Resize, mean something when absent: never add them.
    values = (schema.attributes[name].default_value for name in sorted(schema.attributes))
    return tuple(value for value in values if value.type != onnx.AttributeProto.UNDEFINED)
