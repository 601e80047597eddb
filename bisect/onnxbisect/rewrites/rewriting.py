"""Applies rules at a node: the checked replacements in order of rank, or the reasons why there are none.

A float16 or bfloat16 node becomes a float32 node between Casts where only that satisfies a rule. Targets and runtimes
compute such a node in float32 and round its outputs, or in its own type; a replacement between Casts does the first.
The only difference that it can add to the rule's own is one rounding of each output.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import bodies, qualified, reads
from onnxbisect.model.session import NARROW
from onnxbisect.model.variants import Variants
from onnxbisect.rewrites.patterns import Match, matched
from onnxbisect.rewrites.rule import NotApplicable, Replacement, Rule
from onnxbisect.rewrites.site import OLDEST_OPSET, Site


@dataclass(frozen=True, kw_only=True, eq=False)
class Widened:
    """The node in float32, what is known of its tensors, and what leads to its inputs.

    `casts` make computed inputs float32; `constants` are its constant inputs in float32.
    """

    node: onnx.NodeProto
    facts: TensorFacts
    casts: tuple[onnx.NodeProto, ...]
    constants: tuple[TensorProto, ...]


def widened(node: onnx.NodeProto, facts: TensorFacts, prefix: str) -> Widened | None:
    """The node with all tensors of a narrow type in float32; None if it has none, or has bodies or a function's."""
    narrow = {name for name in (*node.input, *node.output) if name and facts.dtype(name) in NARROW}
    if not narrow or bodies(node) or any(function.name == node.op_type for function in facts.functions):
        return None
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    names = {
        name: f"{prefix}float32/{number}" for number, name in enumerate(dict.fromkeys((*node.input, *node.output)))
    }
    casts, constants, types = [], [], {}
    for slot, name in enumerate(node.input):
        if name not in narrow:
            continue
        wide.input[slot] = names[name]
        if names[name] in types:
            continue
        types[names[name]] = _in_float32(facts, name)
        value = facts.value(name) if facts.is_constant(name) else None
        if value is None:
            casts.append(helper.make_node("Cast", [name], [names[name]], name=names[name], to=TensorProto.FLOAT))
        else:
            constants.append(numpy_helper.from_array(np.asarray(value).astype(np.float32), names[name]))
    for slot, name in enumerate(node.output):
        if name in narrow:
            wide.output[slot] = names[name]
            types[names[name]] = _in_float32(facts, name)
    known = facts.extended(types, constants)
    return Widened(node=wide, facts=known, casts=tuple(casts), constants=tuple(constants))


def narrowed(replacement: Replacement, made: Widened, outputs: Sequence[str], facts: TensorFacts) -> Replacement:
    """The replacement of a widened node as one of the node itself, whose `outputs` have their type in `facts` again."""
    read = {name for node in replacement.nodes for name in node.input}
    read |= {name for node in replacement.nodes for body in bodies(node) for it in body.node for name in it.input}
    back = []
    for name, wide in zip(outputs, made.node.output, strict=True):
        dtype = facts.dtype(name) if name != wide else None
        if dtype is not None:
            back.append(helper.make_node("Cast", [wide], [name], name=f"{wide}/narrow", to=dtype))
    return Replacement(
        nodes=(*(cast for cast in made.casts if cast.output[0] in read), *replacement.nodes, *back),
        initializers=(*(it for it in made.constants if it.name in read), *replacement.initializers),
        opsets=replacement.opsets,
        removes=replacement.removes,
    )


def _in_float32(facts: TensorFacts, name: str) -> onnx.TypeProto:
    kind = onnx.TypeProto()
    found = facts.type(name)
    if found is None:
        raise NotApplicable(f"the type of tensor '{name}' is not known")
    kind.CopyFrom(found)
    kind.tensor_type.elem_type = TensorProto.FLOAT
    return kind


#: Most elements of a constant whose value shape inference sees; of larger ones it sees the type.
_SMALL = 4096
#: The first IR version with overloads of functions; initializers need not be inputs.
_MIN_IR = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Rewrite:
    """A rule's replacement of one node, which onnx.checker and strict shape inference accept.

    `node` is the last node of the pattern if the rule has one. `types` are those of all its tensors. Its nodes produce
    the node's outputs, under their names. `inputs` are the tensors that the rule's domain is of.
    """

    rule: Rule
    node: onnx.NodeProto
    inputs: tuple[str, ...]
    replacement: Replacement
    types: Mapping[str, onnx.TypeProto]
    _facts: TensorFacts

    @cached_property
    def variants(self) -> tuple[Hashable, ...]:
        """The support question of each new node, comparable with those of `Variants` in a model."""
        return tuple(self._variants.variant(node) for node in self.replacement.nodes)

    @cached_property
    def solos(self) -> tuple[Hashable, ...]:
        """The same with shapes; rewrites that agree in both are the same probe."""
        return tuple(self._variants.solo(node) for node in self.replacement.nodes)

    def inside(self) -> TensorFacts:
        """The facts inside the replacement, for rules that are applied to its nodes."""
        return self._facts.extended(self.types, self.replacement.initializers)

    @cached_property
    def _variants(self) -> Variants:
        facts, proto = self._facts, onnx.ModelProto()
        proto.opset_import.extend(_imports(facts, self.replacement))
        proto.graph.initializer.extend(self.replacement.initializers)
        known = {}
        for name in _outside(self.replacement):
            held = facts.stored(name)
            if isinstance(held, onnx.TensorProto):
                proto.graph.initializer.add().CopyFrom(held)
                proto.graph.initializer[-1].name = name
            elif held is not None:
                proto.graph.sparse_initializer.append(held)
            elif (array := facts.value(name)) is not None:
                known[name] = array
        return Variants(proto, self.types, known, facts.folder)


