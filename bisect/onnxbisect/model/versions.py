"""Models at other versions of ONNX: in a newer operator set, and at the versions that onnxruntime loads.

Some files use an op that their own operator set does not have yet, as GridSample in operator set 11: exporters write
them, and so do hands that replaced a subgraph. Several compilers read such a file. What it computes is clear, but
onnxruntime runs it in a newer operator set only. A file that is newer than onnxruntime runs at lower versions.
"""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import onnx
from onnx import AttributeProto, defs, helper, numpy_helper, version_converter
from onnx.inliner import inline_selected_functions

from onnxbisect.errors import ModelError
from onnxbisect.language import english, some
from onnxbisect.model.external import is_external
from onnxbisect.model.order import make_unique
from onnxbisect.model.scopes import bodies, constant_names, domain_of, every_node, opset_versions, schema_of

#: Initializers that the version converter gets; it needs the values of none that are larger.
_SMALL = 64
#: The domain in which the version converter leaves an op alone.
_LEFT_ALONE = "onnxbisect.newer"


def newer_ops(model: onnx.ModelProto) -> dict[str, int]:
    """ONNX's ops that the model's operator set lacks and a later one has, each with the first set that has it.

    A form that was replaced later is not meant: GroupNormalization had one scale for each group in set 18 only.
    """
    own = opset_versions(model.opset_import).get("")
    if own is None:
        return {}
    functions = {(function.domain, function.name) for function in model.functions}
    used = {node.op_type for node in every_node(model) if not domain_of(node) and ("", node.op_type) not in functions}
    missing = sorted(op for op in used if not defs.has(op, own) and defs.has(op))
    firsts = {op: _first(op, own + 1) for op in missing}
    return {op: first for op, first in firsts.items() if first is not None}


def _first(op: str, start: int) -> int | None:
    versions = range(start, defs.onnx_opset_version() + 1)
    return next((it for it in versions if defs.has(op, it) and not defs.get_schema(op, it).deprecated), None)


def raised(
    model: onnx.ModelProto,
    to: int,
    types: Mapping[str, onnx.TypeProto],
    value: Callable[[str], np.ndarray | None],
) -> onnx.ModelProto:
    """A copy of the model in a newer operator set.

    Nodes keep the names of their outputs. `types` are those of tensors as far as known; `value` returns a constant.
    Raises ModelError for what the version converter cannot convert.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    now, newer = opset_versions(model.opset_import).get("", 0), newer_ops(model)
    result.ir_version = max(result.ir_version, 4)  # before, initializers had to be inputs
    for entry in result.opset_import:
        if not domain_of(entry):
            entry.version = to
    if _alike(model, now, to, newer):
        return result
    graph = model.graph
    if model.functions or graph.sparse_initializer or any(bodies(node) for node in graph.node):
        raise ModelError("onnx's version converter takes no functions, bodies of nodes or sparse initializers")
    for node in graph.node:
        if node.op_type == "Hardmax" or (node.op_type == "Dropout" and now < 10 and len(node.output) > 1):
            raise ModelError(f"onnx's version converter changes what {node.op_type} computes")
    try:
        converted = version_converter.convert_version(_for_converter(model, types, newer), to).graph
    except Exception as error:  # it raises what its C++ code does: RuntimeError and others
        raise ModelError(f"onnx's version converter fails: {str(error).strip()}") from error
    known = constant_names(graph)
    result.graph.initializer.extend(tensor for tensor in converted.initializer if tensor.name not in known)
    stored = {tensor.name for tensor in result.graph.initializer}
    nodes = [node for node in converted.node if node.output[0] not in stored]  # it leaves Constants that it has read
    make_unique(nodes)
    before = {node.output[0]: node for node in graph.node}
    for node in nodes:
        if node.domain == _LEFT_ALONE:
            node.domain = ""
        old = before.get(node.output[0])
        if old is not None and now < 11 and old.op_type in ("Resize", "Upsample"):
            node.attribute.extend(_resized_as_before(old, value))
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def _alike(model: onnx.ModelProto, now: int, to: int, newer: Mapping[str, int]) -> bool:
    """Whether all other ops of ONNX are in both operator sets what they are in the older one."""
    if model.functions:
        return False
    ops = {node.op_type for node in every_node(model) if not domain_of(node)}.difference(newer)
    schemas = [(schema_of(op, now), schema_of(op, to)) for op in ops]
    return all(old is not None and new is not None and old.since_version == new.since_version for old, new in schemas)


def _for_converter(
    model: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], newer: Mapping[str, int]
) -> onnx.ModelProto:
    """A copy with the types that it needs, and large weights as inputs: it would lose where external ones are."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    graph = proto.graph
    weights = [it for it in graph.initializer if is_external(it) or prod(it.dims) > _SMALL]
    for tensor in weights:
        graph.initializer.remove(tensor)
    declared = {value.name for value in (*graph.input, *graph.output, *graph.value_info)}
    stored = {it.name: helper.make_tensor_type_proto(it.data_type, it.dims) for it in weights}
    graph.input.extend(helper.make_value_info(*it) for it in stored.items() if it[0] not in declared)
    inner = ((name, kind) for name, kind in types.items() if name not in declared and name not in stored)
    graph.value_info.extend(helper.make_value_info(*it) for it in inner)
    for node in proto.graph.node:
        if node.op_type in newer and not domain_of(node):
            node.domain = _LEFT_ALONE
    proto.opset_import.append(helper.make_opsetid(_LEFT_ALONE, 1))
    return proto


