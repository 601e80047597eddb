"""Masks of scores become -10000: the same numbers, and only where a Softmax is all that they are for."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.file_remedies import Repair, Same, Save

LOWEST = float(np.finfo(np.float32).min)


def attention(low: float, *more: onnx.NodeProto, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Scores masked by an upper triangle: by Where, by a product that is added, and by a stored table."""
    made = helper.make_node
    numpy_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    seen = np.tril(np.ones((4, 4), bool))
    nodes = [
        made("Where", ["seen", "x", "low"], ["a"], name="where"),
        made("Constant", [], ["lower"], value=numpy_helper.from_array(np.array(low, numpy_dtype))),
        made("Mul", ["unseen", "lower"], ["m"], name="product"),
        made("Add", ["a", "m"], ["b"], name="sum"),
        made("Unsqueeze", ["table", "axes"], ["t"], name="rank"),
        made("Add", ["b", "t"], ["c"], name="added"),
        made("Softmax", ["c"], ["y"], axis=-1, name="softmax"),
        *more,
    ]
    weights = {
        "seen": seen,
        "low": np.array([low], numpy_dtype),
        "unseen": (~seen).astype(numpy_dtype),
        "table": np.where(seen, 0, low).astype(numpy_dtype),
        "axes": np.array([0]),
        "chosen": np.array(True),
        "weight": np.array([-20000.0], numpy_dtype),
    }
    x = helper.make_tensor_value_info("x", dtype, [1, 4, 4])
    outputs = [helper.make_tensor_value_info(name, dtype, None) for name in ("y", *(it.output[0] for it in more))]
    stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return helper.make_model(
        helper.make_graph(nodes, "g", [x], outputs, stored), ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )


def lowest(model: onnx.ModelProto) -> dict[str, float]:
    stored = {tensor.name: float(numpy_helper.to_array(tensor).min()) for tensor in model.graph.initializer}
    return stored | {
        node.output[0]: float(numpy_helper.to_array(node.attribute[0].t).min())
        for node in model.graph.node
        if node.op_type == "Constant"
    }


@pytest.mark.parametrize("low", [LOWEST, -1e9, -65504.0])
def test_masks_are_raised_and_nothing_else(save: Save, repair: Repair, same: Same, low: float) -> None:
    path = save(attention(low))
    candidate = repair(path, "bound-masks")

    assert candidate.sentence == "3 masks raised to -10000"
    after = lowest(candidate.proto)
    assert {name for name, value in after.items() if value == -10000} == {"low", "lower", "table"}
    assert after["weight"] == -20000
    same(path, candidate.proto)


@pytest.mark.parametrize("low", [-10000.0, -100.0])
def test_masks_that_are_no_lower_stay(save: Save, repair: Repair, low: float) -> None:
    candidate = repair(save(attention(low)), "bound-masks")

    assert not candidate.applied
    assert "masks scores before a Softmax" in candidate.declined[0].reason


def branch() -> onnx.GraphProto:
    """A body that reads the mask from outside."""
    output = helper.make_tensor_value_info("b", TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node("Neg", ["low"], ["b"])], "branch", [], [output])


@pytest.mark.parametrize(
    "reader",
    [
        helper.make_node("Identity", ["c"], ["z"], name="output"),
        helper.make_node("Exp", ["c"], ["z"], name="exp"),
        helper.make_node("Div", ["x", "low"], ["z"], name="quotient"),
        helper.make_node("If", ["chosen"], ["z"], name="branches", then_branch=branch(), else_branch=branch()),
    ],
    ids=lambda node: node.name,
)
def test_a_constant_that_is_more_than_a_mask_stays(save: Save, repair: Repair, reader: onnx.NodeProto) -> None:
    candidate = repair(save(attention(LOWEST, reader)), "bound-masks")

    assert lowest(candidate.proto)["low"] == LOWEST
    if reader.name in ("output", "exp"):
        assert not candidate.applied


def test_float16_masks_are_raised(save: Save, repair: Repair) -> None:
    path = save(attention(float("-inf"), dtype=TensorProto.FLOAT16))
    candidate = repair(path, "bound-masks")

    assert {name for name, value in lowest(candidate.proto).items() if value == -10000} == {"low", "lower", "table"}
