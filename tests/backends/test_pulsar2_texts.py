"""pulsar2's words, verbatim from real runs: what each names, and in which way it failed."""

import pytest

from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.contract import Outcome
from onnxbisect_backends.vendors.pulsar2 import PATTERNS, Pulsar2Backend
from onnxbisect_backends.vendors.pulsar2.texts import precision_tables

UNSUPPORTED, ERROR, RESOURCE, CRASH = Kind.UNSUPPORTED, Kind.ERROR, Kind.RESOURCE, Kind.CRASH

#: The text, then kind, ops, nodes and tensors that it tells.
REFUSALS = [
    ("KeyError: 'dont support onnx.GatherElements opr in AXOPS'", UNSUPPORTED, ["GatherElements"], [], []),
    ("KeyError: 'dont support LRN opr in AXOPS/ONNXOPS/CUSTOM_OPS'", UNSUPPORTED, ["LRN"], [], []),
    (
        "yamain.common.error.CodeException: (<ErrorCode.OnnxOptimizationError: 13>, "
        "KeyError('dont support IsNaN opr in AXOPS/ONNXOPS/CUSTOM_OPS'))",
        UNSUPPORTED,
        ["IsNaN"],
        [],
        [],
    ),
    (
        "op name: /model.23/Mod, Mod, {'fmod': 0, 'x': [1]} get opr failed.\n"
        "AssertionError: check onnx parser e2e failed, ['output0']",
        UNSUPPORTED,
        ["Mod"],
        ["/model.23/Mod"],
        ["output0"],
    ),
    ("Exception: op name: /a/Cast_1, Cast, pyrun failed.", UNSUPPORTED, ["Cast"], ["/a/Cast_1"], []),
    (
        "NotImplementedError: Graph op: /SequenceEmpty(SequenceEmpty) has no backend implementation on target platform "
        "TargetPlatform.UNSPECIFIED\n"
        "RuntimeError: Op Execution Error: /SequenceEmpty(TargetPlatform.UNSPECIFIED)",
        UNSUPPORTED,
        ["SequenceEmpty"],
        ["/SequenceEmpty"],
        [],
    ),
    (
        "Operator(name:y, type:Reciprocal) convert error: Quant doesn't support Reciprocal operation",
        UNSUPPORTED,
        ["Reciprocal"],
        ["y"],
        [],
    ),
    (
        "'/Exp_output_0 But var.dtype = <DataType.UINT16: 4> vs expect_type = <DataType.FP32: 1>'",
        ERROR,
        [],
        [],
        ["/Exp_output_0"],
    ),
    ("IndexError: list index out of range", ERROR, [], [], []),
    (
        "AssertionError: AxQuantizedSin dont support\n"
        "yasched.exceptions.TileFailException: AxQuantizedSin, AxQuantizedSin dont support\n"
        "    op: /Sin\n    attrs: {}\n"
        "    mem_limit: MemLimit(workspace=524288, max_mem_size=720640)",
        UNSUPPORTED,
        ["Sin"],
        ["/Sin"],
        [],
    ),
    ("OpBuildException(\"op: AxLeakyRelu, 'dont support lut_float opr in AXOPS'", UNSUPPORTED, ["LeakyRelu"], [], []),
    (
        "KeyError: 'dont support AxQuantizedGemm opr in AXOPS/ONNXOPS/CUSTOM_OPS'",
        UNSUPPORTED,
        ["Gemm", "MatMul"],
        [],
        [],
    ),
    ('TileFailException("AxQuantizedSub, tuple index out of range")', ERROR, ["Sub"], [], []),
    ("TileFailException: AxQuantizedReduceSum, Can not tile", RESOURCE, ["ReduceSum"], [], []),
    ("yasched.TileFailException: AxReshape, Can not tile\n    op: /r", RESOURCE, ["Reshape", "Flatten"], ["/r"], []),
    ("AssertionError('ocm alloc with size 81920 failed')", RESOURCE, [], [], []),
    ("integer 84599 does not fit uint16_t", RESOURCE, [], [], []),
    ("ValueError: list.remove(x): x not in list", ERROR, [], [], []),
    ("NotImplementedError: Seems config of input(images) doesn't exist", ERROR, [], [], ["images"]),
    ("ZeroDivisionError: division by zero", ERROR, [], [], []),
    ("terminate called after throwing an instance of 'std::out_of_range'", CRASH, [], [], []),
    ("axnn.yamain.common.error.CodeException: (<ErrorCode.NPUBackendError: 8>, Oops())", ERROR, [], [], []),
]

#: Complaints of what pulsar2 was given: they say nothing about the model.
UNFAIR = [
    "AssertionError: Numpy File(output/quant/dataset/input_ids/0000.npy) has dtype(float32), however corresponding "
    "type of inputs(input_ids) is <class 'numpy.int64'>",
    "FileNotFoundError: Could not find file `images' in `calib_data'",
    'Message type "pulsar2.build.InputProcessor" has no field named "dst_format"',
]


