"""Inputs that are bound to a value: constants of the model, in its pieces and in what is written of its file."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from onnxbisect.cut import Cutter
from onnxbisect.errors import ModelError
from onnxbisect.input_value import InputValue, read_value, written
from onnxbisect.model import Model, load
from onnxbisect.model.input_values import bind_values
from onnxbisect.model.read import original

BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,8] x, int64 sr) => (float[1,8] y) <int64 rate = {16000}> {
    fast = Equal (sr, rate)
    y = If (fast) <then_branch = a () => (float[1,8] t) { t = Relu (x) },
                   else_branch = b () => (float[1,8] e) { e = Neg (x) }>
}
"""
SHAPES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,6] x, int64[N] size, int64[1] start) => (float[P,Q] y) <int64[1] end = {3}, int64[1] axis = {1}> {
    r = Reshape (x, size)
    s = Slice (r, start, end, axis)
    y = Relu (s)
}
"""


def write(folder: Path, text: str, ir_version: int | None = None) -> Path:
    proto = parser.parse_model(text)
    proto.ir_version = ir_version or proto.ir_version
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def bound(folder: Path, text: str, **values: InputValue) -> Model:
    return load(write(folder, text), input_values=values)


def inputs(model: Model) -> list[str]:
    return [value.name for value in model.proto.graph.input]


def initializers(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def shape(model: Model, tensor: str) -> list[int]:
    return [dim.dim_value for dim in model.types[tensor].tensor_type.shape.dim]


def test_a_bound_input_is_a_constant_and_what_depends_on_it_alone_is_known(tmp_path: Path) -> None:
    model = bound(tmp_path, BRANCHES, sr=16000)
    assert inputs(model) == ["x"]
    assert model.known["fast"] == np.array(True)
    assert "The input 'sr' is always 16000: a constant, and no input any more." in model.notes
    piece = Cutter(model).cut(model.universe.everything).proto
    assert [value.name for value in piece.graph.input] == ["x"]
    assert initializers(piece)["sr"] == 16000


def test_sizes_that_bound_inputs_decide_are_known(tmp_path: Path) -> None:
    model = bound(tmp_path, SHAPES, size=[3, 4], start=1)
    assert (shape(model, "r"), shape(model, "y"), model.data_dependent) == ([3, 4], [3, 2], ())


def test_a_bound_input_that_a_branch_captures_is_a_constant_there(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x, bool flag, float limit) => (float[4] y) {
        y = If (flag) <then_branch = a () => (float[4] t) { t = Mul (x, limit) },
                       else_branch = b () => (float[4] e) { e = Neg (x) }>
    }
    """
    model = bound(tmp_path, text, flag=True, limit=0.5)
    assert inputs(model) == ["x"]
    assert initializers(model.proto)["limit"].dtype == np.float32
    assert initializers(model.proto)["flag"] == np.array(True)


def test_a_value_replaces_the_default_of_an_input(tmp_path: Path) -> None:
    text = """
    <ir_version: 3, opset_import: ["" : 11]>
    g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }
    """
    for version in (3, 8):
        model = load(write(tmp_path, text, version), input_values={"w": [5, 6]})
        assert inputs(model) == ["x"]
        assert initializers(model.proto)["w"].tolist() == [5, 6]
        file = original(model)
        assert [value.name for value in file.graph.input] == (["x", "w"] if version == 3 else ["x"])
        assert initializers(file)["w"].tolist() == [5, 6]


def test_only_the_input_changes_in_the_file_itself(tmp_path: Path) -> None:
    path = write(tmp_path, BRANCHES)
    file = original(load(path, input_values={"sr": 8000}))
    expected = onnx.load(path)
    assert bind_values(expected, {"sr": 8000})["sr"].dtype == np.int64
    assert file == expected
    assert (expected.graph.node, expected.graph.output) == (onnx.load(path).graph.node, onnx.load(path).graph.output)
    onnx.checker.check_model(expected)


