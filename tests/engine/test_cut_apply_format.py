"""Probes as targets want them, and what a target's dtypes drag along."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxbisect.cut import Cutter, producers_required_by_type, split_variants, unguarded_outputs
from onnxbisect.key import Keyer
from onnxbisect.model import Model
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import full, members
from support.engine.cut_models import (
    BRANCHES,
    RESHAPE,
    all_tensors,
    assert_same_results,
    cut_names,
    input_names,
    output_names,
    read,
    weight,
    weight_names,
)


def awkward(folder: Path) -> Model:
    """Names that are no identifiers, also of a tensor that a branch captures; two of them collide when made safe."""
    branch = helper.make_graph(
        [helper.make_node("Add", ["/in:0", "a/b"], ["t/1"])],
        "then",
        [],
        [helper.make_tensor_value_info("t/1", TensorProto.FLOAT, [2])],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["a.b"], ["e/1"])],
        "else",
        [],
        [helper.make_tensor_value_info("e/1", TensorProto.FLOAT, [2])],
    )
    nodes = [
        helper.make_node("Relu", ["/in:0"], ["a/b"]),
        helper.make_node("Abs", ["/in:0"], ["a.b"]),
        helper.make_node("If", ["flag"], ["输出"], then_branch=branch, else_branch=other),
    ]
    graph = helper.make_graph(
        nodes,
        "torch/jit",
        [
            helper.make_tensor_value_info("/in:0", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("输出", TensorProto.FLOAT, [2])],
    )
    return read(folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_boundary_names_are_made_safe_and_can_be_mapped_back(tmp_path: Path) -> None:
    model = awkward(tmp_path)
    values = all_tensors(model)
    cutter = Cutter(model)
    for units in range(1, full(3) + 1):
        piece = cutter.cut(units, ProbeFormat(safe_names=True))
        names = [piece.proto.graph.name, *input_names(piece.proto), *output_names(piece.proto)]
        assert all(name.isascii() and name.isidentifier() for name in names)
        onnx.checker.check_model(piece.proto)
        assert_same_results(piece.proto, values, piece.original)
    branches_alone = cutter.cut(0b100, ProbeFormat(safe_names=True))
    renamed = input_names(branches_alone.proto)
    assert sorted(renamed) == ["_in_0", "a_b", "a_b_2", "flag"]
    assert {branches_alone.original(name) for name in renamed} == {"/in:0", "a.b", "a/b", "flag"}


def test_names_are_left_alone_unless_asked(tmp_path: Path) -> None:
    piece = Cutter(awkward(tmp_path)).cut(full(3))
    assert input_names(piece.proto) == ["/in:0", "flag"]
    assert not piece.renamed


def test_explicit_defaults_change_no_result(tmp_path: Path) -> None:
    kernel = weight("k", np.ones((1, 1, 3, 3), np.float32))
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "k"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Softmax", ["a"], ["b"]),
            helper.make_node("Dropout", ["b"], ["c"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 1, 4, 4])],
        [kernel],
    )
    model = read(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    piece = Cutter(model).cut(full(3), ProbeFormat(explicit_defaults=True)).proto
    written = [
        {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        for node in piece.graph.node
    ]
    conv = {"pads": [1, 1, 1, 1], "auto_pad": b"NOTSET", "group": 1, "kernel_shape": [3, 3]}
    assert written == [conv, {"axis": -1}, {}]
    onnx.checker.check_model(piece)
    assert_same_results(piece, all_tensors(model))


def test_explicit_defaults_follow_the_opset_of_the_model(tmp_path: Path) -> None:
    text = '<ir_version: 6, opset_import: ["": 11]> g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }'
    piece = cut_names(read(tmp_path, text), "make_y", probe_format=ProbeFormat(explicit_defaults=True))
    assert piece.graph.node[0].attribute[0].i == 1


def test_the_kernel_shape_is_found_in_a_weight_of_the_enclosing_graph(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[1,1,4,4] x) => (float[1,1,2,2] y)
        <float[1,1,3,3] k = {1, 1, 1, 1, 1, 1, 1, 1, 1}> {
        y = If (c) <
            then_branch = t () => (float[1,1,2,2] a) { a = Conv(x, k) },
            else_branch = e () => (float[1,1,2,2] b) { b = MaxPool <kernel_shape = [3, 3]> (x) }
        >
    }"""
    piece = cut_names(read(tmp_path, text), "make_y", probe_format=ProbeFormat(explicit_defaults=True))
    branches = {attribute.name: attribute.g for attribute in piece.graph.node[0].attribute}
    conv = {a.name: helper.get_attribute_value(a) for a in branches["then_branch"].node[0].attribute}
    assert conv["kernel_shape"] == [3, 3]


