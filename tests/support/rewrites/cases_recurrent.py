"""Recurrent ops, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import Constant, Instance, case, floats, node

DrawFn = st.DrawFn
TAME = (0.0, -0.0, 1.0, -1.0)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _recurrent(
    draw: DrawFn, direction: str, *, last: bool = False, lengths: bool = False, **attributes: object
) -> Instance:
    op = draw(st.sampled_from(sorted(GATES)))
    steps, batch, size, hidden = (draw(st.integers(1, 4)) for _ in range(4))
    ways, rows = 1 + (direction == "bidirectional"), GATES[op] * hidden
    x = floats(draw, (steps, batch, size), edges=TAME)
    weights, recurrence = (floats(draw, (ways, rows, each), edges=TAME, spread=1) for each in (size, hidden))
    stored = draw(st.booleans())
    given = [Constant(it) if stored else it for it in (weights, recurrence)]
    bias = Constant(floats(draw, (ways, 2 * rows), edges=TAME, spread=1)) if draw(st.booleans()) else None
    states = [floats(draw, (ways, batch, hidden), edges=TAME) for _ in range(2 if op == "LSTM" else 1)]
    states = states if draw(st.booleans()) else []
    if op == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        activations = {"LSTM": ["Sigmoid", "Tanh", "Relu"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Relu"]}
        attributes["activations"] = activations[op] * ways
    largest = max(float(np.abs(it).max()) for it in (x, *states, np.ones(1)))
    growth = 1 + float(np.abs(recurrence).sum(axis=2).max())
    products = (size + hidden + 2) * (1 + float(np.abs(weights).max()))
    instance = node(
        op,
        x,
        *given,
        bias,
        np.array([draw(st.integers(0, steps)) for _ in range(batch)], np.int32) if lengths else None,
        *states,
        outputs=draw(st.integers(1 + last, 3 if op == "LSTM" and not lengths else 2)),
        hidden_size=hidden,
        direction=direction,
        scale=largest * products * growth**steps,
        **attributes,
    )
    made = instance.model.graph.node[0].output
    if last:
        del instance.model.graph.output[0]
    if len(made) > 1 and draw(st.booleans()):
        made[0] = ""
        del instance.model.graph.output[: 1 - last]
    return instance


@case("recurrent-directions", lambda draw: _recurrent(draw, "forward"))
def _(draw: DrawFn) -> Instance:
    return _recurrent(draw, "bidirectional")


@case("recurrent-last", lambda draw: _recurrent(draw, "forward", last=True, layout=1))
def _(draw: DrawFn) -> Instance:
    return _recurrent(draw, draw(st.sampled_from(["forward", "reverse", "bidirectional"])), last=True)


@case("recurrent-lengths", lambda draw: _recurrent(draw, "forward"))
def _(draw: DrawFn) -> Instance:
    return _recurrent(draw, draw(st.sampled_from(["forward", "reverse", "bidirectional"])), lengths=True)


@case("recurrent-steps", lambda draw: _recurrent(draw, "forward", clip=1.0))
def _(draw: DrawFn) -> Instance:
    return _recurrent(draw, draw(st.sampled_from(["forward", "reverse"])))
