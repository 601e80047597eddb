"""Cutting by names, for people."""

from pathlib import Path

import pytest

from onnxbisect.cut import cut_between, units_between, units_of_nodes
from onnxbisect.errors import CutError
from support.engine.cut_models import (
    BRANCHES,
    CHAIN,
    RESHAPE,
    input_names,
    node_names,
    output_names,
    read,
    weight_names,
)


def test_nodes_by_name(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    assert units_of_nodes(model, ["make_c", "make_a"]) == 0b101


def test_constants_may_be_named_beside_what_they_feed(tmp_path: Path) -> None:
    model = read(tmp_path, RESHAPE)
    assert units_of_nodes(model, ["make_zero", "make_first"]) == units_of_nodes(model, ["make_first"])
    with pytest.raises(CutError, match="Constants come with the nodes they feed"):
        units_of_nodes(model, ["make_zero"])


def test_an_unknown_node_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(CutError, match=r"no node 'mak_b'; the nearest are 'make_b'"):
        units_of_nodes(read(tmp_path, CHAIN), ["mak_b"])


def test_tensors_bound_a_piece(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    piece = cut_between(model, ["b"], ["d"]).proto
    assert node_names(piece) == ["make_a", "make_c", "make_d"]
    assert input_names(piece) == ["b", "x"]
    assert output_names(piece) == ["d"]


def test_no_outputs_named_means_the_models(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    assert units_between(model, ["d"], []) == units_of_nodes(model, ["make_y"])
    assert units_between(model, [], []) == 0b11111


def test_a_named_output_is_one_although_the_piece_itself_takes_it(tmp_path: Path) -> None:
    piece = cut_between(read(tmp_path, CHAIN), [], ["b", "d"]).proto
    assert output_names(piece) == ["b", "d"]


def test_a_named_input_stays_an_input_although_its_value_is_known(tmp_path: Path) -> None:
    piece = cut_between(read(tmp_path, RESHAPE), ["r", "shape"], ["y"]).proto
    assert input_names(piece) == ["r", "shape"]
    assert weight_names(piece) == []


def test_the_walk_follows_captures_of_branches(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    assert units_between(model, ["high"], ["y"]) == units_of_nodes(model, ["make_scaled", "make_y"])


@pytest.mark.parametrize(
    ("inputs", "outputs", "sentence"),
    [
        (["nope"], ["y"], "no tensor 'nope'"),
        (["scald"], ["y"], "no tensor 'scald'; the nearest are 'scaled'"),
        (["w"], ["y"], "'w' is a constant of the model"),
        (["limit"], ["y"], "'limit' is a constant of the model"),
        ([], ["x"], "'x' is an input of the model"),
        (["high"], ["scaled"], "None of the outputs depends on the input 'high'"),
        (["y"], ["y"], "no node between"),
    ],
)
def test_what_cannot_be_cut_is_said_in_a_sentence(
    inputs: list[str], outputs: list[str], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CutError, match=sentence):
        units_between(read(tmp_path, BRANCHES), inputs, outputs)
