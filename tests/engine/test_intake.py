"""Intake of valid files: what the engine may rely on for each thing that ONNX files do."""

import hashlib
import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, parser

from onnxbisect.model import Model, load
from onnxbisect.model.scopes import reads
from onnxbisect.unitset import members
from support.examples import models

MODELS = Path(__file__).parents[1] / "models"
FILES = sorted(MODELS.rglob("*.onnx"))


def take(name: str, **shapes: list[int]) -> Model:
    return load(MODELS / f"{name}.onnx", input_shapes=shapes)


def write(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    return path


def shape(model: Model, tensor: str) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in model.types[tensor].tensor_type.shape.dim]


def names(model: Model) -> list[str]:
    return [model.proto.graph.node[unit.node].name for unit in model.units]


@pytest.mark.parametrize("path", models(FILES))
def test_every_model_becomes_numbered_units_with_types(path: Path) -> None:
    model = load(path)
    nodes = model.proto.graph.node
    universe = model.universe
    made: set[str] = {value.name for value in model.proto.graph.input}
    made |= {tensor.name for tensor in model.proto.graph.initializer}
    made |= {tensor.values.name for tensor in model.proto.graph.sparse_initializer}
    for node in nodes:
        assert made.issuperset(reads(node)), node.name
        made.update(node.output)
    assert len(model.unit_of_node) == len(model.units) == len(universe)
    assert len({node.name for node in nodes} - {""}) == len(nodes)
    assert {name for node in nodes for name in node.output if name} <= model.types.keys()
    for unit, after in enumerate(universe.successors):
        consumers = {
            other
            for other, candidate in enumerate(model.units)
            if set(universe.tensors[unit]) & set(reads(nodes[candidate.node]))
        }
        assert set(members(after)) == consumers
    for name, array in model.known.items():
        kind = model.types[name].tensor_type
        assert helper.np_dtype_to_tensor_dtype(array.dtype) == kind.elem_type
        assert [dim.dim_value for dim in kind.shape.dim] == list(array.shape)


@pytest.mark.parametrize("path", models(FILES))
def test_intake_is_deterministic(path: Path) -> None:
    one, other = load(path), load(path)
    assert one.proto.SerializeToString(deterministic=True) == other.proto.SerializeToString(deterministic=True)
    assert vars(one.universe) == vars(other.universe)
    assert one.notes == other.notes
    assert list(one.known) == list(other.known)


@pytest.mark.parametrize("path", models(path for path in FILES if path.stem != "duplicate_names"))
def test_the_order_of_nodes_in_the_file_does_not_change_the_question(path: Path, tmp_path: Path) -> None:
    """Same nodes in another order: same unit names, same variants of each, sorted again."""
    proto = onnx.load(path, load_external_data=False)
    nodes = list(proto.graph.node)
    random.Random(7).shuffle(nodes)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)
    for data in (file for file in path.parent.iterdir() if file.suffix in (".bin", ".weights")):
        (tmp_path / data.name).write_bytes(data.read_bytes())
    (tmp_path / path.name).write_bytes(proto.SerializeToString())
    shuffled, model = load(tmp_path / path.name), load(path)
    assert sorted(names(shuffled)) == sorted(names(model))
    assert max(shuffled.universe.variant) == max(model.universe.variant)
    assert plain_types(shuffled) == plain_types(model)


def plain_types(model: Model) -> dict[str, str]:
    """Types by tensor; shape inference numbers the dimensions that it cannot tell in the order of the nodes."""
    return {name: re.sub(r'"unk__\d+"', '"unknown"', str(kind)) for name, kind in model.types.items()}


def test_units_of_a_branch_stand_together() -> None:
    order = names(take("interleaved"))
    assert order in (
        ["stem", "left1", "left2", "left3", "right1", "right2", "right3", "join"],
        ["stem", "right1", "right2", "right3", "left1", "left2", "left3", "join"],
    )


def test_nodes_without_a_name_of_their_own_get_stable_ones() -> None:
    model = take("duplicate_names")
    assert names(model) == ["same", "same_2", "Cos_c", "same_1"]
    assert any("'same_2', 'Cos_c'" in note for note in model.notes)


def test_constants_belong_to_the_units_that_read_them() -> None:
    model = take("constants_everywhere")
    own = dict(zip(names(model), model.universe.names, strict=True))
    assert own["mul"] == ("mul", "shared")
    assert own["add"] == ("add", "shared")
    assert own["if"] == ("if", "inside")
    assert own["output"] == ("output",)
    assert "unread" not in {name for unit in model.universe.names for name in unit}


