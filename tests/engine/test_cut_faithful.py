"""Any piece of any model computes what the whole model computes."""

from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxbisect.cut import Cutter
from onnxbisect.model import Model
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


@pytest.mark.parametrize("text", [CHAIN, RESHAPE, BRANCHES], ids=["chain", "reshape", "branches"])
def test_every_piece_of_a_small_model(text: str, tmp_path: Path) -> None:
    model = read(tmp_path, text)
    cutter = Cutter(model)
    values = all_tensors(model)
    for units in range(1, full(len(model.units)) + 1):
        piece = cutter.cut(units).proto
        onnx.checker.check_model(piece, full_check=True)
        assert_same_results(piece, values)
