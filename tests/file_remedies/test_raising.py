"""Newer operator sets: what is written in one computes the same, bit for bit, or the file stays as it is."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from onnxbisect.preflight import ToolLimits
from support.file_remedies import Repair, Same, Save

READER = ToolLimits(tool="Chipper", oldest_opset=17)
#: Operators in forms that they no longer have: the body of a graph from x (2x3x4x4) to y, and its operator set.
OLD_FORMS = [
    (9, "s = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> () y = Upsample <mode = 'linear'> (x, s)"),
    (9, "s = Constant <value = float[4] {1.0, 1.0, 1.5, 2.0}> () y = Upsample <mode = 'nearest'> (x, s)"),
    (10, "s = Constant <value = float[4] {1.0, 1.0, 2.0, 0.5}> () y = Resize <mode = 'linear'> (x, s)"),
    (10, "s = Constant <value = float[4] {1.0, 1.0, 0.7, 0.5}> () y = Resize <mode = 'nearest'> (x, s)"),
    (6, "y = Clip <min = -0.5, max = 0.5> (x)"),
    (9, "y = Pad <pads = [0, 0, 1, 1, 0, 0, 2, 1], mode = 'reflect'> (x)"),
    (9, "y = Slice <axes = [1, 2], starts = [1, -2], ends = [3, 9]> (x)"),
    (9, "y = Dropout (x)"),
    (9, "y, i = TopK <axis = 1, k = 2> (x)"),
    *[(11, f"y = {op} <axis = {axis}> (x)") for op in ("Softmax", "LogSoftmax") for axis in (0, 1, 3, -2)],
    (11, "y = Softmax (x)"),
    (
        11,
        "a = Unsqueeze <axes = [0, 3]> (x) b = Squeeze <axes = [0]> (a) y = ReduceSum <axes = [1]> (b)",
    ),
    (11, "a, b = Split <axis = 1, split = [1, 2]> (x) y = Concat <axis = 1> (b, a)"),
    (9, "y = LRN <size = 3> (x)"),
    (8, "i = Constant <value = int64[2] {2, 0}> () y = Gather <axis = 1> (x, i)"),
]


def graph(body: str) -> str:
    return f"g (float[2,3,4,4] x) => (y) {{ {body} }}".replace("'", '"')


@pytest.mark.parametrize(("opset", "body"), OLD_FORMS)
def test_what_is_raised_computes_the_same(save: Save, repair: Repair, same: Same, opset: int, body: str) -> None:
    path = save(graph(body), opset)
    raised = repair(path, "raise-opset", reader=READER)
    assert [it.sentence for it in raised.applied] == [f"operator set {opset} → 17"]
    assert [it.version for it in raised.proto.opset_import] == [17]
    same(path, raised.proto)


@pytest.mark.parametrize(
    ("opset", "body", "reason"),
    [
        (11, "y = Hardmax <axis = 1> (x)", "changes what Hardmax computes"),
        (9, "y, mask = Dropout (x)", "changes what Dropout computes"),
        (
            9,
            "s = Constant <value = float[4] {1.0, 1.0, 1.5, 0.5}> () y = Upsample <mode = 'nearest'> (x, s)",
            "rounds along one axis up",
        ),
        (
            11,
            "c = Constant <value = bool {1}> () "
            "y = If (c) <then_branch = t () => (a) {a = Abs (x)}, else_branch = e () => (b) {b = Neg (x)}>",
            "takes no functions, bodies",
        ),
        (17, "y = Abs (x)", "the operator set is 17, which is not below 17"),
    ],
)
def test_what_would_compute_something_else_stays_as_it_is(
    save: Save, repair: Repair, opset: int, body: str, reason: str
) -> None:
    kept = repair(save(graph(body), opset), "raise-opset", reader=READER)
    assert not kept.applied
    assert reason in kept.declined[0].reason


def test_weights_and_what_nodes_say_of_their_source_are_kept(
    save: Save, repair: Repair, same: Same, tmp_path: Path
) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 11]> ' + graph("a = Unsqueeze <axes = [0]> (x) y = Mul (a, w)")
    )
    weight = np.random.default_rng(0).standard_normal((2, 3, 4, 4), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    node = proto.graph.node[0]
    node.name, node.doc_string = "first", "model.py:3"
    node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="model.py, line 3")
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    raised = repair(tmp_path / "m.onnx", "raise-opset", reader=READER).proto
    (weight_entry,) = [it for it in raised.graph.initializer if it.name == "w"]
    assert weight_entry.data_location == onnx.TensorProto.EXTERNAL
    (unsqueeze,) = [it for it in raised.graph.node if it.op_type == "Unsqueeze"]
    assert (unsqueeze.name, unsqueeze.doc_string) == ("first", "model.py:3")
    assert [it.key for it in unsqueeze.metadata_props] == ["pkg.torch.onnx.stack_trace"]
    assert all(it.name for it in raised.graph.node)
    same(tmp_path / "m.onnx", raised)


def run(body: str, opset: int, x: np.ndarray) -> np.ndarray:
    """What onnxruntime computes from x in an operator set, which must have all ops."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}]> '
    session = onnxruntime.InferenceSession(
        onnx.parser.parse_model(header + graph(body)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"x": x})[0])


