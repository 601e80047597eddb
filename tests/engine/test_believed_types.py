"""Types where a run on made-up inputs fails or means nothing: what the file declares, and what onnxruntime infers."""

from pathlib import Path

import onnx
import pytest
from onnx import helper, parser

from onnxbisect.cut import Cutter
from onnxbisect.model import Model, load
from onnxbisect.model.facts import fixed_dims
from onnxbisect.preflight import Inspection, inspect

#: One layer as exporters of language models write it; its last two inputs have to fit the others.
DECODER = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,8,64] x, float[64,64] wq, float[64,32] wk, float[64,32] wv, float[64,64] wo, float[64] g1, float[32,8] cosc,
   float[32,8] sinc, float[1,2,4,16] pk, float[1,2,4,16] pv, int32[1] sl, int32 tl)
=> (float[1,8,64] y, float[1,8,64] res, float[1,2,12,16] prk, float[1,2,12,16] prv) <float[1,8,64] a> {
  q = MatMul (x, wq)
  k = MatMul (x, wk)
  v = MatMul (x, wv)
  a, prk, prv = com.microsoft.GroupQueryAttention <do_rotary = 1, kv_num_heads = 2, num_heads = 4>
    (q, k, v, pk, pv, sl, tl, cosc, sinc)
  o = MatMul (a, wo)
  y, "", "", res = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-05> (o, x, g1)
}"""

SPLIT = """<ir_version: 8, opset_import: ["" : 17]> g (float[8] x, int64[2] s) => (float[4] y)
<float[4] a, float[4] b> {
  [split] a, b = Split <axis = 0> (x, s)
  [sin] c = Sin (a)
  [add] y = Add (c, b)
}"""
RESHAPE = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,6] x, int64[2] s) => (float[3,8] y) <float[3,8] q> {
  [reshape] q = Reshape (x, s)
  [sin] y = Sin (q)
}"""
RANGE = """<ir_version: 8, opset_import: ["" : 17]> g (int64 n) => (float[7] y)
<int64 z = {0}, int64 o = {1}, int64[7] r> {
  [range] r = Range (z, n, o)
  [cast] f = Cast <to = 1> (r)
  [hs] y = HardSigmoid (f)
}"""


def loaded(folder: Path, text: str, **declared: list[int]) -> Model:
    proto = parser.parse_model(text)
    proto.graph.value_info.extend(helper.make_tensor_value_info(it, 1, dims) for it, dims in declared.items())
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return load(path)


def shape(model: Model, tensor: str) -> list[int]:
    return [dim.dim_value for dim in model.types[tensor].tensor_type.shape.dim]


def ids(model: Model) -> set[str]:
    found: Inspection = inspect(model)
    return {finding.id for finding in found.findings}


@pytest.mark.parametrize(("text", "name", "dims"), [(SPLIT, "c", [4]), (RESHAPE, "q", [3, 8])])
def test_declared_types_are_believed_of_an_op_that_refuses_made_up_inputs(
    tmp_path: Path, text: str, name: str, dims: list[int]
) -> None:
    model = loaded(tmp_path, text)
    assert shape(model, name) == dims
    assert any("that the file declares" in note for note in model.notes)
    for unit in range(len(model.units)):
        onnx.checker.check_model(Cutter(model).cut(1 << unit).proto, full_check=True)


def test_a_decoder_layer_has_all_its_types(tmp_path: Path) -> None:
    model = loaded(tmp_path, DECODER)
    assert any("does not run 'com.microsoft::GroupQueryAttention' on made-up inputs" in it for it in model.notes)
    assert {name: shape(model, name) for name in ("a", "prk", "o", "y", "res")} == {
        "a": [1, 8, 64],
        "prk": [1, 2, 12, 16],
        "o": [1, 8, 64],
        "y": [1, 8, 64],
        "res": [1, 8, 64],
    }


def test_without_a_declaration_onnxruntime_infers_a_contrib_op(tmp_path: Path) -> None:
    proto = parser.parse_model(DECODER)
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    model = load(path)
    assert (shape(model, "a"), shape(model, "o"), shape(model, "y")) == ([1, 8, 64],) * 3


def test_a_size_that_a_value_decides_is_the_declared_one_in_every_probe(tmp_path: Path) -> None:
    model = loaded(tmp_path, RANGE)
    assert [shape(model, name) for name in ("r", "f", "y")] == [[7], [7], [7]]
    assert "Shapes that may depend on input values are those that the file declares: 'r'." in model.notes
    assert not any("were taken from one run" in note for note in model.notes)
    assert "shape-contradiction" not in ids(model)
    piece = Cutter(model).cut(model.universe.everything).proto
    assert {
        v.name: v.type.tensor_type.shape.dim[0].dim_value for v in [*piece.graph.value_info, *piece.graph.output]
    } == {
        "r": 7,
        "f": 7,
        "y": 7,
    }


def test_it_is_where_it_is_declared_first_and_holds_behind(tmp_path: Path) -> None:
    model = loaded(tmp_path, RANGE.replace(", int64[7] r", ""), f=[7])
    assert (shape(model, "f"), shape(model, "y")) == ([7], [7])
    assert "shape-contradiction" not in ids(model)


