"""The proof finds what differs between two models, and says how much."""

from collections.abc import Callable, Mapping
from math import inf, nan
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.errors import ModelError
from onnxbisect.proof import Tolerance, compare, difference, edge_feeds, leeways, random_feeds
from onnxbisect.rewrites import Bound, Exactness, Rule, Site, apply, rule
from support.rewrites.instances import node

EQUAL = Tolerance(absolute=0, relative=0)
NUMBERS = st.floats(width=32)


def array(*values: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def test_differences_are_told_as_they_are() -> None:
    found = difference("y", array(1, -4, 0), array(1.5, -4, 0), EQUAL)
    assert (found.absolute, found.relative, found.unlike, found.beyond) == (0.5, 0.125, 0, 1)


@pytest.mark.parametrize(
    ("before", "after", "unlike"),
    [((nan,), (nan,), 0), ((inf,), (inf,), 0), ((inf,), (-inf,), 1), ((nan,), (0.0,), 1), ((1e38,), (inf,), 1)],
)
def test_nan_and_infinity_agree_with_themselves_only(
    before: tuple[float, ...], after: tuple[float, ...], unlike: int
) -> None:
    found = difference("y", array(*before), array(*after), Tolerance())
    assert (found.unlike, found.agrees) == (unlike, not unlike)


def test_large_integers_are_not_rounded_into_agreement() -> None:
    big = 2**62
    assert not difference("y", array(big, dtype=np.int64), array(big + 1, dtype=np.int64), EQUAL).agrees
    assert difference("y", array(big, dtype=np.int64), array(big, dtype=np.int64), EQUAL).agrees


def test_a_place_beside_the_right_one_in_a_long_list_is_none() -> None:
    assert not difference("y", array(50_000, dtype=np.int64), array(50_001, dtype=np.int64), Tolerance()).agrees
    assert difference("y", array(3, dtype=np.int64), array(4, dtype=np.int64), Tolerance(absolute=1)).agrees


def test_sequences_are_compared_tensor_by_tensor() -> None:
    one, other = [array(1, 2), array(3)], [array(1, 2), array(4)]
    assert difference("y", list(one), list(one), EQUAL).agrees
    found = difference("y", list(one), list(other), EQUAL)
    assert (found.elements, found.absolute, found.beyond) == (3, 1, 1)
    assert difference("y", list(one), list(one[:1]), EQUAL).form
    assert difference("y", list(one), one[0], EQUAL).form


def test_another_shape_or_dtype_is_no_agreement() -> None:
    assert difference("y", array(1), array(1, 2), Tolerance()).form == "the shape (1,) became (2,)"
    assert not difference("y", array(1), array(1, dtype=np.float64), Tolerance()).agrees
    assert not difference("y", np.array([True]), np.array([False]), Tolerance()).agrees


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6))
def test_agreement_without_tolerance_is_equality(pairs: list[tuple[float, float]]) -> None:
    before, after = array(*[a for a, _ in pairs]), array(*[b for _, b in pairs])
    same = bool(((before == after) | (np.isnan(before) & np.isnan(after))).all())
    assert difference("y", before, after, EQUAL).agrees == same


def _rule(wrong: bool) -> Rule:
    @rule("Neg -> Mul", Exactness.EXACT, Bound(), rank=0, source="")
    def neg(at: Site) -> str:
        """Mul by -1, or nearly."""
        return at.op("Mul", at.input(0), at.scalar(-1.001 if wrong else -1))

    return neg


@pytest.mark.parametrize("wrong", [False, True])
def test_a_rule_that_is_wrong_on_purpose_is_found_out(wrong: bool) -> None:
    instance = node("Neg", np.zeros((4, 5), np.float32))
    after = apply(instance.model, {"n": _rule(wrong)})
    found = compare(instance.model, after, random_feeds(instance.model.graph.input, 3))
    assert found.samples == 3
    assert found.agrees is not wrong
    (only,) = found.differences
    assert bool(only.absolute) is wrong


