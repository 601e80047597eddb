"""Checks of single ops: where they come from, which form they have, what they are fed, what their bodies hold."""

from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx

from onnxbisect.language import BETWEEN, count, english, shortened
from onnxbisect.model.input_values import binding_advice, deciding_inputs
from onnxbisect.model.scopes import domain_of, is_constant, is_copy, label, named_bodies, qualified, schema_of, walk
from onnxbisect.model.shapeops import RANDOM
from onnxbisect.model.unused import unread_outputs
from onnxbisect.preflight.subject import CheckResult, InspectedModel, unique

_ML = ("ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training")
#: Slots of weights and biases that are quantised offline.
_WEIGHTS = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (1, 2),
    "BatchNormalization": (1, 2, 3, 4),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
}
#: Attributes whose absence some front end is known to read as nothing, or as another default than ONNX's.
_READ_BLINDLY = {
    "Conv": ("kernel_shape",),
    "ConvTranspose": ("kernel_shape",),
    "Elu": ("alpha",),
    "GridSample": ("mode", "padding_mode"),
    "LeakyRelu": ("alpha",),
    "Split": ("axis",),
    "TopK": ("largest", "sorted"),
}
#: The last operator set in which the axes of these reductions are an attribute.
LAST_WITH_AXES_ATTRIBUTES = 17
# fmt: off
_REDUCTIONS = frozenset(
    {
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
        "ReduceSumSquare",
    }
)
# fmt: on
_POSTPROCESS = frozenset({"NonMaxSuppression", "TopK", "NonZero"})
_HEAVY = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "Einsum"})


def custom_domain(subject: InspectedModel) -> CheckResult | None:
    """Ops outside of ONNX's own domains that the model does not define itself."""
    defined = {(domain_of(f), f.name) for f in subject.model.proto.functions}
    sites = [
        s
        for s in subject.sites
        if domain_of(s.node) and domain_of(s.node) not in _ML and (domain_of(s.node), s.node.op_type) not in defined
    ]
    ops = unique(qualified(s.node) for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops)) if sites else None


def ml_domain(subject: InspectedModel) -> CheckResult | None:
    """Ops of the classical machine learning and training domains."""
    sites = [s for s in subject.sites if domain_of(s.node) in _ML]
    ops = unique(qualified(s.node) for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops)) if sites else None


def schema_function_op(subject: InspectedModel) -> CheckResult | None:
    """Standard ops that ONNX itself defines as a function of others, and has since they exist."""
    sites = [s for s in subject.sites if not domain_of(s.node) and s.node.op_type in _always_functions()]
    ops = unique(s.node.op_type for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops, 8)) if sites else None


def random_op(subject: InspectedModel) -> CheckResult | None:
    """Ops that draw numbers, Dropout in training mode among them."""
    training = {node.name for node in subject.nodes if node.op_type == "Dropout" and subject.trains(node)}
    sites = [s for s in subject.sites if s.node.op_type in RANDOM or s.node.name in training]
    ops = unique(s.node.op_type for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops)) if sites else None


def training_mode(subject: InspectedModel) -> CheckResult | None:
    """BatchNormalization and Dropout as exported from a model in training."""
    ops = ("BatchNormalization", "Dropout")
    nodes = tuple(node.name for node in subject.nodes if node.op_type in ops and subject.trains(node))
    return CheckResult(nodes=nodes, detail=count(len(nodes), "node")) if nodes else None


def missing_default_attr(subject: InspectedModel) -> CheckResult | None:
    """Attributes left at their default where a front end is known to need them written out."""
    found = [
        (site, name)
        for site in subject.sites
        if not domain_of(site.node) and (schema := schema_of(site.node.op_type, subject.opset or 1)) is not None
        for name in _READ_BLINDLY.get(site.node.op_type, ())
        if name in schema.attributes and name not in {a.name for a in site.node.attribute}
    ]
    what = unique(f"{name} of {site.node.op_type}" for site, name in found)
    return CheckResult(nodes=subject.holders(site for site, _ in found), detail=shortened(what)) if found else None


