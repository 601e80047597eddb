"""Which inputs the preflight suggests to bind, with what value."""

from pathlib import Path

import pytest
from onnx import parser

from onnxbisect.model import load
from onnxbisect.model.input_values import binding_advice, deciding_inputs

WEIGHTS = (
    "int64 z = {0}, int64[1] flat = {-1}, float[1,4,2] weights = {1,1,1,1,1,1,1,1}, float[1,4,1] again = {1,1,1,1}"
)


def suggested(folder: Path, signature: str, body: str, constants: str = WEIGHTS) -> list[str]:
    path = folder / "model.onnx"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({signature}) => (float[Q] y) <{constants}> {{ {body} }}'
    path.write_bytes(parser.parse_model(text).SerializeToString())
    model = load(path)
    return [binding_advice(it) for it in deciding_inputs(model.proto.graph, model.known)]


IF = """[branch] y = If (c) <then_branch = t () => (float[Q] a) { a = Relu (x) },
                             else_branch = e () => (float[Q] b) { b = Neg (x) }>"""


@pytest.mark.parametrize(
    ("signature", "body", "said"),
    [
        (
            "float[4] x, int64 sr",
            f"c = Equal (sr, z)\n{IF}",
            "If branch depends only on the scalar input 'sr', which is compared with 0: --input-value sr=0",
        ),
        (
            "float[4] x, int32[1] sr",
            f"s = Squeeze (sr)\n i = Cast <to = 7> (s)\n c = Less (z, i)\n{IF}",
            "If branch depends only on the input 'sr', which is compared with 0: --input-value sr=0",
        ),
        ("float[4] x, bool c", IF, "If branch depends only on the scalar input 'c': --input-value c=true"),
        (
            "float[4] x, int64[2] s",
            "[r] y = Reshape (x, s)",
            "Reshape r depends only on the input 's': --input-value s=…,…",
        ),
        ("float[4] x, int64[1] k", "[t] y, i = TopK (x, k)", "TopK t depends only on the input 'k': --input-value k=…"),
        (
            "float[4,1,2] x, int64[1] k",
            """i = Cast <to = 6> (k)
            [lstm] l = LSTM <hidden_size = 1> (x, weights, again, , i)
            y = Reshape (l, flat)""",
            "LSTM lstm depends only on the input 'k': --input-value k=…",
        ),
        (
            "float[4,1] x, int64[1] k",
            "[r] a = ReverseSequence (x, k)\n y = Reshape (a, flat)",
            "ReverseSequence r depends only on the input 'k': --input-value k=…",
        ),
        (
            "float[4] x, int64 n",
            """i = Identity (n)
            [loop] y = Loop (i, , x) <body = l (int64 r, bool g, float[4] v) => (bool h, float[4] w) {
                h = Identity (g) w = Neg (v) }>""",
            "Loop loop depends only on the scalar input 'n': --input-value n=…",
        ),
        (
            "float[4] x, bool c, int64 sr",
            """[outer] y = If (c) <
                then_branch = t () => (float[Q] a) {
                    k = Constant <value = int64 {16000}> ()
                    q = Equal (sr, k)
                    [inner] a = If (q) <then_branch = u () => (float[Q] d) { d = Relu (x) },
                                        else_branch = v () => (float[Q] f) { f = Sin (x) }> },
                else_branch = e () => (float[Q] b) { b = Neg (x) }>""",
            "If inner depends only on the scalar input 'sr', which is compared with 16000: --input-value sr=16000",
        ),
    ],
)
def test_an_input_that_decides_something_alone_is_suggested(
    tmp_path: Path, signature: str, body: str, said: str
) -> None:
    assert said in suggested(tmp_path, signature, body)


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("float[4] x, float[9] m", f"r = ReduceMax <keepdims = 0> (m)\n q = Cast <to = 9> (r)\n c = Not (q)\n{IF}"),
        ("float[4] x, float[N] m", f"s = Size (m)\n c = Equal (s, z)\n{IF}"),
        ("float[4] x, int64 sr", "y = Relu (x)"),
        ("float[4] x, float[9] m, int64 k", f"r = ArgMax <keepdims = 0> (m)\n c = Equal (r, k)\n{IF}"),
    ],
)
def test_a_large_input_and_one_that_decides_nothing_are_not(tmp_path: Path, signature: str, body: str) -> None:
    assert suggested(tmp_path, signature, body) == []
