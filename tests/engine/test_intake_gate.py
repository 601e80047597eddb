"""What the gate of intake refuses: everything that later code takes for granted, each in one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper, parser

from onnxbisect.errors import ModelError
from onnxbisect.model import load

#: Changes a well-formed model into one that cannot be worked with.
Spoil = Callable[[onnx.ModelProto], object]

PLAIN = """<ir_version: 9, opset_import: ["": 17, "f": 1]>
g (float[2,3] x, bool c) => (float[2,3] y)
<float[3] w = {1, 2, 3}, int64[1] axes = {0}>
{
   k = Constant <value = float {2}> ()
   t = Mul (x, w)
   u = Mul (t, k)
   v = If (c) <then_branch = b1 () => (float[2,3] a) { a0 = Relu (u)  a = Relu (a0) },
               else_branch = b2 () => (float[2,3] b) { b = Neg (u) }>
   y = f.twice (v)
}
<domain: "f", opset_import: ["": 17, "f": 1]>
twice (a) => (b) { t = Abs (a)  b = Abs (t) }
"""


def plain() -> onnx.ModelProto:
    return parser.parse_model(PLAIN)


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        load(path)
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert text.isprintable()
    assert len(text) < 400
    return text


def weight(model: onnx.ModelProto) -> TensorProto:
    return model.graph.initializer[0]


def filled(tensor: TensorProto, **fields: Any) -> None:
    """Replace what a tensor holds, but for its name where none is given."""
    tensor.CopyFrom(TensorProto(**{"name": tensor.name, **fields}))


def constant(model: onnx.ModelProto) -> onnx.NodeProto:
    return model.graph.node[0]


def branch(model: onnx.ModelProto) -> onnx.GraphProto:
    return model.graph.node[3].attribute[0].g


def read_in_a_nested_body(model: onnx.ModelProto) -> None:
    inner = helper.make_graph([helper.make_node("Abs", ["a"], ["s"])], "inner", [], [branch(model).output[0]])
    inner.output[0].name = "s"
    branch(model).node.insert(0, helper.make_node("If", ["c"], ["r"], then_branch=inner, else_branch=inner))


def call_itself(model: onnx.ModelProto) -> None:
    node = model.functions[0].node[0]
    node.op_type, node.domain = "twice", "f"


def chain(model: onnx.ModelProto, length: int, calls: int = 1) -> None:
    """Functions that each call the one before."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    for number in range(length):
        called = f"F{number - 1}" if number else "twice"
        tensors = ["a", *(f"t{place}" for place in range(calls - 1)), "b"]
        nodes = [helper.make_node(called, tensors[i : i + 1], tensors[i + 1 : i + 2], domain="f") for i in range(calls)]
        model.functions.append(helper.make_function("f", f"F{number}", ["a"], ["b"], nodes, imports))
    model.graph.node[4].op_type = f"F{length - 1}"


def set_type(model: onnx.ModelProto, dtype: int) -> None:
    model.graph.output[0].type.tensor_type.elem_type = dtype


def equation(model: onnx.ModelProto) -> None:
    model.graph.node[1].CopyFrom(helper.make_node("Einsum", ["x"], ["t"], equation="." * 30_000))