def test_a_rule_that_is_wrong_at_edges_only_is_found_out_by_edges() -> None:
    """x·x/x is x, but for 0."""

    @rule("Identity ->", Exactness.EXACT, rank=0, source="")
    def silly(at: Site) -> str:
        """x times x by x."""
        return at.op("Div", at.op("Mul", at.input(0), at.input(0)), at.input(0))

    instance = node("Identity", np.zeros((40,), np.float32))
    after = apply(instance.model, {"n": silly})
    assert compare(instance.model, after, random_feeds(instance.model.graph.input, 2)).agrees
    found = compare(instance.model, after, edge_feeds(instance.model.graph.input, 2))
    assert not found.agrees
    assert found.differences[0].unlike > 0


def test_no_numbers_are_made_up_for_a_sequence() -> None:
    kind = onnx.helper.make_tensor_sequence_value_info("x", onnx.TensorProto.FLOAT, [2])
    with pytest.raises(ModelError, match=r"^Input 'x' is no tensor"):
        next(random_feeds([kind], 1))


def test_models_that_cannot_be_compared_are_said_in_a_sentence() -> None:
    one, other = (node(op, np.zeros(3, np.float32)).model for op in ("Neg", "Abs"))
    other.graph.output[0].name = other.graph.node[0].output[0] = "z"
    with pytest.raises(ModelError, match=r"different outputs: 'y0' is in one of them only"):
        compare(one, other, [])
    broken = onnx.ModelProto()
    broken.CopyFrom(one)
    broken.graph.node[0].op_type = "NoSuchOp"
    with pytest.raises(ModelError, match="onnxruntime does not load"):
        compare(one, broken, [], folder=Path())


def test_a_type_holds_what_a_model_makes_of_its_edges() -> None:
    kinds = {"float16": onnx.TensorProto.FLOAT16, "float": onnx.TensorProto.FLOAT, "double": onnx.TensorProto.DOUBLE}
    largest = {}
    for name, kind in kinds.items():
        (fed,) = edge_feeds([onnx.helper.make_tensor_value_info("x", kind, [4, 100])], 1)
        largest[name] = float(np.abs(fed["x"]).max())
        assert np.isfinite(fed["x"] @ fed["x"].T).all()
    assert largest == {"float16": 20, "float": 1e4, "double": 1e4}


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def test_numbers_that_no_order_of_operations_settles_have_a_leeway() -> None:
    random = np.random.default_rng(0)
    q, k = random.normal(size=(2, 40, 64)).astype(np.float32)
    sample = {"q": q, "k": k, "q_large": q * 1e4, "k_large": k * 1e4}

    def run(fed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [_softmax(fed["q"] @ fed["k"].T), _softmax(fed["q_large"] @ fed["k_large"].T)]

    def other_order(fed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [_softmax((fed["k" + end][:, ::-1] @ fed["q" + end][:, ::-1].T).T) for end in ("", "_large")]

    tolerance = Tolerance(absolute=0, relative=1e-5)
    before, after = run(sample), other_order(sample)
    small, large = leeways(run, sample, before)

    assert difference("small", before[0], after[0], tolerance).agrees
    assert not difference("large", before[1], before[1] + 0.01, tolerance, large).agrees
    assert difference("large", before[1], after[1], tolerance, large).agrees
    assert (small < 1e-3).all()


@pytest.mark.parametrize("jumps", [np.rint, np.sign, np.floor])
def test_where_a_function_jumps_there_is_no_leeway(jumps: Callable[[np.ndarray], np.ndarray]) -> None:
    ties = array(0, -0.0, 0.5, -0.5, 1.5, 2.5, 1, -1, 3, 20)

    (leeway,) = leeways(lambda fed: [jumps(fed["x"])], {"x": ties}, [jumps(ties)])

    assert not leeway.any()


def test_agreement_that_is_owed_to_a_leeway_is_none() -> None:
    before, leeway = array(1, 2, 3, 4), np.full(4, 10.0)

    assert not difference("y", before, before + 1, Tolerance(), leeway).agrees
    assert difference("y", before, before + array(1, 0, 0, 0), Tolerance(), leeway * array(1, 0, 0, 0)).agrees