def rewrite(rule: Rule, node: onnx.NodeProto, facts: TensorFacts, *, prefix: str | None = None) -> Rewrite:
    """Replace the node as the rule says; raises NotApplicable, with the reason, if that is impossible.

    New names begin with `prefix`; by default, with the names of the node and the rule.
    """
    op = qualified(node)
    if not rule.takes_op(op):
        raise NotApplicable(f"the rule takes {', '.join(rule.takes)}")
    if not node.domain and facts.opsets.get("", 0) < OLDEST_OPSET:
        raise NotApplicable(f"rules are written for operator set {OLDEST_OPSET} and newer")
    match = Match(nodes=(node,)) if rule.pattern is None else matched(rule.pattern, node, facts)
    if isinstance(match, str):
        raise NotApplicable(match)
    node = match.end
    prefix = prefix if prefix is not None else f"{node.name}/{rule.id}/"
    replacement = _built(rule, node, facts, prefix, match)
    for domain, version in replacement.opsets.items():
        if facts.opsets.get(domain, version) != version:
            raise NotApplicable(f"it needs version {version} of operator set '{domain}'")
    # The types of all tensors of the replacement, whose outputs have the types of the node's.
    proto = _standalone(node, replacement, facts)
    try:
        onnx.checker.check_model(proto)
        graph = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True).graph
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
        raise NotApplicable(f"onnx refuses the replacement: {line}") from error
    types = {value.name: value.type for value in [*graph.value_info, *graph.input, *graph.output]}
    types |= {it.name: helper.make_tensor_type_proto(it.data_type, list(it.dims)) for it in graph.initializer}
    inputs = (match.tensors["x"],) if "x" in match.tensors else tuple(node.input)
    return Rewrite(rule=rule, node=node, inputs=inputs, replacement=replacement, types=types, _facts=facts)


def _built(rule: Rule, node: onnx.NodeProto, facts: TensorFacts, prefix: str, match: Match) -> Replacement:
    """What the rule makes of the node; if it refuses one in float16 or bfloat16, of the same in float32."""
    removed = tuple(facts.in_order(match.nodes[1:]))
    try:
        site = Site(node, facts, prefix, match)
        return replace(site.replacement(rule.build(site)), removes=removed)
    except NotApplicable:
        wide = widened(node, facts, prefix) if rule.pattern is None else None
        if wide is None:
            raise
    site = Site(wide.node, wide.facts, prefix)
    return narrowed(site.replacement(rule.build(site)), wide, node.output, facts)


def _standalone(node: onnx.NodeProto, replacement: Replacement, facts: TensorFacts) -> onnx.ModelProto:
    """The replacement as a model, with large constants as inputs.

    Its outputs are declared with the types of the node's, so that strict inference refuses others.
    """
    inputs, initializers = [], list(replacement.initializers)
    for name in _outside(replacement):
        kind = facts.type(name)
        if kind is None:
            raise NotApplicable(f"the type of tensor '{name}' is not known")
        array = facts.value_up_to(name, _SMALL)
        if array is not None and array.dtype != np.object_:
            initializers.append(numpy_helper.from_array(array, name))
        else:
            inputs.append(helper.make_value_info(name, kind))
    outputs = []
    for slot, name in enumerate(node.output):
        kind = facts.type(name)
        if not name:
            continue
        if kind is None or (kind.HasField("tensor_type") and not kind.tensor_type.HasField("shape")):
            raise NotApplicable(f"the rank of output {slot} is not known")
        outputs.append(helper.make_value_info(name, kind))
    graph = helper.make_graph(list(replacement.nodes), "replacement", inputs, outputs, initializers)
    proto = helper.make_model(graph, opset_imports=_imports(facts, replacement), functions=facts.functions)
    proto.ir_version = max(facts.ir_version, _MIN_IR)
    return proto


def _imports(facts: TensorFacts, replacement: Replacement) -> list[onnx.OperatorSetIdProto]:
    opsets = {**facts.opsets, **replacement.opsets}
    return [helper.make_opsetid(domain, version) for domain, version in opsets.items()]


def _outside(replacement: Replacement) -> list[str]:
    """The tensors that the new nodes read and do not define."""
    own = {tensor.name for tensor in replacement.initializers}
    own |= {name for node in replacement.nodes for name in node.output}
    return list(dict.fromkeys(name for node in replacement.nodes for name in reads(node) if name not in own))


@dataclass(frozen=True, kw_only=True)
class RuleRefusal:
    """A rule for the node's op that does not apply at the node, with the reason."""

    rule: Rule
    reason: str


def candidates(facts: TensorFacts, node: onnx.NodeProto, rules: Iterable[Rule]) -> list[Rewrite]:
    """The rewrites of a node, in order of the rules' ranks."""
    return [it for it in judged(facts, node, rules) if isinstance(it, Rewrite)]


def judged(facts: TensorFacts, node: onnx.NodeProto, rules: Iterable[Rule]) -> list[Rewrite | RuleRefusal]:
    """The result of every rule for the node's op: its rewrite, or why there is none; in order of rank.

    A rule with a pattern is included if the node is the pattern's last one.
    """
    op = qualified(node)
    found: list[Rewrite | RuleRefusal] = []
    for rule in sorted(rules, key=lambda rule: rule.order):
        if not rule.takes_op(op):
            continue
        try:
            made = rewrite(rule, node, facts)
            if made.node.output == node.output:
                found.append(made)
        except NotApplicable as reason:
            if rule.pattern is None:
                found.append(RuleRefusal(rule=rule, reason=str(reason)))
        except Exception as error:  # a bug of a third party's rule, or an invalid node
            found.append(RuleRefusal(rule=rule, reason=f"the rule failed: {type(error).__name__}: {error}"))
    return found
