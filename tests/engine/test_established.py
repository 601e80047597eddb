"""A model that is read with what an earlier intake established is the model that was read at first."""

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.json_form import to_json
from onnxbisect.key import Keyer
from onnxbisect.model import Established, Model, load, session
from onnxbisect.model.facts import dims_of
from onnxbisect.model.model import Allowance
from support.engine.cut_models import save
from support.examples import models

MODELS = Path(__file__).parent.parent / "models"
SHAPES = {"bert_base12_h256_dyn__ts17.onnx": {"input_ids": [1, 16], "attention_mask": [1, 16]}}


def same(one: Model, other: Model) -> None:
    assert one.proto == other.proto
    assert list(one.types.items()) == list(other.types.items())
    assert one.known.keys() == other.known.keys()
    for name, value in one.known.items():
        assert value.dtype == other.known[name].dtype, name
        np.testing.assert_array_equal(value, other.known[name], strict=True)
    assert to_json(one.universe) == to_json(other.universe)
    told = [(it.units, it.notes, it.unbound, it.data_dependent, it.sha256) for it in (one, other)]
    assert told[0] == told[1]
    keyers, units = (Keyer(one), Keyer(other)), range(len(one.units))
    for unit in units[:: len(units) // 50 + 1]:
        first, second = (keyer.key(1 << unit) for keyer in keyers)
        assert first == second


@pytest.mark.parametrize("path", models(sorted(MODELS.rglob("*.onnx"))))
def test_of_every_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = SHAPES.get(path.name)
    model = load(path, input_shapes=shapes)
    raw = model.established.to_bytes()
    # neither run nor inferred
    monkeypatch.delattr(session.Session, "__init__")
    monkeypatch.delattr(onnx.shape_inference, "infer_shapes")
    again = load(path, input_shapes=shapes, established=Established.from_bytes(raw))
    same(model, again)
    assert again.established.to_bytes() == raw


def test_known_values_that_are_no_numbers_or_odd_ones(tmp_path: Path) -> None:
    text = numpy_helper.from_array(np.array(["ä", ""], object), "text")
    odd = helper.make_tensor("odd", TensorProto.BFLOAT16, [2], [1.5, -2.0])
    nodes = [
        helper.make_node("Identity", ["text"], ["said"], name="said"),
        helper.make_node("Identity", ["odd"], ["even"], name="even"),
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Relu", ["x"], ["y"], name="relu"),
    ]
    ends = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]),
        helper.make_tensor_value_info("said", TensorProto.STRING, [2]),
        helper.make_tensor_value_info("even", TensorProto.BFLOAT16, [2]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    start = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])]
    graph = helper.make_graph(nodes, "g", start, ends, [text, odd])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    model = load(path)
    assert {"said", "shape"} <= model.known.keys()
    same(model, load(path, established=Established.from_bytes(model.established.to_bytes())))


def test_a_model_of_too_many_nodes_to_run_is_inferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("onnxbisect.model.load"), "_MOST_RUN", 3)
    path = save(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[] y)
        { a = Relu (x) b = Abs (a) c = Neg (b) y = Concat <axis = 0> (c, x) }""",
    )
    allowed: list[Allowance] = []

    def bounded(work: Callable[[], Established], allowance: Allowance) -> Established:
        allowed.append(allowance)
        return work()

    model = load(path, bounded=bounded)
    assert dims_of(model.types["y"]) == (4, 3)
    assert "so it was not run" in " ".join(model.notes)
    assert [it.seconds for it in allowed] == [pytest.approx(20, abs=0.1)]
    assert Allowance.of(5 << 20, 200_000).seconds > 100  # inference of a model of the most nodes takes 60 s
