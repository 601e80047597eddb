"""What a cut has at its boundary are the values of the whole model's run."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxbisect.cut import Cutter
from onnxbisect.model import Model
from onnxbisect.model.runnable import Fill, feed
from onnxbisect.model.values import Computation, TensorValues
from support.engine.cut_models import BRANCHES, CHAIN, FILES, all_tensors, bound, read, session
from support.examples import models


@cache
def taken_in(path: Path) -> tuple[Model, Cutter, dict[str, Any] | None]:
    """A model, its cutter, and all its tensors; None where onnxruntime cannot run it as a whole."""
    model = bound(path)
    try:
        session(model.proto.SerializeToString())
    except Exception:
        return model, Cutter(model), None
    return model, Cutter(model), all_tensors(model)


def declared(model: Model, *names: str) -> list[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name, type=model.types[name]) for name in names]


def own_inputs(model: Model, number: int = 0) -> dict[str, np.ndarray]:
    return {value.name: feed(value, Fill.RANDOM, number) for value in model.proto.graph.input}


@pytest.mark.parametrize("path", models(FILES))
@pytest.mark.parametrize("kept_bytes", [1 << 30, 400, 0], ids=["kept", "some kept", "not kept"])
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
def test_boundaries_have_the_values_of_the_whole_models_run(path: Path, kept_bytes: int, data: st.DataObject) -> None:
    model, cutter, expected = taken_in(path)
    if expected is None:
        pytest.skip("onnxruntime does not run this model as a whole")
    values = TensorValues(model, kept_bytes=kept_bytes)
    for _ in range(3):
        units = data.draw(st.integers(1, (1 << len(model.units)) - 1))
        inputs = [value for value in cutter.cut(units).proto.graph.input if value.type.HasField("tensor_type")]

        (sample,) = values.samples(inputs)

        for value in inputs:
            result, wanted = sample[value.name], np.asarray(expected[value.name])
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), value.name
            if wanted.dtype == object:
                assert result.tolist() == wanted.tolist()
            else:
                np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6, err_msg=value.name)
    assert values.notes == ()


def test_each_sample_of_the_users_data_is_run(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    given = [{"x": np.full((2, 3), number, np.float32)} for number in (-1, 0, 2)]

    samples = list(TensorValues(model, given=given).samples(declared(model, "a", "c")))

    assert [sample["a"].max() for sample in samples] == [0, 0, 2]
    for sample in samples:
        np.testing.assert_allclose(sample["c"], np.tanh(1 / (1 + np.exp(-sample["a"]))), rtol=1e-6)


def test_made_up_samples_differ_and_are_the_same_each_time(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)

    first, second = ([s["c"] for s in TensorValues(model, count=3).samples(declared(model, "c"))] for _ in range(2))

    assert len({array.tobytes() for array in first}) == 3
    assert [array.tobytes() for array in first] == [array.tobytes() for array in second]


def test_captures_of_branches_lead_to_their_makers(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)

    (sample,) = TensorValues(model, given=[{"x": np.ones(3, np.float32)}]).samples(declared(model, "y"))

    assert sample["y"].tolist() == [1.0, 2.0, 3.0]


CUSTOM = """<ir_version: 8, opset_import: ["": 17, "acme": 1]>
custom (float[2,3] x) => (float[2,3] y) {
  a = Relu(x)
  b = acme.Secret(a)
  c = Exp(b)
  d = Abs(x)
  y = Add(c, d)
}"""


def test_behind_a_custom_op_values_are_made_up_and_this_is_said(tmp_path: Path) -> None:
    model = read(tmp_path, CUSTOM)
    values = TensorValues(model, given=[{"x": np.full((2, 3), -2, np.float32)}])
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "acd"]

    (sample,) = values.samples(tensors)

    assert sample["a"].tolist() == [[0] * 3] * 2
    assert sample["d"].tolist() == [[2] * 3] * 2
    assert sample["c"].shape == (2, 3)
    (note,) = values.notes
    assert "'c'" in note
    assert "acme::Secret" in note


GATHER = """<ir_version: 8, opset_import: ["": 17]>
gather (float[4,3] x, int64[2] where) => (float[2,3] y) {
  picked = Gather(x, where)
  y = Relu(picked)
}"""


def test_an_op_that_the_users_data_break_costs_only_what_stands_behind_it(tmp_path: Path) -> None:
    model = read(tmp_path, GATHER)
    given = [{"x": np.ones((4, 3), np.float32), "where": np.array([0, 9])}]
    values = TensorValues(model, given=given)

    (sample,) = values.samples(declared(model, "picked", "where"))

    assert sample["where"].tolist() == [0, 9]
    assert sample["picked"].shape == (2, 3)
    (note,) = values.notes
    assert "Gather" in note
    assert "out of" in note


def test_a_run_that_would_take_too_much_memory_is_not_made(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    values = TensorValues(model, memory_limit=20)

    (sample,) = values.samples(declared(model, "b"))

    assert sample["b"].shape == (2, 3)
    (note,) = values.notes
    assert "memory" in note or "MB" in note


def test_what_is_kept_stays_within_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read(tmp_path, CHAIN)
    runs: list[list[str]] = []
    run = Computation.run

    def noted(
        computation: Computation, wanted: Sequence[str], kept: Mapping[str, list[np.ndarray]]
    ) -> dict[str, list[np.ndarray]] | None:
        runs.append(list(wanted))
        return run(computation, wanted, kept)

    monkeypatch.setattr(Computation, "run", noted)
    values = TensorValues(model, kept_bytes=2 * 24)

    for name in "abcdabcd":
        list(values.samples(declared(model, name)))

    assert runs[0] == ["a", "b"]
    assert runs[1:] == [["c"], ["d"], ["c"], ["d"]]
