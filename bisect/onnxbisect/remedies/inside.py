"""Nodes in the bodies of If, Loop and Scan. A body is a model of its own, which is diagnosed and repaired as one."""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import onnx
from onnx import helper, numpy_helper

from onnxbisect.model.model import Model
from onnxbisect.model.names import make_unique
from onnxbisect.model.scopes import bodies, captures, constant_names, qualified
from onnxbisect.model.variants import Variants
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.rewrites import Facts, Replacement

#: Elements of a constant from outside that is shown as a value to what repairs a body.
_SMALL = 1024
#: The IR version that brings functions with overloads and initializers that are no inputs.
_MIN_IR = 10

#: Repairs a model; what was replaced in it, and the result. None where it does not compile after all that.
RepairBody = Callable[[onnx.ModelProto], "tuple[Sequence[Candidate], onnx.ModelProto] | None"]


def repaired_inside(holder: onnx.NodeProto, model: Model, repair: RepairBody) -> Candidate | None:
    """The node with nodes of its bodies replaced; None where nothing was, or a body cannot be repaired."""
    new = onnx.NodeProto()
    new.CopyFrom(holder)
    new.name = f"{holder.name}/inside"
    chosen: list[Candidate] = []
    facts = Facts.of(model)
    for number, body in enumerate(bodies(new)):
        if not body.node:  # it hands out constants
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
    told = Variants(model.proto, model.types, model.known, model.path.parent)
    return Candidate(
        node=holder.name,
        op=f"{', '.join(dict.fromkeys(it.op for it in chosen))} in {qualified(holder)}",
        outputs=tuple(name for name in holder.output if name),
        rules=tuple(dict.fromkeys(rule for it in chosen for rule in it.rules)),
        steps=tuple(f"{it.node}: {step}" for it in chosen for step in it.steps),
        replacement=Replacement(
            nodes=(new,), opsets={name: version for it in chosen for name, version in it.replacement.opsets.items()}
        ),
        variants=(told.variant(new),),
        solos=(told.solo(new),),
        checks=(),
    )


def _alone(holder: onnx.NodeProto, number: int, facts: Facts) -> onnx.ModelProto | None:
    """A body as a model: what it reads from outside is an input, or a small constant. None where a type is not known.

    Its nodes have the holder's name before theirs, so that new tensors are called like none outside.
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
        kind, shape = facts.type(name), facts.shape(name)
        small = shape is not None and prod(_SMALL + 1 if dim is None else dim for dim in shape) <= _SMALL
        value = facts.value(name) if small else None
        if value is not None:
            graph.initializer.append(numpy_helper.from_array(value, name))
        elif kind is not None:
            graph.input.append(helper.make_value_info(name, kind))
        else:
            return None
    typed = all(value.HasField("type") for value in (*graph.input, *graph.output))
    return model if typed else None


def _take_over(repaired: onnx.ModelProto, body: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Put the nodes and constants of a repaired body in place of the body's; `names` are those that nodes had."""
    outside = set(captures(helper.make_node("If", [], [], body=body))) - constant_names(body)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in repaired.graph.node]
    for node in nodes:
        node.name = names.get(node.name, node.name)
        if not node.name:
            node.ClearField("name")  # an empty one is another than none
    stored = [it for it in repaired.graph.initializer if it.name not in outside]
    constants = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in stored]
    del body.node[:]
    del body.initializer[:]
    body.node.extend(nodes)
    body.initializer.extend(constants)
