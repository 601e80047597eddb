"""What a piece must carry so that it asks the same question as the whole model."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxbisect.cut import Cutter
from onnxbisect.errors import CutError
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import full, of
from support.engine.cut_models import (
    BRANCHES,
    CHAIN,
    RESHAPE,
    all_tensors,
    assert_same_results,
    cut_names,
    input_names,
    matmuls,
    node_names,
    output_names,
    read,
    weight,
    weight_names,
)


def test_tensors_that_cross_the_cut_have_types(tmp_path: Path) -> None:
    piece = cut_names(read(tmp_path, CHAIN), "make_b", "make_c")
    assert input_names(piece) == ["a"]
    assert output_names(piece) == ["c"]
    for value in (*piece.graph.input, *piece.graph.output, *piece.graph.value_info):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [2, 3]
    assert [value.name for value in piece.graph.value_info] == ["b"]


def test_a_set_may_have_holes(tmp_path: Path) -> None:
    piece = cut_names(read(tmp_path, CHAIN), "make_a", "make_c", "make_d")
    assert node_names(piece) == ["make_a", "make_c", "make_d"]
    assert input_names(piece) == ["x", "b"]
    assert output_names(piece) == ["a", "d"]


def test_known_values_become_initializers_only_at_the_boundary(tmp_path: Path) -> None:
    model = read(tmp_path, RESHAPE)
    alone = cut_names(model, "make_y")
    assert input_names(alone) == ["r"]
    (shape,) = alone.graph.initializer
    assert numpy_helper.to_array(shape).tolist() == [2, -1]
    with_maker = cut_names(model, "make_y", "make_shape")
    assert "Concat" in [node.op_type for node in with_maker.graph.node]
    assert weight_names(with_maker) == ["first"]


def test_constant_nodes_come_with_each_unit_they_feed(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {
          k = Constant<value_float = 2.0>()
          a = Mul(x, k)
          y = Add(a, k)
        }""",
    )
    for name in ("make_a", "make_y"):
        assert "Constant" in [node.op_type for node in cut_names(model, name).graph.node]


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "large"])
def test_a_constant_node_brings_its_value(size: int, tmp_path: Path) -> None:
    proto = parser.parse_model(CHAIN)
    value = np.random.default_rng(1).random((2, 1, size), np.float32)
    proto.graph.node.extend(
        [
            helper.make_node("Constant", [], ["k"], value=weight("", value)),
            helper.make_node("MatMul", ["q", "k"], ["z"]),
        ]
    )
    proto.graph.input.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, [2, 3, 1]))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3, size]))
    model = read(tmp_path, proto)
    for piece in (cut_names(model, "make_z"), cut_names(model, "make_z", "make_a")):
        constant, *_ = [node for node in piece.graph.node if node.op_type == "Constant"]
        assert (numpy_helper.to_array(constant.attribute[0].t) == value).all()
        onnx.checker.check_model(piece, full_check=True)


def test_captures_of_branches_come_along(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    alone = cut_names(model, "make_y")
    assert sorted(input_names(alone)) == ["high", "scaled", "x"]
    assert weight_names(alone) == ["w"]
    assert node_names(alone) == ["make_limit", "make_y"]
    connected = cut_names(model, "make_scaled", "make_y")
    assert sorted(input_names(connected)) == ["high", "x"]
    assert output_names(connected) == ["y"]


def test_functions_come_along_when_only_a_branch_calls_them(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    assert [function.name for function in cut_names(model, "make_y").functions] == ["Twice", "Double"]
    without = cut_names(model, "make_scaled")
    assert not without.functions
    assert [opset.domain for opset in without.opset_import] == [""]


def test_overloads_of_a_function_are_told_apart(tmp_path: Path) -> None:
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 18, "my": 1]> g (float[2] x) => (float[2] y) {
          a = my.F:abs(x)
          y = my.F:neg(a)
        }
        <domain: "my", overload: "abs", opset_import: ["": 18]> F (a) => (b) { b = Abs(a) }
        <domain: "my", overload: "neg", opset_import: ["": 18]> F (a) => (b) { b = Neg(a) }"""
    )
    model = read(tmp_path, proto)
    assert [function.overload for function in cut_names(model, "make_y").functions] == ["neg"]
    assert [function.overload for function in cut_names(model, "make_a").functions] == ["abs"]


def test_all_units_give_the_model_itself(tmp_path: Path) -> None:
    proto = parser.parse_model(CHAIN)
    proto.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.INT64, [4]))
    proto.graph.initializer.append(weight("w", np.ones(2, np.float32)))
    proto.graph.output.insert(0, helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    proto.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]))
    proto.graph.node.append(helper.make_node("Cos", ["a"], ["nobody_takes_it"]))
    model = read(tmp_path, proto)
    piece = Cutter(model).cut(full(len(model.units))).proto
    assert input_names(piece) == ["x", "unused"]
    assert output_names(piece) == ["w", "y", "x"]
    assert len(piece.graph.node) == 6
    onnx.checker.check_model(piece)
    assert_same_results(piece, all_tensors(model))


def test_a_result_that_nobody_takes_keeps_its_node(tmp_path: Path) -> None:
    proto = parser.parse_model(CHAIN)
    proto.graph.node.append(helper.make_node("TopK", ["a", "k"], ["values", "indices"], axis=1))
    proto.graph.initializer.append(weight("k", np.array([1])))
    piece = cut_names(read(tmp_path, proto), "make_values", "make_b")
    assert output_names(piece) == ["b", "values"]


def test_provenance_survives(tmp_path: Path) -> None:
    proto = parser.parse_model(CHAIN)
    proto.producer_name, proto.doc_string, proto.ir_version = "exporter", "about", 9
    proto.metadata_props.add(key="origin", value="here")
    proto.graph.doc_string = "graph"
    proto.graph.node[1].metadata_props.add(key="pkg.torch.onnx.stack_trace", value="File x")
    proto.graph.node[1].doc_string = "line 3"
    piece = cut_names(read(tmp_path, proto), "make_b")
    assert (piece.producer_name, piece.doc_string, piece.graph.doc_string) == ("exporter", "about", "graph")
    assert piece.ir_version == 9
    assert piece.metadata_props[0].value == "here"
    assert piece.graph.node[0].metadata_props[0].value == "File x"
    assert piece.graph.node[0].doc_string == "line 3"


def test_omitted_inputs_are_no_tensors(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <float top = {1}> {
          a = Relu(x)
          y = Clip(a, , top)
        }""",
    )
    piece = cut_names(model, "make_y")
    assert input_names(piece) == ["a"]
    assert list(piece.graph.node[0].input) == ["a", "", "top"]