def test_a_size_that_only_an_output_declares_holds_before_it(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,4,4] x, int64[4] s) => (float[1,1,8,8] y) {
        a = Resize <mode = "nearest"> (x, , , s)
        b = Relu (a)
        y = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (b, w) }"""
    weight = ", float[1,1,3,3] w)"
    model = loaded(tmp_path, text.replace("s)", f"s{weight}", 1))
    assert [shape(model, name) for name in ("a", "b", "y")] == [[1, 1, 8, 8]] * 3
    model = loaded(tmp_path, text.replace("s)", f"s{weight}", 1).replace("pads = [1,1,1,1]", "pads = [2,2,2,2]"))
    assert shape(model, "y") == [1, 1, 8, 8]


def test_what_is_declared_wrongly_is_still_said(tmp_path: Path) -> None:
    """Relu keeps the size, whatever the value: that of y cannot be 5."""
    model = loaded(tmp_path, RANGE.replace("float[7] y", "float[5] y"))
    assert (shape(model, "r"), shape(model, "y")) == ([7], [7])
    assert "shape-contradiction" in ids(model)
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[3] y) { y = Relu (x) }'
    model = loaded(tmp_path, text)
    assert shape(model, "y") == [2]
    assert "shape-contradiction" in ids(model)


@pytest.mark.parametrize(
    ("inputs", "body", "dims"),
    [
        ("float[9] x, int64[1] k", "a, i = TopK (x, k)\n y = Relu (a)", [5]),
        ("float[9] x, int64[1] n", "a = Expand (x, n)\n y = Relu (a)", [9]),
        ("float[9] x, int64[1] s, int64[1] e", "a = Slice (x, s, e)\n y = Relu (a)", [4]),
        ("float[9] x, int64[1] r", "a = Tile (x, r)\n y = Relu (a)", [27]),
        ("float[9] x, int64[2] p", "a = Pad (x, p)\n y = Relu (a)", [12]),
        ("float[9] x, bool[9] m", "a = Compress <axis = 0> (x, m)\n y = Relu (a)", [3]),
        ("float[9] x, int64[1] n", "c = ConstantOfShape (n)\n y = Relu (c)", [11]),
        (
            "float[9] x, bool f, int64[1] s",
            """a = If (f) <then_branch = t () => (float[Q] b) { b = Reshape (x, s) },
                       else_branch = e () => (float[Q] d) { d = Relu (x) }>
            y = Relu (a)""",
            [9],
        ),
    ],
)
def test_the_kind_of_ops_whose_sizes_are_inputs(tmp_path: Path, inputs: str, body: str, dims: list[int]) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float{dims} y) {{ {body} }}'
    name = body.split(" ")[0].rstrip(",")
    model = loaded(tmp_path, text, **{name: dims})
    assert (shape(model, name), shape(model, "y")) == (dims, dims)
    assert "shape-contradiction" not in ids(model)


@pytest.mark.parametrize("opset", [1, 5, 6])
def test_ops_of_old_opsets_run(tmp_path: Path, opset: int) -> None:
    consumed = "<consumed_inputs = [0]>" if opset == 1 else ""
    model = loaded(
        tmp_path,
        f"""<ir_version: 3, opset_import: ["" : {opset}]> g (float[2,4] x) => (float[2,4] y) {{
        a = Relu {consumed} (x)
        b = Sigmoid {consumed} (a)
        y = Softmax (b) }}""",
    )
    assert [shape(model, name) for name in ("a", "b", "y")] == [[2, 4]] * 3
    assert not [note for note in model.notes if "does not run" in note]


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("float[1,8] x, int64[1] k", "v, i = TopK (x, k)"),
        ("float[1,8] x, int64[2] r", "v = Tile (x, r)"),
        ("int64[2] r", "v = ConstantOfShape (r)"),
        ("float[1,8] x, int64[1] r", "z = Constant <value_ints = [0]> () v = Slice (x, z, r)"),
        ("float[1,8] x, int64[1] k", "c = Cast <to = 1> (k) m = Mul (x, c) n = NonZero (m) v = Cast <to = 1> (n)"),
        (
            "float[1,8,4] x, float[1,2,8] s, int64[1] k",
            "n = NonMaxSuppression (x, s, k) v = Cast <to = 1> (n)",
        ),
    ],
    ids=["TopK", "Tile", "ConstantOfShape", "Slice", "NonZero", "NonMaxSuppression"],
)
def test_no_probe_has_an_empty_tensor_that_other_values_fill(tmp_path: Path, inputs: str, body: str) -> None:
    """Compilers refuse a size of 0 at any op, and "proven" culprits were those of the inputs made up for one run."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[N,M] y) {{ {body} y = Relu (v) }}'
    model = loaded(tmp_path, text)
    for name in ("v", "y"):
        assert 0 not in (fixed_dims(model.types[name]) or ())


def test_a_tensor_that_is_empty_whatever_the_values_stays_empty(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,8] x, float[0,8] e) => (float[2,8] y) { a = Relu (e) y = Concat <axis = 0> (x, a) }"""
    model = loaded(tmp_path, text)
    assert (shape(model, "a"), shape(model, "y")) == ([0, 8], [2, 8])
