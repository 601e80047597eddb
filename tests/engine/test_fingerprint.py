"""Fingerprints: the same complaint about another piece of the model is the same complaint."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.fingerprint import brief, fingerprint, headline, plain

# verbatim texts of real compilers
ORT = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Foo({n}) node with name '{name}'"
RKNN = (
    "ValueError: The input {n} of Expand('{name}') need to be constant! It will cause the graph to be a dynamic graph!"
)
RKNN_RANK = "Invalid rank for input: /{name}_output_{n} Got: {n} Expected: {n}"
QNN = "2026-11-20 20:10:{n:02d}.{n} [E:onnxruntime:, qnn_execution_provider.cc:{n} Get] Unsupported node {name}"
IREE = "/work/{name}/m.mlir:{n}:11: error: failed to legalize operation 'torch.operator' in %{n} at 0x7fff{n:08x}"
TEXTS = [ORT, RKNN, RKNN_RANK, QNN, IREE]

NAMES = st.from_regex(r"(/?[a-z]{1,8}(\.[0-9]{1,2})?/)?[A-Z][A-Za-z]{1,8}_[0-9]{1,4}", fullmatch=True)


@pytest.mark.parametrize("text", TEXTS)
@given(names=st.tuples(NAMES, NAMES), numbers=st.tuples(st.integers(0, 59), st.integers(0, 59)))
def test_names_and_numbers_do_not_matter(text: str, names: tuple[str, str], numbers: tuple[int, int]) -> None:
    first, second = (fingerprint(text.format(name=name, n=number)) for name, number in zip(names, numbers, strict=True))

    assert first == second


def test_different_complaints_differ() -> None:
    assert len({fingerprint(text.format(name="Conv_1", n=1)) for text in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # what stays: op types, dtypes, codes, the words of a quoted message
        (
            "E RKNN: Not Support Dtype: 2. please check precision!",
            "E RKNN: Not Support Dtype: #. please check precision!",
        ),
        ("E19010: No parser for Op [Det] of float32", "E19010: No parser for Op [Det] of float32"),
        (
            "KeyError: 'No translation registered for op type onnx_einsum.'",
            "KeyError: No translation registered for op type onnx_einsum.",
        ),
        ("the model wasn't converted and isn't ok", "the model wasn't converted and isn't ok"),
        # what goes
        ("Emitter for Clip_8.clamp(Clip)[Clamp] is not found", "Emitter for <name>(Clip)[Clamp] is not found"),
        ("cannot read /tmp/w1/probe.onnx or ../x/y.bin", "cannot read <name> or <name>"),
        ("tensor<4x8x?xf32> at layers.0.norm and onnx::MatMul_345", "tensor<#xf32> at <name> and <name>"),
        ("\x1b[31mE 18:09:38.123\x1b[0m bad\ttab", "E <time> bad tab"),
        ("object d41d8cd98f00b204e9800998ecf8427e at 0xDEADbeef", "object # at #"),
        ("took -1.5e-3 s", "took # s"),
        # lists count as one
        ("FAIL ['n5', 'n9', 'n11']", "FAIL [<name>]"),
        ("shape [1, 3, 224, 224]", "shape [#]"),
        ("", ""),
    ],
)
def test_what_stays_and_what_goes(text: str, expected: str) -> None:
    assert fingerprint(text) == expected


@given(st.text(max_size=600))
def test_any_text_gives_a_short_printable_line(text: str) -> None:
    for said, most in [(fingerprint(text), 200), (headline(text), 300)]:
        assert len(said) <= most
        assert "\n" not in said
        assert "\x1b" not in said
        said.encode()


@pytest.mark.parametrize("piece", ["a/", "'", "a_1.", "0", "x:", "\x1b[", "\x1b]", "x\n", "1,", "name ", "../", "%"])
def test_hostile_logs_cost_little(piece: str) -> None:
    log = piece * (2_000_000 // len(piece))
    begun = time.process_time()

    fingerprint(headline(log))
    fingerprint(log)

    assert time.process_time() - begun < 3


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("start\nTraceback (most recent call last):\n  File 'x'\nValueError: no good\n\n", "ValueError: no good"),
        ("Error: Det is unknown\ncleaning up\nbye", "Error: Det is unknown"),
        ("first\nlast\n\n", "last"),
        ("E: bad op failed\n0 errors, 1 warning", "E: bad op failed"),
        ("10%\r50%\rerror: at half\r100%\r\n", "error: at half"),
        ("These Op Not Support: ONNX::Det\nConverted", "These Op Not Support: ONNX::Det"),
        ("\x1b[31merror:\x1b[0m red\x07\u202egnp", "error: redgnp"),
        ("", ""),
        (" \n\t\n", ""),
    ],
)
def test_the_headline_is_the_line_to_read(log: str, expected: str) -> None:
    assert headline(log) == expected


_CORE = "/onnxruntime_src/onnxruntime/core"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"Exception during initialization: {_CORE}/graph/graph.cc:6489 onnxruntime::common::Status "
            "onnxruntime::Graph::InlineIfSubgraph(bool, onnxruntime::Node&, const onnxruntime::logging::Logger&) "
            "Node's: a input: b is not If node's input (of then_branch)",
            "Exception during initialization: Node's: a input: b is not If node's input (of then_branch)",
        ),
        (
            f"Load model from m.onnx failed:{_CORE}/graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, "
            "const onnxruntime::PathString&, const onnxruntime::IOnnxRuntimeOpSchemaRegistryList*) "
            "Unsupported model IR version: 14, max supported IR version: 13",
            "Load model from m.onnx failed:Unsupported model IR version: 14, max supported IR version: 13",
        ),
        (
            f"error: {_CORE}/x.h:9 T onnxruntime::Reduce<T>::Run(std::function<void(int)>, int64_t) const "
            "[with T = float] axis 3 is out of range",
            "error: axis 3 is out of range",
        ),
        (
            f"error: {_CORE}/x.cc:9 onnxruntime::Loop::Run()::<lambda(int)> no loop",
            "error: no loop",
        ),
        (r"error: C:\a\_work\1\s\x.cc:12 onnxruntime::Gather::Compute(int) bad index", "error: bad index"),
        ("/src/lower.cpp:12:3: error: no lowering (Det)", "/src/lower.cpp:12:3: error: no lowering (Det)"),
        ("[E:ort:, qnn.cc:2453 GetImpl] Unsupported (a::b)", "[E:ort:, qnn.cc:2453 GetImpl] Unsupported (a::b)"),
    ],
)
def test_where_a_cpp_program_stands_is_not_what_it_says(text: str, expected: str) -> None:
    assert headline(text) == expected
    assert fingerprint(text) == fingerprint(expected)
    assert brief(f"[ONNXRuntimeError] : 1 : FAIL : {text}") == expected


def test_a_long_headline_is_cut_with_a_mark() -> None:
    said = headline("error: " + "x" * 1000)

    assert len(said) == 300
    assert said.endswith("…")


def test_plain_text_keeps_lines_and_tabs() -> None:
    assert plain("a\tb\r\nc\rd\x00\x1b]0;title\x07e") == "a\tb\nc\nde"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    raise Bad("not valid")\nBad: 3',
            "Bad: 3",
        ),
        ('x\n  File "a.py", line 3, in f\n    fail()\n    ^^^^^^\nKeyError: 7\n\ndone', "KeyError: 7"),
        ('Traceback (most recent call last):\n  File "a.py", line 3, in f\n    raise E("not valid")', ""),
        ('  File "a.py", line 3, in f\n    assert k == 3\nAssertionError\ndone', "AssertionError: assert k == 3"),
        ('  File "a.py", line 3, in f\n    assert k\n           ^\nAssertionError', "AssertionError: assert k"),
        ('  File "a.py", line 3, in f\n    check(k)\nAssertionError', "AssertionError"),
        ('  File "a.py", line 3, in f\n    go()\na.Bad:\n  Erf has no kernel\n  in x', "a.Bad: Erf has no kernel"),
        ('  File "a.py", line 3, in f\n    go()\na.Bad:', "a.Bad:"),
        ("terminate called after\n  what():  no kernel of Erf\nAborted (core dumped)", "what():  no kernel of Erf"),
        ("run.sh: what failed\nrun.sh: line 3: 17 Aborted   ./compile", "run.sh: what failed"),
        ("compiling\nAborted (core dumped)", "Aborted (core dumped)"),
    ],
)
def test_a_headline_is_no_piece_of_a_traceback(log: str, expected: str) -> None:
    assert headline(log) == expected


_LLVM = """Please report issues to https://github.com/iree-org/iree/issues and include the crash backtrace.
Stack dump:
0.\tProgram arguments: iree-compile ./out.mlir
1.\tRunning pass 'Canonicalizer' failed
 #0 0x00007f37cc75a0ab llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) Signals.cpp:0:0
 #1 0x00007f37cc75ac10 SignalHandler(int, siginfo_t*, void*) Signals.cpp:0:0
 #2 0x00007f37c685a050 (/lib/x86_64-linux-gnu/libc.so.6+0x3c050)
 #3 0x00007f37cc86e996 mlir::Type::getContext() const Types.cpp:0:0
 #4 0x00007f37ccd09aa5 mlir::failed(mlir::LogicalResult) Pass.cpp:0:0
