"""Ops that differ in the values of constants only: each is asked alone, few in their places."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.diagnosis import Certainty, CertificateStatus
from onnxbisect.model.load import load
from onnxbisect.unitset import UnitSet, members, of, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints
from support.engine.worlds import Log, World, all_found, silent, universe


def model(between: list[str], count: int, *, side_by_side: bool) -> tuple[Universe, UnitSet]:
    """A model with `count` units X, each of a variant of its own, and those units.

    Each has these ops behind it. They read one tensor and are joined, or stand one behind the other.
    """
    ops: list[str] = ["First"]
    edges: list[tuple[int, int]] = []

    def add(op: str, *producers: int) -> int:
        edges.extend((producer, len(ops)) for producer in producers)
        ops.append(op)
        return len(ops) - 1

    last, ends, chosen = 0, [], []
    for _ in range(count):
        chosen.append(add("X", 0 if side_by_side else last))
        last = chosen[-1]
        for op in between:
            last = add(op, last)
        ends.append(last)
    last = add("Join", *(ends if side_by_side else ends[-1:]))
    for number in range(8):
        last = add(f"Last{number}", last)
    kinds = {op: number for number, op in enumerate(dict.fromkeys(ops))}
    numbers = {key: number for number, key in enumerate(dict.fromkeys(_variants(ops)))}
    made = universe([numbers[key] for key in _variants(ops)], edges)
    return replace(made, op=tuple(ops), valueless=tuple(kinds[op] for op in ops)), of(chosen)


def _variants(ops: list[str]) -> list[object]:
    return [(op, unit) if op == "X" else op for unit, op in enumerate(ops)]


def names_first(graph: Universe, refused: UnitSet) -> Log:
    def log(units: UnitSet) -> Hints:
        unit = next(iter(members(units & refused)))
        return Hints(ops=(graph.op[unit],), nodes=graph.names[unit])

    return log


def names_op(graph: Universe, refused: UnitSet) -> Log:
    return lambda _: Hints(ops=("X",))


def says_nothing(graph: Universe, refused: UnitSet) -> Log:
    return silent


@pytest.mark.parametrize("log", [says_nothing, names_first, names_op])
@pytest.mark.parametrize("side_by_side", [True, False])
@pytest.mark.parametrize("between", [[], ["A", "B"], ["A", "B", "C", "D", "E"]])
def test_each_is_asked_alone_and_few_in_their_places(
    between: list[str], side_by_side: bool, log: Callable[[Universe, UnitSet], Log]
) -> None:
    if not between and not side_by_side:
        between = ["A"]
    graph, refused = model(between, 20, side_by_side=side_by_side)
    world = World(graph, lambda units: bool(units & refused), log(graph, refused), fingerprints=True)
    step = world.diagnose()
    culprits = step.diagnosis.culprits
    assert all_found(step) == {1 << unit for unit in members(refused)}
    assert {it.certainty for it in culprits} == {Certainty.CONFIRMED}
    assert all(1 << unit in world.verdicts for unit in members(refused))
    assert sum(not it.inferred for it in culprits) >= 2
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert world.calls <= 20 + 20


def test_what_is_fine_beside_its_neighbour_whatever_its_constant_is_not_blamed() -> None:
    graph, fused = model(["A", "B"], 20, side_by_side=True)

    def rule(units: UnitSet) -> bool:
        bare = of(unit for unit in members(units & fused) if not graph.successors[unit] & units)
        return bool(bare) or bool(units & of(unit for unit, op in enumerate(graph.op) if op == "Last3"))

    world = World(graph, rule)
    diagnosis = world.diagnose().diagnosis
    assert {graph.op[unit] for it in diagnosis.culprits for unit in members(it.units)} == {"Last3"}
    assert diagnosis.certificate.status is CertificateStatus.PROVEN


@pytest.mark.parametrize("seed", range(8))
def test_no_fact_is_false_where_the_constant_decides_what_is_fused(seed: int) -> None:
    """Only what failed in its place by itself is a fact; the report says of the others that this is assumed."""
    drawn = random.Random(seed)
    graph, ops = model(
        drawn.choice([["A"], ["A", "B"], ["A", "B", "C", "D", "E"]]), 8, side_by_side=drawn.random() < 0.5
    )
    refused = of(unit for unit in members(ops) if drawn.random() < 0.8)
    fused = of(unit for unit in members(refused) if drawn.random() < 0.3)

    def rule(units: UnitSet) -> bool:
        return any(not (fused >> unit & 1 and graph.successors[unit] & units) for unit in members(units & refused))

    world = World(graph, rule)
    diagnosis = world.diagnose().diagnosis
    culprits = [it for it in diagnosis.culprits if it.certainty is Certainty.CONFIRMED]
    stated = union(union(it.occurrences) & ~it.inferred for it in culprits)
    assert not stated & fused
    assert not rule(diagnosis.remainder)
    assert not refused & ~fused & ~union(union(it.occurrences) for it in diagnosis.culprits)


def test_a_place_that_looks_otherwise_is_asked() -> None:
    """Nothing is assumed of an op whose neighbours are of other ops."""
    graph, refused = model(["A", "B"], 8, side_by_side=True)
    first, *_ = members(refused)
    ops = [("Other" if unit == first + 1 else op) for unit, op in enumerate(graph.op)]
    graph = replace(graph, op=tuple(ops))
    diagnosis = World(graph, lambda units: bool(units & refused)).diagnose().diagnosis
    assert not next(it.inferred for it in diagnosis.culprits if it.units == 1 << first)


def test_units_that_differ_in_a_constant_only_are_of_one_kind(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["x", f"i{number}"], [f"y{number}"], f"g{number}", axis=number // 2)
        for number in range(4)
    ]
    nodes.append(helper.make_node("Concat", [f"y{number}" for number in range(4)], ["y"], "c", axis=0))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(number), f"i{number}") for number in range(4)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    found = load(path).universe
    by_name = {names[0]: unit for unit, names in enumerate(found.names)}
    kinds = [found.valueless[by_name[f"g{number}"]] for number in range(4)]
    assert len({found.variant[by_name[f"g{number}"]] for number in range(4)}) == 4
    assert kinds[0] == kinds[1] != kinds[2] == kinds[3]
    assert found.valueless[by_name["c"]] not in kinds
