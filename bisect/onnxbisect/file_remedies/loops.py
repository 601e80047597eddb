"""Loops with a number of rounds that is known before the model runs, written out."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxbisect.cut.rename import rename_tensors
from onnxbisect.model.external import constant_tensor
from onnxbisect.model.scopes import domain_of, is_constant, qualified, reads, walk
from onnxbisect.rewrites import Exactness, NotApplicable, Site, pytorch, rule
from onnxbisect.rewrites.site import concat, slice_axis

#: Most nodes of an unrolled loop.
_MOST_UNROLLED = 512
#: Ops from which conditions are computed here. Of tensors with one element they make one with one element: a hostile
#: file could demand any amount of memory otherwise.
_COUNTING = frozenset(
    {"Add", "And", "Cast", "Constant", "Div", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual"}
    | {"Max", "Min", "Mul", "Neg", "Not", "Or", "Sub"}
)
#: The operator set from which Scan has no batch dimension and no sequence lengths.
_PLAIN_SCAN = 9
#: The operator set from which Unsqueeze has its axes as an input.
_AXES_INPUT = 13


@pytorch("a loop over a Python number of rounds")
@rule("Loop -> *", Exactness.EXACT, rank=14, source="https://onnx.ai/onnx/operators/onnx__Loop.html")
def loop_unroll(at: Site) -> tuple[str, ...]:
    """The nodes of the body, as often as a constant number of rounds says."""
    body = at.known(next((it.g for it in at.node.attribute if it.name == "body"), None), "it has no body")
    if at.has(1) and not at.value(1).all():
        rounds = 0
    elif _goes_on(at, body):
        rounds = max(0, int(at.value(0).item()))
    else:
        rounds = _rounds_until_it_ends(at, body)
    _demand_small(at, body, rounds)
    state = list(at.node.input[2:])
    carried = len(state)
    collected: list[list[str]] = [[] for _ in body.output[carried + 1 :]]
    at.demand(rounds > 0 or not collected, "it runs zero rounds and collects results")
    constants = _constants(at, body)
    for number in range(rounds):
        outputs = _round(at, body, number, constants | _given(at, body, number, state))
        state = outputs[1 : carried + 1]
        for results, output in zip(collected, outputs[carried + 1 :], strict=True):
            results.append(output)
    return (*state, *(stacked(at, results) for results in collected))


@pytorch("a loop over the slices of a tensor of fixed length")
@rule("Scan -> *", Exactness.EXACT, rank=14, source="https://onnx.ai/onnx/operators/onnx__Scan.html")
def scan_unroll(at: Site) -> tuple[str, ...]:
    """The nodes of the body, once for each slice of inputs of fixed length."""
    body = at.known(next((it.g for it in at.node.attribute if it.name == "body"), None), "it has no body")
    at.demand(at.opset >= _PLAIN_SCAN, f"Scan of operator set {at.opset} works on batches")
    scanned = int(at.attribute("num_scan_inputs", 0))
    carried = len(at.node.input) - scanned
    for name in ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"):
        at.demand(not any(at.attribute(name, [0])), f"it has {name}")
    lengths = {at.shape(slot)[0] for slot in range(carried, len(at.node.input))}
    at.demand(len(lengths) == 1, "its inputs have different lengths")
    rounds = lengths.pop()
    _demand_small(at, body, rounds)
    at.demand(rounds > 0, "its inputs are empty")
    state = list(at.node.input[:carried])
    collected: list[list[str]] = [[] for _ in body.output[carried:]]
    constants = _constants(at, body)
    for number in range(rounds):
        slices = []
        for name in at.node.input[carried:]:
            part = slice_axis(at, name, 0, number, number + 1)
            old = at.opset < _AXES_INPUT
            slices.append(at.op("Squeeze", part, axes=[0]) if old else at.op("Squeeze", part, at.integers([0])))
        formal = [value.name for value in body.input]
        outputs = _round(at, body, number, constants | dict(zip(formal, [*state, *slices], strict=True)))
        state = outputs[:carried]
        for results, output in zip(collected, outputs[carried:], strict=True):
            results.append(output)
    return (*state, *(stacked(at, results) for results in collected))


def _demand_small(at: Site, body: onnx.GraphProto, rounds: int) -> None:
    at.demand(not body.sparse_initializer, "the body has a sparse constant")
    size = max(1, sum(1 for _ in walk(body))) * rounds
    at.demand(size <= _MOST_UNROLLED, f"it would become {size} nodes, more than the limit of {_MOST_UNROLLED}")


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


def _rounds_until_it_ends(at: Site, body: onnx.GraphProto) -> int:
    """How often a Loop runs whose condition follows from numbers, as that of a `while` that counts to one."""
    counter, _, *carried = (value.name for value in body.input)
    makers = {name: node for node in body.node for name in node.output if name}
    stored = {tensor.name: tensor for tensor in body.initializer}
    values: dict[str, np.ndarray] = {}
    starts = dict(zip(carried, (at.facts.value_up_to(name, 1) for name in at.node.input[2:]), strict=True))
    updates = dict(zip(carried, (value.name for value in body.output[1:]), strict=False))
    # the carried tensors that the condition is computed from, in turn computed from each other alone
    computing: dict[int, onnx.NodeProto] = {}
    wanted, seen = [body.output[0].name], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen or name == counter:
            continue
        seen.add(name)
        if name in starts:
            values[name] = at.known(starts[name], "its condition is computed from inputs")
            wanted.append(updates[name])
        elif name in makers:
            computing[id(makers[name])] = makers[name]
            wanted += reads(makers[name])
        elif name in stored and prod(stored[name].dims) == 1:
            values[name] = onnx.numpy_helper.to_array(stored[name])
        else:
            values[name] = at.known(at.facts.value_up_to(name, 1), "its condition is computed from inputs")
    for node in computing.values():
        counts = node.op_type in _COUNTING and not domain_of(node)
        at.demand(counts, f"its condition is computed by {qualified(node)}")
    sizes = [value.size for value in values.values()]
    sizes += [prod(constant_tensor(node).dims) for node in computing.values() if is_constant(node)]
    at.demand(all(size == 1 for size in sizes), "its condition is computed from tensors of several numbers")
    ends = [body.output[0].name, *(updates[name] for name in starts if name in seen)]
    nodes = [node for node in body.node if id(node) in computing]
    fed = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in (counter, *values)]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(ends)]
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in at.facts.opsets.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "ends", fed, outputs), opset_imports=opsets)
    evaluator = ReferenceEvaluator(model)
    most = max(0, int(at.value(0).item())) if at.has(0) else _MOST_UNROLLED
    for number in range(min(most, _MOST_UNROLLED)):
        try:
            results = evaluator.run(None, {**values, counter: np.int64(number)})
        except Exception as error:  # invalid nodes may raise anything
            raise NotApplicable(f"its condition cannot be computed: {error}") from error
        found = dict(zip(evaluator.output_names, results, strict=True))
        values |= {name: found[updates[name]] for name in starts if name in seen}
        if not np.all(found[body.output[0].name]):
            return number + 1
    at.demand(most <= _MOST_UNROLLED, f"it runs more than {_MOST_UNROLLED} rounds")
    return most


def _constants(at: Site, body: onnx.GraphProto) -> dict[str, str]:
    """Add the body's initializers once for all iterations; returns their new names."""
    names = {}
    for tensor in body.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name] = at.fresh(tensor.name)
        at.constant_tensor(copy)
    return names


