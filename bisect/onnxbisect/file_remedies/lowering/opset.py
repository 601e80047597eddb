"""Lowers the operator set of a file, node by node.

onnx.version_converter refuses this for Add, Relu, MatMul and HardSwish, and loses metadata and the functions of a
model. Here a node stays as it is if its older schema means the same. Otherwise it is written in the older form of its
operator, or decomposed by a rewrite rule. If one node cannot be written, the file is not lowered.
"""

from collections import Counter

import onnx

from onnxbisect.file_remedies.editing import (
    beginnings,
    copied,
    drop_unread,
    every_name,
    node_copy,
    set_nodes,
    trace,
    unused_prefix,
)
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.lowering.forms import FORMS
from onnxbisect.file_remedies.lowering.schemas import fitted
from onnxbisect.file_remedies.lowering.scope import Scope
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.scopes import bodies, domain_of, reads
from onnxbisect.preflight import LAST_WITH_AXES_ATTRIBUTES, NEWEST_OPSET_IN_GENERAL, Reader
from onnxbisect.preflight.subject import some
from onnxbisect.rewrites import (
    ANY_OP,
    Exactness,
    NotApplicable,
    Refusal,
    Replacement,
    Rewrite,
    Site,
    installed,
    judged,
)

#: The oldest operator set to lower to.
OLDEST = 11
#: Most rules applied in turn to the nodes that a rule has inserted.
_DEEPEST = 3
#: Operators that onnxruntime computes differently below an operator set; the last bit may differ.
_OTHER_KERNELS = {"AveragePool": 19}
#: Most reasons given for a node that cannot be written.
_MOST_REASONS = 3


@file_remedy("lower-opset", answers="opset-newer-than-tool opset-too-new")
def lower_opset(file: File, reader: Reader) -> Change:
    """The newest operator set that the tool reads: newer operators in their older form, or by their parts."""
    return _lowered(file, reader.newest_opset or NEWEST_OPSET_IN_GENERAL)


@file_remedy("axes-to-attributes", answers="reduction-axes-input")
def axes_to_attributes(file: File, reader: Reader) -> Change:
    """Operator set 17, the last in which reductions have their axes as attributes."""
    return _lowered(file, LAST_WITH_AXES_ATTRIBUTES)


def _lowered(file: File, to: int) -> Change:
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


class _Lowering:
    """Lowers the nodes of one file. `exactness` is the worst so far, `rewritten` counts by op."""

    def __init__(self, file: File, now: int, to: int) -> None:
        self._now, self._to = now, to
        self._scope = Scope(proto=file.proto, types=file.types, known=file.known, folder=file.folder, to=to)
        self._taken = beginnings(every_name(file.proto.graph))
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
        versions = {_domain(entry): entry.version for entry in function.opset_import}
        if versions.get("", self._now) != self._now:
            raise NotApplicable(f"function {function.name} is of another operator set than the model")
        scope = self._scope.of_function(function)
        nodes: list[onnx.NodeProto] = []
        for node in function.node:
            lowered = self._lower(node, scope)
            if lowered.initializers:
                raise NotApplicable(f"{node.op_type} of function {function.name} needs constants of its own")
            nodes += lowered.nodes
        set_nodes(function, nodes)

    def _lower_graph(self, graph: onnx.GraphProto, scope: Scope) -> None:
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            lowered = self._lower(node, scope)
            nodes += lowered.nodes
            graph.initializer.extend(lowered.initializers)
        set_nodes(graph, nodes)

    def _lower(self, node: onnx.NodeProto, scope: Scope) -> Replacement:
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

    def _with_lowered_bodies(self, node: onnx.NodeProto, scope: Scope) -> onnx.NodeProto:
        if not bodies(node):
            return node
        copy = node_copy(node)
        for body in bodies(copy):
            self._lower_graph(body, scope.of_body(node, body))
        return copy

    def _as_parts(self, node: onnx.NodeProto, scope: Scope, depth: int) -> Replacement:
        """The node in the older operator set: unchanged, in another form, or decomposed."""
        named = self._named(node)
        try:
            return self._in_older_form(node, scope, named.name)
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

    def _in_older_form(self, node: onnx.NodeProto, scope: Scope, name: str) -> Replacement:
        form = FORMS.get(node.op_type)
        if form is None or not self._to < form.until <= self._now:
            return Replacement(nodes=(fitted(node, scope.facts, self._now, self._to),))
        site = Site(node, scope.older, unused_prefix(f"{name}/opset{self._to}", self._taken))
        outputs = form.write(site)
        if outputs is None:
            return Replacement(nodes=(fitted(node, scope.facts, self._now, self._to),))
        written = site.replacement(outputs)
        same = [new for new in written.nodes if new.op_type == node.op_type]
        if len(same) == 1:
            same[0].name = node.name
        nodes = tuple(fitted(new, scope.older, self._now, self._to) for new in written.nodes)
        return Replacement(nodes=nodes, initializers=written.initializers)

    def _of_rule(self, found: Rewrite, scope: Scope, depth: int) -> Replacement:
        made = found.replacement
        parts = [self._as_parts(node, scope.beside(found), depth + 1) for node in made.nodes]
        self.types |= found.types
        if found.rule.exactness is not Exactness.EXACT:
            self.exactness = Exactness.ROUNDING
        return Replacement(
            nodes=tuple(node for part in parts for node in part.nodes),
            initializers=(*made.initializers, *(tensor for part in parts for tensor in part.initializers)),
        )

    def _named(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """The node under a unique name, with which the names of its parts begin."""
        base = name = node.name or f"{node.op_type}_{next(filter(None, node.output))}"
        number = 1
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        if name == node.name:
            return node
        named = node_copy(node)
        named.name = name
        return named


def _domain(entry: onnx.OperatorSetIdProto) -> str:
    return "" if entry.domain == "ai.onnx" else entry.domain
