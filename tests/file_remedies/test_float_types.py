"""Files in double or bfloat16, for tools that compute in float32 or less."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import onnx_bisect
from onnx_bisect import Status, Verdict
from onnxbisect.file_remedies import REMEDIES, File
from onnxbisect.model.facts import TensorFacts
from onnxbisect.preflight import ToolLimits
from onnxbisect.proof import edge_feeds, random_feeds
from onnxbisect.remedies import OrtProver, Samples
from onnxbisect.rewrites import NotApplicable
from support.engine.cut_models import read

(REMEDY,) = (it for it in REMEDIES if it.id == "floats-in-float32")

#: Attention as torch writes it out: a mask of a branch, a Cast up and down, and weights.
NET = """<ir_version: 10, opset_import: ["": 21]>
net ({kind}[2,8] x, bool wide) => ({kind}[2,4] y, float[2,8] up)
<{kind}[8,4] w, {kind} zero = {{0}}> {{
    up = Cast<to = 1>(x)
    s = Softmax<axis = 1>(up)
    p = CastLike(s, x)
    b = If(wide) <
        then_branch = yes () => ({kind}[2,8] t) {{ t = Mul(p, x) }},
        else_branch = no () => ({kind}[2,8] e) {{ c = Constant<value = {kind} {{2}}>() e = Mul(p, c) }}
    >
    m = MatMul(b, w)
    y = Max(m, zero)
}}"""


def net(kind: str, tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(NET.format(kind=kind))
    number = TensorProto.DataType.Value({"double": "DOUBLE", "bfloat16": "BFLOAT16"}[kind])
    weights = np.random.default_rng(0).normal(size=(8, 4)).astype(onnx.helper.tensor_dtype_to_np_dtype(number))
    del proto.graph.initializer[:]
    zero = np.zeros((), weights.dtype)
    proto.graph.initializer.extend([numpy_helper.from_array(weights, "w"), numpy_helper.from_array(zero, "zero")])
    path = tmp_path / f"{kind}.onnx"
    onnx.save(proto, path)
    return path


def elements(proto: onnx.ModelProto) -> set[int]:
    kinds = {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    return kinds | {tensor.data_type for tensor in proto.graph.initializer}


@pytest.mark.parametrize("kind", ["double", "bfloat16"])
def test_a_file_in_float32_is_made_and_proven(kind: str, tmp_path: Path) -> None:
    model = read(tmp_path, onnx.load(net(kind, tmp_path)))

    changed = REMEDY.apply(File.of(model), ToolLimits(tool="tool"))

    assert changed.sentence == f"{kind} tensors made float32, of inputs and outputs as well"
    onnx.checker.check_model(changed.proto, full_check=True)
    assert elements(changed.proto) == {TensorProto.FLOAT, TensorProto.BOOL}
    original = onnx.load(model.path)
    samples = Samples(
        usual=[*random_feeds(original.graph.input, 3)], edge=[*edge_feeds(original.graph.input, 2, edges=(0, -1, 20))]
    )
    proof = OrtProver(original, TensorFacts.of(model), lambda: samples, folder=tmp_path).compared(changed.proto)
    assert {it.output for it in proof.outputs} == {"y", "up"}
    assert proof.holds, proof


def test_a_file_in_float32_or_float16_stays(tmp_path: Path) -> None:
    for kind in ("float", "float16"):
        text = f"""<ir_version: 10, opset_import: ["": 21]> g ({kind}[2] x) => ({kind}[2] y) {{ y = Relu(x) }}"""
        with pytest.raises(NotApplicable, match="neither double nor bfloat16"):
            REMEDY.apply(File.of(read(tmp_path, text)), ToolLimits(tool="tool"))


def test_numbers_that_float32_does_not_have_stay(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (double[2] x) => (double[2] y) <double big = {1e60}> {
        y = Mul(x, big)
    }"""
    with pytest.raises(NotApplicable, match="beyond float32"):
        REMEDY.apply(File.of(read(tmp_path, text)), ToolLimits(tool="tool"))


@pytest.mark.parametrize("kind", ["double", "bfloat16"])
def test_fix_tries_it_for_a_tool_that_refuses_the_type(kind: str, tmp_path: Path) -> None:
    refused = TensorProto.DataType.Value(kind.upper())

    def takes_float32(path: Path) -> Verdict:
        """Silent, as most are."""
        inferred = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
        kinds = {it.type.tensor_type.elem_type for it in (*inferred.input, *inferred.output, *inferred.value_info)}
        held = {it.data_type for it in inferred.initializer}
        return Verdict(status=Status.FAIL if refused in kinds | held else Status.PASS)

    result = onnx_bisect.fix(net(kind, tmp_path), backend=takes_float32, budget_calls=20)

    assert result.compiles
    assert result.document.file_change is not None
    assert f"{kind} tensors made float32" in result.document.file_change.sentence
    assert result.document.file_change.exactness is onnx_bisect.Exactness.ROUNDING
