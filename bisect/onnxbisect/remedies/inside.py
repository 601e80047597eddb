"""Repairs the subgraphs of a refused node, each as a model of its own."""

from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import helper, numpy_helper

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.model import Model
from onnxbisect.model.order import make_unique
from onnxbisect.model.scopes import bodies, captures, constant_names, qualified
from onnxbisect.model.variants import Variants
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.rewrites import Replacement

#: Most elements of a constant from outside that is copied into a subgraph's model.
_SMALL = 1024
#: The first IR version with overloads of functions; initializers need not be inputs.
_MIN_IR = 10

#: Repairs a model; returns the replacements and the result, or None if it still does not compile.
RepairBody = Callable[[onnx.ModelProto], "tuple[Sequence[Candidate], onnx.ModelProto] | None"]


def repaired_inside(holder: onnx.NodeProto, model: Model, repair: RepairBody) -> Candidate | None:
    """The node with nodes of its subgraphs replaced; None if nothing was, or a subgraph cannot be repaired."""
    new = onnx.NodeProto()
    new.CopyFrom(holder)
    new.name = f"{holder.name}/inside"
    chosen: list[Candidate] = []
    facts = TensorFacts.of(model)
    for number, body in enumerate(bodies(new)):
        if not body.node:  # it returns constants
            continue
        alone = _alone(holder, number, facts)
        repaired = None if alone is None else repair(alone)
        if alone is None or repaired is None:
            return None
        candidates, result = repaired
        if candidates:
            chosen += candidates
            _take_over(result, body, {one.name: it.name for one, it in zip(alone.graph.node, body.node, strict=True)})
    if not chosen:
        return None
    keys = Variants(model.proto, model.types, model.known, model.path.parent)
    return Candidate(
        node=holder.name,
        op=f"{', '.join(dict.fromkeys(it.op for it in chosen))} in {qualified(holder)}",
        outputs=tuple(name for name in holder.output if name),
        rules=tuple(dict.fromkeys(rule for it in chosen for rule in it.rules)),
        steps=tuple(f"{it.node}: {step}" for it in chosen for step in it.steps),
        replacement=Replacement(
            nodes=(new,), opsets={name: version for it in chosen for name, version in it.replacement.opsets.items()}
        ),
        variants=(keys.variant(new),),
        solos=(keys.solo(new),),
        checks=(),
    )


def _alone(holder: onnx.NodeProto, number: int, facts: TensorFacts) -> onnx.ModelProto | None:
    """A subgraph as a model: tensors from outside become inputs, or small constants. None if a type is unknown.

    Node names get the holder's name as prefix, so that new tensor names do not occur outside.
    """
    body = bodies(holder)[number]
    model = onnx.ModelProto(ir_version=max(facts.ir_version, _MIN_IR), functions=facts.functions)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in facts.opsets.items())
    graph = model.graph
    graph.CopyFrom(body)
    graph.name = graph.name or "body"
    make_unique(graph.node)
    for node in graph.node:
        node.name = f"{holder.name}/{number}/{node.name}"
    for name in captures(helper.make_node("If", [], [], body=body)):
        kind, value = facts.type(name), facts.value_up_to(name, _SMALL)
        if value is not None:
            graph.initializer.append(numpy_helper.from_array(value, name))
        elif kind is not None:
            graph.input.append(helper.make_value_info(name, kind))
        else:
            return None
    typed = all(value.HasField("type") for value in (*graph.input, *graph.output))
    return model if typed else None


def _take_over(repaired: onnx.ModelProto, body: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Replace the nodes and constants of a subgraph by repaired ones; `names` are the nodes' original names."""
    outside = set(captures(helper.make_node("If", [], [], body=body))) - constant_names(body)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in repaired.graph.node]
    for node in nodes:
        node.name = names.get(node.name, node.name)
        if not node.name:
            node.ClearField("name")  # an empty name is not the same bytes as none
    stored = [it for it in repaired.graph.initializer if it.name not in outside]
    constants = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in stored]
    del body.node[:]
    del body.initializer[:]
    body.node.extend(nodes)
    body.initializer.extend(constants)
