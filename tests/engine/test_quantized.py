"""Quantised ops: scales, weights and biases make no question of its own; whether a zero point is zero does."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime

from onnxbisect.key import probe_key
from onnxbisect.model import Model, load
from onnxbisect.model.variants import ZERO_POINT_SLOTS
from onnxbisect.search import next_asks, plan
from onnxbisect.unitset import UnitSet, full, members, of
from onnxbisect.verdict import Status, Verdict
from support.engine.cut_models import save

MICROSOFT = "com.microsoft"


class Graph:
    """A quantised chain from `x`, uint8 of 4 x 4; every constant gets a name and the value that it is given."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.last = "x"

    def constant(self, array: object) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def quantum(self, scale: float, zero: int, dtype: type = np.uint8) -> list[str]:
        """A scale and its zero point."""
        return [self.constant(np.float32(scale)), self.constant(dtype(zero))]

    def node(self, op: str, inputs: list[str], *, domain: str = MICROSOFT, **attributes: Any) -> None:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"t_{name}"], name, domain=domain, **attributes))
        self.last = f"t_{name}"

    def layer(self, scale: float, zero: int = 128) -> None:
        """One of each kind, with numbers that no other layer has; every weight and bias is small."""
        weight = self.constant(np.full((4, 4), int(scale * 100), np.int8))
        bias = self.constant(np.full(4, int(scale * 1000), np.int32))
        a, b, y = self.quantum(scale, zero), self.quantum(scale * 2, zero), self.quantum(scale * 3, zero)
        self.node("QLinearAdd", [self.last, *a, self.last, *b, *y])
        self.node("QLinearMul", [self.last, *a, self.last, *b, *y])
        self.node("QGemm", [self.last, *a, weight, *self.quantum(scale, 0, np.int8), bias, *y])
        self.node("QLinearSigmoid", [self.last, *a, *y])
        self.node("QLinearConcat", [*y, self.last, *a, self.last, *b], axis=0)
        self.node("Split", [self.last], domain="")
        self.nodes[-1].output.append(f"rest{len(self.nodes)}")

    def model(self, folder: Path, opset: int = 17) -> Model:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, [4, 4])],
            [helper.make_empty_tensor_value_info(self.last)],
            self.constants,
        )
        versions = {"": opset, MICROSOFT: 1, "other": 1}
        opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        return load(save(folder, helper.make_model(graph, opset_imports=opsets, ir_version=8)))


def layers(folder: Path, *scales: float, zero: int = 128) -> Model:
    graph = Graph()
    for scale in scales:
        graph.layer(scale, zero)
    return graph.model(folder)


def ops(model: Model, op: str) -> list[int]:
    return [unit for unit, name in enumerate(model.universe.op) if name.split("::")[-1] == op]


def test_layers_that_differ_in_scales_weights_and_biases_are_one_question_for_each_op(tmp_path: Path) -> None:
    universe = layers(tmp_path, 0.1, 0.2, 0.3, 0.4).universe
    assert len(set(universe.op)) == len(set(universe.variant)) == 6
    assert len(set(zip(universe.variant, universe.solo, strict=True))) == 6


def test_they_have_one_key_in_a_model_and_in_one_that_was_calibrated_anew(tmp_path: Path) -> None:
    model, other = layers(tmp_path, 0.1, 0.2), layers(tmp_path, 0.5)
    layer = full(6)
    assert probe_key(model, layer << 6) == probe_key(other, layer)
    assert probe_key(model, layer << 6, weights=True) != probe_key(other, layer, weights=True)


def test_symmetric_quantisation_is_a_question_of_its_own(tmp_path: Path) -> None:
    graph = Graph()
    graph.layer(0.1, zero=128)
    graph.layer(0.1, zero=0)
    model = graph.model(tmp_path)
    for op in ("QLinearAdd", "QLinearMul", "QGemm", "QLinearSigmoid", "QLinearConcat"):
        one, other = ops(model, op)
        assert model.universe.variant[one] != model.universe.variant[other], op
        assert probe_key(model, of([one])) != probe_key(model, of([other])), op


