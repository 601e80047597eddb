"""Lowers the operator set of a file, node by node.

onnx.version_converter refuses this for Add, Relu, MatMul and HardSwish, and loses metadata and the functions of a
model. Here a node stays as it is if its older schema means the same. Otherwise it is written in the older form of its
operator, or decomposed by a rewrite rule. If one node cannot be written, the file is not lowered.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs, helper, numpy_helper

from onnxbisect.file_remedies import remedy
from onnxbisect.file_remedies.lowering.forms import FORMS
from onnxbisect.language import english, shortened
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import bodies, captures, domain_of, opset_versions, reads
from onnxbisect.preflight import LAST_WITH_AXES_ATTRIBUTES, NEWEST_OPSET_IN_GENERAL, ToolLimits
from onnxbisect.rewrites import (
    ANY_OP,
    Exactness,
    NotApplicable,
    Replacement,
    Rewrite,
    RuleRefusal,
    Site,
    installed,
    judged,
)
from onnxbisect.rewrites.apply import trace

#: Most elements of an outer constant that is visible to nodes in a subgraph.
_SMALL = 1024
#: An IR version in which a rule's constants are nodes, and one in which they are initializers.
_CONSTANTS_ARE_NODES, _CONSTANTS_ARE_INITIALIZERS = 3, 10


@dataclass(frozen=True, kw_only=True, eq=False)
class LoweringScope:
    """`proto` stores the constants, `types` and `known` are as in `File`. `to` is the older operator set."""

    proto: onnx.ModelProto
    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    folder: Path
    to: int

    @cached_property
    def facts(self) -> TensorFacts:
        """For rules written for the operator set that the nodes have."""
        return TensorFacts(self.proto, self.types, self.known, self.folder)

    @cached_property
    def older(self) -> TensorFacts:
        """For nodes written for the older operator set."""
        facts = TensorFacts(self.proto, self.types, self.known, self.folder)
        facts.opsets = {**facts.opsets, "": self.to}
        return facts

    def beside(self, rewrite: Rewrite) -> "LoweringScope":
        """The scope with the tensors that a rule added."""
        made = {tensor.name: numpy_helper.to_array(tensor) for tensor in rewrite.replacement.initializers}
        return replace(self, types={**self.types, **rewrite.types}, known={**self.known, **made})

    def of_body(self, holder: onnx.NodeProto, body: onnx.GraphProto) -> "LoweringScope":
        """The scope of a subgraph of a node in this one, with small constants and types from outside."""
        alone = onnx.ModelProto(ir_version=_CONSTANTS_ARE_INITIALIZERS, opset_import=self.proto.opset_import)
        alone.graph.CopyFrom(body)
        outer = captures(holder)
        types = {name: kind for name in outer if (kind := self.facts.type(name)) is not None}
        types |= {value.name: value.type for value in (*body.input, *body.output, *body.value_info)}
        values = {name: self.facts.value_up_to(name, _SMALL) for name in outer}
        known = {name: value for name, value in values.items() if value is not None}
        return replace(self, proto=alone, types=types, known=known)

    def of_function(self, function: onnx.FunctionProto) -> "LoweringScope":
        """The scope of a function, which sees nothing from outside."""
        alone = onnx.ModelProto(ir_version=_CONSTANTS_ARE_NODES, opset_import=self.proto.opset_import)
        alone.graph.node.extend(function.node)
        return replace(self, proto=alone, types={value.name: value.type for value in function.value_info}, known={})


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


@cache
def schema_at(op: str, version: int) -> defs.OpSchema | None:
    """The schema of an ONNX operator in an operator set; None if it has none or a withdrawn one."""
    schema = defs.get_schema(op, version) if defs.has(op, version) else None
    return None if schema is None or schema.deprecated else schema


def fitted(node: onnx.NodeProto, facts: TensorFacts, now: int, to: int) -> onnx.NodeProto:
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
    used = [slot for slot, name in enumerate(node.output) if name]
    fit = not used or used[-1] < older.max_output
    if node.op_type == "BatchNormalization" and len(used) > 1:
        fit = False
    if not older.min_input <= given <= older.max_input or not fit:
        raise NotApplicable(f"{node.op_type} of operator set {to} has other inputs or outputs")
    for slot, name in enumerate(node.input):
        formal = older.inputs[min(slot, len(older.inputs) - 1)]
        if not name and formal.option == defs.OpSchema.FormalParameterOption.Single:
            raise NotApplicable(f"operator set {to} demands the input {formal.name} of {node.op_type}")
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
    return _with_attributes(node, newer, older, to)


def _with_attributes(node: onnx.NodeProto, newer: defs.OpSchema, older: defs.OpSchema, to: int) -> onnx.NodeProto:
    result = remedy.node_copy(node)
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


#: The oldest operator set to lower to.
OLDEST = 11
#: Most rules applied in turn to the nodes that a rule has inserted.
_DEEPEST = 3
#: Operators that onnxruntime computes differently below an operator set; the last bit may differ.
_OTHER_KERNELS = {"AveragePool": 19}
#: Most reasons given for a node that cannot be written.
_MOST_REASONS = 3


@remedy.file_remedy("lower-opset", answers="opset-newer-than-tool opset-too-new")
def lower_opset(file: remedy.File, limits: ToolLimits) -> remedy.RemediedFile:
    """The newest operator set that the tool reads: newer operators in their older form, or by their parts."""
    return _lowered(file, limits.newest_opset or NEWEST_OPSET_IN_GENERAL)


@remedy.file_remedy("axes-to-attributes", answers="reduction-axes-input")
def axes_to_attributes(file: remedy.File, limits: ToolLimits) -> remedy.RemediedFile:
    """Operator set 17, the last in which reductions have their axes as attributes."""
    return _lowered(file, LAST_WITH_AXES_ATTRIBUTES)


def _lowered(file: remedy.File, to: int) -> remedy.RemediedFile:
    now = file.facts.opsets.get("", 0)
    if now <= to:
        raise NotApplicable(f"the operator set is {now}, which is not above {to}")
    if to < OLDEST:
        raise NotApplicable(f"operator sets below {OLDEST} are not written")
    result = remedy.copied(file.proto)
    lowering = _Lowering(file, now, to)
    lowering.graph(result.graph)
    for function in result.functions:
        lowering.function(function)
    for entry in (*result.opset_import, *(entry for function in result.functions for entry in function.opset_import)):
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(entry.version, to)
    remedy.drop_unread(result.graph, lowering.replaced_reads)
    changed = tuple(f"{count} {op}" for op, count in sorted(lowering.rewritten.items()))
    sentence = english("operator set {now} → {to}", now=now, to=to)
    if changed:
        sentence = english(
            "operator set {now} → {to}, written in older forms: {ops_}", now=now, to=to, ops_=shortened(changed, 6)
        )
    return remedy.RemediedFile(proto=result, sentence=sentence, exactness=lowering.exactness, types=lowering.types)


class _Lowering:
    """Lowers the nodes of one file. `exactness` is the worst so far, `rewritten` counts by op."""

    def __init__(self, file: remedy.File, now: int, to: int) -> None:
        self._now, self._to = now, to
        self._scope = LoweringScope(proto=file.proto, types=file.types, known=file.known, folder=file.folder, to=to)
        self._taken = remedy.beginnings(remedy.every_name(file.proto.graph))
        self._names: set[str] = set()
        self._rules = [
            [rule for rule in installed().rules if rule.exactness is exactness and rule.pattern is None]
            for exactness in (Exactness.EXACT, Exactness.ROUNDING)
        ]
        self.exactness = Exactness.EXACT
        self.rewritten: Counter[str] = Counter()
        self.replaced_reads: set[str] = set()
        self.types: dict[str, onnx.TypeProto] = {}

    def graph(self, graph: onnx.GraphProto) -> None:
        """Lower the main graph in place."""
        self._lower_graph(graph, self._scope)

    def function(self, function: onnx.FunctionProto) -> None:
        """Lower a function in place."""
        versions = opset_versions(function.opset_import)
        if versions.get("", self._now) != self._now:
            raise NotApplicable(f"function {function.name} is of another operator set than the model")
        scope = self._scope.of_function(function)
        nodes: list[onnx.NodeProto] = []
        for node in function.node:
            lowered = self._lower(node, scope)
            if lowered.initializers:
                raise NotApplicable(f"{node.op_type} of function {function.name} needs constants of its own")
            nodes += lowered.nodes
        remedy.set_nodes(function, nodes)

    def _lower_graph(self, graph: onnx.GraphProto, scope: LoweringScope) -> None:
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            lowered = self._lower(node, scope)
            nodes += lowered.nodes
            graph.initializer.extend(lowered.initializers)
        remedy.set_nodes(graph, nodes)

    def _lower(self, node: onnx.NodeProto, scope: LoweringScope) -> Replacement:
        if domain_of(node):
            return Replacement(nodes=(self._with_lowered_bodies(node, scope),))
        node = self._with_lowered_bodies(node, scope)
        replacement = self._as_parts(node, scope, 0)
        if self._to < _OTHER_KERNELS.get(node.op_type, 0) <= self._now:
            self.exactness = Exactness.ROUNDING
        if len(replacement.nodes) != 1 or replacement.nodes[0] != node:
            self.rewritten[node.op_type] += 1
            self.replaced_reads.update(reads(node))
            for new in replacement.nodes:
                trace(node, new)
        return replacement

    def _with_lowered_bodies(self, node: onnx.NodeProto, scope: LoweringScope) -> onnx.NodeProto:
        if not bodies(node):
            return node
        copy = remedy.node_copy(node)
        for body in bodies(copy):
            self._lower_graph(body, scope.of_body(node, body))
        return copy

    def _as_parts(self, node: onnx.NodeProto, scope: LoweringScope, depth: int) -> Replacement:
        """The node in the older operator set: unchanged, in another form, or decomposed."""
        # under a unique name, with which the names of its parts begin
        base = name = node.name or f"{node.op_type}_{next(filter(None, node.output))}"
        number = 1
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        named = node
        if name != node.name:
            named = remedy.node_copy(node)
            named.name = name
        try:
            form = FORMS.get(node.op_type)
            if form is None or not self._to < form.until <= self._now:
                return Replacement(nodes=(fitted(node, scope.facts, self._now, self._to),))
            site = Site(node, scope.older, remedy.unused_prefix(f"{name}/opset{self._to}", self._taken))
            outputs = form.write(site)
            if outputs is None:
                return Replacement(nodes=(fitted(node, scope.facts, self._now, self._to),))
            written = site.replacement(outputs)
            same = [new for new in written.nodes if new.op_type == node.op_type]
            if len(same) == 1:
                same[0].name = node.name
            nodes = tuple(fitted(new, scope.older, self._now, self._to) for new in written.nodes)
            return Replacement(nodes=nodes, initializers=written.initializers)
        except NotApplicable as error:
            reasons = [str(error)]
        for found in (it for rules in self._rules for it in judged(scope.facts, named, rules)):
            if isinstance(found, RuleRefusal):
                if ANY_OP not in found.rule.takes:
                    reasons.append(f"{found.rule.id}: {found.reason}")
            elif depth < _DEEPEST and all(new.op_type != node.op_type for new in found.replacement.nodes):
                try:
                    made = found.replacement
                    parts = [self._as_parts(node, scope.beside(found), depth + 1) for node in made.nodes]
                    self.types |= found.types
                    if found.rule.exactness is not Exactness.EXACT:
                        self.exactness = Exactness.ROUNDING
                    return Replacement(
                        nodes=tuple(node for part in parts for node in part.nodes),
                        initializers=(*made.initializers, *(tensor for part in parts for tensor in part.initializers)),
                    )
                except NotApplicable as error:
                    reasons.append(f"{found.rule.id}: {error}")
        raise NotApplicable(f"{node.op_type} {named.name}: {'; '.join(reasons[:_MOST_REASONS])}")
