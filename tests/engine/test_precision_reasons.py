"""What is seen of tensors, and the sentence that it makes for a node."""

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import helper

from onnxbisect.precision.low import can_be_low, suspicion
from onnxbisect.precision.metric import broken, worst
from onnxbisect.precision.reasons import reason
from onnxbisect.precision.tensors import SampledTensor, seen_of
from onnxbisect.precision.wanted import Low

RANDOM = np.random.default_rng(0)
PLAIN = RANDOM.standard_normal((1, 8, 16, 16)).astype(np.float32)


def scaled(factor: float) -> np.ndarray:
    array = PLAIN.copy()
    array[:, 3] *= factor
    return array


def seen(**arrays: np.ndarray) -> dict[str, SampledTensor]:
    return {name: it for name, array in arrays.items() if (it := seen_of(array)) is not None}


@pytest.mark.parametrize(
    ("op", "low", "arrays", "sentence"),
    [
        ("Relu", Low.INT8, {"x": PLAIN, "y": scaled(500)}, "Channel 3 of 'y' reaches "),
        ("Exp", Low.INT8, {"x": PLAIN * 30, "y": PLAIN}, "One step of int8 over the range of 'x' is "),
        (
            "Log",
            Low.INT8,
            {"x": np.exp(PLAIN * 2), "y": PLAIN},
            "of the values of 'x' become 0 in int8, and Log depends",
        ),
        ("Sub", Low.INT8, {"x": PLAIN + 1000, "y": PLAIN}, "Sub cancels: its result is "),
        ("Sub", Low.FLOAT16, {"x": PLAIN + 1000, "y": PLAIN}, "Sub cancels: its result is "),
        ("Relu", Low.INT8, {"x": np.append(PLAIN.ravel(), 500.0), "y": PLAIN}, "The largest value of 'x' is "),
        ("Pow", Low.FLOAT16, {"x": PLAIN, "y": PLAIN**2 * 1e5}, "'y' reaches 1."),
        ("Relu", Low.FLOAT16, {"x": PLAIN, "y": PLAIN * 1e-6}, "100 % of the values of 'y' are below 6.1e-05"),
        ("Relu", Low.INT8, {"x": PLAIN, "y": PLAIN}, "No single property stands out; of its tensors '"),
        ("Relu", Low.FLOAT16, {"x": PLAIN, "y": PLAIN}, "No single property of its tensors stands out."),
        ("Relu", Low.INT8, {}, "Nothing is known of the values of its tensors."),
    ],
)
def test_the_most_telling_fact_is_said(op: str, low: Low, arrays: dict[str, np.ndarray], sentence: str) -> None:
    assert sentence in reason(helper.make_node(op, ["x"], ["y"]), low, seen(**arrays), {})


def test_an_outlier_of_a_weight_is_told_from_a_channel_that_has_a_scale_of_its_own() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    weight = RANDOM.standard_normal((8, 64, 3, 3))
    weight[2] *= 1000
    fine = seen_of(weight, by_channel=0)
    weight[5, 1, 1, 1] = 5000
    outlier = seen_of(weight, by_channel=0)
    assert fine is not None
    assert outlier is not None
    both = seen(x=PLAIN, y=PLAIN)
    assert "outlier" not in reason(node, Low.INT8, both, {"w": fine})
    assert reason(node, Low.INT8, both, {"w": outlier}).startswith("The weight 'w' has an outlier of 24 times")
    assert suspicion(node, Low.INT8, both, {"w": outlier}) > suspicion(node, Low.INT8, both, {"w": fine})


@pytest.mark.parametrize(
    "values",
    [[], [np.nan], [0.0], [[0.0, 0.0]], 0.0, 3.0, [np.inf, 1.0], [[1e-30]]],
    ids=str,
)
def test_degenerate_tensors_are_seen_without_a_complaint(values: Sequence[float]) -> None:
    found = seen_of(np.array(values, np.float32))
    if found is not None:
        assert np.isfinite([found.rms, found.peak, found.ratio, found.eight_bit, found.eight_bit_weight]).all()
        assert found.and_then(found).largest == found.largest
        reason(helper.make_node("Div", ["x"], ["y"]), Low.INT8, {"x": found, "y": found}, {"x": found})


def test_samples_add_up() -> None:
    one, two = seen_of(PLAIN), seen_of(scaled(100))
    assert one is not None
    assert two is not None
    together = seen_of(np.concatenate([PLAIN, scaled(100)]))
    assert together is not None
    joined = one.and_then(two)
    assert (joined.low, joined.high, joined.channels) == (together.low, together.high, together.channels)
    assert joined.rms == pytest.approx(together.rms)


def test_only_what_the_arithmetic_changes_can_be_low() -> None:
    facts = seen(x=PLAIN, y=PLAIN)
    assert can_be_low(helper.make_node("Conv", ["x"], ["y"]), Low.INT8, facts)
    assert not can_be_low(helper.make_node("Erf", ["x"], ["y"]), Low.INT8, facts)
    assert can_be_low(helper.make_node("Erf", ["x"], ["y"]), Low.FLOAT16, facts)
    assert not can_be_low(helper.make_node("Conv", ["x"], ["y"], domain="vendor"), Low.INT8, facts)
    assert not can_be_low(helper.make_node("Gather", ["i"], ["j"]), Low.INT8, facts)


def test_metrics_know_equal_zero_and_infinite_outputs() -> None:
    zero, one = {"0": np.zeros(3)}, {"0": np.ones(3)}
    assert worst("sqnr", [one, one], [one, {"0": np.array([1.0, 1.0, 1.1])}]) == pytest.approx(24.77, abs=0.01)
    assert (worst("sqnr", [zero], [zero]), worst("sqnr", [zero], [one])) == (200.0, -200.0)
    assert (worst("cosine", [zero], [zero]), worst("cosine", [zero], [one]), worst("maxabs", [zero], [one])) == (
        1,
        0,
        1,
    )
    mask = {"0": np.array([1.0, -np.inf])}
    assert not broken([mask], [mask])
    assert worst("sqnr", [mask], [mask]) == 200.0
    assert broken([one], [{"0": np.array([1.0, np.nan, 1.0])}])
    assert broken([one], [{}])
    assert broken([one], [{"0": np.ones(4)}])
