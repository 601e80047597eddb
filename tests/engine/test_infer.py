"""Inference writes out no vector of millions of elements, wherever the model has it."""

import time

import onnx.parser
import pytest

from onnxbisect.model.infer import infer

_GROWN = "\n".join(f"t{number + 1} = Concat <axis = 0> (t{number}, t{number})" for number in range(21))
_BRANCH = f"else_branch = e () => (float[] o) {{ t0 = Neg (x) {_GROWN} o = Identity (t21) }}"
_SAME = "then_branch = t () => (float[] p) { p = Relu (x) }"


@pytest.mark.parametrize(
    ("nodes", "functions"),
    [
        (f"t0 = Neg (x) {_GROWN} y = Neg (t21)", ""),
        (f"y = If (c) <{_SAME}, {_BRANCH}>", ""),
        (f"y = If (c) <{_SAME}, else_branch = n () => (float[] q) {{ q = If (c) <{_SAME}, {_BRANCH}> }}>", ""),
        (
            f"""y = Loop (n, c, x) <body = b (int64 i, bool c0, float[4] a) => (bool c1, float[4] b) {{
                c1 = Identity (c0) t0 = Identity (a) {_GROWN} s = ReduceSum <keepdims = 0> (t21) b = Add (a, s) }}>""",
            "",
        ),
        ("y = f.g (x)", f"g (t0) => (b) {{ {_GROWN} b = Neg (t21) }}"),
        (
            f"y = If (c) <{_SAME}, else_branch = n () => (float[] q) {{ q = f.h (x) }}>",
            f"""h (a) => (b) {{ b = f.g (a) }}
                <domain: "f", opset_import: ["": 17]> g (t0) => (b) {{ {_GROWN} b = Neg (t21) }}""",
        ),
    ],
    ids=["graph", "branch", "branch of a branch", "loop", "function", "function of a function in a branch"],
)
def test_long_vectors(nodes: str, functions: str) -> None:
    written = f'<domain: "f", opset_import: ["": 17, "f": 1]> {functions}' if functions else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "f": 1]>
        g (float[4] x, bool c) => (float[] y) <int64 n = {{3}}> {{ {nodes} }} {written}"""
    )
    began = time.process_time()
    infer(model, {}, {})
    assert time.process_time() - began < 0.3
