"""Newer operator sets: what is written in one computes the same, bit for bit, or the file stays as it is."""

from pathlib import Path

import numpy as np
import onnx
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