def constant_node_not_tensor_value(subject: InspectedModel) -> CheckResult | None:
    """Constant nodes that say their value in another attribute than `value`; `nodes` are those of the main graph."""
    outer = tuple(node.name for node in subject.graph.node if _is_other_constant(node))
    nodes = [*walk(subject.graph), *(node for function in subject.model.proto.functions for node in walk(function))]
    total = sum(map(_is_other_constant, nodes))
    detail = count(total, "Constant node")
    if total > len(outer):
        detail = english(
            "{constants}, {more} of them in bodies and functions", constants=detail, more=total - len(outer)
        )
    return CheckResult(nodes=outer, detail=detail) if total else None


def explicit_reduction_none(subject: InspectedModel) -> CheckResult | None:
    """ScatterND and ScatterElements that write `reduction` out."""
    sites = [
        s
        for s in subject.sites
        if s.node.op_type in ("ScatterND", "ScatterElements") and "reduction" in {a.name for a in s.node.attribute}
    ]
    return CheckResult(nodes=subject.holders(sites), detail=count(len(sites), "node")) if sites else None


def reduction_axes_input(subject: InspectedModel) -> CheckResult | None:
    """Reductions that take their axes as an input, as all but ReduceSum do from opset 18 on."""
    if (subject.opset or 0) <= LAST_WITH_AXES_ATTRIBUTES:
        return None
    sites = [
        s
        for s in subject.sites
        if s.node.op_type in _REDUCTIONS and not domain_of(s.node) and len(s.node.input) > 1 and s.node.input[1]
    ]
    ops = unique(s.node.op_type for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops)) if sites else None


def empty_input_name(subject: InspectedModel) -> CheckResult | None:
    """Nodes with an omitted input before a given one."""
    sites = [s for s in subject.sites if not all(s.node.input[: sum(map(bool, s.node.input))])]
    ops = unique(qualified(s.node) for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops)) if sites else None


def empty_output_name(subject: InspectedModel) -> CheckResult | None:
    """Nodes with several outputs of which one has an empty name: at the end it need not be written."""
    sites = [s for s in subject.sites if len(s.node.output) > 1 and not all(s.node.output)]
    ops = unique(qualified(s.node) for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops)) if sites else None


def unread_output(subject: InspectedModel) -> CheckResult | None:
    """Nodes of the main graph with optional outputs that nothing reads."""
    found = unread_outputs(subject.original)
    if not found:
        return None
    return CheckResult(
        nodes=tuple(node.name for node, _ in found),
        tensors=tuple(name for _, names in found for name in names if name),
        detail=shortened(unique(qualified(node) for node, _ in found)),
    )


def non_constant_weights(subject: InspectedModel) -> CheckResult | None:
    """Weights and biases that the model computes."""
    found = {
        node.name: [
            node.input[slot]
            for slot in _WEIGHTS[node.op_type]
            if slot < len(node.input) and node.input[slot] and node.input[slot] not in subject.constants
        ]
        for node in subject.nodes
        if node.op_type in _WEIGHTS and not domain_of(node)
    }
    nodes = tuple(name for name, weights in found.items() if weights)
    if not nodes:
        return None
    return CheckResult(
        nodes=nodes,
        tensors=unique(name for weights in found.values() for name in weights),
        detail=english("{nodes} with computed weights", nodes=count(len(nodes), "node")),
        remediable=subject.foldable,
    )


def isnan_guard(subject: InspectedModel) -> CheckResult | None:
    """IsNaN that only guards a Where: what exporters put after Softmax."""
    nodes = tuple(
        node.name
        for node in subject.nodes
        if node.op_type == "IsNaN" and any(n.op_type == "Where" for n in subject.consumers.get(node.output[0], ()))
    )
    return (
        CheckResult(nodes=nodes, detail=english("{guards} against NaN", guards=count(len(nodes), "guard")))
        if nodes
        else None
    )


