"""Models that compute the same and bear low precision: each rewrite, and what keeps it from being one."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.model.load import load
from onnxbisect.precision.equivalents import rewritten
from onnxbisect.precision.tensors import seen_of
from onnxbisect.precision.wanted import Low

RANDOM = np.random.default_rng(0)
IMAGE = (1, 4, 6, 6)
SCALE = np.array([1, 300, 1, 2.5]).reshape(1, 4, 1, 1)
WEIGHT = RANDOM.standard_normal((4, 4, 3, 3)) / 6
LARGE = WEIGHT * np.array([1, 100, 1, 1]).reshape(4, 1, 1, 1)
SAME: dict[str, object] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
Node = tuple[str, list[str], str] | tuple[str, list[str], str, dict[str, object]]


def net(nodes: list[Node], weights: Mapping[str, np.ndarray], outputs: str = "y", opset: int = 17) -> onnx.ModelProto:
    """Nodes are named as what they make; `x` is the input."""
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [made], name=made, **dict(*more)) for op, inputs, made, *more in nodes],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(it, np.float32), name) for name, it in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def values(proto: onnx.ModelProto, every: bool = False) -> dict[str, np.ndarray]:
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    if every:
        there = {it.name for it in wide.graph.output}
        names = [name for node in wide.graph.node for name in node.output if name not in there]
        wide.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(wide.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"x": np.random.default_rng(1).standard_normal(IMAGE).astype(np.float32)}
    return dict(zip([it.name for it in session.get_outputs()], session.run(None, given), strict=True))


def changed(proto: onnx.ModelProto, low: Low, keep: str, folder: Path) -> tuple[list[str], onnx.ModelProto]:
    """The sentences, and the new model, which computes the same."""
    onnx.save(proto, folder / "net.onnx")
    model = load(folder / "net.onnx")
    seen = {name: it for name, array in values(proto, every=True).items() if (it := seen_of(array)) is not None}
    made, changes = rewritten(model, keep.split(), low, seen)
    onnx.checker.check_model(made)
    before, after = values(proto), values(made)
    assert list(before) == list(after)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-4 * np.abs(before[name]).max())
    return [it.sentence for it in changes], made


def ops(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node if node.op_type != "Constant"]


UP_AND_DOWN: list[Node] = [("Mul", ["x", "s"], "up"), ("Relu", ["up"], "r"), ("Mul", ["r", "t"], "y")]


@pytest.mark.parametrize("keep", ["up", "r", "y"])
def test_scaling_up_and_down_again_is_left_out(tmp_path: Path, keep: str) -> None:
    sentences, made = changed(net(UP_AND_DOWN, {"s": SCALE, "t": 1 / SCALE}), Low.INT8, keep, tmp_path)
    assert sentences == ["fold the scale of 'up' into that of 'y'"]
    assert ops(made) == ["Relu"]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("Mul", ["s", "x"], "up"), ("Div", ["up", "s"], "y")], ["Identity"]),
        ([("Mul", ["x", "s"], "up"), ("Add", ["b", "up"], "a"), ("LeakyRelu", ["a"], "r"), ("Div", ["r", "s"], "y")],
         ["Add", "LeakyRelu"]),
        ([("Div", ["x", "s"], "up"), ("MaxPool", ["up"], "p", {"kernel_shape": [2, 2]}), ("Mul", ["p", "u"], "y")],
         ["MaxPool", "Mul"]),
        ([("Mul", ["x", "s"], "up"), ("Sub", ["b", "up"], "a"), ("Mul", ["a", "n"], "y")], ["Sub", "Mul"]),
    ],
)  # fmt: skip
def test_what_stands_between_the_scales_is_kept(tmp_path: Path, nodes: list[Node], expected: list[str]) -> None:
    weights = {"s": SCALE, "b": RANDOM.standard_normal((1, 4, 1, 1)), "u": SCALE * 3, "n": -1 / SCALE}
    sentences, made = changed(net(nodes, weights), Low.INT8, "up", tmp_path)
    assert len(sentences) == 1
    assert ops(made) == expected


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([("Mul", ["x", "n"], "up"), *UP_AND_DOWN[1:]], "y"),  # Relu of a negative factor
        ([("Mul", ["x", "s"], "up"), ("Sigmoid", ["up"], "r"), UP_AND_DOWN[2]], "y"),
        ([*UP_AND_DOWN, ("Neg", ["up"], "z")], "y z"),  # another reader
        (UP_AND_DOWN, "y up"),
        ([("Mul", ["x", "w"], "up"), ("MaxPool", ["up"], "r", {"kernel_shape": [3, 3], "pads": [1] * 4}),
          UP_AND_DOWN[2]], "y"),
    ],
)  # fmt: skip
def test_what_does_not_compute_the_same_is_not_done(tmp_path: Path, nodes: list[Node], outputs: str) -> None:
    across = np.linspace(1, 2, 6).reshape(1, 1, 1, 6)
    proto = net(nodes, {"s": SCALE, "t": 1 / SCALE, "n": -SCALE, "w": across}, outputs)
    assert changed(proto, Low.INT8, "up r", tmp_path)[0] == []


def test_large_channels_get_smaller_weights_and_are_read_with_larger_ones(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Conv", ["x", "w", "b"], "c", SAME), ("Relu", ["c"], "r"), ("Conv", ["r", "v"], "y", SAME)
    ]  # fmt: skip
    proto = net(nodes, {"w": LARGE, "b": RANDOM.standard_normal(4), "v": WEIGHT})
    sentences, made = changed(proto, Low.INT8, "c", tmp_path)
    (sentence,) = sentences
    assert sentence.startswith("divide the weights of 'c' by up to ")
    spread = np.abs(values(made, every=True)["r"]).max(axis=(0, 2, 3))
    assert spread.max() / np.median(spread) < 4


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("end", ["div", "reciprocal"])
def test_squares_of_large_numbers_stay_within_float16(tmp_path: Path, end: str, opset: int) -> None:
    axes: dict[str, object] = {"axes": [2, 3]} if opset < 18 else {}
    more = [] if opset < 18 else ["axes"]
    divided: list[Node] = [("Div", ["x1", "sd"], "y")]
    if end == "reciprocal":
        divided = [("Reciprocal", ["sd"], "rc"), ("Mul", ["x1", "rc"], "y")]
    nodes: list[Node] = [
        ("Mul", ["x", "large"], "x1"),
        ("Mul", ["x1", "x1"], "sq"),
        ("ReduceMean", ["sq", *more], "v", axes),
        ("Add", ["v", "eps"], "ve"),
        ("Sqrt", ["ve"], "sd"),
        *divided,
    ]
    proto = net(nodes, {"large": np.array(900), "eps": np.array(1e-5)}, opset=opset)
    if more:
        proto.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "axes"))
    sentences, made = changed(proto, Low.FLOAT16, "sq v", tmp_path)
    assert sentences == ["divide 'x1' by 64 before it is squared"]
    assert max(np.abs(it).max() for it in values(made, every=True).values()) < 65504


def test_an_exponential_that_overflows_is_shifted(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Mul", ["x", "large"], "x1"),
        ("Exp", ["x1"], "e"),
        ("ReduceSum", ["e", "axes"], "s"),
        ("Div", ["e", "s"], "y"),
    ]
    proto = net(nodes, {"large": np.array(8)})
    proto.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "axes"))
    sentences, made = changed(proto, Low.FLOAT16, "e", tmp_path)
    assert sentences == ["subtract the largest number from 'x1' before its exponential"]
    assert np.abs(values(made, every=True)["e"]).max() <= 1
