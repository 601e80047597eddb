"""Culprits with one thing changed: which there are, that they are valid, and what follows from an answer about them."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from onnxbisect.causes.condition import AskedNeighbour
from onnxbisect.causes.explain import causes
from onnxbisect.causes.features import Features
from onnxbisect.causes.terms import CauseState
from onnxbisect.model import Model
from onnxbisect.model.facts import TensorFacts
from onnxbisect.neighbours import Neighbour, neighbours
from onnxbisect.proof import random_feeds
from onnxbisect.report import culprit_words
from onnxbisect.report.document import document
from support.engine.refusals import model_of, node, refusing
from support.rewrites.measured import outputs_of

#: Two Gathers with scalar indices, and nothing that passes of that op.
SCALARS = """(float[4,4,8] x) => (float[4,8] y) {
    i = Constant<value_int = 0>() j = Constant<value_int = 1>()
    a = Gather<axis = 1>(x, i) b = Gather<axis = 1>(x, j) y = Add(a, b)
}"""

ALONE = "(float[4,4,8] x) => (float[4,8] a) { i = Constant<value_int = 0>() a = Gather<axis = 1>(x, i) }"


def found(model: Model) -> dict[str, Neighbour]:
    row = Features(TensorFacts.of(model), model.known).of(node(model, 0))
    return {it.text: it for it in neighbours(model, row)}


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (
            "(float[4,4] x) => (float[4] y) { i = Constant<value_int = 0>() y = Gather<axis = 1>(x, i) }",
            {"Gather with indices of rank 1", "Gather with indices of type int32", "Gather with axis = 0"},
        ),
        (
            "(float[1,2,4,2,4,4] x) => (float[1,2,2,4,4,4] y) { y = Transpose<perm = [0,1,3,2,4,5]>(x) }",
            {"Transpose with data of rank 4", "Transpose with data of type float16"},
        ),
        (
            "(float[1,2,3,2,5] x) => (float[1,2,3,2,5] y) { y = Softmax<axis = 4>(x) }",
            {"Softmax with input of rank 4", "Softmax with axis = -1"},
        ),
        (
            "(float[1,2,7,7] x) => (float[1,2,4,4] y) "
            "{ y = AveragePool<kernel_shape = [2,2], strides = [2,2], ceil_mode = 1>(x) }",
            {"AveragePool with ceil_mode = 0", "AveragePool with no strides"},
        ),
        (
            "(int64[4] x) => (int64[4] y) { c = Constant<value_int = 3>() y = Add(c, x) }",
            {"Add with A of rank 1", "Add with A of type float", "Add with constant B"},
        ),
        (
            "(float[1,4] x) => (float[4] y) { c = Constant<value_ints = [0]>() y = Squeeze(x, c) }",
            {"Squeeze as operator set 12 has it"},
        ),
        (
            "(float[2] x) => (float[2] y) { c = Constant<value_float = -3.4e38>() y = Add(x, c) }",
            {"Add with A of type float16"},
        ),
    ],
)
def test_one_thing_is_changed_at_a_time_and_the_result_runs(tmp_path: Path, body: str, texts: set[str]) -> None:
    model = model_of(tmp_path, body)
    made = found(model)
    assert texts <= made.keys()
    before = Features(TensorFacts.of(model), model.known).of(node(model, 0))
    for it in made.values():
        onnx.checker.check_model(it.proto, full_check=True)
        assert outputs_of(it.proto, next(random_feeds(it.proto.graph.input, 1)))
        assert it.row != before


def test_what_would_be_no_valid_model_is_none(tmp_path: Path) -> None:
    """The weights of a Conv in two groups do not fit one group."""
    body = "(float[1,4,7,7] x, float[4,2,3,3] w) => (float[1,4,5,5] y) { y = Conv<group = 2>(x, w) }"
    assert not any("group" in text for text in found(model_of(tmp_path, body)))


@pytest.mark.parametrize(
    "body",
    [
        "(float[1,2] x) => (float[1,2] y) { y = acme.Foo<a = 3>(x) }",
        "() => (float y) { y = Constant<value_float = 1.0>() }",
    ],
)
def test_an_op_that_is_not_known_and_a_constant_have_none(tmp_path: Path, body: str) -> None:
    assert not found(model_of(tmp_path, body))


def answered(folder: Path, text: str, *, passed: bool) -> AskedNeighbour:
    (folder / "alone").mkdir()
    alone = model_of(folder / "alone", ALONE)
    return AskedNeighbour(culprit=0, text=text, row=found(alone)[text].row, passed=passed)


def test_a_neighbour_that_passes_confirms_the_cause_and_says_what_compiles(tmp_path: Path) -> None:
    model = model_of(tmp_path, SCALARS)
    job = refusing(model, lambda it: it.op_type == "Gather")
    (before,) = causes(model, job.diagnosis, 0)
    assert (before.text, before.state) == ("Gather", CauseState.NO_CONTRAST)

    asked = answered(tmp_path, "Gather with indices of rank 1", passed=True)
    report = document(replace(job, neighbours=(asked,)))

    (cause,) = report["causes"]
    assert cause["state"] == "confirmed"
    assert cause["text"] == "Gather with scalar indices"
    assert culprit_words.sentence(cause) == (
        "Gather with scalar indices (2 of 2 places refused; none passed; confirmed: Gather with indices of rank 1 "
        "compiles)"
    )
    assert culprit_words.compiles(cause["contrast"][0]) == "Gather with indices of rank 1 (asked on its own)"


def test_a_neighbour_that_is_refused_too_is_no_other_cause(tmp_path: Path) -> None:
    """Nothing tells scalar indices from the axis until the same on another axis is refused."""
    body = SCALARS.replace("y = Add(a, b)", "l = Constant<value_ints = [0]>() c = Add(a, b) y = Gather(c, l)").replace(
        "float[4,8] y", "float[1,8] y"
    )
    model = model_of(tmp_path, body)
    job = refusing(model, lambda it: it.op_type == "Gather" and it.input[1] != "l")
    passed = job.probes[-1].units
    (before,) = causes(model, job.diagnosis, passed)
    assert "Gather with axis = 1" in before.fits_too
    (after,) = causes(model, job.diagnosis, passed, [answered(tmp_path, "Gather with axis = 0", passed=False)])
    assert after.text == before.text == "Gather with scalar indices"
    assert "Gather with axis = 1" not in after.fits_too
