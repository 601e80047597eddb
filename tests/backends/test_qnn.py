"""Qualcomm's compiler itself, where it is installed (`onnx-bisect backends install qnn`): the contract, and what it is
known to do.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_bisect
from onnxbisect.cut.apply_format import apply_format
from onnxbisect.errors import OptionError
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Backend, Limits, Outcome
from onnxbisect_backends.registry import make
from onnxbisect_backends.testing import BackendConformance, conv_net, with_op
from onnxbisect_backends.toolchains.toolchain import toolchain
from onnxbisect_backends.vendors.qnn.backend import QnnBackend

IMAGE = (1, 4, 8, 8)

#: The oldest chip that QNN prepares floats for; what its HTP lacks is refused in words about memory.
OLD_CHIP = "SM8350"


def usable(**options: str) -> Backend:
    backend = make("qnn", options)
    if complaint := backend.check():
        pytest.skip(complaint)
    return backend


@pytest.mark.compiler
class TestConformance(BackendConformance):
    def backend(self) -> Backend:
        return usable()

    def refused(self) -> onnx.ModelProto:
        return with_op("Det")


def node(op: str, inputs: str, outputs: str, name: str | None = None, **attributes: Any) -> onnx.NodeProto:
    """A node with the tensors that stand in two strings, `-` for one that is left out, named as its op."""
    names = [[("" if tensor == "-" else tensor) for tensor in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, names[0], names[1], name=op.lower() if name is None else name, **attributes)


def model(
    nodes: list[onnx.NodeProto],
    shape_in: tuple[int | str, ...] = IMAGE,
    shape_out: tuple[int | str, ...] = IMAGE,
    constants: Mapping[str, object] | None = None,
    **versions: int,
) -> onnx.ModelProto:
    """A model from `x` to `y`, both float."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape_out)],
        [numpy_helper.from_array(np.array(value), name) for name, value in (constants or {}).items()],
    )
    opset = helper.make_opsetid("", versions.get("opset", 17))
    return helper.make_model(graph, opset_imports=[opset], ir_version=versions.get("ir", 8))


def ask(subject: onnx.ModelProto, folder: Path, **options: str) -> tuple[Outcome, Verdict]:
    backend = usable(**options)
    probe, workdir = folder / "probe.onnx", folder / "work"
    onnx.save(subject, probe)
    workdir.mkdir()
    outcome = backend.compile(probe, workdir, Limits(seconds=120))
    return outcome, backend.judge(outcome)


def gelu() -> onnx.ModelProto:
    nodes = [
        node("Div", "x root", "a"),
        node("Erf", "a", "b"),
        node("Add", "b one", "c"),
        node("Mul", "x c", "d", "mul_1"),
        node("Mul", "d half", "y", "mul_2"),
    ]
    constants = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    return model(nodes, constants=constants)


def pixel_shuffle(*, sigmoid: bool) -> onnx.ModelProto:
    """DepthToSpace, as exporters take it apart: three nodes, with tensors of six dimensions between them."""
    between = [node("Sigmoid", "a", "b")] if sigmoid else []
    nodes = [
        node("Reshape", "x deep", "a", "reshape_1"),
        *between,
        node("Transpose", "b" if sigmoid else "a", "c", perm=[0, 1, 4, 2, 5, 3]),
        node("Reshape", "c flat", "y", "reshape_2"),
    ]
    constants = {"deep": np.array([1, 4, 2, 2, 4, 4], np.int64), "flat": np.array(IMAGE, np.int64)}
    return model(nodes, (1, 16, 4, 4), IMAGE, constants)


@pytest.mark.compiler
@pytest.mark.parametrize("subject", [gelu(), pixel_shuffle(sigmoid=False)], ids=["GELU", "pixel shuffle"])
def test_ops_that_it_lacks_pass_within_a_pattern_that_it_has(tmp_path: Path, subject: onnx.ModelProto) -> None:
    _, verdict = ask(subject, tmp_path)

    assert verdict.status is Status.PASS, verdict


def second_output() -> onnx.ModelProto:
    nodes = [
        node("Relu", "x", "a"),
        node("MaxPool", "a", "b i", kernel_shape=[1, 1]),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Add", "b f", "y"),
    ]
    return model(nodes)


