"""Each rule that a profile can state, kept and broken by one node."""

import onnx
import pytest

from onnxbisect_backends.simulator.profiles import Profile
from onnxbisect_backends.simulator.refusals import Rules, refusals


def reasons(constraint: dict[str, object], body: str, opset: int = 17) -> list[str]:
    """Why a graph with inputs x (float[2,3]), k and i (int64 scalar and vector) is refused under one constraint."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
        f"g (float[2,3] x, int64 k, int64[1] i, float[N] d) => (float y) "
        f"<int64 zero = {{0}}, int64 one = {{1}}, float[1] two = {{2}}, float[2] pair = {{1, 2}}> {{ {body} }}"
    )
    op = proto.graph.node[-1].op_type
    every: dict[str, dict[str, object]] = {node.op_type: {} for node in proto.graph.node}
    ops = {**every, op: {"constraints": [constraint]}}
    profile = Profile.model_validate({"profile": "p", "tool": "t", "version": "1", "source": "s", "ops": ops})
    return [refusal.reason for refusal in refusals(proto, Rules(profile=profile))]


def attr(name, rule, value=(), **more):
    return {"kind": "attr", "name": name, "rule": rule, "value": value, **more}


def inp(name, rule, value=(), **more):
    return {"kind": "input", "name": name, "rule": rule, "value": value, **more}


CASES = [
    # constraint, kept by, broken by
    (attr("alpha", "in", [1.0]), "y = Elu(x)", "y = Elu <alpha: float = 0.5> (x)"),
    (attr("nearest_mode", "in", ["floor"]), 'y = Resize <nearest_mode = "floor"> (x, , two)', "y = Resize(x, , two)"),
    (attr("to", "in", ["FLOAT", "INT32"]), "y = Cast <to = 6> (x)", "y = Cast <to = 7> (x)"),
    (attr("sampling_ratio", "not_in", [0]), "y = RoiAlign <sampling_ratio = 2> (x, x, i)", "y = RoiAlign(x, x, i)"),
    (attr("axis", "in_last", [-1]), "y = LogSoftmax <axis = 1> (x)", "y = LogSoftmax <axis = 0> (x)"),
    (attr("axis", "in_last", [-1]), "y = LogSoftmax(x)", "y = LogSoftmax <axis = -2> (x)"),
    (
        attr("nearest_mode", "in_if_mode_nearest", ["floor"]),
        'y = Resize <mode = "linear"> (x, , two)',
        "y = Resize(x, , two)",
    ),
    (
        attr("dilations", "all_eq", 1),
        "y = MaxPool <kernel_shape = [2], dilations = [1]> (x)",
        "y = MaxPool <kernel_shape = [2], dilations = [2]> (x)",
    ),
    (attr("dilations", "all_eq", 1), "y = MaxPool <kernel_shape = [2]> (x)", None),
    (attr("reduction", "absent"), "y = ScatterND(x, i, x)", 'y = ScatterND <reduction = "none"> (x, i, x)'),
    (attr("keepdims", "absent_or", [1]), "y = ReduceMax <keepdims = 1> (x)", "y = ReduceMax <keepdims = 0> (x)"),
    (attr("kernel_shape", "present"), "y = Conv <kernel_shape = [1]> (x, x)", "y = Conv(x, x)"),
    (attr("mode", "present_in", ["bilinear"]), 'y = GridSample <mode = "bilinear"> (x, x)', "y = GridSample(x, x)"),
    (attr("mode", "present_in", ["bilinear"]), None, 'y = GridSample <mode = "bicubic"> (x, x)'),
    (attr("alpha", "in", [1.0], effect="silent_wrong"), "y = Elu <alpha: float = 0.5> (x)", None),
    (attr("alpha", "note", "words"), "y = Elu <alpha: float = 0.5> (x)", None),
    (inp("indices", "rank_in", [1]), "y = Gather(x, i)", "y = Gather(x, k)"),
    (inp("input", "dtype_in", ["INT64"]), "y = Identity(i)", "y = Identity(x)"),
    (inp("sequence_lens", "absent"), "y = GRU(x, x, x, , )", "y = GRU(x, x, x, , i)"),
    (inp("axis", "initializer"), "y = CumSum(x, one)", "y = CumSum(x, k)"),
    (inp("axis", "initializer"), "c = Constant <value_int = 1> ()  y = CumSum(x, c)", None),
    (inp("Y", "initializer_scalar"), "y = Pow(x, two)", "y = Pow(x, pair)"),
    (inp("Y", "initializer_scalar"), None, "y = Pow(x, x)"),
    (inp("k", "absent_or_const", [0]), "y = Trilu(x, zero)", "y = Trilu(x, one)"),
    (inp("k", "absent_or_const", [0]), "y = Trilu(x)", "y = Trilu(x, k)"),
    (inp("slope", "shape_note", "words"), "y = PRelu(x, x)", None),
    ({"kind": "inputs", "name": "*", "rule": "count_eq", "value": 2}, "y = Max(x, two)", "y = Max(x, two, two)"),
    ({"kind": "inputs", "name": "*", "rule": "count_max", "value": 2}, "y = Max(x)", "y = Max(x, two, two)"),
]


@pytest.mark.parametrize(("constraint", "keeps", "breaks"), CASES)
def test_rule(constraint, keeps, breaks):
    if keeps is not None:
        assert reasons(constraint, keeps) == []
    if breaks is not None:
        (reason,) = reasons(constraint, breaks)
        assert constraint["name"] in reason or constraint["kind"] == "inputs"


def test_an_input_that_this_opset_does_not_have_cannot_be_given():
    """`axes` is input 3 of Pad from opset 18 on."""
    body = "y = Pad(x, i, two, i)"
    assert reasons(inp("axes", "absent"), body, opset=18) != []
    assert reasons(inp("axes", "absent"), "y = Pad(x, i, two)", opset=13) == []


def test_a_rank_that_nothing_tells_is_given_the_benefit_of_the_doubt():
    body = "u = Reshape(x, i)  y = LogSoftmax <axis = 1> (u)"
    assert reasons(attr("axis", "in_last", [-1]), body) == []
