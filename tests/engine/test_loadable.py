"""Models that are newer than onnxruntime run at lower versions, and compute the same; so do wrongly declared ones."""

from math import inf
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator

from onnxbisect.model.session import Clock, Session
from onnxbisect.model.versions import loadable, versions_changed


def newest(body: str, *, ir: int = 14, opsets: str = '"": 28', inputs: str = "float[1,4,2,2] x") -> onnx.ModelProto:
    return parser.parse_model(f"<ir_version: {ir}, opset_import: [{opsets}]> g ({inputs}) => (float y) {{ {body} }}")


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    session = ort.InferenceSession(loadable(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    "body",
    [
        "y = HardSigmoid(x)",
        'y = SpaceToDepth<blocksize=2, mode="DCR">(x)',
        "two = Constant<value_float = 2.0>() r = Mul(x, two) y = Celu(r)",
        "t = Constant<value = bool {1}>() y = If(t) <then_branch = a () => (float p) { p = HardSigmoid(x) }, "
        "else_branch = b () => (float q) { q = Celu(x) }>",
    ],
)
@pytest.mark.parametrize("ir", [10, 13, 14])
def test_the_lowered_model_computes_the_same(body: str, ir: int) -> None:
    x = np.linspace(-2, 2, 16, dtype=np.float32).reshape(1, 4, 2, 2)
    model = newest(body, ir=ir)
    (expected,) = ReferenceEvaluator(newest(body, ir=13, opsets='"": 26') if "mode" not in body else model).run(
        None, {"x": x}
    )
    np.testing.assert_allclose(run(model, x), np.asarray(expected), rtol=1e-6)


def test_an_op_that_no_older_set_has_is_written_as_what_defines_it() -> None:
    model = parser.parse_model(
        '<ir_version: 14, opset_import: ["": 28]> g (float[1,4,8] x, float[4,1,3] w) => (float[1,4,8] y) '
        "{ y, state = CausalConvWithState(x, w) }"
    )
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=size).astype(np.float32) for name, size in (("x", (1, 4, 8)), ("w", (4, 1, 3)))}
    session = ort.InferenceSession(loadable(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(np.asarray(session.run(None, feeds)[0]), np.asarray(expected), atol=1e-5)


def test_functions_are_of_the_lower_operator_set_too() -> None:
    model = parser.parse_model("""<ir_version: 14, opset_import: ["": 28, "my": 1]>
g (float[2] x) => (float[2] y) { y = my.Twice(x) }
<domain: "my", opset_import: ["": 28]>
Twice (a) => (b) { b = Add(a, a) }""")
    assert run(model, np.ones(2, np.float32)).tolist() == [2, 2]


def test_other_domains_and_types_stay() -> None:
    model = newest("z = ai.onnx.ml.Scaler<offset = [0.0], scale = [2.0]>(x) y = com.x.F(z)")
    model.opset_import.extend([helper.make_opsetid("ai.onnx.ml", 6), helper.make_opsetid("com.x", 99)])
    found = {entry.domain: entry.version for entry in loadable(model).opset_import}
    assert found == {"": 26, "ai.onnx.ml": 5, "com.x": 99}
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 28, "ai.onnx.ml": 6, "com.x": 99}


def test_what_an_older_set_lacks_is_said_by_onnxruntime() -> None:
    model = newest('y = SpaceToDepth<blocksize = 2, mode = "CRD">(x)')
    with pytest.raises(Exception, match="Unrecognized attribute: mode for operator SpaceToDepth"):
        run(model, np.ones((1, 4, 2, 2), np.float32))


def test_an_old_model_stays_itself() -> None:
    model = newest("y = Relu(x)", ir=13, opsets='"": 26')
    assert loadable(model) is model
    assert not versions_changed(model)


def test_the_note_says_each_version_once() -> None:
    assert versions_changed(newest("y = Relu(x)")) == (
        "onnxruntime does not load so new a model, so this program's own runs take it at lower versions: "
        "IR version 14 as 13, operator set 28 as 26."
    )


def test_a_branch_that_gives_another_shape_than_it_declares_runs() -> None:
    """PyTorch's older exporter declares the shape of the one branch for the other, too: scatter_reduce, squeeze."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[40] x, int64[rank] s, bool c) => (float[40] y) {
            z = Reshape (x, s)
            y = If (c) <then_branch = a () => (float[40] p) { p = Identity (x) },
                        else_branch = b () => (float[40] q) { q = Identity (z) }>
        }"""
    )
    feeds = {"x": np.ones(40, np.float32), "s": np.array([5, 8])}
    for flat in (True, False):
        (found,) = Session(model, Path()).run(["y"], {**feeds, "c": np.array(flat)}, Clock(inf))
        assert found.shape == ((40,) if flat else (5, 8))
