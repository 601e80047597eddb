"""Cutting by names, for people."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from onnxbisect.cut import Piece, cut_between, cut_modules, extract, units_between, units_of_nodes, write
from onnxbisect.cut.extract import settled, units_of_modules
from onnxbisect.errors import CutError
from onnxbisect.model import Model, load
from support.engine.cut_models import (
    BRANCHES,
    CHAIN,
    RESHAPE,
    input_names,
    node_names,
    output_names,
    read,
    weight_names,
)

THREE_OF_A_NAME = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x) => (float[2] y) { a = Relu(x)  b = Sigmoid(a)  c = Tanh(b)  y = Abs(c) }"""


def test_nodes_by_name(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    assert units_of_nodes(model, ["make_c", "make_a"]) == 0b101


def test_constants_may_be_named_beside_what_they_feed(tmp_path: Path) -> None:
    model = read(tmp_path, RESHAPE)
    assert units_of_nodes(model, ["make_zero", "make_first"]) == units_of_nodes(model, ["make_first"])
    with pytest.raises(CutError, match="Constants come with the nodes they feed"):
        units_of_nodes(model, ["make_zero"])


def test_an_unknown_node_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(CutError, match=r"no node 'mak_b'; did you mean 'make_b'"):
        units_of_nodes(read(tmp_path, CHAIN), ["mak_b"])


def test_a_name_that_several_nodes_have_means_all_of_them(tmp_path: Path) -> None:
    model = read(tmp_path, THREE_OF_A_NAME)
    proto = onnx.load(model.path)
    for node, name in zip(proto.graph.node, ["n", "n", "n_1", "n"], strict=True):
        node.name = name
    onnx.save(proto, model.path)
    again = load(model.path)
    assert units_of_nodes(again, ["n"]) == 0b1011
    assert units_of_nodes(again, ["n_1"]) == 0b0100


def test_what_stands_in_a_branch_is_told_by_its_place(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    (holder,) = [node for node in model.proto.graph.node if node.op_type == "If"]
    inner = holder.attribute[0].g.node[0]
    inner.name = inner.name or "inner"
    with pytest.raises(
        CutError, match=rf"'{inner.name}' stands inside of '{holder.name}' \({holder.attribute[0].name}\)"
    ):
        units_of_nodes(model, [inner.name])
    with pytest.raises(CutError, match=rf"'{inner.output[0]}' belongs to a body inside of '{holder.name}'"):
        units_between(model, [inner.output[0]], [])


def test_tensors_bound_a_piece(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    piece = cut_between(model, ["b"], ["d"]).proto
    assert node_names(piece) == ["make_a", "make_c", "make_d"]
    assert input_names(piece) == ["b", "x"]
    assert output_names(piece) == ["d"]


def test_no_outputs_named_means_the_models(tmp_path: Path) -> None:
    model = read(tmp_path, CHAIN)
    assert units_between(model, ["d"], []) == units_of_nodes(model, ["make_y"])
    assert units_between(model, [], []) == 0b11111


def test_a_named_output_is_one_although_the_piece_itself_takes_it(tmp_path: Path) -> None:
    piece = cut_between(read(tmp_path, CHAIN), [], ["b", "d"]).proto
    assert output_names(piece) == ["b", "d"]


def test_a_named_input_stays_an_input_although_its_value_is_known(tmp_path: Path) -> None:
    piece = cut_between(read(tmp_path, RESHAPE), ["r", "shape"], ["y"]).proto
    assert input_names(piece) == ["r", "shape"]
    assert weight_names(piece) == []


def test_one_of_two_results_that_are_needed_cannot_be_an_input(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[2] y) {
          a, b = Split<axis = 0>(x)
          y = Sub(a, b)
        }""",
    )
    assert input_names(cut_between(model, ["a", "b"], ["y"]).proto) == ["a", "b"]
    with pytest.raises(CutError, match="'b' cannot be an input"):
        cut_between(model, ["b"], ["y"])


def test_the_walk_follows_captures_of_branches(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    assert units_between(model, ["high"], ["y"]) == units_of_nodes(model, ["make_scaled", "make_y"])


@pytest.mark.parametrize(
    ("inputs", "outputs", "sentence"),
    [
        (["nope"], ["y"], "no tensor 'nope'"),
        (["scald"], ["y"], "no tensor 'scald'; did you mean 'scaled'"),
        (["w"], ["y"], "'w' is a constant of the model"),
        (["limit"], ["y"], "'limit' is a constant of the model"),
        ([], ["x"], "'x' is an input of the model"),
        (["high"], ["scaled"], "None of the outputs depends on the input 'high'"),
        (["y"], ["y"], "no node between"),
    ],
)
def test_what_cannot_be_cut_is_said_in_a_sentence(
    inputs: list[str], outputs: list[str], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CutError, match=sentence):
        units_between(read(tmp_path, BRANCHES), inputs, outputs)


class TestModules:
    def test_a_module_is_found_by_names_and_by_metadata(self, tmp_path: Path) -> None:
        model = scoped(tmp_path)
        assert units_of_modules(model, ["/decoder/layers.0"]) == 0b000110
        assert units_of_modules(model, ["decoder.layers.0"]) == 0b000110
        assert units_of_modules(model, ["/decoder"]) == 0b011110
        assert units_of_modules(model, ["encoder", "decoder/layers.1"]) == 0b011001

    def test_the_name_of_a_module_is_not_the_beginning_of_another_s(self, tmp_path: Path) -> None:
        """`layers.1` is not `layers.10`."""
        model = scoped(tmp_path, last="/decoder/layers.10/Relu")
        assert units_of_modules(model, ["/decoder/layers.1"]) == 0b011000

    def test_an_unknown_module_is_answered_with_the_nearest(self, tmp_path: Path) -> None:
        with pytest.raises(CutError, match=r"module '/decoder/layer\.0'; did you mean '/decoder/layers\.0'"):
            units_of_modules(scoped(tmp_path), ["/decoder/layer.0"])
        with pytest.raises(CutError, match="came from the module '/'"):
            units_of_modules(scoped(tmp_path), ["/"])

    def test_what_others_take_the_shape_of_alone_is_no_output(self, tmp_path: Path) -> None:
        """Relu and Tanh in one module: what another one makes of Tanh(x) is known from its shape."""
        proto = read(tmp_path, SHAPED).proto
        for node in proto.graph.node:
            node.name = f"/{'encoder' if node.op_type in ('Relu', 'Tanh') else 'head'}/{node.op_type}"
        onnx.save(proto, tmp_path / "modules.onnx")
        model = load(tmp_path / "modules.onnx")
        piece = cut_modules(model, ["/encoder"])
        assert [node.op_type for node in piece.proto.graph.node] == ["Relu"]
        assert output_names(piece.proto) == ["relu"]
        same_outputs(tmp_path, model, piece)


class TestSettled:
    """What no input changes becomes constants of the piece."""

    def test_shape_arithmetic_and_what_was_made_for_it_only_are_gone(self, tmp_path: Path) -> None:
        """x -> Relu -> Reshape(to Concat(Gather(Shape(Tanh(x))), [-1]))"""
        model = read(tmp_path, SHAPED)
        piece = cut_between(model, [], ["y"])
        assert [node.op_type for node in piece.proto.graph.node] == ["Relu", "Reshape"]
        assert input_names(piece.proto) == ["x"]
        same_outputs(tmp_path, model, piece)

    def test_a_named_output_stays_although_its_value_is_known(self, tmp_path: Path) -> None:
        piece = cut_between(read(tmp_path, SHAPED), [], ["rows", "y"])
        assert output_names(piece.proto) == ["rows", "y"]
        assert [node.op_type for node in piece.proto.graph.node] == ["Unsqueeze", "Relu", "Reshape"]

    def test_what_is_behind_a_named_known_input_stays(self, tmp_path: Path) -> None:
        piece = cut_between(read(tmp_path, SHAPED), ["rows"], ["y"])
        assert [node.op_type for node in piece.proto.graph.node] == ["Concat", "Relu", "Reshape"]

    def test_a_model_of_constants_alone_stays_as_it_is(self, tmp_path: Path) -> None:
        model = read(tmp_path, CONSTANT)
        assert settled(model, 1, ["y"]) == 1

    def test_quantised_weights_stay_quantised(self, tmp_path: Path) -> None:
        model = read(tmp_path, QUANTISED)
        assert settled(model, model.universe.everything, ["y"]) == model.universe.everything

    def test_constants_that_are_too_large_are_computed_still(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(extract, "_MOST", 8)
        kept = settled(read(tmp_path, SHAPED), 0b1111111, ["y"])
        assert kept.bit_count() > 2


def scoped(folder: Path, last: str = "/head/Relu") -> Model:
    """A chain of Relus in an encoder, a decoder of two layers, and a head, partly as either exporter says it."""
    names = ["/encoder/Relu", "/decoder/layers.0/Relu", "n2", "/decoder/layers.1/Relu", "n4", last]
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name=name) for i, name in enumerate(names)]
    for index, scopes in ((2, ["", "decoder", "decoder.layers.0", "relu"]), (4, ["", "decoder.layers.1", "relu"])):
        entry = nodes[index].metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.name_scopes", str(scopes)
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("t0", "t6")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = folder / "scoped.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return load(path)


def same_outputs(folder: Path, model: Model, piece: Piece) -> None:
    write(piece, model, folder / "piece.onnx")
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    found = [
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for path in (model.path, folder / "piece.onnx")
    ]
    for whole, part in zip(*found, strict=True):
        assert whole.tobytes() == part.tobytes()


SHAPED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y) <int64 zero = {0}, int64[1] rest = {-1}, int64[1] front = {0}>
{
  tanh = Tanh(x)
  shape = Shape(tanh)
  first = Gather(shape, zero)
  rows = Unsqueeze(first, front)
  target = Concat<axis = 0>(rows, rest)
  relu = Relu(x)
  y = Reshape(relu, target)
}
"""
QUANTISED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 2] x) => (float[2, 2] y) <int8[2, 2] w = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0}>
{
  weights = DequantizeLinear(w, s, z)
  turned = Transpose<perm = [1, 0]>(weights)
  y = MatMul(x, turned)
}
"""
CONSTANT = '<ir_version: 8, opset_import: ["" : 17]> g () => (float[2] y) <float[2] w = {1, 2}> { y = Relu(w) }'