def _resized_as_before(node: onnx.NodeProto, value: Callable[[str], np.ndarray | None]) -> list[onnx.AttributeProto]:
    """How Resize and Upsample computed before operator set 11, which the version converter leaves to other defaults."""
    attributes = {it.name: helper.get_attribute_value(it) for it in node.attribute}
    scales = attributes["scales"] if "scales" in attributes else value(node.input[1])
    found = [helper.make_attribute("coordinate_transformation_mode", "asymmetric")]
    if attributes.get("mode", b"nearest") == b"nearest":
        if scales is None or (min(scales) < 1 < max(scales)):
            raise ModelError(f"{node.op_type} {node.name} rounds along one axis up and along another one down")
        found.append(helper.make_attribute("nearest_mode", "ceil" if min(scales) < 1 else "floor"))
    return found


#: The newest IR version and operator sets that onnxruntime 1.31 loads.
_IR = 13
_OPSETS = {"": 26, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1}


def loadable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy in the operator set that has its ops, and at the newest versions that onnxruntime loads.

    Up to operator set 28 the ops that older sets have compute the same there, on fewer types. Newer ops are written as
    what onnx defines them by. Where an older set lacks something else, onnxruntime refuses the copy and says what.
    """
    model = _with_its_ops(model)
    newer = _too_new(model)
    if not newer:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, _IR)
    used = {(domain_of(node), node.op_type) for node in every_node(copy)}
    used -= {(function.domain, function.name) for function in copy.functions}
    known = {it for it in used if it[0] in _OPSETS and defs.has(it[1], it[0])}
    if unknown := {it for it in known if not defs.has(it[1], _OPSETS[it[0]], it[0])}:
        copy = inline_selected_functions(copy, sorted(unknown), inline_schema_functions=True)
    imports = [*copy.opset_import, *(entry for function in copy.functions for entry in function.opset_import)]
    versions = opset_versions(imports)
    for node in every_node(copy):
        _drop_newer_defaults(node, versions.get(domain_of(node), 0))
    for entry in imports:
        entry.version = min(entry.version, _OPSETS.get(domain_of(entry), entry.version))
    return copy


def _with_its_ops(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy in the first operator set that has all of its ops; the model where that is impossible."""
    newer = newer_ops(model)
    if not newer:
        return model
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    try:
        return raised(
            model, max(newer.values()), {}, lambda name: numpy_helper.to_array(stored[name]) if name in stored else None
        )
    except ModelError:
        return model


def versions_changed(model: onnx.ModelProto) -> str:
    """A note on the versions that `loadable` changes; empty if none."""
    if ops := newer_ops(model):
        return english(
            "Operator set {own} has no {ops}: this program's own runs take the model in operator set {first}.",
            own=opset_versions(model.opset_import)[""],
            ops=some(list(ops)),
            first=max(ops.values()),
        )
    newer = _too_new(model)
    if not newer:
        return ""
    changes = ", ".join(f"{what} {old} as {new}" for what, old, new in newer)
    return english(
        "onnxruntime does not load so new a model, so this program's own runs take it at lower versions: {changes}.",
        changes=changes,
    )


def _too_new(model: onnx.ModelProto) -> list[tuple[str, int, int]]:
    found = [("IR version", model.ir_version, _IR)] if model.ir_version > _IR else []
    for entry in (*model.opset_import, *(it for function in model.functions for it in function.opset_import)):
        newest = _OPSETS.get(domain_of(entry), entry.version)
        what = f"operator set{f' of {domain}' if (domain := domain_of(entry)) else ''}"
        if entry.version > newest and (what, entry.version, newest) not in found:
            found.append((what, entry.version, newest))
    return found


def _drop_newer_defaults(node: onnx.NodeProto, version: int) -> None:
    """Remove attributes that the loadable operator set lacks where they have their default."""
    op, domain = node.op_type, domain_of(node)
    newest = _OPSETS.get(domain, version)
    if version <= newest or not defs.has(op, version, domain) or not defs.has(op, newest, domain):
        return
    newer, older = defs.get_schema(op, version, domain), defs.get_schema(op, newest, domain)
    for attribute in list(node.attribute):
        formal = newer.attributes.get(attribute.name)
        if attribute.name in older.attributes or formal is None or attribute.ref_attr_name:
            continue
        default = formal.default_value
        if default.type != AttributeProto.UNDEFINED and _attribute_value(attribute) == _attribute_value(default):
            node.attribute.remove(attribute)


def _attribute_value(attribute: AttributeProto) -> object:
    return helper.get_attribute_value(attribute)