#22 0x00000000002016ae _start (lib/iree-compile+0x2016ae)
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (_LLVM, "crashed in mlir::Type::getContext() const"),
        (f"cc: a.cpp:3: int f(): Assertion `x' failed.\n{_LLVM}", "cc: a.cpp:3: int f(): Assertion `x' failed."),
        (f"{_LLVM}Error: convert died", "Error: convert died"),
        (
            "start\n    #0 0x55d1 in raise (/lib/libc.so.6+0x3c050)\n    #1 0x55d2 in fails(int) /src/a.cc:10:3\n",
            "crashed in fails(int)",
        ),
        ("#0 0x00007f (tpuc-opt+0x1234)", "crashed in (tpuc-opt+0x1234)"),
        ("loading\n #0 0x1 (/lib/libc.so.6+0x3c050)\n #1 0x2 _start (cc+0x2)", "loading"),
        (
            "no kernel of Erf failed\n\tat com.cc.CannotError.get(A.java:3)\n\tat x.Y(Native Method)",
            "no kernel of Erf failed",
        ),
        ("TypeError: 3\n    at fails (/a/b.js:3:7)\n    at Object.<anonymous> (/a/b.js:9:1)\n", "TypeError: 3"),
        (
            "thread 'main' panicked at src/a.rs:2:5:\nno Erf\n   0: std::panicking::begin_panic_error\n"
            "             at /rustc/panic_error.rs:3:5\n",
            "no Erf",
        ),
        ("    at least one error", "at least one error"),
    ],
    ids=["llvm", "assertion", "said last", "gdb", "no symbols", "nowhere", "java", "javascript", "rust", "prose"],
)
def test_a_headline_is_no_frame_of_a_stack(log: str, expected: str) -> None:
    assert headline(log) == expected
