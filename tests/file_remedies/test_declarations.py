"""What a file declares and how it spells things, put right."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from onnxbisect.file_remedies import ChangedCopy
from onnxbisect.preflight import ToolLimits
from onnxbisect.probe_format import ProbeFormat
from support.file_remedies import Repair, Same, Save

MODELS = Path(__file__).parents[1] / "models"


def done(candidate: ChangedCopy) -> str:
    assert candidate.applied, candidate.declined
    return candidate.sentence


def test_nodes_are_sorted(repair: Repair, same: Same) -> None:
    path = MODELS / "unsorted_nodes.onnx"
    candidate = repair(path, "sort-nodes")
    assert done(candidate) == "nodes sorted"
    before = onnx.load(path).graph.node
    assert sorted(map(str, candidate.proto.graph.node)) == sorted(map(str, before))
    same(path, candidate.proto)


def test_nodes_get_names_of_their_own(repair: Repair, same: Same) -> None:
    path = MODELS / "duplicate_names.onnx"
    candidate = repair(path, "name-nodes")
    names = [node.name for node in candidate.proto.graph.node]
    assert len(set(names)) == len(names)
    assert names[0] == "same"
    same(path, candidate.proto)


def test_nodes_without_a_name_get_one(save: Save, repair: Repair, same: Same) -> None:
    path = save("g (float[2,3] x) => (float[2,3] y) { [Neg_b] a = Relu(x)  b = Neg(a)  y = Cos(b) }")
    candidate = repair(path, "name-nameless-nodes")
    assert done(candidate) == "2 nodes named"
    assert [node.name for node in candidate.proto.graph.node] == ["Neg_b", "Neg_b_1", "Cos_y"]
    same(path, candidate.proto)


def test_initializers_leave_the_list_of_inputs(repair: Repair, same: Same) -> None:
    path = MODELS / "initializers_as_inputs.onnx"
    candidate = repair(path, "weights-no-inputs")
    assert [value.name for value in candidate.proto.graph.input] == ["x"]
    assert candidate.proto.ir_version == 4
    same(path, candidate.proto)


def test_wrong_types_are_corrected_and_right_ones_left(save: Save, repair: Repair, same: Same) -> None:
    path = save("g (float[2,3] x) => (float[2,3] y) { a = Relu(x)  b = Sin(a)  y = Cos(b) }")
    proto = onnx.load(path)
    right = helper.make_tensor_value_info("b", TensorProto.FLOAT, ["batch", 3])
    proto.graph.value_info.extend([helper.make_tensor_value_info("a", TensorProto.FLOAT, [9, 9]), right])
    onnx.save(proto, path)

    candidate = repair(path, "correct-declared-types")

    assert done(candidate) == "1 declared type corrected"
    a, b = candidate.proto.graph.value_info
    assert [dim.dim_value for dim in a.type.tensor_type.shape.dim] == [2, 3]
    assert b == right
    same(path, candidate.proto)


def test_dimensions_that_depend_on_values_are_not_written_as_numbers(save: Save, repair: Repair) -> None:
    path = save("g (float[n,3] x) => (float[m,k] y) { a = Relu(x)  i = NonZero(a)  y = Cast <to = 1> (i) }")
    candidate = repair(path, "bind-dimensions", x=[2, 3])
    assert done(candidate) == "dimensions bound: x float32[2,3]"
    _, count = candidate.proto.graph.output[0].type.tensor_type.shape.dim
    assert not count.HasField("dim_value")


def test_sparse_weights_are_made_dense(repair: Repair, same: Same) -> None:
    path = MODELS / "sparse_initializer.onnx"
    candidate = repair(path, "densify")
    assert not candidate.proto.graph.sparse_initializer
    same(path, candidate.proto)


def test_constants_become_initializers(repair: Repair, same: Same) -> None:
    path = MODELS / "constants_everywhere.onnx"
    candidate = repair(path, "constants-to-initializers")
    assert "Constant" not in {node.op_type for node in candidate.proto.graph.node}
    same(path, candidate.proto)


def test_each_reader_gets_a_copy_of_a_shared_weight_that_no_name_of_the_file_takes(
    save: Save, repair: Repair, same: Same
) -> None:
    path = save("""g (float[2] x, bool c) => (float[2] y, float[2] w) <float[2] w = {1, 2}, float[2] v = {3, 4}> {
        a = Mul (x, w)  w_1 = Add (a, w)  b = Mul (v, v)  d = Sub (w_1, b)
        y = If (c) <
            then_branch = t () => (float[2] e) { e = Add (d, w) }, else_branch = f () => (float[2] h) { h = Mul (d, v) }
        >
    }""")
    candidate = repair(path, "copy-shared-weights")
    assert done(candidate) == "2 shared weights copied for each reader"
    graph = candidate.proto.graph
    read = [name for node in graph.node for name in node.input]
    names = [tensor.name for tensor in graph.initializer]
    assert len(set(names)) == len(names) == 4
    assert all(read.count(name) == 1 for name in names)
    same(path, candidate.proto)


SCATTER = """g (float[4] x) => (float[4] y) <int64[2,1] i = {0, 2}, float[2] u = {7, 8}> {
    a = LeakyRelu(x)  y = ScatterND <reduction = "none"> (a, i, u)
}"""


def test_defaults_are_written_out_but_for_those_that_must_not_be(save: Save, repair: Repair, same: Same) -> None:
    path = save(SCATTER)
    candidate = repair(path, "write-defaults")
    leaky, scatter = candidate.proto.graph.node
    assert [(it.name, round(it.f, 3)) for it in leaky.attribute] == [("alpha", 0.01)]
    assert not scatter.attribute
    same(path, candidate.proto)


def test_a_reduction_that_is_none_is_left_out(save: Save, repair: Repair, same: Same) -> None:
    path = save(SCATTER)
    candidate = repair(path, "omit-reduction")
    assert candidate.proto.graph.node[0] == onnx.load(path).graph.node[0]
    assert not candidate.proto.graph.node[1].attribute
    same(path, candidate.proto)
    added = save(SCATTER.replace('"none"', '"add"'))
    assert not repair(added, "omit-reduction").applied


def test_another_default_that_the_tool_refuses_is_left_out(save: Save, repair: Repair, same: Same) -> None:
    path = save("""g (float[2,1,3] x, float[1,4,3] w, float[1,4,4] r) => (float[1,1,4] h) {
        y, h = RNN <hidden_size = 4, layout = 0> (x, w, r)
    }""")
    reader = ToolLimits(tool="Chipper", probe_format=ProbeFormat(unwritten_defaults=("RNN.layout",)))
    candidate = repair(path, "omit-reduction", reader=reader)
    assert [it.name for it in candidate.proto.graph.node[0].attribute] == ["hidden_size"]
    assert candidate.applied[0].sentence == "layout=0 left out at 1 node"
    same(path, candidate.proto)
