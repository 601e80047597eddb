"""Pools of a tensor without a batch, as the older exporter of PyTorch writes them, get one: ONNX demands it."""

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxbisect.model import load
from onnxbisect.preflight import preflight
from support.file_remedies import Repair, Save

X = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)
#: What each pool computes of `X`, in words of NumPy.
PAIRS = X.reshape(3, 2, 2, 2, 2)
POOLS = {
    "MaxPool <kernel_shape = [2,2], strides = [2,2]>": PAIRS.max((2, 4)),
    "AveragePool <kernel_shape = [2,2], strides = [2,2]>": PAIRS.mean((2, 4)),
    "LpPool <kernel_shape = [2,2], strides = [2,2], p = 2>": np.sqrt((PAIRS**2).sum((2, 4))),
    "MaxPool <kernel_shape = [4,4], dilations = [1,1]>": X.max((1, 2), keepdims=True),
}


def computed(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [np.asarray(it) for it in session.run(None, {"x": x})]


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("pool", POOLS)
def test_it_computes_what_pytorch_does(save: Save, repair: Repair, pool: str, opset: int) -> None:
    path = save(f"g (float[3,4,4] x) => (float[c,h,w] y) {{ a = Identity(x) y = {pool}(a) }}", opset=opset)

    changed = repair(path, "batch-pools")

    assert changed.sentence == "a batch of one for 1 pool"
    np.testing.assert_allclose(computed(changed.proto, X)[0], POOLS[pool], rtol=1e-6)


def test_pools_of_one_and_three_dimensions(save: Save, repair: Repair) -> None:
    line = save("g (float[4,4] x) => (float[c,w] y) { y = MaxPool <kernel_shape = [2], strides = [2]> (x) }")
    np.testing.assert_array_equal(computed(repair(line, "batch-pools").proto, X[0])[0], X[0].reshape(4, 2, 2).max(2))
    room = save("g (float[1,3,4,4] x) => (float[c,d,h,w] y) { y = MaxPool <kernel_shape = [3,4,4]> (x) }")
    np.testing.assert_array_equal(computed(repair(room, "batch-pools").proto, X[None])[0].reshape(()), X.max())


def test_each_of_several_in_a_row_and_all_its_results(save: Save, repair: Repair) -> None:
    """The rank in front of the second follows from the first, as in SuperPoint's suppression of neighbours."""
    path = save(
        "g (float[3,4,4] x) => (float[c,h,w] y, int64[c,h,w] places) {"
        " a = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (x) b = Equal(x, a) c = Cast <to = 1> (b)"
        " y, places = MaxPool <kernel_shape = [2,2], strides = [2,2]> (c) }"
    )

    changed = repair(path, "batch-pools")

    assert changed.sentence == "a batch of one for 2 pools"
    padded = np.pad(X, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    peaks = (windows.max((3, 4)) == X).astype(np.float32)
    y, places = computed(changed.proto, X)
    np.testing.assert_array_equal(y, peaks.reshape(3, 2, 2, 2, 2).max((2, 4)))
    np.testing.assert_array_equal(peaks.reshape(-1)[places], y)


def test_valid_pools_stay(save: Save, repair: Repair) -> None:
    path = save("g (float[1,3,4,4] x) => (float[n,c,h,w] y) { y = MaxPool <kernel_shape = [2,2]> (x) }")
    assert not repair(path, "batch-pools").applied
    assert "unbatched-pool" not in {it.id for it in preflight(load(path))}


def test_a_shape_that_the_user_gives(save: Save) -> None:
    path = save("g (float[c,h,w] x) => (float[d,e,f] y) { a = Relu(x) y = MaxPool <kernel_shape = [2,2]> (a) }")
    model = load(path, input_shapes={"x": (3, 4, 4)})
    assert [dim.dim_value for dim in model.types["y"].tensor_type.shape.dim] == [3, 3, 3]


def test_what_is_known_of_a_file_is_read_again(save: Save) -> None:
    path = save("g (float[3,4,4] x) => (float[d,e,f] y) { a = Relu(x) y = MaxPool <kernel_shape = [2,2]> (a) }")
    once = load(path)
    again = load(path, established=once.established)
    assert again.proto == once.proto
    assert again.notes == once.notes


def test_the_finding_names_the_node_and_what_mends_it(save: Save) -> None:
    path = save("g (float[3,4,4] x) => (float[d,e,f] y) { y = MaxPool <kernel_shape = [2,2]> (x) }")
    first = preflight(load(path))[0]
    assert (first.id, first.remedy) == ("unbatched-pool", "batch-pools")
    assert first.nodes == ("MaxPool_y",)  # as reports call a node that has no name


def test_another_node_that_inference_refuses_is_said(save: Save) -> None:
    path = save("g (float[2,3] x) => (float[n,m] y) <int64[2] p = {1, 1}> { a = Pad(x, p) y = Relu(a) }")
    (said,) = [it.detail for it in preflight(load(path)) if it.id == "invalid-node"]
    assert "Pad" in said
