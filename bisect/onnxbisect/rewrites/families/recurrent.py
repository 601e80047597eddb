"""Recurrent ops: one direction at a time, and steps written out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import Bound, operator, pytorch, rule
from onnxbisect.rewrites.site import Site, cast, concat, reduce, reshape, slice_axis, transpose

_OPS = "LSTM GRU RNN"
#: Gates of each op, and the activations of one direction where the node names none.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
#: Steps that are written out.
_MOST_STEPS = 64
_STEPS_BOUND = Bound(
    epsilons=64,
    of="the largest magnitude of states and inputs, times the number of products, times 1 plus the largest sum of "
    "magnitudes in a row of R to the power of the steps",
)
#: Inputs that have a part for each direction as their first axis: weights, biases, states, peepholes.
_BY_DIRECTION = (1, 2, 3, 5, 6, 7)


@pytorch("two nn.LSTM of one direction, the input of the second and its result flipped")
@rule(f"{_OPS} -> {_OPS} Slice Concat", Exactness.EXACT, rank=16, source=operator("LSTM"))
def recurrent_directions(at: Site) -> tuple[str, ...]:
    """Both directions as a node for each; outputs that the node leaves out stay out."""
    at.demand(at.attribute("direction", "forward") == "bidirectional", "it has one direction")
    at.demand(at.attribute("layout", 0) == 0, "the batch comes first")
    at.demand(not at.has_attribute("activation_alpha"), "its activations have parameters")
    count = len(at.node.output)
    made = []
    for number, direction in enumerate(("forward", "reverse")):
        inputs = [
            _half(at, slot, number) if slot in _BY_DIRECTION and name else name
            for slot, name in enumerate(at.node.input)
        ]
        made.append(at.ops(at.node.op_type, inputs, count, **_of_direction(at, number, 2, direction)))
    return tuple(
        concat(at, [made[0][slot], made[1][slot]], 0 if slot else 1) if name else ""
        for slot, name in enumerate(at.node.output)
    )


def _of_direction(at: Site, number: int, ways: int, direction: str) -> dict[str, Any]:
    """The attributes of one of the node's directions, that is to run in this one."""
    changed: dict[str, Any] = {"hidden_size": at.attribute("hidden_size", 0), "direction": direction}
    if at.has_attribute("activations"):
        names: list[bytes] = list(at.attribute("activations", []))
        share = len(names) // ways
        changed["activations"] = names[number * share : (number + 1) * share]
    for name in ("clip", "input_forget", "linear_before_reset"):
        if at.has_attribute(name):
            changed[name] = at.attribute(name, 0)
    return changed


@pytorch("output[-1], and output[0] of the reverse direction, instead of the last state")
@rule(f"{_OPS} -> {_OPS} Slice Reshape Concat", Exactness.EXACT, rank=15, source=operator("LSTM"))
def recurrent_last(at: Site) -> tuple[str, ...]:
    """The last state taken from the states of all steps, where the model reads none of these."""
    outputs = at.node.output
    at.demand(len(outputs) > 1 and bool(outputs[1]), "it gives no last state")
    at.demand(outputs[0] not in at.facts.read, "the states of all steps are read")
    at.demand(at.attribute("layout", 0) == 0, "the batch comes first")
    at.demand(not at.has(4), "the sequences are of several lengths")
    steps, batch, _ = at.shape(0)
    ways, _, hidden = at.shape(2)
    at.demand(0 not in at.shape(0), "a tensor is empty")
    states, _, *others = at.likes(at.node.input, [True, False, *map(bool, outputs[2:])])
    last = []
    for way in range(ways):
        backwards = way == 1 or at.attribute("direction", "forward") == "reverse"
        step = 0 if backwards else steps - 1
        own = slice_axis(at, slice_axis(at, states, 0, step, step + 1), 1, way, way + 1)
        last.append(reshape(at, own, [1, batch, hidden]))
    return (states, last[0] if ways == 1 else concat(at, last, 0), *others)