def test_a_convolution_without_a_weight_is_left_to_the_compiler(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,2,2] y) { y = Conv (x) }'
    piece = cut_names(read(tmp_path, text), "make_y", probe_format=ProbeFormat(explicit_defaults=True))
    assert list(piece.graph.node[0].input) == ["x"]


def test_an_attribute_that_a_target_wants_unsaid_is_neither_written_nor_left(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[2,2] x, int64[1,1] i, float[1,2] u) => (float[2,2] c) {
        a = ScatterND (x, i, u)
        b = ScatterND <reduction = "none"> (a, i, u)
        c = ScatterND <reduction = "add"> (b, i, u)
    }"""
    model = read(tmp_path, text)
    probe_format = ProbeFormat(explicit_defaults=True, unwritten_defaults=("ScatterND.reduction",))
    piece = Cutter(model).cut(full(3), probe_format).proto
    written = [[helper.get_attribute_value(attribute) for attribute in node.attribute] for node in piece.graph.node]
    assert written == [[], [], [b"add"]]


def test_constants_as_initializers(tmp_path: Path) -> None:
    for text in (RESHAPE, BRANCHES):
        model = read(tmp_path, text)
        piece = Cutter(model).cut(full(len(model.units)), ProbeFormat(constants_as_initializers=True)).proto
        assert "Constant" not in {node.op_type for node in piece.graph.node}
        onnx.checker.check_model(piece, full_check=True)
        assert_same_results(piece, all_tensors(model))


def test_constants_inside_branches_become_initializers_there(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[1] x) => (float[1] y) {
      y = If(c) <
        then_branch = t () => (float[1] t) { k = Constant<value_floats = [2.0]>()  t = Mul(x, k) },
        else_branch = e () => (float[1] e) { e = Neg(x) }
      >
    }"""
    model = read(tmp_path, text)
    piece = Cutter(model).cut(1, ProbeFormat(constants_as_initializers=True)).proto
    branch = next(a.g for a in piece.graph.node[0].attribute if a.name == "then_branch")
    assert [tensor.name for tensor in branch.initializer] == ["k"]
    assert_same_results(piece, all_tensors(model))


def test_units_bring_along_the_makers_of_what_the_target_does_not_take(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x, bool[2,3] mask) => (float[2,3] y, bool[2,3] z) <int64[1] one = {1}> {
      a = Relu(x)
      big = Greater(a, x)
      inverse = Not(big)
      y = Where(inverse, a, x)
      z = Not(mask)
      known = Shape(x)
      r = Reshape(a, known)
    }"""
    model = read(tmp_path, text)
    needs = producers_required_by_type(model, ProbeFormat(input_dtypes=frozenset({"float"})))
    named = {
        model.universe.names[unit][0]: {model.universe.names[other][0] for other in members(along)}
        for unit, along in needs.items()
    }
    assert named == {"make_inverse": {"make_big"}, "make_y": {"make_big", "make_inverse"}}
    assert producers_required_by_type(model, ProbeFormat()) == {}
    assert producers_required_by_type(model, ProbeFormat(input_dtypes=frozenset({"float", "bool"}))) == {}


def test_known_values_and_constants_are_initializers_side_by_side(tmp_path: Path) -> None:
    piece = cut_names(read(tmp_path, RESHAPE), "make_first", probe_format=ProbeFormat(constants_as_initializers=True))
    assert sorted(weight_names(piece)) == ["whole", "zero"]
    assert input_names(piece) == []


COVERED = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x, int64[2,3] i) => (float[3,2] y, int64[6] n, float[2,3] a_covered)
<int64[1] flat = {6}, int64[2] turned = {3, 2}>
{
  a = Reshape(x, turned)  b = Abs(a)  y = Reshape(b, turned)
  m = Reshape(i, flat)    n = Abs(m)
  a_covered = Abs(x)
}"""