SPOILED: dict[str, tuple[Spoil, str]] = {
    "unknown element type": (lambda m: setattr(weight(m), "data_type", 99), "the element type 99"),
    "undefined element type": (lambda m: setattr(weight(m), "data_type", 0), "the element type 0"),
    "negative element type": (lambda m: setattr(weight(m), "data_type", -1), "the element type -1"),
    "too few raw bytes": (
        lambda m: filled(weight(m), data_type=1, dims=[3], raw_data=b"1234567"),
        "has 7 bytes of data, and its type and shape demand 12",
    ),
    "too few elements": (lambda m: filled(weight(m), data_type=1, dims=[3], float_data=[1.0]), "do not fit"),
    "no data": (lambda m: filled(weight(m), data_type=1, dims=[3]), "do not fit"),
    "negative dimension": (
        lambda m: filled(weight(m), data_type=1, dims=[-1, 3], float_data=[1.0, 2.0, 3.0]),
        "the impossible shape [-1, 3]",
    ),
    "2^62 elements": (lambda m: filled(weight(m), data_type=1, dims=[1 << 62, 0]), "the impossible shape"),
    "2^80 elements": (lambda m: filled(weight(m), data_type=1, dims=[1 << 40, 1 << 40]), "do not fit"),
    "strings that are not UTF-8": (
        lambda m: filled(weight(m), data_type=8, dims=[2], string_data=[b"a", b"\xff\xfe"]),
        "do not fit",
    ),
    "strings as raw data": (
        lambda m: filled(weight(m), data_type=8, dims=[2], raw_data=b"aaaa"),
        "do not fit",
    ),
    "a weight of a branch": (
        lambda m: branch(m).initializer.append(TensorProto(name="w2", data_type=99)),
        "Tensor 'w2' has the element type 99",
    ),
    "a constant without a value": (lambda m: constant(m).ClearField("attribute"), "holds 0 values"),
    "a constant of two values": (
        lambda m: constant(m).attribute.append(helper.make_attribute("value_int", 1)),
        "holds 2 values",
    ),
    "a constant of two outputs": (lambda m: constant(m).output.append("k2"), "has 2 outputs"),
    "a tensor as a number": (
        lambda m: setattr(constant(m).attribute[0], "name", "value_int"),
        "a value of another type than 'value_int' says",
    ),
    "a node without outputs": (lambda m: m.graph.node.append(helper.make_node("Relu", ["x"], [])), "has no output"),
    "an operator without its input": (
        lambda m: m.graph.node[3].ClearField("input"),
        "has no input, which its operator",
    ),
    "an attribute of no function": (
        lambda m: setattr(constant(m).attribute[0], "ref_attr_name", "alpha"),
        "takes its attribute 'value' from a function, but is in none",
    ),
    "a node without an operator": (lambda m: setattr(m.graph.node[1], "op_type", ""), "names no operator"),
    "an attribute without a type": (
        lambda m: m.graph.node[1].attribute.append(AttributeProto(name="alpha", f=1.0)),
        "the attribute 'alpha' without a type",
    ),
    "a name made twice in a branch": (
        lambda m: branch(m).node[1].output.__setitem__(0, "u"),
        "reads tensor 'u' before it makes one of that name",
    ),
    "a name that a body reads before the body around it makes it": (
        read_in_a_nested_body,
        "reads tensor 'a' before it makes one of that name",
    ),
    "an unknown declared type": (lambda m: set_type(m, 65536), "the element type 65536"),
    "a declared dimension of 2^62": (
        lambda m: setattr(m.graph.output[0].type.tensor_type.shape.dim[0], "dim_value", 1 << 62),
        "a dimension of 4611686018427387904",
    ),
    "an input without a type": (lambda m: m.graph.input[0].ClearField("type"), "declared without a type"),
    "an input without an element type": (
        lambda m: m.graph.input[0].type.tensor_type.ClearField("elem_type"),
        "declared without a type",
    ),
    "a function of no version": (
        lambda m: setattr(m.functions[0].opset_import[0], "version", 1 << 40),
        "Function 'twice' imports version 1099511627776",
    ),
    "two functions of one name": (
        lambda m: m.functions.add().CopyFrom(m.functions[0]),
        "defines the function 'twice' more than once",
    ),
    "a function that calls itself": (call_itself, "Function 'twice' calls itself"),
    "3000 functions in a chain": (lambda m: chain(m, 3000), "more than 32 levels deep"),
    "functions that multiply": (lambda m: chain(m, 15, calls=2), "65,536 nodes when they are inlined"),
    "an endless equation": (equation, "an equation of 30,000 characters"),
    "a name to forge a log with": (
        lambda m: filled(weight(m), data_type=99, name="\x1b[2J" + "n" * 1000),
        r"Tensor '\x1b[2Jnnn",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), SPOILED.values(), ids=SPOILED)
def test_a_model_that_cannot_be_worked_with(tmp_path: Path, spoil: Spoil, words: str) -> None:
    model = plain()
    spoil(model)
    assert words in refusal(model, tmp_path)


def test_the_model_itself_passes(tmp_path: Path) -> None:
    onnx.save(plain(), tmp_path / "model.onnx")
    assert len(load(tmp_path / "model.onnx").units) == 4


@pytest.mark.parametrize(
    "dtype", sorted(set(TensorProto.DataType.values()) - {0, TensorProto.STRING}), ids=TensorProto.DataType.Name
)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_tensors_of_every_type_pass(tmp_path: Path, dtype: int, *, raw: bool) -> None:
    values = np.array([1, 0, 1]).astype(helper.tensor_dtype_to_np_dtype(dtype))
    tensor = numpy_helper.from_array(values, "w")
    if not raw:
        tensor = helper.make_tensor("w", dtype, [3], [1, 0, 1])
    model = plain()
    model.graph.initializer[1].CopyFrom(tensor)
    model.graph.initializer[1].name = "axes"
    onnx.save(model, tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx").proto.graph.initializer[1].data_type == dtype


def test_a_constant_may_say_more_than_its_value(tmp_path: Path) -> None:
    model = plain()
    model.graph.node[0].attribute.insert(0, helper.make_attribute("origin", "an exporter"))
    onnx.save(model, tmp_path / "model.onnx")
    assert len(load(tmp_path / "model.onnx").units) == 4


def test_large_weights_in_typed_fields_are_measured(tmp_path: Path) -> None:
    model = plain()
    filled(weight(model), data_type=TensorProto.FLOAT, dims=[5000], float_data=[1.0] * 4999)
    assert "do not fit" in refusal(model, tmp_path)
