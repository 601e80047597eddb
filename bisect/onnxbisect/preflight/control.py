"""Checks of control flow: describe each If, Loop and Scan, and what is known of it before the model runs."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx

from onnxbisect.language import count, english, shortened
from onnxbisect.model.input_values import binding_advice, deciding_inputs
from onnxbisect.model.scopes import is_constant, label, named_bodies, qualified, walk
from onnxbisect.preflight.subject import CheckResult, InspectedModel, NodeSite

_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
#: Ops that read at an index, with the number of the index input.
_INDEX = {"Gather": 1, "GatherElements": 1, "GatherND": 1}
#: Most If, Loop and Scan nodes that are described.
_SITES = 4
#: Most ops and reads listed for one subgraph.
_LISTED = 6


def control_flow(subject: InspectedModel) -> CheckResult | None:
    """If, Loop, Scan and SequenceMap, also inside functions, except an If whose branch is known."""
    sites = [site for site in subject.sites_of(*_CONTROL) if not _is_decided(subject, site)]
    texts = tuple(_described(subject, site) for site in sites)
    more = english(". And {more} more", more=len(texts) - _SITES) if len(texts) > _SITES else ""
    return CheckResult(nodes=subject.holders(sites), detail=". ".join(texts[:_SITES]) + more) if sites else None


def control_flow_constant_condition(subject: InspectedModel) -> CheckResult | None:
    """If whose branch is known before the model runs."""
    nodes = tuple(n.name for n in subject.nodes if n.op_type == "If" and n.input[0] in subject.constants)
    return (
        CheckResult(nodes=nodes, detail=english("{ifs} with one possible branch", ifs=count(len(nodes), "If")))
        if nodes
        else None
    )


def input_decides(subject: InspectedModel) -> CheckResult | None:
    """Small inputs whose value alone decides a branch, the rounds of a loop or a size, with what they are compared."""
    found = deciding_inputs(subject.graph, subject.model.known)
    if not found:
        return None
    deciding = {id(it.node) for it in found}
    holders = tuple(n.name for n in subject.graph.node if any(id(inner) in deciding for inner in walk([n])))
    return CheckResult(
        nodes=holders, tensors=tuple(it.input.name for it in found), detail=". ".join(map(binding_advice, found))
    )


def _is_decided(subject: InspectedModel, site: NodeSite) -> bool:
    return site.node.op_type == "If" and not site.in_function and site.node.input[0] in subject.constants


def _described(subject: InspectedModel, site: NodeSite) -> str:
    """A line such as `Loop /loop: 3 rounds, whatever the inputs; the body has 4 nodes (Add 2, Gather 2)`."""
    node = site.node
    settled = frozenset[str]() if site.in_function else subject.constants
    facts = [*_course(subject, node, settled), *_contents(node, settled)]
    return f"{node.op_type} {label(node)}: {'; '.join(facts)}"


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
        yield english("its {name} has {nodes}", name=name, nodes=count(len(inner), "node")) + (
            f" ({listed})" if inner else ""
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
}
