"""Lower the versions of a model that is newer than onnxruntime, for this program's own runs."""

from collections.abc import Iterator

import onnx
from onnx import AttributeProto, defs, helper
from onnx.inliner import inline_selected_functions

from onnxbisect.language import english
from onnxbisect.model.scopes import domain_of, walk

#: The newest IR version and operator sets that onnxruntime 1.31 loads.
_IR = 13
_OPSETS = {"": 26, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1}


def loadable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy at the newest versions that onnxruntime loads.

    Up to operator set 28 the ops that older sets have compute the same there, on fewer types. Newer ops are written as
    what onnx defines them by. Where an older set lacks something else, onnxruntime refuses the copy and says what.
    """
    newer = _too_new(model)
    if not newer:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, _IR)
    if unknown := _newer_ops(copy):
        copy = inline_selected_functions(copy, sorted(unknown), inline_schema_functions=True)
    imports = [*copy.opset_import, *(entry for function in copy.functions for entry in function.opset_import)]
    versions = {_domain(entry.domain): entry.version for entry in imports}
    for node in _nodes(copy):
        _drop_newer_defaults(node, versions.get(domain_of(node), 0))
    for entry in imports:
        entry.version = min(entry.version, _OPSETS.get(_domain(entry.domain), entry.version))
    return copy


def lowered(model: onnx.ModelProto) -> str:
    """A note on what `loadable` lowers; empty if nothing."""
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
        newest = _OPSETS.get(_domain(entry.domain), entry.version)
        what = f"operator set{f' of {domain}' if (domain := _domain(entry.domain)) else ''}"
        if entry.version > newest and (what, entry.version, newest) not in found:
            found.append((what, entry.version, newest))
    return found


def _newer_ops(model: onnx.ModelProto) -> set[tuple[str, str]]:
    """The ops that no loadable operator set has."""
    used = {(domain_of(node), node.op_type) for node in _nodes(model)}
    own = {(function.domain, function.name) for function in model.functions}
    return {
        (domain, op)
        for domain, op in used - own
        if domain in _OPSETS and defs.has(op, domain) and not defs.has(op, _OPSETS[domain], domain)
    }


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
        if default.type != AttributeProto.UNDEFINED and _value(attribute) == _value(default):
            node.attribute.remove(attribute)


def _value(attribute: AttributeProto) -> object:
    return helper.get_attribute_value(attribute)


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from walk(model.graph)
    for function in model.functions:
        yield from walk(function)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
