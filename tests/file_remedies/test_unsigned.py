"""Files with unsigned integers, for tools that have signed ones only."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxbisect.file_remedies import REMEDIES, File
from onnxbisect.model.facts import TensorFacts
from onnxbisect.preflight import ToolLimits
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.proof import random_feeds
from onnxbisect.remedies import OrtProver, Samples
from onnxbisect.rewrites import Exactness, NotApplicable
from support.engine.cut_models import read

(REMEDY,) = (it for it in REMEDIES if it.id == "unsigned-to-signed")
TOOL = ToolLimits(tool="tool")
UNSIGNED = {TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32}


def text(signature: str, body: str) -> str:
    return f"""<ir_version: 8, opset_import: ["": 16]> g ({signature} {{ {body} }}"""


@pytest.mark.parametrize(
    ("signature", "body", "exactness"),
    [
        # an image as cameras give it
        (
            "uint8[1,2,4,3] u) => (float[1,3,2,4] y)",
            "t = Transpose <perm = [0, 3, 1, 2]> (u) y = Cast <to = 1> (t)",
            Exactness.EXACT,
        ),
        # a mask of classes
        (
            "float[1,5,2,4] x) => (uint8[1,2,4] m)",
            "a = ArgMax <axis = 1, keepdims = 0> (x) m = Cast <to = 2> (a)",
            Exactness.EXACT,
        ),
        ("float[2,4] x) => (uint16[2,4] m)", "a = IsNaN (x) m = Cast <to = 4> (a)", Exactness.EXACT),
        ("float[2,4] x) => (uint32[2,4] m)", "a = Abs (x) m = Cast <to = 12> (a)", Exactness.DOMAIN),
        (
            "float[1,300,2] x) => (uint8[1,2] m)",
            "a = ArgMax <axis=1,keepdims=0> (x) m = Cast<to=2>(a)",
            Exactness.DOMAIN,
        ),
        # a palette, and a colour that is compared
        (
            "int64[4] i, uint8[3] c) => (bool[4,3] y, uint8[4,3] p)",
            "k = Constant <value = uint8[2,3] {0, 128, 255, 1, 2, 3}> () p = Gather (k, i) y = Equal (p, c)",
            Exactness.EXACT,
        ),
        # the lower byte of a number
        ("uint16[3] c) => (uint8[3] y)", "y = Cast <to = 2> (c)", Exactness.DOMAIN),
        ("uint8[3] c) => (uint16[3] y)", "y = Cast <to = 4> (c)", Exactness.EXACT),
        (
            "bool b, uint8[3] c) => (uint8[3] p)",
            "p = If (b) <then_branch = t () => (uint8[3] q) { q = Identity (c) },"
            " else_branch = e () => (uint8[3] r) { r = Constant <value = uint8[3] {9, 200, 255}> () }>",
            Exactness.EXACT,
        ),
    ],
)
def test_a_file_with_signed_integers_is_made_and_proven(
    tmp_path: Path, signature: str, body: str, exactness: Exactness
) -> None:
    model = read(tmp_path, text(signature, body))
    changed = REMEDY.apply(File.of(model), TOOL)
    assert changed.exactness is exactness
    onnx.checker.check_model(changed.proto, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(changed.proto).graph
    kinds = {it.type.tensor_type.elem_type for it in (*inferred.input, *inferred.output, *inferred.value_info)}
    assert not UNSIGNED & kinds
    original = onnx.load(model.path)
    random = np.random.default_rng(0)

    def whole_range(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "u":
            return array
        return random.integers(0, np.iinfo(array.dtype).max, array.shape, array.dtype, endpoint=True)

    made_up = random_feeds(original.graph.input, 3)
    samples = [{name: whole_range(array) for name, array in sample.items()} for sample in made_up]
    proof = OrtProver(original, TensorFacts.of(model), lambda: Samples(usual=samples), folder=tmp_path)
    compared = proof.compared(changed.proto)
    assert compared.holds, compared
    assert all(not it.absolute and not it.beyond for it in compared.outputs)


@pytest.mark.parametrize(
    "body",
    [
        "y = Add (c, c)",
        "y = If (b) <then_branch = t () => (uint8[3] q) { i = Identity (c) j = Reshape (i, whole) q = Add (j, j) },"
        " else_branch = e () => (uint8[3] r) { r = Identity (c) }>",
        "y = If (b) <then_branch = t () => (uint8[3] q) { i = Constant <value = uint8[3] {9, 200, 255}> ()"
        " j = Add (i, i) q = Identity (j) }, else_branch = e () => (uint8[3] r) { r = Identity (c) }>",
        "y = If (b) <then_branch = t () => (uint8[3] q) { i = Cast <to = 2> (x) q = Mul (i, i) },"
        " else_branch = e () => (uint8[3] r) { r = Identity (c) }>",
    ],
)
def test_arithmetic_that_wraps_stays(tmp_path: Path, body: str) -> None:
    """Of tensors within a branch nobody declares the type."""
    constants = "whole = Constant <value = int64[1] {3}> ()"
    model = read(tmp_path, text("bool b, float[3] x, uint8[3] c) => (uint8[3] y)", f"{constants} {body}"))
    with pytest.raises(NotApplicable, match=r"(Add|Mul) computes with unsigned integers"):
        REMEDY.apply(File.of(model), TOOL)


def test_a_tool_that_takes_uint8_gets_no_other(tmp_path: Path) -> None:
    model = read(tmp_path, text("uint8[3] c) => (float[3] y)", "y = Cast <to = 1> (c)"))
    takes = ToolLimits(tool="tool", probe_format=ProbeFormat(input_dtypes=frozenset({"float", "uint8"})))
    with pytest.raises(NotApplicable, match="tool is known to take uint8"):
        REMEDY.apply(File.of(model), takes)