def test_zero_points_of_four_bits_are_read_too(tmp_path: Path) -> None:
    graph = Graph()
    for zero in (0, 8):
        weight = graph.constant(np.ones((4, 2), ml_dtypes.uint4))
        graph.node("DequantizeLinear", [weight, *graph.quantum(0.1, zero, ml_dtypes.uint4)], domain="")
    graph.node("Concat", [f"t_{node.name}" for node in graph.nodes], domain="", axis=0)
    model = graph.model(tmp_path, opset=21)
    symmetric, asymmetric = ops(model, "DequantizeLinear")
    assert model.universe.variant[symmetric] != model.universe.variant[asymmetric]
    assert probe_key(model, of([symmetric])) != probe_key(model, of([asymmetric]))


def test_zero_points_of_many_channels_are_read_too(tmp_path: Path) -> None:
    graph = Graph()
    for channels, zero in ((4, 0), (200, 0), (200, 1)):
        weight = graph.constant(np.ones((channels, 2), np.int8))
        scales, zeros = np.full(channels, 0.1, np.float32), np.full(channels, zero, np.int8)
        quantum = [graph.constant(scales), graph.constant(zeros)]
        graph.node("DequantizeLinear", [weight, *quantum], domain="", axis=0)
    graph.node("Concat", [f"t_{node.name}" for node in graph.nodes], domain="", axis=0)
    model = graph.model(tmp_path)
    few, many, asymmetric = ops(model, "DequantizeLinear")
    assert model.universe.variant[few] == model.universe.variant[many] != model.universe.variant[asymmetric]
    assert probe_key(model, of([many])) != probe_key(model, of([asymmetric]))


@pytest.mark.parametrize("domain", ["", MICROSOFT])
@pytest.mark.parametrize("weight", [np.int8(3), np.int32(5), np.arange(4, dtype=np.int32), np.zeros(4, np.int32)])
def test_what_is_dequantised_does_not_count_by_value(
    domain: str, weight: np.generic | np.ndarray, tmp_path: Path
) -> None:
    graph = Graph()
    for scale, tensor in ((0.1, np.ones_like(weight)), (0.2, weight)):
        graph.node("DequantizeLinear", [graph.constant(tensor), graph.constant(np.float32(scale))], domain=domain)
    graph.node("Add", [f"t_{node.name}" for node in graph.nodes], domain="")
    model = graph.model(tmp_path)
    one, other = ops(model, "DequantizeLinear")
    assert model.universe.variant[one] == model.universe.variant[other]
    assert probe_key(model, of([one])) == probe_key(model, of([other]))


def test_an_op_of_another_vendor_may_mean_something_else_by_its_constants(tmp_path: Path) -> None:
    graph = Graph()
    for scale in (0.1, 0.2):
        graph.node("QLinearSigmoid", [graph.last, graph.constant(np.float32(scale))], domain="other")
    assert len(set(graph.model(tmp_path).universe.variant)) == 2


def test_a_quantised_model_costs_what_its_ops_cost(tmp_path: Path) -> None:
    universe = layers(tmp_path, *(0.01 * number for number in range(1, 13))).universe
    refused = of(unit for unit, op in enumerate(universe.op) if op.endswith(("::QLinearAdd", "::QLinearMul")))
    verdicts: dict[UnitSet, list[Verdict]] = {}
    while asks := next_asks(universe, verdicts):
        status = Status.FAIL if asks[0].units & refused else Status.PASS
        verdicts.setdefault(asks[0].units, []).append(Verdict(status=status))
    culprits = plan(universe, verdicts).diagnosis.culprits
    assert sorted(universe.op[next(members(culprit.units))] for culprit in culprits) == [
        "com.microsoft::QLinearAdd",
        "com.microsoft::QLinearMul",
    ]
    assert sum(map(len, verdicts.values())) <= 20


def test_the_table_has_every_zero_point_of_onnxruntime() -> None:
    """An op that a new onnxruntime adds is to be added to the table."""
    schemas = [it for it in onnxruntime.get_all_operator_schema() if it.domain in ("", MICROSOFT)]
    for schema in schemas:
        slots = [slot for slot, it in enumerate(schema.inputs) if it.name.lower().endswith("zero_point")]
        if slots:
            table = ZERO_POINT_SLOTS[schema.domain, schema.name]
            inputs = range(len(schema.inputs))
            assert [slot for slot in inputs if slot in table] == slots, schema.name
    assert set(ZERO_POINT_SLOTS) <= {(schema.domain, schema.name) for schema in schemas}