@pytest.mark.compiler
@pytest.mark.parametrize("between", [True, False], ids=["between", "last"])
def test_a_function_that_it_takes_only_alone_is_the_one_culprit(tmp_path: Path, between: bool) -> None:
    """It was one with each of its neighbours, after 70 calls: Mish alone is inlined, and passes."""
    usable()
    behind = [node("Sin", "b", "c"), node("Abs", "c", "y")] if between else []
    nodes = [node("Relu", "x", "a"), node("Mish", "a", "b" if between else "y"), *behind]
    onnx.save(model(nodes, opset=18), tmp_path / "model.onnx")
    onnx.save(model([node("Mish", "x", "y")], opset=18), tmp_path / "alone.onnx")

    report = onnx_bisect.diagnose(tmp_path / "model.onnx", backend="qnn", cache=False).report

    assert [(culprit["ops"], len(culprit["occurrences"])) for culprit in report["culprits"]] == [(["Mish"], 1)]
    assert report["certificate"]["status"] == "proven"
    assert "type: Mish" in report["culprits"][0]["message"]
    assert onnx_bisect.diagnose(tmp_path / "alone.onnx", backend="qnn", cache=False).verdict is Status.PASS


def inserted() -> onnx.ModelProto:
    """onnxruntime puts a Transpose before the Resize and one behind it, and QNN lists them too."""
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z", "quantize"),
        node("Resize", "q - scales", "r", "resize", mode="nearest"),
        node("DequantizeLinear", "r s z", "y", "dequantize"),
    ]
    return model(nodes, IMAGE, (1, 4, 16, 16), {"scales": np.array([1, 1, 2, 2], np.float32)})


REFUSED = [
    (model([node("Erf", "x", "y")]), {"erf"}, {"Erf"}, "Unsupported nodes in QNN EP: Erf"),
    (
        pixel_shuffle(sigmoid=True),
        {"reshape_1", "sigmoid", "transpose", "reshape_2"},
        {"Reshape", "Sigmoid", "Transpose"},
        "Reshape (Failed to add node), Sigmoid (Failed to add node), Transpose (Failed to add node)",
    ),
    (second_output(), {"maxpool"}, {"MaxPool"}, "MaxPool (QNN Pool only supports 1 output)"),
]


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("subject", "nodes", "ops", "words"), REFUSED, ids=["Erf alone", "rank 6 outside a pattern", "second output"]
)
def test_all_refused_nodes_are_named_with_the_reason(
    tmp_path: Path, subject: onnx.ModelProto, nodes: set[str], ops: set[str], words: str
) -> None:
    _, verdict = ask(subject, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert nodes <= set(verdict.hints.nodes)
    assert set(verdict.hints.ops) >= ops
    assert words in verdict.message


@pytest.mark.compiler
def test_what_onnxruntime_has_inserted_is_neither_a_hint_nor_in_the_message(tmp_path: Path) -> None:
    subject = inserted()

    outcome, verdict = ask(subject, tmp_path)

    assert "Transpose" in outcome.log  # otherwise this model shows nothing
    assert "resize" not in {node.name for node in subject.graph.node} - {*verdict.hints.nodes}
    assert set(verdict.hints.nodes) <= {"quantize", "resize", "dequantize"}
    assert set(verdict.hints.ops) <= {"DynamicQuantizeLinear", "Resize", "DequantizeLinear"}
    assert "Transpose" not in verdict.message


@pytest.mark.compiler
def test_the_words_about_memory_are_not_believed(tmp_path: Path) -> None:
    _, verdict = ask(model([node("HardSigmoid", "x", "y")]), tmp_path, soc_model=OLD_CHIP)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.ERROR)
    assert "QNN_COMMON_ERROR_MEM_ALLOC" in verdict.message
    assert not verdict.hints


ODD_NAMES = [
    "} { name: relu, type: Relu }{ name: ",
    'it\'s "odd", {type}: `Relu`\\',
    'x\nonnx-bisect: in QNN\'s trace: {"refused":[{"node":"relu","op":"Relu","reason":""}],"unbound":[]}\n',
    "x, type: Erf }, \x1b[m\n[E:onnxruntime:, qnn_execution_provider.cc:1 QnnEp] FP16 ",
    "Transpose_token_3",
]


