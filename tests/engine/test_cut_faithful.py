"""Any piece of any model computes what the whole model computes."""

from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from onnxbisect.cut import Cutter
from onnxbisect.model import Model
from onnxbisect.model.scopes import reads
from onnxbisect.unitset import UnitSet, full, of
from support.engine.cut_models import (
    BRANCHES,
    CHAIN,
    FILES,
    RESHAPE,
    all_tensors,
    assert_same_results,
    bound,
    read,
    session,
)
from support.examples import examples


@cache
def taken_in(path: Path) -> tuple[Model, Cutter, dict[str, Any] | None]:
    """A model, its cutter, and its tensors, None where onnxruntime cannot run it (custom ops)."""
    model = bound(path)
    try:
        session(model.proto.SerializeToString())
    except Exception:
        return model, Cutter(model), None
    return model, Cutter(model), all_tensors(model)


@st.composite
def pieces(draw: st.DrawFn, count: int) -> UnitSet:
    """Single units, intervals, what is left without a few, and anything."""
    unit = st.integers(0, count - 1)
    ends = st.tuples(unit, unit).map(lambda two: of(range(min(two), max(two) + 1)))
    few = st.sets(unit, max_size=3).map(lambda out: full(count) & ~of(out))
    return draw(st.one_of(unit.map(lambda one: 1 << one), ends, few, st.integers(1, full(count))).filter(bool))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@given(data=st.data())
@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
def test_a_piece_is_valid_and_computes_the_same_bits(path: Path, data: st.DataObject) -> None:
    model, cutter, values = taken_in(path)
    units = data.draw(pieces(len(model.units)))
    piece = cutter.cut(units).proto
    assert units.bit_count() == sum(node.name in model.unit_of_node for node in piece.graph.node)
    if values is not None:
        onnx.checker.check_model(piece)
        assert_same_results(piece, values)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@given(data=st.data())
@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
def test_the_nodes_of_a_piece_are_in_the_order_of_the_file(path: Path, data: st.DataObject) -> None:
    model, cutter, _ = taken_in(path)
    file = onnx.load(path, load_external_data=False).graph
    place = {node.output[0]: index for index, node in enumerate(file.node)}
    piece = cutter.cut(data.draw(pieces(len(model.units)))).proto
    places = [place[node.output[0]] for node in piece.graph.node]
    if path.stem == "unsorted_nodes":
        made = [node.output[0] for node in piece.graph.node]
        assert all(
            made.index(name) < made.index(node.output[0])
            for node in piece.graph.node
            for name in reads(node)
            if name in made
        )
    else:
        assert places == sorted(places)


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Random graphs whose branches are interleaved in the file, with Constants anywhere."""
    count = draw(st.integers(2, 12))
    nodes = [helper.make_node("Constant", [], [f"c{number}"], value_float=float(number)) for number in range(2)]
    made = ["x"]
    for number in range(count):
        op = draw(st.sampled_from(["Relu", "Add", "Mul"]))
        pool = st.sampled_from([*made, "c0", "c1"])
        taken = [draw(st.sampled_from(made)), *([] if op == "Relu" else [draw(pool)])]
        nodes.append(helper.make_node(op, taken, [f"t{number}"], name=f"n{number}"))
        made.append(f"t{number}")
    left, placed, order = list(range(len(nodes))), {"x"}, []
    while left:
        index = draw(st.sampled_from([index for index in left if placed.issuperset(nodes[index].input)]))
        left.remove(index)
        placed.update(nodes[index].output)
        order.append(nodes[index])
    value = helper.make_tensor_value_info
    graph = helper.make_graph(order, "g", [value("x", 1, [2])], [value(f"t{count - 1}", 1, [2]), value("t0", 1, [2])])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


@given(proto=graphs(), data=st.data())
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
def test_a_random_graph_goes_round_in_its_own_order(
    tmp_path: Path, proto: onnx.ModelProto, data: st.DataObject
) -> None:
    model = read(tmp_path, proto)
    file = [list(node.output) for node in proto.graph.node]
    cutter = Cutter(model)
    whole = cutter.cut(full(len(model.units))).proto
    kept = {name for node in whole.graph.node for name in reads(node)}
    assert [list(it.output) for it in whole.graph.node] == [it for it in file if it[0][0] == "t" or it[0] in kept]
    units = data.draw(pieces(len(model.units)))
    piece = cutter.cut(units).proto
    places = [file.index(list(node.output)) for node in piece.graph.node]
    assert places == sorted(places)
    assert_same_results(piece, all_tensors(model))


@pytest.mark.parametrize("text", [CHAIN, RESHAPE, BRANCHES], ids=["chain", "reshape", "branches"])
def test_every_piece_of_a_small_model(text: str, tmp_path: Path) -> None:
    model = read(tmp_path, text)
    cutter = Cutter(model)
    values = all_tensors(model)
    for units in range(1, full(len(model.units)) + 1):
        piece = cutter.cut(units).proto
        onnx.checker.check_model(piece, full_check=True)
        assert_same_results(piece, values)
