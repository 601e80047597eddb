"""A MultiHeadAttention of com.microsoft beside a cache ends no process, and is computed with what it is given."""

from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.errors import ModelError
from onnxbisect.model.session import Clock, Session
from onnxbisect.proof import compare, random_feeds

HEADS, WIDTH = 2, 3
HIDDEN = HEADS * WIDTH


def attention(keys: int | str, outputs: int, *, cached: int = 2, inside: bool = False) -> onnx.ModelProto:
    """One query beside a cache and as many new keys; inside a branch, if that is asked for."""
    names = ["q", "k", "k", "", "", "", "past_k", "past_v"]
    made = ["y", "new_k", "new_v"][:outputs]
    nodes = [helper.make_node("MultiHeadAttention", names, made, "n", domain="com.microsoft", num_heads=HEADS)]
    initializers = []
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, HIDDEN])
    if inside:
        branch = helper.make_graph(nodes, "branch", [], [y])
        nodes = [helper.make_node("If", ["true"], ["y"], then_branch=branch, else_branch=branch)]
        initializers = [helper.make_tensor("true", TensorProto.BOOL, [], [True])]
    inputs = [
        helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, 1, HIDDEN]),
        helper.make_tensor_value_info("k", TensorProto.FLOAT, [1, keys, HIDDEN]),
        *(helper.make_tensor_value_info(it, TensorProto.FLOAT, [1, HEADS, cached, WIDTH]) for it in names[6:]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, [y], initializers), opset_imports=opsets, ir_version=8
    )


def feeds(keys: int, cached: int = 2) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    dims = {"q": (1, 1, HIDDEN), "k": (1, keys, HIDDEN)} | dict.fromkeys(
        ("past_k", "past_v"), (1, HEADS, cached, WIDTH)
    )
    return {name: random.normal(size=dim).astype(np.float32) for name, dim in dims.items()}


@pytest.mark.parametrize("keys", [0, "unknown"])
@pytest.mark.parametrize("inside", [False, True])
def test_no_new_keys_beside_a_cache_are_an_error_and_not_the_end_of_the_process(keys: int | str, inside: bool) -> None:
    session = Session(attention(keys, 3, inside=inside), Path())
    with pytest.raises(Exception, match="'n: onnxruntime would crash, for want of a new key'"):
        session.run(["y"], feeds(0), Clock(inf))


def test_a_comparison_of_such_models_is_one_sentence() -> None:
    model = attention(0, 3)
    with pytest.raises(ModelError, match=r"^onnxruntime does not run .* would crash, for want of a new key.*\.$"):
        compare(model, model, random_feeds(model.graph.input, 1))


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_cache_is_read_whether_the_new_one_is_an_output_or_not(outputs: int) -> None:
    """Of one query: the softmax of its products with old and new keys, times old and new values."""
    given = feeds(2)
    (found,) = Session(attention(2, outputs), Path()).run(["y"], given, Clock(inf))
    new = given["k"].reshape(1, 2, HEADS, WIDTH).transpose(0, 2, 1, 3)
    keys, values = (np.concatenate([given[name], new], axis=2) for name in ("past_k", "past_v"))
    query = given["q"].reshape(1, 1, HEADS, WIDTH).transpose(0, 2, 1, 3)
    weights = np.exp(query @ keys.transpose(0, 1, 3, 2) / np.sqrt(WIDTH))
    expected = (weights / weights.sum(-1, keepdims=True) @ values).transpose(0, 2, 1, 3).reshape(1, 1, HIDDEN)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
