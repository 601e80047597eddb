"""What can be typed after --option and --input-shape."""

import pytest

from onnxbisect.errors import OptionError
from onnxbisect_cli import parameters


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parameters.key_values(["profile=edgesam", "ops=A=B", "empty="], "--option") == {
        "profile": "edgesam",
        "ops": "A=B",
        "empty": "",
    }


def test_shapes_are_split_at_the_last_equals_sign() -> None:
    assert parameters.shapes(["x=1,3,224,224", "a=b=2", "scalar=", "y=1x3"]) == {
        "x": [1, 3, 224, 224],
        "a=b": [2],
        "scalar": [],
        "y": [1, 3],
    }


@pytest.mark.parametrize("pair", ["x", "=1", "x=1,", "x=one", "x=1;2", "x=1.5", "x=-1", "x=9223372036854775808"])
def test_a_wrong_shape_is_a_sentence_that_shows_it(pair: str) -> None:
    with pytest.raises(OptionError) as caught:
        parameters.shapes([pair])
    assert repr(pair) in str(caught.value)


@pytest.mark.parametrize("pairs", [["x"], ["=1"], ["x=1", "x=2"]])
def test_a_wrong_pair_is_refused(pairs: list[str]) -> None:
    with pytest.raises(OptionError):
        parameters.key_values(pairs, "--option")


def test_a_shape_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="twice"):
        parameters.shapes(["x=1", "x=1"])


def test_values_are_numbers_truth_values_and_lists() -> None:
    assert parameters.values(["sr=16000", "a=b=0.5", "starts=0,-1", "fast=True", "none="]) == {
        "sr": 16000,
        "a=b": 0.5,
        "starts": [0, -1],
        "fast": True,
        "none": [],
    }


@pytest.mark.parametrize("pair", ["sr", "=1", "sr=fast", "sr=1,", "sr=1;2"])
def test_a_wrong_value_is_a_sentence_that_shows_it(pair: str) -> None:
    with pytest.raises(OptionError) as caught:
        parameters.values([pair])
    assert repr(pair) in str(caught.value)


def test_a_value_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="twice"):
        parameters.values(["sr=1", "sr=1"])


def test_names_come_in_order_from_all_options() -> None:
    assert parameters.names(["b,a", "/c/d:0", ",e,"]) == ["b", "a", "/c/d:0", "e"]


def test_a_name_with_commas_stays_whole_where_it_is_one() -> None:
    assert parameters.names(["a,b", "a,c"], {"a,b", "c"}) == ["a,b", "a", "c"]


def test_what_to_try_is_all_or_values_by_option() -> None:
    assert parameters.alternatives([]) is None
    assert parameters.alternatives(["all"]) == "all"
    assert parameters.alternatives(["precision=fp16, bf16", "version"]) == {
        "precision": ["fp16", "bf16"],
        "version": [],
    }


@pytest.mark.parametrize("given", [["all", "version"], ["=fp16"], ["precision="], ["a=1", "a=2"]])
def test_what_cannot_be_tried_is_refused(given: list[str]) -> None:
    with pytest.raises(OptionError, match="--try"):
        parameters.alternatives(given)