def test_ops_that_must_not_end_a_cut_are_followed_by_a_relu(tmp_path: Path) -> None:
    """Not where they end the model, not where a Relu takes no such dtype, and under a name of its own."""
    model = read(tmp_path, COVERED)
    cutter = Cutter(model)

    def ends(*names: str) -> dict[str, str]:
        units = sum(1 << model.unit_of_node[f"make_{name}"] for name in names)
        piece = cutter.cut(units, ProbeFormat(covered=("Reshape",), safe_names=True))
        onnx.checker.check_model(piece.proto, full_check=True)
        makers = {name: node.op_type for node in piece.proto.graph.node for name in node.output}
        return {piece.original(name): makers[name] for name in output_names(piece.proto)}

    assert ends("a", "m", "a_covered") == {"a": "Relu", "m": "Reshape", "a_covered": "Abs"}
    assert ends("a", "b") == {"b": "Abs"}
    assert ends("y") == {"y": "Reshape"}
    assert ends("a", "b", "y", "m", "n", "a_covered") == {"y": "Reshape", "n": "Abs", "a_covered": "Abs"}


def test_an_op_that_only_passes_on_what_the_cut_made_an_input_is_covered_at_the_models_end(tmp_path: Path) -> None:
    """A target that drops Dropout sees an input that is an output, which the model does not have."""
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y, float[2] z) { a = Abs(x)  y = Dropout(a)  z = Identity(x) }""",
    )

    def last(*names: str) -> list[str]:
        units = sum(1 << model.unit_of_node[f"make_{name}"] for name in names)
        piece = Cutter(model).cut(units, ProbeFormat(covered=("Dropout", "Identity"))).proto
        makers = {name: node.op_type for node in piece.graph.node for name in node.output}
        return [makers[name] for name in output_names(piece)]

    assert last("y") == ["Relu"]
    assert last("a", "y") == ["Dropout"]
    assert last("z") == ["Identity"]
    assert sorted(last("a", "y", "z")) == ["Dropout", "Identity"]


def test_what_ends_the_model_is_another_question_than_its_like_inside(tmp_path: Path) -> None:
    text = COVERED.replace("float[2,3] x", "float[3,2] x").replace("float[2,3] a_covered", "float[3,2] a_covered")
    model = read(tmp_path, text)
    inner, last = (model.unit_of_node[f"make_{name}"] for name in "ay")
    apart = unguarded_outputs(model, ("Reshape",))
    universe = split_variants(model.universe, apart)
    keyer, plain = Keyer(model, special_units=apart), Keyer(model)

    assert apart == {last}
    assert model.universe.solo[inner] == model.universe.solo[last]
    assert universe.solo[inner] != universe.solo[last]
    assert universe.variant[inner] != universe.variant[last]
    assert sorted(set(universe.variant)) == list(range(len(universe.variant_members)))
    assert all(universe.variant_members)
    assert plain.key(1 << inner) == plain.key(1 << last)
    assert keyer.key(1 << inner) == plain.key(1 << inner)
    assert keyer.key(1 << last) != keyer.key(1 << inner)


def test_a_piece_of_ops_that_a_target_takes_only_alone_has_company(tmp_path: Path) -> None:
    """At the model's end, too; not the model that is nothing else, which the target takes."""
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[2] x) => (float[2] y) { a = Abs(x)  b = Mish(a)  y = Mish(b) }""",
    )
    probe_format = ProbeFormat(accompanied=("Mish",))

    def ops(model: Model, *names: str) -> list[str]:
        units = sum(1 << model.unit_of_node[f"make_{name}"] for name in names)
        piece = Cutter(model).cut(units, probe_format)
        onnx.checker.check_model(piece.proto, full_check=True)
        assert [piece.original(name) for name in output_names(piece.proto)] == [names[-1]]
        return [node.op_type for node in piece.proto.graph.node]

    assert ops(model, "b") == ["Mish", "Relu"]
    assert ops(model, "y") == ["Mish", "Relu"]
    assert ops(model, "b", "y") == ["Mish", "Mish", "Relu"]
    assert ops(model, "a", "b") == ["Abs", "Mish"]
    whole = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[2] x) => (float[2] y) { y = Mish(x) }""",
    )
    assert ops(whole, "y") == ["Mish"]