def no_op_node(subject: InspectedModel) -> CheckResult | None:
    """Identity and Dropout that copy a tensor which something in the graph reads."""
    read = set(subject.consumers) | {value.name for value in subject.graph.output}
    nodes = [node for node in subject.nodes if is_copy(node, subject.opset or 0, read, subject.value)]
    ops = unique(node.op_type for node in nodes)
    names = tuple(node.name for node in nodes)
    return CheckResult(nodes=names, detail=f"{count(len(names), 'node')}: {shortened(ops)}") if nodes else None


def postprocess_tail(subject: InspectedModel) -> CheckResult | None:
    """NonMaxSuppression, TopK and NonZero with no heavy computation behind them."""
    leads_on: set[str] = set()
    tail = []
    for node in reversed(subject.nodes):
        behind = any(
            n.op_type in _HEAVY or n.name in leads_on for out in node.output for n in subject.consumers.get(out, ())
        )
        if behind:
            leads_on.add(node.name)
        elif node.op_type in _POSTPROCESS:
            tail.append(node)
    ops = unique(node.op_type for node in reversed(tail))
    return CheckResult(nodes=tuple(node.name for node in reversed(tail)), detail=shortened(ops)) if tail else None


def _is_other_constant(node: onnx.NodeProto) -> bool:
    return is_constant(node) and "value" not in {attribute.name for attribute in node.attribute}


@cache
def _always_functions() -> frozenset[str]:
    own: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and not schema.deprecated:
            own.setdefault(schema.name, []).append(schema)
    # the stubs of onnx lack both
    return frozenset(
        op
        for op, history in own.items()
        if all(it.has_function or it.has_context_dependent_function for it in history)  # type: ignore[attr-defined]
    )


_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
#: Ops that read at an index, with the number of the index input.
_INDEX = {"Gather": 1, "GatherElements": 1, "GatherND": 1}
#: Most If, Loop and Scan nodes that are described.
_SITES = 4
_CONTROL_FLOW = {
    "If": english("If {label}: {clauses}"),
    "Loop": english("Loop {label}: {clauses}"),
    "Scan": english("Scan {label}: {clauses}"),
}
#: Most ops and reads listed for one subgraph.
_LISTED = 6


def control_flow(subject: InspectedModel) -> CheckResult | None:
    """If, Loop, Scan and SequenceMap, also inside functions, except an If whose branch is known."""
    sites = [
        site
        for site in subject.sites_of(*_CONTROL)
        if site.node.op_type != "If" or site.in_function or site.node.input[0] not in subject.constants
    ]
    # lines such as `Loop /loop: 3 rounds, whatever the inputs; the body has 4 nodes (Add 2, Gather 2)`
    texts = []
    for site in sites:
        settled = frozenset[str]() if site.in_function else subject.constants
        facts = [*_course(subject, site.node, settled), *_contents(site.node, settled)]
        texts.append(_CONTROL_FLOW[site.node.op_type].format(label=label(site.node), clauses=BETWEEN.join(facts)))
    more = [english("And {more} more", more=len(texts) - _SITES)] if len(texts) > _SITES else []
    return CheckResult(nodes=subject.holders(sites), detail=". ".join([*texts[:_SITES], *more])) if sites else None


def control_flow_constant_condition(subject: InspectedModel) -> CheckResult | None:
    """If whose branch is known before the model runs."""
    nodes = tuple(n.name for n in subject.nodes if n.op_type == "If" and n.input[0] in subject.constants)
    return (
        CheckResult(nodes=nodes, detail=english("{ifs} with one possible branch", ifs=count(len(nodes), "If")))
        if nodes
        else None
    )


def input_decides(subject: InspectedModel) -> CheckResult | None:
    """Small inputs whose value alone decides a branch, the rounds of a loop, a size or the lengths of sequences."""
    found = deciding_inputs(subject.graph, subject.model.known)
    if not found:
        return None
    deciding = {id(node) for it in found for node in it.nodes}
    holders = tuple(n.name for n in subject.graph.node if any(id(inner) in deciding for inner in walk([n])))
    return CheckResult(
        nodes=holders, tensors=tuple(it.input.name for it in found), detail=". ".join(map(binding_advice, found))
    )