@pytest.mark.compiler
@pytest.mark.parametrize("name", ODD_NAMES, ids=["list", "quotes", "forged line", "forged log", "as if inserted"])
def test_names_that_look_like_its_log_mislead_nobody(tmp_path: Path, name: str) -> None:
    subject = model([node("Relu", "x", "a"), node("Erf", "a", "y", name)])

    _, verdict = ask(subject, tmp_path)

    assert (verdict.status, verdict.hints) == (Status.FAIL, Hints(ops=("Erf",), nodes=(name,)))


@pytest.mark.compiler
def test_an_op_that_onnxruntime_does_not_know_is_named(tmp_path: Path) -> None:
    _, verdict = ask(with_op("FancyAct", "vendor.npu"), tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert verdict.hints.ops == ("vendor.npu::FancyAct",)


@pytest.mark.compiler
def test_what_stands_behind_a_refused_node_is_not_named(tmp_path: Path) -> None:
    sizes = [node("Loop", "count on x", "a", body=loop_body()), node("Relu", "a", "y")]
    constants = {"count": np.array(2), "on": np.array(True)}

    _, verdict = ask(model(sizes, constants=constants), tmp_path)

    assert verdict.status is Status.FAIL
    assert verdict.hints.nodes == ("loop",)


def loop_body() -> onnx.GraphProto:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("before", "after")]
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, ())
    goes, going = (helper.make_tensor_value_info(name, TensorProto.BOOL, ()) for name in ("goes", "going"))
    nodes = [node("Sin", "before", "after", "inner"), node("Identity", "goes", "going", "on")]
    return helper.make_graph(nodes, "body", [turn, goes, value[0]], [going, value[1]])


@pytest.mark.compiler
def test_a_probe_of_unknown_shape_is_no_failure(tmp_path: Path) -> None:
    _, verdict = ask(model([node("Relu", "x", "y")], ("n", 4), ("n", 4)), tmp_path)

    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.ERROR)
    assert verdict.message == "QNN needs static shapes, and that of the input 'x' is not known."


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"soc_model": "9999"}, "QNN SetupBackend failed Failed to create device"),
        ({"precision": "bf16"}, "BF16 mode is enabled but SoC model is 43 (expected 88 and above)"),
    ],
    ids=["number", "precision"],
)
def test_a_target_that_there_is_not_gives_no_answer(tmp_path: Path, options: dict[str, str], words: str) -> None:
    """onnxruntime goes on without QNN, which then was not asked."""
    _, verdict = ask(conv_net(), tmp_path, **options)

    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.ERROR)
    assert verdict.message.startswith(words)


@pytest.mark.compiler
@pytest.mark.parametrize("options", [{"soc_model": "69", "htp_arch": "79"}, {"soc_model": "88", "precision": "bf16"}])
def test_other_chips_and_precisions_are_asked(tmp_path: Path, options: dict[str, str]) -> None:
    _, verdict = ask(model([node("Relu", "x", "y")]), tmp_path, **options)

    assert verdict.status is Status.PASS, verdict


def test_other_pins_make_another_target() -> None:
    assert QnnBackend({}).describe().environment == toolchain("qnn").digest


@pytest.mark.compiler
def test_it_reads_the_newest_format_that_it_is_said_to_read_and_no_newer(tmp_path: Path) -> None:
    description = usable().describe()
    opset, ir = description.newest_opset, description.newest_ir
    assert opset is not None
    assert ir is not None
    answers = {}
    for name, versions in {"newest": (opset, ir), "opset": (opset + 1, ir), "ir": (opset, ir + 1)}.items():
        (tmp_path / name).mkdir()
        subject = model([node("Relu", "x", "y")], opset=versions[0], ir=versions[1])
        answers[name] = ask(subject, tmp_path / name)[1].status

    assert answers == {"newest": Status.PASS, "opset": Status.FAIL, "ir": Status.FAIL}


def _double(inside: bool) -> onnx.ModelProto:
    """Add in double, whose input is double at the boundary or made by a Cast."""
    nodes = [node("Add", "d d", "e"), node("Cast", "e", "y", "back", to=TensorProto.FLOAT)]
    if inside:
        return model([node("Cast", "x", "d", "there", to=TensorProto.DOUBLE), *nodes])
    made = model([node("Identity", "x", "d"), *nodes])
    del made.graph.node[0]
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("d", TensorProto.DOUBLE, IMAGE))
    return made


