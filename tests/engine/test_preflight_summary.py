"""`inspect`: a model at a glance."""

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.model import load
from onnxbisect.preflight import inspect
from onnxbisect.preflight.subject import type_text

MODEL = """<ir_version: 8, opset_import: ["" : 17, "acme" : 2], producer_name: "me">
g (float[1,3,8,8] x) => (float[1,3,8,8] y, int64[N] s) <float[3,3,1,1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
    a = Conv(x, w)  b = Relu(a)  c = Relu(b)  one = Constant <value = float {1.0}> ()  d = Add(c, one)
    y = acme.Act(d)  s = Shape(y)
}"""


def test_counts_units_variants_and_domains(tmp_path):
    path = tmp_path / "glance.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    model = load(path)
    seen = inspect(model)
    rows = {row.op: (row.domain, row.units, row.variants) for row in seen.ops}
    assert rows["Relu"] == ("ai.onnx", 2, 1)
    assert rows["acme::Act"] == ("acme", 1, 1)
    assert "Constant" not in rows
    assert seen.ops[0].op == "Relu"
    assert (seen.nodes, seen.units, seen.initializers) == (7, 6, 1)
    assert seen.variants == len(set(model.universe.variant))
    assert seen.opsets == (("acme", 2), ("ai.onnx", 17))
    assert [(t.name, t.type) for t in seen.inputs] == [("x", "float32[1,3,8,8]")]
    assert (seen.name, seen.producer, seen.sha256) == ("glance.onnx", "me", model.sha256)
    assert seen.notes == model.notes
    assert "custom-domain" in {finding.id for finding in seen.findings}


TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, "batch", None])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TENSOR, "float32[1,batch,?]"),
        (helper.make_tensor_type_proto(TensorProto.INT64, []), "int64[]"),
        (helper.make_tensor_type_proto(TensorProto.BFLOAT16, None), "bfloat16[…]"),
        (helper.make_sequence_type_proto(TENSOR), "sequence(float32[1,batch,?])"),
        (helper.make_optional_type_proto(TENSOR), "optional(float32[1,batch,?])"),
        (onnx.TypeProto(), "?[…]"),
    ],
)
def test_types_are_told_in_words(kind, text):
    assert type_text(kind) == text
