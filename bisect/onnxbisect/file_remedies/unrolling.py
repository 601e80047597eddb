"""A Loop whose number of rounds is constant, written out round by round."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from onnxbisect.cut.rename import rename_tensors
from onnxbisect.model.constants import constant_tensor
from onnxbisect.model.scopes import constant_names, is_constant, walk
from onnxbisect.rewrites import ANY_OP, Exactness, Site, rule
from onnxbisect.rewrites.forms import concat

#: Nodes that a loop is written out as.
_MOST_NODES = 512
#: The operator set from which Unsqueeze takes its axes as an input.
_AXES_INPUT = 13


@rule(
    "loop-unroll",
    takes="Loop",
    gives=ANY_OP,
    exactness=Exactness.EXACT,
    rank=14,
    source="https://onnx.ai/onnx/operators/onnx__Loop.html",
    pytorch="a loop over a Python number of rounds",
)
def loop_unroll(at: Site) -> tuple[str, ...]:
    """The nodes of the body, as often as a constant number of rounds says."""
    body = at.known(next((it.g for it in at.node.attribute if it.name == "body"), None), "it has no body")
    rounds = _rounds(at, body)
    at.demand(not body.sparse_initializer, "the body has a sparse constant")
    size = sum(1 for _ in walk(body)) * rounds
    at.demand(size <= _MOST_NODES, f"it comes to {size} nodes, and up to {_MOST_NODES} are written out")
    state = list(at.node.input[2:])
    carried = len(state)
    collected: list[list[str]] = [[] for _ in body.output[carried + 1 :]]
    at.demand(rounds > 0 or not collected, "it does no round and collects results")
    constants = _constants(at, body)
    for number in range(rounds):
        outputs = _round(at, body, number, state, constants)
        state = outputs[1 : carried + 1]
        for results, output in zip(collected, outputs[carried + 1 :], strict=True):
            results.append(output)
    return (*state, *(_stacked(at, results) for results in collected))


def _rounds(at: Site, body: onnx.GraphProto) -> int:
    """How often the body runs."""
    if at.has(1) and not at.value(1).all():
        return 0
    at.demand(_goes_on(at, body), "its condition is computed")
    return max(0, int(at.value(0).item()))


def _goes_on(at: Site, body: onnx.GraphProto) -> bool:
    """Whether the condition that the body computes is always true."""
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    stored = {tensor.name: tensor for tensor in body.initializer}
    if name in makers and is_constant(makers[name]):
        held = constant_tensor(makers[name])
        stored |= {name: held} if isinstance(held, onnx.TensorProto) else {}
    value = onnx.numpy_helper.to_array(stored[name]) if name in stored else None
    if value is None and name not in makers:
        value = at.facts.value(name)
    return value is not None and bool(value.all())


def _constants(at: Site, body: onnx.GraphProto) -> dict[str, str]:
    """The body's initializers, once for all rounds, by their names in it."""
    names = {}
    for tensor in body.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name] = at.fresh(tensor.name)
        at.constant_tensor(copy)
    return names


def _round(
    at: Site, body: onnx.GraphProto, number: int, state: Sequence[str], constants: Mapping[str, str]
) -> list[str]:
    """One round's nodes; returns what its outputs are called."""
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    counter, condition, *carried = (value.name for value in graph.input)
    made = {name for node in graph.node for name in node.output if name} - constant_names(graph)
    names = {name: at.fresh(f"{number}/{name}") for name in made} | dict(constants)
    names |= dict(zip(carried, state, strict=True))
    rank = len(graph.input[0].type.tensor_type.shape.dim)
    read = {name for node in walk(graph) for name in node.input} | {value.name for value in graph.output}
    if counter in read:
        names[counter] = at.constant(np.full([1] * rank, number, np.int64))
    if condition in read:
        names[condition] = at.constant(np.full([1] * len(graph.input[1].type.tensor_type.shape.dim), True))
    rename_tensors(graph, names)
    for place, node in enumerate(graph.node):
        node.name = at.fresh(f"{number}/{node.name or f'{node.op_type}_{place}'}")
        at.add(node)
    return [value.name for value in graph.output]


def _stacked(at: Site, results: Sequence[str]) -> str:
    """What the rounds gave, along a new first axis."""
    if at.opset < _AXES_INPUT:
        return concat(at, [at.op("Unsqueeze", name, axes=[0]) for name in results], 0)
    axes = at.integers([0])
    return concat(at, [at.op("Unsqueeze", name, axes) for name in results], 0)