@pytest.mark.parametrize("path", models(FILES))
def test_nodes_keep_the_order_of_the_file_where_it_is_topological(path: Path) -> None:
    file = onnx.load(path, load_external_data=False).graph
    kept = [list(node.output) for node in load(path).proto.graph.node] == [list(node.output) for node in file.node]
    assert kept == (path.stem != "unsorted_nodes")


def test_captures_of_bodies_join_units() -> None:
    model = take("control_captures")
    unit = model.unit_of_node
    after = {name: {names(model)[other] for other in members(model.universe.successors[unit[name]])} for name in unit}
    assert after["not"] == {"if"}
    assert after["relu"] == {"if", "loop"}
    assert after["if"] == {"loop", "yadd"}


def test_wrong_value_info_is_replaced() -> None:
    model = take("wrong_value_info")
    assert shape(model, "a") == [2, 4]
    assert {value.name: value.type for value in model.proto.graph.value_info}["a"] == model.types["a"]


def test_initializers_listed_as_inputs_are_constants() -> None:
    model = take("initializers_as_inputs")
    assert [value.name for value in model.proto.graph.input] == ["x"]
    assert model.proto.ir_version == 4
    assert any("'w'" in note for note in model.notes)


def test_functions_overloads_and_metadata_survive() -> None:
    model = take("overload_in_branch")
    assert [(f.overload, f.metadata_props[0].value) for f in model.proto.functions] == [
        ("smooth", "smooth"),
        ("steep", "steep"),
    ]
    assert shape(model, "y") == [3]


def test_quantization_annotations_survive() -> None:
    assert take("quantized").proto.graph.quantization_annotation[0].tensor_name == "t1"


def test_external_data_stays_outside_and_counts_in_the_hash() -> None:
    model = take("external/external_data")
    assert all(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.proto.graph.initializer)
    content = (MODELS / "external/external_data.onnx").read_bytes() + (
        MODELS / "external/external_data.bin"
    ).read_bytes()
    assert model.sha256 == hashlib.sha256(content).hexdigest()


def test_external_data_is_found_from_the_models_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MODELS / "external")
    assert shape(load(Path("external_data.onnx")), "y") == [1, 4]


def test_siblings_share_a_variant_and_shapes_part_solos(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x, float[2] s) => (float[2,3] y, float[2] z, float[2,3] v) {
      [a] a = Relu(x)  [b] y = Relu(a)  [c] c = Relu(s)  [d] z = LeakyRelu<alpha = 0.1>(c)
      [e] e = LeakyRelu<alpha = 0.2>(a)  [f] v = LeakyRelu<alpha = 0.2>(e)
    }"""
    model = load(write(tmp_path, text))
    unit, universe = model.unit_of_node, model.universe
    variant = {name: universe.variant[unit[name]] for name in unit}
    solo = {name: universe.solo[unit[name]] for name in unit}
    assert variant["a"] == variant["b"] != variant["c"]  # ranks differ
    assert solo["a"] == solo["b"]
    assert len({variant["d"], variant["e"]}) == 2
    assert variant["e"] == variant["f"]


def test_the_form_of_a_constant_parts_solos(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x) => (float[2,3] y) <float[3] stored = {1, 2, 3}> {
      made = Constant<value = float[3] {1, 2, 3}>()  listed = Constant<value_floats = [1.0, 2.0, 3.0]>()
      [a] a = Add(x, stored)  [b] b = Add(a, made)  [c] c = Add(b, listed)  [d] y = Add(c, stored)
    }"""
    model = load(write(tmp_path, text))
    units, universe = [model.unit_of_node[name] for name in "abcd"], model.universe
    variant, solo = [universe.variant[unit] for unit in units], [universe.solo[unit] for unit in units]
    assert len(set(variant)) == 1
    assert len(set(solo)) == 3
    assert solo[0] == solo[3]


