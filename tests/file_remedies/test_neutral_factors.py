"""Factors of 1 are left out where a tool computes other numbers: the same numbers, and nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from support.file_remedies import Repair, Same, Save


def model(body: str, outputs: str = "float[2,4] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x) => ({outputs})
        <float[4] ones = {{1, 1, 1, 1}}, float[4] w = {{1, 2, 1, 1}}, float one = {{1}}, float[2,2,4] more = {{
        {", ".join("1" for _ in range(16))}}}> {{ {body} }}"""
    )


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ("a = Relu(x) b = Mul(a, ones) y = Sqrt(b)", 1),
        ("a = Relu(x) b = Mul(ones, a) y = Div(b, one)", 2),
        # the weight as exporters share it
        ("shared = Identity(ones) a = Relu(x) b = Mul(shared, a) y = Sqrt(b)", 1),
        ("a = Mul(x, one) b = Div(a, ones) y = Sqrt(b)", 2),
    ],
)
def test_what_is_multiplied_or_divided_by_one_is_read_instead(
    save: Save, repair: Repair, same: Same, body: str, gone: int
) -> None:
    path = save(model(body))
    candidate = repair(path, "remove-neutral-factors")

    assert candidate.sentence == f"{gone} product{'s' if gone > 1 else ''} with 1 removed"
    assert not {"Mul", "Div"}.intersection(node.op_type for node in candidate.proto.graph.node)
    assert [it.name for it in candidate.proto.graph.output] == ["y"]
    same(path, candidate.proto)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("y = Mul(x, w)", "float[2,4] y"),
        ("a = Abs(x) y = Div(one, a)", "float[2,4] y"),
        ("y = Mul(x, more)", "float[2,2,4] y"),  # it is repeated
        ("y = Add(x, ones)", "float[2,4] y"),
    ],
)
def test_other_factors_stay(save: Save, repair: Repair, body: str, outputs: str) -> None:
    candidate = repair(save(model(body, outputs)), "remove-neutral-factors")

    assert not candidate.applied
    assert candidate.declined[0].reason == "nothing is multiplied or divided by 1"


def test_nan_infinity_and_zeros_stay_as_they_are(save: Save, repair: Repair) -> None:
    path = save(model("a = Mul(x, ones) y = Neg(a)"))
    candidate = repair(path, "remove-neutral-factors")
    edge = np.array([[0.0, -0.0, np.inf, -np.inf], [np.nan, 1e-45, 3e38, -1]], np.float32)
    y, same = (run(it, edge) for it in (onnx.load(path), candidate.proto))
    assert np.array_equal(y, same, equal_nan=True)
    assert np.array_equal(np.signbit(y[0]), np.signbit(same[0]))


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    results: Sequence[Any] = ReferenceEvaluator(proto).run(None, {"x": x})  # type: ignore[assignment]
    return np.asarray(results[0])