def _course(subject: InspectedModel, node: onnx.NodeProto, settled: frozenset[str]) -> Iterator[str]:
    """Phrases that say what decides the branch or the number of iterations."""
    if node.op_type == "If":
        yield english("the condition is computed")
    if node.op_type == "Scan":
        yield english("one round for each slice of its inputs")
    if node.op_type == "Loop":
        trips = node.input[0] if node.input else ""
        value = subject.value(trips) if trips in settled else None
        if value is not None and value.size == 1:
            yield english("the trip count is constant, {int}", int=int(value.reshape(-1)[0]))
        else:
            yield english("the trip count is computed") if trips else english("it has no trip count")
        yield (
            english("the condition is always true")
            if _runs_on(subject, node, settled)
            else english("the condition is computed")
        )


def _runs_on(subject: InspectedModel, node: onnx.NodeProto, settled: frozenset[str]) -> bool:
    """Whether the condition of a Loop is known to be true before and after every iteration."""
    first = node.input[1] if len(node.input) > 1 else ""
    value = subject.value(first) if first in settled else None
    if first and (value is None or not np.all(value)):
        return False
    body = dict(named_bodies(node)).get("body")
    if body is None or not body.output:
        return False
    made = {name: inner for inner in body.node for name in inner.output}
    name = body.output[0].name
    while name in made and made[name].op_type == "Identity" and made[name].input:
        name = made.pop(name).input[0]  # each once: in a malformed body they lead in a circle
    if len(body.input) > 1 and name == body.input[1].name:
        return True
    constants = {tensor.name: tensor for tensor in body.initializer}
    if name in made and is_constant(made[name]):
        constants.update((name, attribute.t) for attribute in made[name].attribute if attribute.name == "value")
    if name in constants:
        return bool(np.all(onnx.numpy_helper.to_array(constants[name])))
    outer = subject.value(name) if name in settled else None
    return outer is not None and bool(np.all(outer))


def _contents(node: onnx.NodeProto, settled: frozenset[str]) -> Iterator[str]:
    """Phrases for the contents of each subgraph, and whether it reads at constant indices."""
    for name, body in named_bodies(node):
        inner = [it for it in walk(body) if not is_constant(it)]
        ops = Counter(qualified(it) for it in inner)
        listed = shortened(tuple(f"{op} {number}" for op, number in ops.most_common()), _LISTED)
        nodes = count(len(inner), "node")
        yield (
            english("its {name} has {nodes} ({listed_})", name=name, nodes=nodes, listed_=listed)
            if inner
            else english("its {name} has {nodes}", name=name, nodes=nodes)
        )
        stored = {tensor.name for tensor in body.initializer}
        stored |= {output for it in walk(body) if is_constant(it) for output in it.output}
        reads = [it for it in inner if it.op_type in _INDEX and len(it.input) > 1]
        computed = [it for it in reads if it.input[_INDEX[it.op_type]] not in stored | settled]
        if computed:
            yield english("the index is computed of {some}", some=shortened(tuple(map(label, computed))))
        elif reads:
            yield english("the index is constant of {some}", some=shortened(tuple(map(label, reads))))


CHECKS = {
    "control-flow": control_flow,
    "control-flow-constant-condition": control_flow_constant_condition,
    "input-decides": input_decides,
    "custom-domain": custom_domain,
    "ml-domain": ml_domain,
    "schema-function-op": schema_function_op,
    "random-op": random_op,
    "training-mode": training_mode,
    "missing-default-attr": missing_default_attr,
    "constant-node-not-tensor-value": constant_node_not_tensor_value,
    "explicit-reduction-none": explicit_reduction_none,
    "reduction-axes-input": reduction_axes_input,
    "empty-input-name": empty_input_name,
    "empty-output-name": empty_output_name,
    "unread-output": unread_output,
    "non-constant-weights": non_constant_weights,
    "isnan-guard": isnan_guard,
    "no-op-node": no_op_node,
    "postprocess-tail": postprocess_tail,
}
