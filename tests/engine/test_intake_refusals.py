"""What intake refuses, and that it says so in one sentence with the way out."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper, parser

from onnxbisect.errors import ModelError
from onnxbisect.model import load

MODELS = Path(__file__).parents[1] / "models"
HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def refusal(path: Path, **shapes: list[int]) -> str:
    with pytest.raises(ModelError) as caught:
        load(path, input_shapes=shapes)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


def written(folder: Path, content: str | bytes | onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    if isinstance(content, str):
        content = parser.parse_model(f"{HEAD}\n{content}")
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


def test_a_missing_file(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere.onnx")


def test_a_directory(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a zip archive, say", "not an ONNX model"),
        (b"\x08\x08", "not an ONNX model"),
        (helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString(), "not an ONNX model"),
    ],
    ids=["empty", "zip", "only a version", "no graph"],
)
def test_files_of_another_kind(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refusal(written(tmp_path, content))


def test_a_model_that_is_cut_off(tmp_path: Path) -> None:
    content = (MODELS / "sam_part1_prompt__ts11.onnx").read_bytes()
    assert "not an ONNX model" in refusal(written(tmp_path, content[: len(content) // 2]))


@pytest.mark.parametrize(
    "text", ["\ud800".encode("utf-8", "surrogatepass"), "节点".encode("gbk")], ids=["surrogate", "gbk"]
)
@pytest.mark.parametrize("where", ["NODE", "TENSOR", "WEIGHT"])
def test_names_that_are_not_utf_8(tmp_path: Path, text: bytes, where: str) -> None:
    node = helper.make_node("Add", ["x", "WEIGHT"], ["TENSOR"], "NODE")
    weight = helper.make_tensor("WEIGHT", TensorProto.FLOAT, [1], [1.0])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "TENSOR")]
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], [weight]))
    content = model.SerializeToString().replace(where.encode(), text.ljust(len(where)))
    assert f"{text.ljust(len(where))!r}, which is not UTF-8" in refusal(written(tmp_path, content))


def test_a_model_without_nodes(tmp_path: Path) -> None:
    assert "no nodes" in refusal(written(tmp_path, "g (float[2] x) => (float[2] x) { }"))


def test_a_model_of_constants_only(tmp_path: Path) -> None:
    assert "only Constant nodes" in refusal(
        written(tmp_path, "g (float[2] x) => (float[2] x) { a = Constant<value_int = 1>() }")
    )


def test_no_operator_set(tmp_path: Path) -> None:
    model = parser.parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    del model.opset_import[:]
    assert "operator set" in refusal(written(tmp_path, model))


def test_a_cycle_names_its_nodes(tmp_path: Path) -> None:
    text = refusal(
        written(
            tmp_path,
            "g (float[2] x) => (float[2] y) { [a] p = Add(x, r) [b] q = Sin(p) [c] r = Cos(q) [d] y = Abs(q) }",
        )
    )
    assert "cyclic" in text
    assert all(f"'{name}'" in text for name in "abc")
    assert "'d'" not in text


def test_a_cycle_through_a_branch(tmp_path: Path) -> None:
    text = refusal(
        written(
            tmp_path,
            """g (float[2] x, bool c) => (float[2] z) {
            [if] y = If(c)<
              then_branch = t () => (float[2] p) { p = Sin(z) },
              else_branch = e () => (float[2] q) { q = Sin(x) }>
            [back] z = Relu(y)
        }""",
        )
    )
    assert "cyclic" in text


def test_a_tensor_from_nowhere_gets_the_nearest_name(tmp_path: Path) -> None:
    text = refusal(written(tmp_path, "g (float[2] image) => (float[2] y) { [n] y = Relu(imgae) }"))
    assert "'imgae'" in text
    assert "'image'" in text


def test_a_branch_that_reads_from_nowhere(tmp_path: Path) -> None:
    body = """g (float[2] x, bool c) => (float[2] y) {
        [if] y = If(c)<
          then_branch = t () => (float[2] p) { p = Sin(ghost) },
          else_branch = e () => (float[2] q) { q = Sin(x) }>
    }"""
    assert "'ghost'" in refusal(written(tmp_path, body))


def test_an_output_from_nowhere(tmp_path: Path) -> None:
    assert "'z'" in refusal(written(tmp_path, "g (float[2] x) => (float[2] z) { y = Relu(x) }"))


def test_a_tensor_produced_twice(tmp_path: Path) -> None:
    assert "'y'" in refusal(written(tmp_path, "g (float[2] x) => (float[2] y) { y = Relu(x) y = Sin(x) }"))


@pytest.mark.parametrize(
    ("location", "length", "words"),
    [
        ("gone.bin", "64", "missing"),
        ("short.bin", "64", "has only 16 bytes"),
        ("short.bin", "8", "has only 16 bytes"),
        ("../outside.bin", "64", "outside"),
        ("link.bin", "64", "outside"),
        ("/etc/hostname", "64", "absolute path"),
        ("", "64", "does not say which"),
        ("short.bin", "many", "no numbers"),
        ("bad\0name", "64", "cannot be read"),
    ],
)
def test_external_data_that_is_not_there(tmp_path: Path, location: str, length: str, words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "short.bin").write_bytes(bytes(16))
    (tmp_path / "outside.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    tensor = TensorProto(name="w", data_type=1, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value=length)
    model = parser.parse_model(f"{HEAD} g (float[1,4] x) => (float[1,4] y) {{ y = MatMul(x, w) }}")
    model.graph.initializer.append(tensor)
    assert words in refusal(written(folder, model))


def test_strings_cannot_lie_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "strings.bin").write_bytes(bytes(16))
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="strings.bin")
    model = parser.parse_model(f"{HEAD} g (string[1] x) => (string[1] y) {{ y = StringConcat(x, w) }}")
    model.graph.initializer.append(tensor)
    assert "keeps strings in another file" in refusal(written(tmp_path, model))


def test_external_data_inside_a_branch_is_checked_too(tmp_path: Path) -> None:
    model = parser.parse_model(
        f"""{HEAD} g (float[4] x, bool c) => (float[4] y) {{
        y = If(c)<
          then_branch = t () => (float[4] p) {{ p = Add(x, w) }},
          else_branch = e () => (float[4] q) {{ q = Sin(x) }}>
    }}"""
    )
    tensor = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="gone.bin")
    branch = next(attribute.g for attribute in model.graph.node[0].attribute if attribute.name == "then_branch")
    branch.initializer.append(tensor)
    assert "'gone.bin'" in refusal(written(tmp_path, model))


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"X": [1, 3, 4]}, ["'X'", "'x'", "'residual'"]),
        ({"x": [1, 3]}, ["2 dimensions", "3"]),
        ({"x": [2, 3, 4], "residual": [3, 12]}, ["does not work", "'batch'", "2 in 'x' and 3 in 'residual'"]),
        ({"x": [-1, 3, 4]}, ["from 0 on"]),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, list[int]], words: list[str]) -> None:
    text = refusal(MODELS / "computed_shape.onnx", **shapes)
    for word in words:
        assert word in text


def test_a_size_at_which_the_model_does_not_work(tmp_path: Path) -> None:
    text = "g (float[2,3] x) => (float[2,5] y) <float[3,5] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}> { y = MatMul(x, w) }"
    assert "does not work where 'x' is 2x4 instead of 2x3: " in refusal(written(tmp_path, text), x=[2, 4])


def test_a_shape_for_what_is_no_tensor(tmp_path: Path) -> None:
    path = written(tmp_path, "g (seq(float[2]) s) => (float[2] y) { y = ConcatFromSequence<axis = 0>(s) }")
    assert "no tensor" in refusal(path, s=[2])


def test_a_checker_complaint_is_a_note_and_no_refusal(tmp_path: Path) -> None:
    model = load(written(tmp_path, "g (float[2] x) => (float[2] y) { a = OldVendorOp(x) y = Relu(a) }"))
    assert any("onnx.checker" in note and "OldVendorOp" in note for note in model.notes)


def test_the_checker_refuses_no_model_for_a_shape_that_only_the_file_knows(tmp_path: Path) -> None:
    """Of what an invalid node makes nothing is known but what the file declares."""
    text = "g (float[2,3] x) => (float[4,5] y) <int64[2] pads = {1,1}> { a = Pad(x, pads) y = Cast<to = 1>(a) }"
    path = written(tmp_path, text)
    onnx.checker.check_model(path)
    model = load(path)
    assert not model.types["y"].tensor_type.HasField("shape")
    assert not [note for note in model.notes if "onnx.checker" in note]


@pytest.mark.parametrize("version", [0, -3, 1 << 40])
def test_an_operator_set_that_cannot_be(tmp_path: Path, version: int) -> None:
    model = parser.parse_model(f"{HEAD}\ng (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    model.opset_import[0].version = version
    assert f"version {version} of an operator set" in refusal(written(tmp_path, model))


@pytest.mark.parametrize("version", [-1, 1 << 40])
def test_a_version_of_the_format_that_cannot_be(tmp_path: Path, version: int) -> None:
    model = parser.parse_model(f"{HEAD}\ng (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    model.ir_version = version
    assert f"version {version} of the format" in refusal(written(tmp_path, model))


def named(kind: str, name: str) -> onnx.ModelProto:
    """A model in which one name of that kind is this."""
    model = parser.parse_model(f"{HEAD}\ng (float[N] x, bool c) => (float[N] y) {{ y = Add(x, w) }}")
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]))
    node, graph = model.graph.node[0], model.graph
    if kind == "node":
        node.name = name
    elif kind == "op":
        node.op_type = name
    elif kind == "domain":
        node.domain = name
    elif kind == "tensor":
        node.output[0] = graph.output[0].name = name
    elif kind == "weight":
        node.input[1] = graph.initializer[0].name = name
    elif kind == "attribute":
        node.attribute.append(helper.make_attribute(name, 1))
    elif kind == "dimension":
        graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    elif kind == "metadata key":
        model.metadata_props.add(key=name, value="1")
    elif kind == "metadata value":
        model.metadata_props.add(key="stack trace", value=name)
    elif kind == "in a branch":
        body = helper.make_graph([helper.make_node("Relu", ["x"], [name])], "b", [], [graph.output[0]])
        body.output[0].name = name
        graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    return model


_KINDS = ["node", "op", "domain", "tensor", "weight", "attribute", "dimension", "metadata key", "in a branch"]


@pytest.mark.parametrize("kind", _KINDS)
def test_names_without_end(tmp_path: Path, kind: str) -> None:
    text = refusal(written(tmp_path, named(kind, "n" * 65_537)))
    assert "a name of 65,537 characters" in text
    assert len(text) < 400


@pytest.mark.parametrize("kind", [*_KINDS, "metadata value"])
def test_long_names_are_names(tmp_path: Path, kind: str) -> None:
    assert load(written(tmp_path, named(kind, "n" * 4096))).units


def test_metadata_may_hold_anything(tmp_path: Path) -> None:
    """Exporters put whole programs there."""
    assert load(written(tmp_path, named("metadata value", "v" * 1_000_000))).units


def test_functions_of_nothing_are_counted_too(tmp_path: Path) -> None:
    model = parser.parse_model(f"{HEAD}\ng (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    opsets = [helper.make_opsetid("", 17)]
    model.functions.extend(helper.make_function("f", f"F{number}", ["a"], [], [], opsets) for number in range(20))
    path = written(tmp_path, model)
    assert load(path, most_nodes=20).units
    with pytest.raises(ModelError, match="more than 19 functions"):
        load(path, most_nodes=19)


def doubling(depth: int) -> onnx.ModelProto:
    """Functions that call the one before them twice: 2 ** depth nodes."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)]
    for number in range(1, depth + 1):
        before = f"F{number - 1}"
        nodes = [helper.make_node(before, ["a"], ["t"], domain="f"), helper.make_node(before, ["t"], ["b"], domain="f")]
        functions.append(helper.make_function("f", f"F{number}", ["a"], ["b"], nodes, opsets))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(f"F{depth}", ["x"], ["y"], domain="f")], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


def test_a_few_functions_that_are_a_billion_nodes(tmp_path: Path) -> None:
    assert "more than 10,000,000 nodes" in refusal(written(tmp_path, doubling(30)))


def test_functions_count_as_often_as_they_are_called(tmp_path: Path) -> None:
    path = written(tmp_path, doubling(5))
    assert load(path, most_nodes=32).units
    with pytest.raises(ModelError, match="more than 31 nodes"):
        load(path, most_nodes=31)