def _given(at: Site, body: onnx.GraphProto, number: int, state: Sequence[str]) -> dict[str, str]:
    """The inputs of a Loop iteration: its number, the condition, and the outputs of the previous iteration."""
    counter, condition, *carried = (value.name for value in body.input)
    names = dict(zip(carried, state, strict=True))
    ranks = [len(value.type.tensor_type.shape.dim) for value in body.input[:2]]
    read = {name for node in walk(body) for name in node.input} | {value.name for value in body.output}
    if counter in read:
        names[counter] = at.constant(np.full([1] * ranks[0], number, np.int64))
    if condition in read:
        names[condition] = at.constant(np.full([1] * ranks[1], True))
    return names


def _round(at: Site, body: onnx.GraphProto, number: int, given: Mapping[str, str]) -> list[str]:
    """Add one iteration's nodes; `given` are the body's inputs and constants. Returns the names of its outputs."""
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    made = {name for node in graph.node for name in node.output if name}
    rename_tensors(graph, {name: at.fresh(f"{number}/{name}") for name in made} | dict(given))
    for place, node in enumerate(graph.node):
        node.name = at.fresh(f"{number}/{node.name or f'{node.op_type}_{place}'}")
        at.add(node)
    return [value.name for value in graph.output]


def stacked(at: Site, tensors: Sequence[str], axis: int = 0) -> str:
    """The tensors, stacked along a new axis."""
    if at.opset < _AXES_INPUT:
        return concat(at, [at.op("Unsqueeze", name, axes=[axis]) for name in tensors], axis)
    axes = at.integers([axis])
    return concat(at, [at.op("Unsqueeze", name, axes) for name in tensors], axis)