@pytest.mark.parametrize(("text", "kind", "ops", "nodes", "tensors"), REFUSALS, ids=lambda value: str(value)[:40])
def test_every_known_text_tells_what_it_names(
    text: str, kind: Kind, ops: list[str], nodes: list[str], tensors: list[str]
) -> None:
    log = f"Traceback (most recent call last):\n  File x\n{text}\n"
    if "CodeException" not in text:
        log += "yamain.common.error.CodeException: (<ErrorCode.QuantError: 3>, Some('thing'))\n"

    verdict = Pulsar2Backend({}).judge(Outcome(exit_code=1, log=log))

    assert (verdict.status, verdict.kind) == (Status.FAIL, kind)
    hints = verdict.hints
    assert (list(hints.ops), list(hints.nodes), list(hints.tensors)) == (ops, nodes, tensors)
    assert verdict.message
    assert verdict.fingerprint


@pytest.mark.parametrize("text", UNFAIR)
def test_a_complaint_of_the_question_is_no_failure_of_the_model(text: str) -> None:
    for said in (text, text.replace(" ", " \x1b[31m")):
        log = f"Traceback\n{said}\n(<ErrorCode.QuantError: 3>, x)"
        verdict = Pulsar2Backend({}).judge(Outcome(exit_code=1, log=log))

        assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.ERROR)
        assert text in verdict.message


def test_every_pattern_is_met_by_a_known_text() -> None:
    texts = [*UNFAIR, *(text for text, *_ in REFUSALS)]

    assert [pattern.regex.pattern for pattern in PATTERNS if not any(map(pattern.regex.search, texts))] == []


def test_the_same_refusal_of_other_ops_and_nodes_has_one_fingerprint() -> None:
    texts = [
        "TileFailException: AxQuantizedSin, AxQuantizedSin dont support\n    op: /Sin",
        "TileFailException: AxQuantizedCos, AxQuantizedCos dont support\n    op: /b/Cos_1",
    ]
    verdicts = [Pulsar2Backend({}).judge(Outcome(exit_code=1, log=text)) for text in texts]

    assert verdicts[0].fingerprint == verdicts[1].fingerprint


def test_success_needs_the_compiled_model() -> None:
    verdict = Pulsar2Backend({}).judge(Outcome(exit_code=0, log="fuse 1 subgraph(s)"))

    assert verdict.status is Status.FAIL
    assert "without compiled.axmodel" in verdict.message


def test_an_abort_of_the_simulator_is_a_crash() -> None:
    log = "terminate called after throwing an instance of 'std::runtime_error'"

    for outcome in (Outcome(exit_code=134, log=log), Outcome(signal=6, log=log)):
        assert Pulsar2Backend({}).judge(outcome).kind is Kind.CRASH


#: From the vendor's guide, with one cell broken into two lines as in a narrow terminal.
PRECISION = """
Building native ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 100% 0:00:00
                                             Quant Precision Table【PerLayer Reference】
┏━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┓
┃ Operator                ┃          Type          ┃ Output Tensor ┃       Shape       ┃ DType ┃ QDType ┃ Cosin   ┃ MSE     ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━┩
│ Conv_0                  │    AxQuantizedConv     │ 317           │ (1, 32, 112, 112) │ FP32  │   U8   │ 0.99993 │ 0.00003 │
├─────────────────────────┼────────────────────────┼───────────────┼───────────────────┼───────┼────────┼─────────┼─────────┤
│ /decoder/layers.0/Add_1 │     AxQuantizedAdd     │ 339           │  (1, 24, 56, 56)  │ FP32  │   U8   │ 0.99930 │ 0.00050 │
│ 5                       │                        │               │                   │       │        │         │         │
├─────────────────────────┼────────────────────────┼───────────────┼───────────────────┼───────┼────────┼─────────┼─────────┤
│ output_DequantizeLinear │   AxDequantizeLinear   │ output        │     (1, 1000)     │ FP32  │  FP32  │ 0.99990 │ 0.00173 │
└─────────────────────────┴────────────────────────┴───────────────┴───────────────────┴───────┴────────┴─────────┴─────────┘
2024-09-25 11:47:01.640 | INFO     | yamain.command.precision_analysis:quant_precision_analysis:401 - save
│ no │ table │
"""  # noqa: E501 - as the tool prints it


def test_the_precision_analysis_is_read_as_a_table() -> None:
    (table,) = precision_tables(PRECISION)

    assert table.title == "Quant Precision Table【PerLayer Reference】"
    assert table.columns == ("Operator", "Type", "Output Tensor", "Shape", "DType", "QDType", "Cosin", "MSE")
    worst_first = ["/decoder/layers.0/Add_15", "output_DequantizeLinear", "Conv_0"]
    assert [row[0] for row in table.rows] == worst_first
    assert table.rows[0][6:] == ("0.99930", "0.00050")
    assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("log", ["", "Quant Precision Table", "Quant Precision Table\n┃ a ┃ b ┃\n", PRECISION[:700]])
def test_a_table_that_is_cut_off_is_no_trouble(log: str) -> None:
    assert precision_tables(log) == ()
