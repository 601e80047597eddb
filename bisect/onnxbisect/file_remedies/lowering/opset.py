"""Lowering the operator set of a file, node by node.

onnx.version_converter refuses this for Add, Relu, MatMul and HardSwish, loses metadata and the functions of a model.
Here a node stays as it is where its older schema means the same, else it is written in the older form of its operator,
else by the parts that a rewrite rule knows. What cannot be written at all stops the whole.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from onnxbisect.file_remedies.editing import copied, drop_unread, every_name, node_copy, set_nodes, trace, unused_prefix
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.lowering.forms import FORMS
from onnxbisect.file_remedies.lowering.schemas import fitted
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.scopes import bodies, domain_of, reads
from onnxbisect.preflight import NEWEST_OPSET_IN_GENERAL, Reader
from onnxbisect.preflight.subject import some
from onnxbisect.rewrites import (
    ANY_OP,
    Exactness,
    Facts,
    NotApplicable,
    Refusal,
    Replacement,
    Rewrite,
    Site,
    installed,
    judged,
)

#: Below it nothing is lowered.
OLDEST = 11
#: Rules that are applied to what a rule has put in place of a node.
_DEEPEST = 3
#: Operators that onnxruntime computes in another way below an operator set, so that the last bit may differ.
_OTHER_KERNELS = {"AveragePool": 19}
#: Of what is said of a node that cannot be written.
_MOST_REASONS = 3
#: Elements of a constant of the outer graph that nodes in a body are shown.
_SMALL = 1024


@file_remedy("lower-opset", answers="opset-newer-than-tool opset-too-new")
def lower_opset(file: File, reader: Reader) -> Change:
    """The newest operator set that the tool reads: newer operators in their older form, or by their parts."""
    to = reader.newest_opset or NEWEST_OPSET_IN_GENERAL
    now = file.facts.opsets.get("", 0)
    if now <= to:
        raise NotApplicable(f"the operator set is {now}, which is not above {to}")
    if to < OLDEST:
        raise NotApplicable(f"operator sets below {OLDEST} are not written")
    result = copied(file.proto)
    lowering = _Lowering(file, now, to)
    lowering.graph(result.graph)
    for function in result.functions:
        lowering.function(function)
    for entry in (*result.opset_import, *(entry for function in result.functions for entry in function.opset_import)):
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(entry.version, to)
    drop_unread(result.graph, lowering.replaced_reads)
    changed = tuple(f"{count} {op}" for op, count in sorted(lowering.rewritten.items()))
    sentence = f"operator set {now} → {to}" + (f", written in older forms: {some(changed, 6)}" if changed else "")
    return Change(proto=result, sentence=sentence, exactness=lowering.exactness, types=lowering.types)


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Nodes that see the same tensors. `facts` are of the operator set that they are in, `older` of the other."""

    facts: Facts
    older: Facts


