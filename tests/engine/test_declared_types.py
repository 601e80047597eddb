"""float16 and bfloat16 graphs are computed in their own type, as ONNX defines it, not in float32."""

from collections.abc import Mapping
from math import inf
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxbisect.model.session import Clock, Session, in_declared_types, narrow_types
from onnxbisect.proof import compare, random_feeds

STD = "a = Mul(x, k) b = Mul(a, a) c = ReduceMean<axes=[1]>(b) d = Sqrt(c) y = Div(a, d)"
CHAINS = {
    "overflow": (STD, 17),
    "Relu": ("a = Relu(x) y = Add(a, k)", 17),
    "Softmax": ("a = Mul(x, k) b = Mul(a, a) y = Softmax(b)", 17),
    "LayerNormalization": ("a = Mul(x, k) b = Mul(a, k) y = LayerNormalization(b, k)", 17),
    "in a branch": (
        """s = ReduceSum<keepdims=0>(x) z = Sub(s, s) q = Equal(z, z)
        y = If(q) <then_branch = t () => (f16[2,4] o) { p = Mul(x, k) u = Mul(p, p) v = Sqrt(u) o = Sub(v, p) },
        else_branch = e () => (f16[2,4] o2) { o2 = Relu(x) }>""",
        17,
    ),
    "moved": ("a = Mul(x, k) b = Transpose<perm=[1,0]>(a) c = Mul(b, b) d = Sqrt(c) y = Transpose<perm=[1,0]>(d)", 17),
    "Concat and Split": (
        "a = Mul(x, k) b = Concat<axis=0>(a, x) c, d = Split<axis=0>(b) e = Mul(c, c) y = Add(e, d)",
        13,
    ),
    "Cast": ("a = Mul(x, k) b = Mul(a, a) c = Cast<to=1>(b) d = Sqrt(c) e = Cast<to=TYPE>(d) y = Div(a, e)", 17),
    "ConstantOfShape": ("w = ConstantOfShape<value = f16[1] {3}>(n) a = Mul(x, k) y = Mul(a, w)", 17),
    "two readers": ("a = Mul(x, k) b = Mul(a, a) c = Sqrt(b) d = Exp(b) e = Min(d, k) y = Add(c, e)", 17),
}


def model(text: str, opset: int, kind: str) -> onnx.ModelProto:
    number = {"float16": "10", "bfloat16": "16", "float": "1", "double": "11"}[kind]
    body = text.replace("f16", kind).replace("TYPE", number)
    header = f'<ir_version: 10, opset_import: ["": {opset}]>'
    return onnx.parser.parse_model(
        f"""{header} g ({kind}[2,4] x) => ({kind}[2,4] y)
        <{kind}[4] k = {{600, 500, 700, 900}}, int64[2] n = {{2, 4}}> {{ {body} }}"""
    )


def values(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    (found,) = Session(proto, Path()).run(["y"], feeds, Clock(inf))
    return np.asarray(found)


@pytest.mark.parametrize("name", CHAINS)
def test_float16_is_rounded_after_each_node_as_the_standard_has_it(name: str) -> None:
    proto = model(*CHAINS[name], "float16")
    onnx.checker.check_model(proto, full_check=True)
    (sample,) = random_feeds(proto.graph.input, 1)
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(proto).run(None, dict(sample))
    found = values(proto, sample)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(float), np.asarray(expected).astype(float), rtol=4e-3, atol=1e-3)


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in ("ConstantOfShape",)])
def test_bfloat16_runs_and_is_rounded_after_each_node(name: str) -> None:
    proto = model(*CHAINS[name], "bfloat16")
    (sample,) = random_feeds(proto.graph.input, 1)
    found = values(proto, sample)
    assert found.dtype == np.float32
    assert np.array_equal(found, found.astype(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)
    exact = values(model(*CHAINS[name], "float"), sample)
    assert not np.array_equal(found, exact)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_other_types_are_left_alone(kind: str) -> None:
    proto = model(STD, 17, kind)
    assert not narrow_types(proto)
    assert in_declared_types(proto) is proto


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_model_that_overflows_in_its_type_does_not_agree_with_its_original(kind: str) -> None:
    """In bfloat16 nothing overflows, but a difference of nearly equal numbers is lost."""
    text = STD if kind == "float16" else "a = Add(x, k) b = Sub(a, k) y = Relu(b)"
    before = model(text, 17, "float")
    cast = {"float16": "10", "bfloat16": "16"}[kind]
    inner = text.replace("(x", "(x0").replace("y =", "z =")
    after = model(
        f"x0 = Cast<to={cast}>(x) k0 = Cast<to={cast}>(k) {inner.replace('k)', 'k0)')} y = Cast<to=1>(z)", 17, "float"
    )
    found = compare(before, after, random_feeds(before.graph.input, 2))
    assert not found.agrees
    assert found.differences[0].absolute > 0.5


def test_functions_are_rounded_within() -> None:
    proto = model("y = acme.Std(x, k)", 17, "float16")
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    body = model(STD, 17, "float16").graph
    proto.functions.append(
        onnx.helper.make_function("acme", "Std", ["x", "k"], ["y"], list(body.node), [onnx.helper.make_opsetid("", 17)])
    )
    (sample,) = random_feeds(proto.graph.input, 1)
    assert np.array_equal(values(proto, sample), values(model(STD, 17, "float16"), sample), equal_nan=True)


def test_weights_outside_of_the_file_are_found(tmp_path: Path) -> None:
    proto = model(STD, 17, "float16")
    (tensor,) = [it for it in proto.graph.initializer if it.name == "k"]
    raw = numpy_helper.to_array(tensor).tobytes()
    (tmp_path / "weights").write_bytes(raw)
    inside = values(proto, next(random_feeds(proto.graph.input, 1)))
    tensor.ClearField("int32_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights"), ("offset", "0"), ("length", str(len(raw)))):
        tensor.external_data.add(key=key, value=value)
    (found,) = Session(proto, tmp_path).run(["y"], next(random_feeds(proto.graph.input, 1)), Clock(inf))
    assert np.array_equal(found, inside, equal_nan=True)