@pytorch("nn.LSTM on the padded sequences, and masks on what it returns, instead of pack_padded_sequence")
@rule(
    f"{_OPS} -> {_OPS} Cast ReverseSequence Reshape Less Equal Sub Where ReduceSum Slice Concat",
    Exactness.ROUNDING,
    _STEPS_BOUND,
    rank=17,
    source=operator("LSTM"),
)
def recurrent_lengths(at: Site) -> tuple[str, ...]:
    """Sequences of several lengths to the end of the longest, forwards: what is behind an end is set to zero, and the
    last state is the one at the end. For the other direction each sequence is reversed, and its states back.
    onnxruntime multiplies other rows together, so that it rounds differently.
    """
    outputs = at.node.output
    at.demand(at.has(4), "the sequences are of one length")
    at.demand(at.opset >= 10, "there is no ReverseSequence before operator set 10")
    at.demand(at.attribute("layout", 0) == 0, "the batch comes first")
    at.demand(not at.has_attribute("activation_alpha"), "its activations have parameters")
    at.demand(len(outputs) < 3 or outputs[2] not in at.facts.read, "the last cell states are read")
    steps, batch, _ = at.shape(0)
    at.demand(0 not in at.shape(0), "a tensor is empty")
    lengths = at.input(4)
    row = reshape(at, lengths, [batch, 1])
    step = np.arange(steps, dtype=np.int32).reshape(steps, 1, 1)
    inside = at.op("Less", at.constant(step), row)
    at_end = at.op("Equal", at.constant(step + 1), row)
    zero = at.constant(np.zeros((), at.value_dtype(0)))
    everywhere, last = [], []
    (ways, _, hidden), direction = at.shape(2), at.attribute("direction", "forward")
    for number in range(ways):
        inputs = [
            "" if slot == 4 else _half(at, slot, number) if ways > 1 and slot in _BY_DIRECTION and name else name
            for slot, name in enumerate(at.node.input)
        ]
        backwards = number == 1 or direction == "reverse"
        turn = cast(at, lengths, TensorProto.INT64) if backwards else ""
        if backwards:
            inputs[0] = at.op("ReverseSequence", inputs[0], turn, time_axis=0, batch_axis=1)
        (states,) = at.ops(at.node.op_type, inputs, 1, **_of_direction(at, number, ways, "forward"))
        states = reshape(at, states, [steps, batch, hidden])
        if any(outputs[1:2]):
            last.append(reduce(at, "ReduceSum", at.op("Where", at_end, states, zero), [0], keepdims=True))
        if outputs[0]:
            states = at.op("Where", inside, states, zero)
            if backwards:
                states = at.op("ReverseSequence", states, turn, time_axis=0, batch_axis=1)
            everywhere.append(reshape(at, states, [steps, 1, batch, hidden]))
    made = [concat(at, it, axis) if it else "" for it, axis in ((everywhere, 1), (last, 0))]
    return (*made, "")[: len(outputs)]


def _half(at: Site, slot: int, number: int) -> str:
    """The part of an input for one direction."""
    if at.is_constant(slot):
        return at.constant(at.value(slot)[number : number + 1])
    return slice_axis(at, at.input(slot), 0, number, number + 1)


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """The sizes of a recurrent op of one direction, its weights by gate and its activations."""

    steps: int
    batch: int
    hidden: int
    backwards: bool
    activations: tuple[str, ...]

    @classmethod
    def of(cls, at: Site) -> "_Cell":
        """Read the node; raises NotApplicable for forms that are not written out."""
        op = at.node.op_type
        for slot in (0, 1, 2):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)
        at.demand(at.attribute("direction", "forward") != "bidirectional", "it has two directions")
        at.demand(at.attribute("layout", 0) == 0, "the batch comes first")
        at.demand(not at.has(4), "the sequences are of several lengths")
        at.demand(not at.has(7), "it has peepholes")
        at.demand(not at.has_attribute("clip") and not at.attribute("input_forget", 0), "it clips, or joins gates")
        given: list[bytes] = list(at.attribute("activations", []))
        activations = tuple(it.decode() for it in given) or tuple(_USUAL[op])
        at.demand(set(activations) <= {"Sigmoid", "Tanh", "Relu"}, "an activation has parameters")
        steps, batch, _ = at.shape(0)
        at.demand(0 < steps <= _MOST_STEPS, f"it has {steps} steps")
        at.demand(0 not in at.shape(0), "a tensor is empty")
        backwards = at.attribute("direction", "forward") == "reverse"
        hidden = at.shape(2)[-1]
        return cls(steps=steps, batch=batch, hidden=hidden, backwards=backwards, activations=activations)