class _Lowering:
    """Lowers the nodes of one file. `exactness` is the worst of what was done, `rewritten` counts by op."""

    def __init__(self, file: File, now: int, to: int) -> None:
        self._file, self._now, self._to = file, now, to
        self._taken = every_name(file.proto.graph)
        self._rules = [
            [rule for rule in installed().rules if rule.exactness is exactness]
            for exactness in (Exactness.EXACT, Exactness.ROUNDING)
        ]
        self.exactness = Exactness.EXACT
        self.rewritten: Counter[str] = Counter()
        self.replaced_reads: set[str] = set()
        self.types: dict[str, onnx.TypeProto] = {}

    def graph(self, graph: onnx.GraphProto) -> None:
        """Lower the main graph in place."""
        scope = self._scope(self._file.proto, self._file.types, self._file.known)
        self._lower_graph(graph, scope)

    def function(self, function: onnx.FunctionProto) -> None:
        """Lower a function in place. Its tensors have no types, and its constants are nodes."""
        versions = {_domain(entry): entry.version for entry in function.opset_import}
        if versions.get("", self._now) != self._now:
            raise NotApplicable(f"function {function.name} is of another operator set than the model")
        alone = onnx.ModelProto(ir_version=3, opset_import=self._file.proto.opset_import)
        alone.graph.node.extend(function.node)
        scope = self._scope(alone, {value.name: value.type for value in function.value_info}, {})
        nodes: list[onnx.NodeProto] = []
        for node in function.node:
            lowered = self._lower(node, scope)
            if lowered.initializers:
                raise NotApplicable(f"{node.op_type} of function {function.name} needs constants of its own")
            nodes += lowered.nodes
        set_nodes(function, nodes)

    def _scope(
        self, proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], known: Mapping[str, np.ndarray]
    ) -> _Scope:
        facts, older = (Facts(proto, types, known, self._file.folder) for _ in range(2))
        older.opsets = {**facts.opsets, "": self._to}
        return _Scope(facts=facts, older=older)

    def _lower_graph(self, graph: onnx.GraphProto, scope: _Scope) -> None:
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            lowered = self._lower(node, scope)
            nodes += lowered.nodes
            graph.initializer.extend(lowered.initializers)
        set_nodes(graph, nodes)

    def _lower(self, node: onnx.NodeProto, scope: _Scope) -> Replacement:
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

    def _with_lowered_bodies(self, node: onnx.NodeProto, scope: _Scope) -> onnx.NodeProto:
        if not bodies(node):
            return node
        copy = node_copy(node)
        for body in bodies(copy):
            alone = onnx.ModelProto(ir_version=10, opset_import=self._file.proto.opset_import)
            alone.graph.CopyFrom(body)
            declared = {value.name: value.type for value in (*body.input, *body.output, *body.value_info)}
            outer = {name: scope.facts.value(name) for name in _free(body) if _is_small(scope.facts, name)}
            types = {name: kind for name in _free(body) if (kind := scope.facts.type(name)) is not None}
            known = {name: value for name, value in outer.items() if value is not None}
            self._lower_graph(body, self._scope(alone, types | declared, known))
        return copy

    def _as_parts(self, node: onnx.NodeProto, scope: _Scope, depth: int) -> Replacement:
        """The node in the older operator set: as it is, in another form, or by its parts."""
        named = _named(node)
        try:
            return self._in_older_form(node, scope)
        except NotApplicable as error:
            reasons = [str(error)]
        for found in (it for rules in self._rules for it in judged(scope.facts, named, rules)):
            if isinstance(found, Refusal):
                if ANY_OP not in found.rule.takes:
                    reasons.append(f"{found.rule.id}: {found.reason}")
            elif depth < _DEEPEST and all(new.op_type != node.op_type for new in found.replacement.nodes):
                try:
                    return self._of_rule(found, scope, depth)
                except NotApplicable as error:
                    reasons.append(f"{found.rule.id}: {error}")
        raise NotApplicable(f"{node.op_type} {named.name}: {'; '.join(reasons[:_MOST_REASONS])}")

    def _in_older_form(self, node: onnx.NodeProto, scope: _Scope) -> Replacement:
        form = FORMS.get(node.op_type)
        if form is None or not self._to < form.until <= self._now:
            return Replacement(nodes=(fitted(node, scope.facts, self._now, self._to),))
        site = Site(node, scope.older, self._prefix(node))
        outputs = form.write(site)
        if outputs is None:
            return Replacement(nodes=(fitted(node, scope.facts, self._now, self._to),))
        written = site.replacement(outputs)
        same = [new for new in written.nodes if new.op_type == node.op_type]
        if len(same) == 1:
            same[0].name = node.name
        nodes = tuple(fitted(new, scope.older, self._now, self._to) for new in written.nodes)
        return Replacement(nodes=nodes, initializers=written.initializers)

    def _of_rule(self, found: Rewrite, scope: _Scope, depth: int) -> Replacement:
        made = found.replacement
        known = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.initializers}
        inner = self._scope(self._file.proto, {**self._file.types, **found.types}, {**self._file.known, **known})
        parts = [self._as_parts(node, inner, depth + 1) for node in made.nodes]
        self.types |= found.types
        if found.rule.exactness is not Exactness.EXACT:
            self.exactness = Exactness.ROUNDING
        return Replacement(
            nodes=tuple(node for part in parts for node in part.nodes),
            initializers=(*made.initializers, *(tensor for part in parts for tensor in part.initializers)),
        )

    def _prefix(self, node: onnx.NodeProto) -> str:
        return unused_prefix(f"{_named(node).name}/opset{self._to}", self._taken)


def _named(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node, which gets a name if it has none."""
    if node.name:
        return node
    named = node_copy(node)
    named.name = f"{node.op_type}_{next(filter(None, node.output))}"
    return named


def _free(body: onnx.GraphProto) -> list[str]:
    holder = onnx.NodeProto(attribute=[onnx.helper.make_attribute("body", body)])
    return reads(holder)


def _is_small(facts: Facts, name: str) -> bool:
    shape = facts.shape(name)
    return (
        facts.is_constant(name) and shape is not None and prod(_SMALL + 1 if d is None else d for d in shape) <= _SMALL
    )


def _domain(entry: onnx.OperatorSetIdProto) -> str:
    return "" if entry.domain == "ai.onnx" else entry.domain