def test_small_weights_do_not_part_variants_and_parameters_do(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x) => (float[2,3] y)
    <float[3] b1 = {1, 2, 3}, float[3] b2 = {4, 5, 6}, float two = {2}, float three = {3}, int64[2] s = {3, 2},
     int64[2] t = {2, 3}>
    {
      [add1] a = Add(x, b1)  [add2] b = Add(a, b2)  [square] c = Pow(b, two)  [cube] d = Pow(c, three)
      [fold] e = Reshape(d, s)  [back] y = Reshape(e, t)
    }"""
    model = load(write(tmp_path, text))
    variant = {name: model.universe.variant[unit] for name, unit in model.unit_of_node.items()}
    assert variant["add1"] == variant["add2"]
    assert variant["square"] != variant["cube"]
    assert variant["fold"] != variant["back"]


def test_what_a_tensor_is_filled_with_parts_nothing_but_for_zero_and_type(tmp_path: Path) -> None:
    """A detector fills the labels of each of its 90 classes with another number: it is a weight."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (int64[2] s) =>
      (int64[a,b] v, int64[a,b] w, int64[a,b] x, float[a,b] y) {
      [one] v = ConstantOfShape <value = int64[1] {1}> (s)  [two] w = ConstantOfShape <value = int64[1] {2}> (s)
      [zero] x = ConstantOfShape <value = int64[1] {0}> (s)  [other] y = ConstantOfShape <value = float[1] {1}> (s)
    }"""
    model = load(write(tmp_path, text))
    variant, solo = (
        {name: kinds[unit] for name, unit in model.unit_of_node.items()}
        for kinds in (model.universe.variant, model.universe.solo)
    )
    assert (variant["one"], solo["one"]) == (variant["two"], solo["two"])
    assert len({variant[name] for name in ("one", "zero", "other")}) == 3


def test_scales_of_quantised_tensors_do_not_part_variants() -> None:
    model = take("quantized")
    variant = {name: model.universe.variant[unit] for name, unit in model.unit_of_node.items()}
    for op in ("quantize", "data", "weight", "conv"):
        assert variant[f"{op}0"] == variant[f"{op}1"]
    assert variant["data0"] != variant["weight0"]


def test_bodies_are_compared_without_their_names(tmp_path: Path) -> None:
    branch = "then_branch = {0} () => (float[2] {0}o) {{ {0}o = {1}(x) }}"
    other = "else_branch = {0} () => (float[2] {0}o) {{ {0}o = Neg(x) }}"
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, bool c) => (float[2] p, float[2] q, float[2] r) {{
      [one] p = If(c)<{branch.format("a", "Sin")}, {other.format("b")}>
      [same] q = If(c)<{branch.format("d", "Sin")}, {other.format("e")}>
      [different] r = If(c)<{branch.format("f", "Cos")}, {other.format("h")}>
    }}"""
    model = load(write(tmp_path, text))
    variant = {name: model.universe.variant[unit] for name, unit in model.unit_of_node.items()}
    assert variant["one"] == variant["same"] != variant["different"]


def test_nested_bodies_are_compared_by_whose_tensors_they_read(tmp_path: Path) -> None:
    """`a` is the first tensor of the outer body, `b` that of the inner one."""
    node = """[{0}] {0} = If(c)<
      then_branch = yes () => (float[2] p) {{
        a = Neg(x)
        p = If(c)<then_branch = both () => (float[2] q) {{ b = Abs(x)  q = Sub({1}) }},
                  else_branch = one () => (float[2] r) {{ r = Abs(a) }}>
      }},
      else_branch = no () => (float[2] e) {{ e = Abs(x) }}>"""
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y, float[2] z) {{
      {node.format("y", "a, b")}  {node.format("z", "b, a")}
    }}"""
    model = load(write(tmp_path, text))
    one, other = (model.universe.variant[model.unit_of_node[name]] for name in ("y", "z"))
    assert one != other


def test_a_size_that_is_not_the_files_goes_through_the_whole_model(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,3,8,8] x) => (float[1,2,8,8] z)
    <float[2,3,1,1] w = {1,2,3,4,5,6}, int64[4] whole = {1, 2, -1, 8}, float[1,2,8,8] y>
    { y = Conv(x, w)  z = Reshape(y, whole) }"""
    model = load(write(tmp_path, text), input_shapes={"x": [1, 3, 16, 8]})

    assert shape(model, "y") == [1, 2, 16, 8]
    assert shape(model, "z") == [1, 2, 16, 8]
    assert "Not at the size of the file: 'x' is 1x3x16x8 instead of 1x3x8x8." in model.notes


def test_custom_ops_keep_their_domain_in_the_op_name() -> None:
    assert take("custom_domain_unknown").universe.op == (
        "Conv",
        "vendor.npu::FancyAct",
        "Mul",
        "vendor.npu::NMSPlus",
        "Relu",
    )


def test_what_is_said_of_a_model_is_not_what_is_computed(tmp_path: Path) -> None:
    """Dtypes and shapes equal those of the tensors that onnxruntime computes."""
    model = take("sam_part1_prompt__ts11")
    proto = onnx.load(MODELS / "sam_part1_prompt__ts11.onnx")
    tensors = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in tensors)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"point_coords": np.ones((1, 5, 2), np.float32), "point_labels": np.ones((1, 5), np.float32)}
    for name, array in zip(tensors, session.run(tensors, feeds), strict=True):
        assert shape(model, name) == list(array.shape)
        assert model.types[name].tensor_type.elem_type == helper.np_dtype_to_tensor_dtype(array.dtype)