#: Operator sets, an op that is newer than the first, and the second, which is the first to have it.
NEWER = [
    (11, "Mish (x)", 18),
    (12, "HardSwish (x)", 14),
    (17, "Gelu (x)", 20),
    (11, "GridSample <mode = 'nearest'> (x, g)", 16),
    (13, "LayerNormalization (x, l)", 17),
    (13, "GroupNormalization <num_groups = 3> (x, c, c)", 21),
    (11, "Trilu (x)", 14),
    (17, "RMSNormalization (x, l)", 23),
    (11, "CumProd (x, i)", 26),
]
CONSTANTS = (
    "g = Constant <value = float[2,4,4,2] {" + ", ".join(f"{it / 32 - 1}" for it in range(64)) + "}> () "
    "l = Constant <value = float[4] {1.0, 2.0, 3.0, 4.0}> () c = Constant <value = float[3] {1.0, 2.0, 3.0}> () "
    "i = Constant <value = int64[1] {1}> () "
)


@pytest.mark.parametrize("neighbour", ["Relu (x)", "Softmax (x)"])  # Softmax means something else before set 13
@pytest.mark.parametrize(("opset", "op", "first"), NEWER)
def test_an_op_newer_than_the_operator_set_computes_what_its_own_set_says(
    save: Save, repair: Repair, same: Same, opset: int, op: str, first: int, neighbour: str
) -> None:
    path = save(
        graph(f"{CONSTANTS} a = {neighbour} b = {op.replace('(x', '(a')} y = {neighbour.replace('(x', '(b')}"), opset
    )
    raised = repair(path, "declare-opset-of-ops", reader=ToolLimits(tool="Chipper"))
    assert [it.sentence for it in raised.applied] == [f"operator set {opset} → {first}"]
    assert raised.applied[0].exactness == "exact"
    same(path, raised.proto)  # the file itself runs, too

    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4), np.float32)
    outer = f"y = {neighbour}"
    expected = run(outer, opset, run(f"{CONSTANTS} y = {op}", first, run(outer, opset, x)))
    session = onnxruntime.InferenceSession(raised.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(np.asarray(session.run(None, {"x": x})[0]), expected, rtol=1e-6, atol=1e-6)


def test_the_operator_set_of_ops_is_declared_around_bodies_where_nothing_else_changes(
    save: Save, repair: Repair, same: Same
) -> None:
    body = (
        "c = Constant <value = bool {1}> () "
        "y = If (c) <then_branch = t () => (a) {a = HardSwish (x)}, else_branch = e () => (b) {b = Neg (x)}>"
    )
    path = save(graph(body), 13)
    raised = repair(path, "declare-opset-of-ops", reader=ToolLimits(tool="Chipper"))
    assert [it.sentence for it in raised.applied] == ["operator set 13 → 14"]
    same(path, raised.proto)


@pytest.mark.parametrize(
    ("opset", "body", "reader", "reason"),
    [
        (17, "y = Abs (x)", ToolLimits(tool="Chipper"), "has all of its ops"),
        (17, "y = Gelu (x)", ToolLimits(tool="Chipper", newest_opset=19), "reads no operator set above 19, and 20"),
    ],
)
def test_an_operator_set_that_is_not_needed_or_not_read_is_not_declared(
    save: Save, repair: Repair, opset: int, body: str, reader: ToolLimits, reason: str
) -> None:
    kept = repair(save(graph(body), opset), "declare-opset-of-ops", reader=reader)
    assert not kept.applied
    assert reason in kept.declined[0].reason