@pytorch("the cell called in a loop over the steps, instead of nn.LSTM")
@rule(
    f"{_OPS} -> Transpose MatMul Add Reshape Slice Sigmoid Tanh Relu Mul Sub Concat",
    Exactness.ROUNDING,
    _STEPS_BOUND,
    rank=16,
    source=operator("LSTM"),
)
def recurrent_steps(at: Site) -> tuple[str, ...]:
    """One direction, up to 64 steps: the input's part of all gates at once, then each step by itself."""
    cell = _Cell.of(at)
    gates, op = _GATES[at.node.op_type], at.node.op_type
    separate = op == "GRU"  # its last gate adds what comes of the state apart, or after a product
    projected = at.op("MatMul", at.input(0), _matrix(at, 1))
    if not at.has(3):
        ours, theirs = None, None
    else:
        width = gates * cell.hidden
        flat = reshape(at, at.input(3), [2 * width])
        ours, theirs = slice_axis(at, flat, 0, 0, width), slice_axis(at, flat, 0, width, 2 * width)
    if theirs is not None and not separate:
        projected = at.op("Add", projected, theirs)
    projected = at.op("Add", projected, ours) if ours is not None else projected
    recurrent = _matrix(at, 2)
    hidden = _state(at, 5, cell)
    memory = _state(at, 6, cell) if op == "LSTM" else ""
    outputs = []
    for number in reversed(range(cell.steps)) if cell.backwards else range(cell.steps):
        row = projected if cell.steps == 1 else slice_axis(at, projected, 0, number, number + 1)
        row = reshape(at, row, [cell.batch, gates * cell.hidden])
        if op == "GRU":
            hidden = _gru(at, cell, row, hidden, recurrent, theirs)
        else:
            row = at.op("Add", row, at.op("MatMul", hidden, recurrent))
            if op == "RNN":
                hidden = at.op(cell.activations[0], row)
            else:
                hidden, memory = _lstm(at, cell, row, memory)
        outputs.append(reshape(at, hidden, [1, 1, cell.batch, cell.hidden]))
    outputs = outputs[::-1] if cell.backwards else outputs
    last = reshape(at, hidden, [1, cell.batch, cell.hidden])
    wanted = [bool(name) for name in at.node.output] + [False] * 3
    return (
        concat(at, outputs, 0) if wanted[0] else "",
        last if wanted[1] else "",
        reshape(at, memory, [1, cell.batch, cell.hidden]) if wanted[2] else "",
    )[: len(at.node.output)]


def _matrix(at: Site, slot: int) -> str:
    """Weights of all gates, [1, gates times hidden, inputs], turned for a product; beforehand where constant."""
    if at.is_constant(slot):
        return at.constant(np.ascontiguousarray(at.value(slot)[0].T))
    dims = at.shape(slot)
    return transpose(at, reshape(at, at.input(slot), list(dims[1:])), [1, 0])


def _state(at: Site, slot: int, cell: _Cell) -> str:
    if at.has(slot):
        return reshape(at, at.input(slot), [cell.batch, cell.hidden])
    return at.constant(np.zeros((cell.batch, cell.hidden), np.float32))


def _gate(at: Site, cell: _Cell, row: str, number: int, count: int = 1) -> str:
    return slice_axis(at, row, 1, number * cell.hidden, (number + count) * cell.hidden)


def _lstm(at: Site, cell: _Cell, row: str, memory: str) -> tuple[str, str]:
    """The state and the memory after a step; gates are input, output, forget and cell."""
    gate, inner, outer = cell.activations
    let_in, let_out, keep = (at.op(gate, _gate(at, cell, row, number)) for number in range(3))
    new = at.op(inner, _gate(at, cell, row, 3))
    memory = at.op("Add", at.op("Mul", keep, memory), at.op("Mul", let_in, new))
    return at.op("Mul", let_out, at.op(outer, memory)), memory


def _gru(at: Site, cell: _Cell, row: str, hidden: str, recurrent: str, theirs: str | None) -> str:
    """The state after a step; gates are update, reset and hidden."""
    gate, inner = cell.activations
    width = cell.hidden
    both = slice_axis(at, recurrent, 1, 0, 2 * width)
    own = slice_axis(at, recurrent, 1, 2 * width, 3 * width)
    two = at.op("Add", _gate(at, cell, row, 0, 2), at.op("MatMul", hidden, both))
    if theirs is not None:
        two = at.op("Add", two, slice_axis(at, theirs, 0, 0, 2 * width))
    update, reset = (at.op(gate, _gate(at, cell, two, number)) for number in range(2))
    bias = None if theirs is None else slice_axis(at, theirs, 0, 2 * width, 3 * width)
    if at.attribute("linear_before_reset", 0):
        part = at.op("MatMul", hidden, own)
        part = at.op("Mul", reset, part if bias is None else at.op("Add", part, bias))
    else:
        part = at.op("MatMul", at.op("Mul", reset, hidden), own)
        part = part if bias is None else at.op("Add", part, bias)
    new = at.op(inner, at.op("Add", _gate(at, cell, row, 2), part))
    one = at.constant(np.ones((), np.float32))
    return at.op("Add", at.op("Mul", at.op("Sub", one, update), new), at.op("Mul", update, hidden))