def test_models_with_other_values_are_other_models(tmp_path: Path) -> None:
    plain, one, other = (bound(tmp_path, BRANCHES, **values) for values in ({}, {"sr": 1}, {"sr": 2}))
    assert plain.identity == plain.sha256 == one.sha256
    assert len({plain.identity, one.identity, other.identity}) == 3
    assert one.identity == bound(tmp_path, BRANCHES, sr=1).identity


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int64", 3, 3),
        ("int64", 3.0, 3),
        ("int64[1]", 3, [3]),
        ("int64[N]", 3, [3]),
        ("int64[N]", [], []),
        ("int64[N]", [3, 4], [3, 4]),
        ("int64[2,2]", [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ("int64[2,N]", [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ("int64[1,4]", 1, [[1, 1, 1, 1]]),
        ("bool", True, True),
        ("bool", 0, False),
        ("float", 16000, 16000.0),
        ("float16", 0.5, 0.5),
        ("double", 0.1, 0.1),
        ("uint8", 255, 255),
    ],
)
def test_a_value_gets_the_dtype_and_shape_of_its_input(
    tmp_path: Path, kind: str, value: InputValue, expected: object
) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1] x, {kind} v) => (float[1] y) {{ y = Relu (x) }}'
    found = bound(tmp_path, text, v=value).input_values["v"]
    assert found.tolist() == expected
    dtype = kind.partition("[")[0]
    assert found.dtype.name == {"float": "float32", "double": "float64"}.get(dtype, dtype)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("int64", 0.5, "is of int64, which has no such value"),
        ("int64", [1, 2], "has 2 values, and the model's input is INT64, scalar"),
        ("int64[3]", [1, 2], "has 2 values, and the model's input is INT64, 3"),
        ("uint8", 256, "is of uint8, which has no such value"),
        ("uint8", -1, "is of uint8, which has no such value"),
        ("bool", 2, "is of bool, which has no such value"),
        ("float16", 70000, "is of float16, which has no such value"),
        ("int64[N,M]", [1, 2], "2 dimensions without a number; give its shape, too, with --input-shape"),
        ("string", 1, "no tensor of numbers"),
        ("int64", 1 << 70, "a value is a number"),
    ],
)
def test_what_an_input_cannot_be_is_one_sentence(tmp_path: Path, kind: str, value: InputValue, words: str) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1] x, {kind} v) => (float[1] y) {{ y = Relu (x) }}'
    with pytest.raises(ModelError) as raised:
        bound(tmp_path, text, v=value)
    assert words in str(raised.value)
    assert "--input-value v" in str(raised.value)


def test_an_unknown_input_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"A value is given for 'srr', which is no input.*did you mean 'sr'"):
        bound(tmp_path, BRANCHES, srr=1)


def test_an_unknown_shape_is_given_beside_the_value(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x, int64[N,M] v) => (float[1] y) { y = Relu (x) }'
    model = load(write(tmp_path, text), input_shapes={"v": [2, 3]}, input_values={"v": 1})
    assert model.input_values["v"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert initializers(original(model))["v"].shape == (2, 3)


@pytest.mark.parametrize("text", ["16000", "0.5", "true", "false", "0,1", "-1,2.5", "", "1e-05"])
def test_a_value_is_read_as_it_is_written(text: str) -> None:
    assert written(read_value(text)) == text


@pytest.mark.parametrize("text", ["x", "1,,2", "1;2", "[1]", "1 2"])
def test_anything_else_is_no_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_value(text)


@pytest.mark.parametrize("name", ["?", "-1", "None", "unk__12", "unknown", "dynamic", "unknown_dim_3", ""])
def test_what_exporters_write_for_unknown_is_no_name_of_one_dimension(tmp_path: Path, name: str) -> None:
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,3,A,B] x, float[C] z) => (float[1,3,D,E] y) { y = Relu (x) }"""
    )
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = name
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    model = load(path, input_shapes={"x": [1, 3, 48, 192]})
    assert shape(model, "y") == [1, 3, 48, 192]
    assert model.unbound == ("z",)
    assert not [note for note in model.notes if "dimension" in note and "bound" in note and "'z'" not in note]


def test_one_symbol_may_have_two_sizes_where_the_model_works_with_them(tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,N,N] x, float[N] z) => (float[1,N,N] y) { y = Relu (x) }'
    )
    model = load(write(tmp_path, text), input_shapes={"x": [1, 4, 6]})
    assert shape(model, "y") == [1, 4, 6]
    assert model.unbound == ("z",)
    assert (
        "Several dimensions are 'N' in the file, and not equal as they are bound: 4 in 'x' and 6 in 'x'." in model.notes
    )


def test_one_symbol_has_one_size_where_the_model_needs_that(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, float[N] z) => (float[N] y) { y = Add (x, z) }'
    assert shape(load(write(tmp_path, text), input_shapes={"x": [4]}), "z") == [4]
    with pytest.raises(ModelError, match=r"does not work where its dimension 'N' is 4 in 'x' and 6 in 'z'"):
        load(write(tmp_path, text), input_shapes={"x": [4], "z": [6]})
