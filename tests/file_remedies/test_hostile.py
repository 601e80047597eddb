"""Files that are not what they should be: remedies decline, with a reason, and never go on for ever."""

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.file_remedies import REMEDIES, candidates
from onnxbisect.model import load
from onnxbisect.preflight import ToolLimits, preflight
from support.file_remedies import Save

MALFORMED = {
    "Where": "n = IsNaN(x)  w = Where(n, x)  y = Relu(w)",
    "Pad": "w = Pad(x)  y = Relu(w)",
    "Split": "a, w = Split <axis = 9, num_outputs = 2> (x)  y = Relu(w)",
    "Reduction": "w = ReduceMean(x, x, x, x)  y = Relu(w)",
    "Unsqueeze": "w = Unsqueeze(x)  y = Relu(w)",
    "Dropout": "w = Dropout(x, x, x, x)  y = Relu(w)",
    "Softmax": "w = Softmax <axis = 77> (x)  y = Relu(w)",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_malformed_nodes_are_no_crash(body: str, save: Save) -> None:
    path = save(f"g (float[2,3] x) => (float[2,3] y) {{ {body} }}", opset=20, ir_version=10)
    model = load(path)
    reader = ToolLimits(tool="Chipper", newest_ir=9, newest_opset=11)
    for candidate in candidates(model, preflight(model, reader), reader):
        assert all(declined.reason for declined in candidate.declined)


def nested_loops(depth: int, rounds: int) -> onnx.ModelProto:
    """Loops in loops, which come to rounds to the power of depth nodes."""
    node = helper.make_node("Relu", ["x"], ["last"])
    for level in range(depth):
        body = helper.make_graph(
            [node, helper.make_node("Identity", [f"go{level}"], [f"on{level}"])],
            f"b{level}",
            [
                helper.make_tensor_value_info(f"i{level}", TensorProto.INT64, []),
                helper.make_tensor_value_info(f"go{level}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(f"v{level}", TensorProto.FLOAT, [2]),
            ],
            [
                helper.make_tensor_value_info(f"on{level}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [2]),
            ],
        )
        node = helper.make_node("Loop", ["n", "", "x"], [f"l{level}"], name=f"loop{level}", body=body)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [2])],
        [helper.make_tensor("n", TensorProto.INT64, [], [rounds])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.long
def test_loops_in_loops_do_not_multiply_without_end(save: Save) -> None:
    model = load(save(nested_loops(depth=4, rounds=12)))
    reader = ToolLimits(tool="Chipper")
    for candidate in candidates(model, preflight(model, reader), reader):
        assert len(candidate.proto.graph.node) < 10_000  # of 20,736 rounds


def test_every_remedy_has_a_summary() -> None:
    assert all(remedy.summary.endswith(".") for remedy in REMEDIES)
