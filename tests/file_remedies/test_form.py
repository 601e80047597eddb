"""The form of a file: declared shapes, plain names, weights inside."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.file_remedies import File, form_candidates, repaired
from onnxbisect.model import load
from onnxbisect.preflight import ToolLimits
from onnxbisect.probe_format import ProbeFormat
from support.file_remedies import Repair, Same, Save

MODELS = Path(__file__).parents[1] / "models"
TEXT = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Tanh(a) y = Abs(b) }"


def test_shapes_that_are_known_are_declared(repair: Repair, same: Same, save: Save) -> None:
    path = save(TEXT)
    candidate = repair(path, "declare-shapes")
    assert candidate.sentence == "shapes declared of 2 tensors"
    assert {value.name for value in candidate.proto.graph.value_info} == {"a", "b"}
    same(path, candidate.proto)
    again = repaired(File.of(load(path)), ["declare-shapes"], ToolLimits(tool="Chipper"))
    assert again.applied


def test_boundary_names_become_plain(repair: Repair, save: Save) -> None:
    model = onnx.load(save(TEXT))
    for value, names in ((model.graph.input[0], "net/x:0"), (model.graph.output[0], "net/y:0")):
        for node in model.graph.node:
            node.input[:] = [names if name == value.name else name for name in node.input]
            node.output[:] = [names if name == value.name else name for name in node.output]
        value.name = names
    path = save(TEXT)
    onnx.save(model, path)
    candidate = repair(path, "safe-names")
    assert candidate.sentence == "2 inputs and outputs renamed: net/x:0 → net_x_0, net/y:0 → net_y_0"
    assert [value.name for value in candidate.proto.graph.input] == ["net_x_0"]
    onnx.checker.check_model(candidate.proto)


def test_weights_move_into_the_file(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    candidate = repaired(File.of(load(tmp_path / "m.onnx")), ["weights-inside"], ToolLimits(tool="Chipper"))
    assert candidate.sentence == "1 weight stored in the file"
    assert np.array_equal(numpy_helper.to_array(candidate.proto.graph.initializer[0]), numpy_helper.to_array(weight))


def test_only_what_probes_of_the_target_have_is_tried_smallest_first(save: Save) -> None:
    nodes = "[c] c = Constant<value_float = 2.0>() [m] a = Mul(x, c) [e] y = Elu(a)"
    model = load(save(f"g (float[2,3] x) => (float[2,3] y) {{ {nodes} }}"))
    plain = [candidate.sentence for candidate in form_candidates(model, ToolLimits(tool="Chipper"))]
    assert plain == ["shapes declared of 2 tensors"]
    demanding = ProbeFormat(explicit_defaults=True, constants_as_initializers=True)
    *alone, together = form_candidates(model, ToolLimits(tool="Chipper", probe_format=demanding))
    assert [it.applied[0].remedy for it in alone] == ["declare-shapes", "constants-to-initializers", "write-defaults"]
    assert {it.remedy for it in together.applied} == {it.applied[0].remedy for it in alone}


def test_nodes_without_a_name_get_one_after_that(save: Save) -> None:
    model = load(save("g (float[2,3] x) => (float[2,3] y) { [m] a = Neg(x) y = Elu(a) }"))
    plain = [candidate.sentence for candidate in form_candidates(model, ToolLimits(tool="Chipper"))]
    assert plain == ["shapes declared of 1 tensor", "1 node named", "1 node named; shapes declared of 1 tensor"]


def test_empty_outputs_are_left_out_or_named(repair: Repair, same: Same, save: Save) -> None:
    """An LSTM of which the sequence and the last cell are read, and a Dropout without its mask."""
    path = save("g (float[3,1,2] x, float[1,8,2] w) => (float[3,1,1,2] all, float[1,1,2] c) {}")
    proto = onnx.load(path)
    lstm = onnx.helper.make_node("LSTM", ["x", "w", "w"], ["all", "", "cell"], hidden_size=2)
    proto.graph.node.extend([lstm, onnx.helper.make_node("Dropout", ["cell"], ["c", ""])])
    onnx.save(proto, path)

    candidate = repair(path, "drop-empty-outputs")

    assert candidate.sentence == "empty outputs left out of 1 node; empty outputs named at 1 node"
    assert [list(node.output) for node in candidate.proto.graph.node] == [["all", "cell_unread", "cell"], ["c"]]
    same(path, candidate.proto)


def test_an_empty_output_of_an_op_of_onnxruntime_stays(repair: Repair, save: Save) -> None:
    """Its rule replaces it without the outputs that have no name."""
    path = save("g (float[2,4] x, float[4] w) => (float[2,4] y, float[2,4] sum) {}")
    proto = onnx.load(path)
    outputs = ["y", "", "", "sum"]
    proto.graph.node.append(
        onnx.helper.make_node("SkipSimplifiedLayerNormalization", ["x", "x", "w"], outputs, domain="com.microsoft")
    )
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(proto, path)
    assert repair(path, "drop-empty-outputs").applied == ()


def test_optional_outputs_that_nothing_reads_are_left_out(repair: Repair, same: Same, save: Save) -> None:
    path = save(
        "g (float[2,3] x, float[3] s, float[1,1,4,4] i) => (float[2,3] y, float[1,1,3,3] p, int64[1,1,3,3] at) "
        "{ y, mean, inverse = LayerNormalization(x, s) p, at = MaxPool <kernel_shape = [2, 2]> (i) }"
    )
    candidate = repair(path, "drop-unread-outputs")
    assert candidate.sentence == "2 outputs that nothing reads left out"
    assert [list(node.output) for node in candidate.proto.graph.node] == [["y"], ["p", "at"]]
    same(path, candidate.proto)


def test_outputs_that_an_operator_needs_stay(repair: Repair, save: Save) -> None:
    texts = [
        "g (float[2,3] x, int64[1] k) => (float[2,2] y) { y, indices = TopK(x, k) }",
        "g (float[2,3,4] x, float[3] s) => (float[2,3,4] y) "
        "{ y, mean, var = BatchNormalization <training_mode = 1> (x, s, s, s, s) }",
        "g (float[2,3] x) => (float[2,3] y) { y, mask = Dropout(x) z = Not(mask) }",
    ]
    assert not any(repair(save(text), "drop-unread-outputs").applied for text in texts)
