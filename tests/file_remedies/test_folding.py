"""Constants folded, copies removed, guards against NaN removed: what is left is the same bytes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.file_remedies import File, repaired
from onnxbisect.model import load
from onnxbisect.preflight import ToolLimits
from onnxbisect.proof import Tolerance, compare, random_feeds
from support.file_remedies import Repair, Same, Save

MODELS = Path(__file__).parents[1] / "models"
EXACT = Tolerance(absolute=0, relative=0)
BINARY, UNARY = ("Add", "Mul", "Sub", "Max"), ("Relu", "Neg", "Identity", "Sigmoid")


def ops(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Random graphs on one input and constants, with copies and constant parts in them."""
    pool = ["x", "w0", "w1"]
    nodes = []
    for number in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from((*BINARY, *UNARY)))
        inputs = [draw(st.sampled_from(pool)) for _ in range(2 if op in BINARY else 1)]
        nodes.append(helper.make_node(op, inputs, [f"t{number}"], name=f"n{number}"))
        pool.append(f"t{number}")
    made = [f"t{number}" for number in range(len(nodes))]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", *outputs)]
    weights = [numpy_helper.from_array(np.full([2, 3], k + 0.5, np.float32), f"w{k}") for k in range(2)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def depends(proto: onnx.ModelProto) -> set[str]:
    reached = {"x"}
    for node in proto.graph.node:
        if reached.intersection(node.input):
            reached.update(node.output)
    return reached


@given(graphs())
def test_random_graphs_folded_and_without_copies_compute_the_same(
    tmp_path_factory: pytest.TempPathFactory, proto: onnx.ModelProto
) -> None:
    path = tmp_path_factory.mktemp("m") / "m.onnx"
    onnx.save(proto, path)
    file = File.of(load(path))
    for remedies in (["fold-constants"], ["remove-copies"], ["remove-copies", "fold-constants"]):
        candidate = repaired(file, remedies, ToolLimits(tool="Chipper"))
        onnx.checker.check_model(candidate.proto)
        assert compare(proto, candidate.proto, random_feeds(proto.graph.input, 2), tolerance=EXACT).agrees
        outputs = {value.name for value in proto.graph.output}
        left = {node.name: node for node in candidate.proto.graph.node}
        if "fold-constants" in remedies:
            assert depends(proto).union(outputs).issuperset(name for node in left.values() for name in node.output)
        if "remove-copies" in remedies:
            assert {n.output[0] for n in left.values() if n.op_type == "Identity"} <= outputs
        if remedies == ["fold-constants"]:
            assert all(node == left[node.name] for node in proto.graph.node if node.name in left)


def test_shapes_are_folded_and_what_only_they_read_goes(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        """g (float[2,3,4] x) => (float[a,b] y) <int64[1] rest = {-1}, int64 zero = {0}, float[4] w = {1, 2, 3, 4}> {
            s = Shape(x)  d = Gather(s, zero)  axes = Constant <value = int64[1] {0}> ()
            u = Unsqueeze(d, axes)  t = Concat <axis = 0> (u, rest)
            m = Mul(x, w)  y = Reshape(m, t)
        }"""
    )
    candidate = repair(path, "fold-constants")

    assert candidate.sentence == "4 nodes folded into 1 constant"
    assert ops(candidate.proto) == ["Mul", "Reshape"]
    assert {tensor.name for tensor in candidate.proto.graph.initializer} == {"w", "t"}
    same(path, candidate.proto)


def test_weights_of_quantised_models_stay_quantised(repair: Repair) -> None:
    path = MODELS / "quantized.onnx"
    before = ops(onnx.load(path)).count("DequantizeLinear")
    candidate = repair(path, "fold-constants")
    assert ops(candidate.proto).count("DequantizeLinear") == before


def test_external_data_are_referred_to_as_before(tmp_path: Path, repair: Repair) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) '
        "{ s = Shape(x)  r = Reshape(x, s)  c = Identity(r)  y = Add(c, w) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.ones([2, 3], np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.data", size_threshold=0)
    stored = onnx.load(path, load_external_data=False).graph.initializer[0]

    candidate = repair(path, "fold-constants", "remove-copies")

    assert ops(candidate.proto) == ["Reshape", "Add"]
    (kept,) = [tensor for tensor in candidate.proto.graph.initializer if tensor.name == "w"]
    assert kept == stored


def test_a_chain_of_copies_ends_at_what_it_copies(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        """g (float[2] x, bool c) => (float[2] y, float[2] z) {
            a = Relu(x)  b = Identity(a)  d, mask = Dropout(b)  e = Identity(d)
            y = If (c) < then_branch = t () => (float[2] p) { p = Neg(e) },
                         else_branch = f () => (float[2] q) { q = Identity(e) } >
            z = Identity(e)
        }"""
    )
    candidate = repair(path, "remove-copies")
    assert candidate.sentence == "3 Dropout and Identity nodes removed"
    assert ops(candidate.proto) == ["Relu", "If", "Identity"]
    same(path, candidate.proto)


def test_dropout_in_training_stays(save: Save, repair: Repair) -> None:
    path = save("g (float[2] x) => (float[2] y) <bool t = {1}, float r = {0.5}> { a = Dropout(x, r, t)  y = Relu(a) }")
    assert not repair(path, "remove-copies").applied


GUARD = """g (float[2,3] x) => (float[2,3] y) <float zero = {0}> {
    s = Softmax(x)  n = IsNaN(s)  w = Where(n, zero, s)  y = Relu(w)
}"""


def test_guards_against_nan_go(save: Save, repair: Repair, same: Same) -> None:
    path = save(GUARD)
    candidate = repair(path, "remove-nan-guards")
    assert ops(candidate.proto) == ["Softmax", "Relu"]
    assert not candidate.proto.graph.initializer
    assert candidate.exactness == "domain"
    assert "NaN" in candidate.applied[0].domain
    same(path, candidate.proto)


@pytest.mark.parametrize(
    "guard",
    [
        "n = IsNaN(x)  w = Where(n, zero, s)",  # another tensor
        "n = IsNaN(s)  w = Where(n, s, zero)",  # the wrong way round
        "n = IsNaN(s)  w = Where(n, x, s)",  # no constant
        "n = IsNaN(s)  w = Where(n, big, s)",  # which broadcasts
    ],
)
def test_what_only_looks_like_a_guard_stays(guard: str, save: Save, repair: Repair) -> None:
    text = GUARD.replace("n = IsNaN(s)  w = Where(n, zero, s)", guard).replace("(float[2,3] y)", "(float[a,b,c] y)")
    text = text.replace("float zero = {0}", "float zero = {0}, float[2,1,1] big = {0, 1}")
    assert not repair(save(text), "remove-nan-guards").applied


def test_a_guard_at_an_output_leaves_a_copy(save: Save, repair: Repair, same: Same) -> None:
    path = save(GUARD.replace("=> (float[2,3] y)", "=> (float[2,3] y, float[2,3] w)"))
    candidate = repair(path, "remove-nan-guards")
    assert ops(candidate.proto) == ["Softmax", "Identity", "Relu"]
    same(path, candidate.proto)