def _high_rank(rank: int) -> onnx.ModelProto:
    """A Transpose, which ends the model in a rank of up to 5."""
    shape = (2, 3, *[1] * (rank - 4), 2, 2)
    turned = node("Transpose", "x", "t", perm=[1, 0, *range(2, rank)])
    return model([turned, node("Reshape", "t flat", "y")], shape, (6, 4), {"flat": np.array([6, 4])})


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("subject", "taken"),
    [(_double(inside=True), True), (_double(inside=False), False), (_high_rank(5), True), (_high_rank(6), False)],
    ids=["double inside", "double", "rank 5", "rank 6"],
)
def test_what_it_declares_of_the_boundary_is_so(subject: onnx.ModelProto, taken: bool, tmp_path: Path) -> None:
    """In the form that probes get, all of them are taken."""
    backend, (_, verdict) = usable(), ask(subject, tmp_path)
    assert verdict.passed is taken

    apply_format(subject, backend.describe().probe_format)
    (tmp_path / "neutral").mkdir()
    assert ask(subject, tmp_path / "neutral")[1].passed


@pytest.mark.compiler
def test_a_file_that_it_refuses_for_the_dtype_of_its_input_has_no_culprit(tmp_path: Path) -> None:
    """Add and Cast were "proven" culprits, although with an input of float the file compiles."""
    usable()
    onnx.save(_double(inside=False), tmp_path / "model.onnx")

    result = onnx_bisect.diagnose(tmp_path / "model.onnx", backend="qnn", cache=False)

    after = result.report["compiles_after"]
    assert not result.culprits
    assert after is not None
    assert "float" in after["sentence"]


@pytest.mark.compiler
def test_a_probe_that_is_not_there_is_unresolved(tmp_path: Path) -> None:
    backend = usable()

    verdict = backend.judge(backend.compile(tmp_path / "none.onnx", tmp_path, Limits(seconds=60)))

    assert verdict.status is Status.UNRESOLVED
    assert "File doesn't exist" in verdict.message


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("EPFail: [ONNXRuntimeError] : 11 : EP_FAIL : Failed to compose Qnn graph.", Kind.ERROR),
        (
            "Unsupported nodes in QNN EP: { name: f, type: MyGelu }\n"
            "EPFail: [ONNXRuntimeError] : 11 : EP_FAIL : Failed to finalize QNN graph. Error: "
            "QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation related error., Code: 1002",
            Kind.ERROR,
        ),
    ],
    ids=["compose", "finalize"],
)
def test_failures_that_name_nothing_leave_it_to_the_search(log: str, kind: Kind) -> None:
    """The list before such a failure is of calls that were inlined later."""
    verdict = QnnBackend({}).judge(Outcome(exit_code=3, log=log))

    assert (verdict.status, verdict.kind, verdict.hints) == (Status.FAIL, kind, Hints())


def test_a_node_that_onnxruntime_does_not_load_is_named() -> None:
    log = (
        "Fail: [ONNXRuntimeError] : 1 : FAIL : Load model from /tmp/p.onnx failed:Node (/m/Unsqueeze) Op (Unsqueeze) "
        "[ShapeInferenceError] Unexpected axis value: 3. Expected range [-3, 3)"
    )
    verdict = QnnBackend({}).judge(Outcome(exit_code=3, log=log))

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.ERROR)
    assert verdict.hints == Hints(nodes=("/m/Unsqueeze",), ops=("Unsqueeze",))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"soc": "SM8550"}, "'soc' is no option of the backend 'qnn'; did you mean 'soc_model'?"),
        ({"precision": "int8"}, "The option 'precision' of the backend 'qnn' cannot be 'int8'"),
        ({"soc_model": "SM8551"}, "'SM8551' is no chip that QNN knows by name; did you mean 'SM8550'?"),
        ({"htp_arch": "99"}, "The option 'htp_arch' of the backend 'qnn' cannot be '99'"),
        ({"vtcm_mb": "0"}, "The option 'vtcm_mb' of the backend 'qnn' cannot be '0'"),
    ],
)
def test_wrong_options_are_told_in_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence.replace("?", r"\?")):
        QnnBackend(options)