def test_sparse_initializers_come_along(tmp_path: Path) -> None:
    proto = parser.parse_model(CHAIN)
    proto.graph.node.append(helper.make_node("MatMul", ["s", "y"], ["z"]))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 3]))
    indices = weight("s_indices", np.array([1, 6]))
    sparse = helper.make_sparse_tensor(weight("s", np.ones(2, np.float32)), indices, [4, 2])
    proto.graph.sparse_initializer.append(sparse)
    model = read(tmp_path, proto)
    assert [tensor.values.name for tensor in cut_names(model, "make_z").graph.sparse_initializer] == ["s"]
    assert not cut_names(model, "make_y").graph.sparse_initializer


def test_quantization_annotations_bring_their_parameters(tmp_path: Path) -> None:
    proto = parser.parse_model(CHAIN)
    proto.graph.initializer.append(weight("scale", np.array(0.5, np.float32)))
    annotation = proto.graph.quantization_annotation.add(tensor_name="b")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    model = read(tmp_path, proto)
    assert weight_names(cut_names(model, "make_c")) == ["scale"]
    assert [entry.tensor_name for entry in cut_names(model, "make_c").graph.quantization_annotation] == ["b"]
    assert not cut_names(model, "make_y").graph.quantization_annotation


def test_ir_3_lists_initializers_as_inputs(tmp_path: Path) -> None:
    model = read(tmp_path, RESHAPE)
    old = onnx.ModelProto()
    old.CopyFrom(model.proto)
    old.ir_version = 3
    piece = cut_names(replace(model, proto=old), "make_y")
    assert input_names(piece) == ["r", "shape"]
    onnx.checker.check_model(piece)
    prepared = cut_names(
        replace(model, proto=old), "make_first", probe_format=ProbeFormat(constants_as_initializers=True)
    )
    assert input_names(prepared) == ["whole", "zero"]
    onnx.checker.check_model(prepared)


def test_an_initializer_that_the_model_lists_as_an_input_stays_one(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    listed = onnx.ModelProto()
    listed.CopyFrom(model.proto)
    listed.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    listed.graph.input.append(helper.make_tensor_value_info("unused_flag", TensorProto.BOOL, [1]))
    piece = cut_names(replace(model, proto=listed), "make_scaled")
    assert input_names(piece) == ["x", "w"]
    assert weight_names(piece) == ["w"]


def test_cutting_behind_a_custom_op_whose_results_have_no_type(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["": 17, "vendor": 1]> g (float16[2] x) => (y) {
          a, b = vendor.Split(x)
          c = vendor.Join(b, a)
          y = vendor.End(c)
        }""",
    )
    without_types = replace(model, types={name: model.types[name] for name in ("x",)})
    piece = cut_names(without_types, "make_c")
    assert input_names(piece) == ["b", "a"]
    assert piece.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    assert not piece.graph.input[0].type.tensor_type.HasField("shape")
    assert [opset.domain for opset in piece.opset_import] == ["", "vendor"]


def test_nothing_cannot_be_cut_out(tmp_path: Path) -> None:
    with pytest.raises(CutError, match="nothing to cut out"):
        Cutter(read(tmp_path, CHAIN)).cut(0)


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    before = model.proto.SerializeToString(deterministic=True)
    cutter = Cutter(model)
    for units in range(1, full(len(model.units)) + 1):
        cutter.cut(units).proto.graph.node[0].op_type = "Changed"
    assert model.proto.SerializeToString(deterministic=True) == before


def test_threads_share_a_cutter(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    cutter = Cutter(model)
    wanted = [*range(1, full(len(model.units)) + 1)] * 5

    def content(units: int) -> bytes:
        return bytes(cutter.cut(units, ProbeFormat(safe_names=True)).proto.SerializeToString(deterministic=True))

    alone = [content(units) for units in wanted]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(content, wanted)) == alone


@pytest.mark.long
def test_a_cut_costs_what_the_piece_is_not_what_the_model_is(tmp_path: Path) -> None:
    model = read(tmp_path, matmuls((weight(f"w{i}", np.eye(2, dtype=np.float32)) for i in range(5000)), 2))
    cutter = Cutter(model)

    def fastest(units: int, times: int) -> float:
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            cutter.cut(units)
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    assert 20 * fastest(of(range(2500, 2510)), 20) < fastest(full(5000) & ~of([7, 4000]), 5)
