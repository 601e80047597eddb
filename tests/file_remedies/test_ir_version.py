"""A lower IR version: the file is the same but for that, or needs the newer one."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.file_remedies import ChangedCopy
from onnxbisect.preflight import ToolLimits
from support.file_remedies import Repair, Same, Save

NET = "g (float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}> { a = Add(x, w)  y = Relu(a) }"


def lowered(repair: Repair, path: Path, newest_ir: int = 9) -> ChangedCopy:
    return repair(path, "lower-ir-version", reader=ToolLimits(tool="Chipper", newest_ir=newest_ir))


def test_nothing_else_changes(save: Save, repair: Repair, same: Same) -> None:
    path = save(NET, ir_version=10)
    before = onnx.load(path)
    before.graph.node[0].metadata_props.add(key="namespace", value="net: layer")
    onnx.save(before, path)

    candidate = lowered(repair, path)

    assert candidate.sentence == "ir_version 10 → 9"
    assert candidate.exactness == "exact"
    before.ir_version = 9
    assert candidate.proto.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True)
    same(path, candidate.proto)


def test_the_file_given_is_not_changed(save: Save, repair: Repair) -> None:
    path = save(NET, ir_version=10)
    before = path.read_bytes()
    lowered(repair, path)
    assert path.read_bytes() == before


def test_a_file_that_is_old_enough_is_left_alone(save: Save, repair: Repair) -> None:
    candidate = lowered(repair, save(NET, ir_version=9))
    assert not candidate.applied
    assert candidate.declined[0].reason == "ir_version is 9, which is not above 9"


def of_dtype(dtype: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["c"], to=dtype), helper.make_node("Cast", ["c"], ["y"], to=1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("dtype", "oldest"), [(TensorProto.FLOAT8E4M3FN, 9), (TensorProto.INT4, 10), (TensorProto.BFLOAT16, 4)]
)
def test_element_types_need_their_version(dtype: int, oldest: int, save: Save, repair: Repair) -> None:
    path = save(of_dtype(dtype))
    assert [applied.sentence for applied in lowered(repair, path, min(oldest, 9)).applied] == (
        [f"ir_version 10 → {oldest}"] if oldest < 10 else []
    )
    refused = lowered(repair, path, oldest - 1)
    assert not refused.applied
    assert f"IR version {oldest} brought in" in refused.declined[0].reason


FUNCTION = """g (float[3] x) => (float[3] y) { y = my.Act(x) }
<domain: "my", opset_import: ["" : 17]> Act (a) => (b) { b = Tanh(a) }"""


def test_functions_need_version_8(save: Save, repair: Repair) -> None:
    path = save(FUNCTION, ir_version=9, domains=', "my" : 1')
    assert lowered(repair, path, 8).sentence == "ir_version 9 → 8"
    assert "local functions" in lowered(repair, path, 7).declined[0].reason


def test_overloads_need_version_10(save: Save, repair: Repair) -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17, "my" : 1]> {FUNCTION}')
    proto.functions[0].overload = proto.graph.node[0].overload = "one"
    assert "overloaded functions" in lowered(repair, save(proto)).declined[0].reason


def test_weights_that_are_no_inputs_need_version_4(save: Save, repair: Repair) -> None:
    assert "no inputs" in lowered(repair, save(NET), 3).declined[0].reason
