"""QNN's trace in the names of the user's model; the entries are as onnxruntime-qnn 2.7.0 writes them."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect_backends.vendors.qnn.log import TRACE, RefusedNode, Support, read_support, support_line

FAILED = "Failed to add node."


def probe(folder: Path, nodes: dict[str, str], shape: tuple[int | str, ...] = (2, 3)) -> Path:
    """A chain of nodes with these names and ops."""
    made = [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=name) for at, (name, op) in enumerate(nodes.items())]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("t0", f"t{len(made)}")]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(made, "net", ends[:1], ends[1:])), path)
    return path


def support(folder: Path, model: Path, entries: list[tuple[str, str, str]]) -> Support:
    """What is read back from the log of a compile whose trace lists these nodes, ops and reasons."""
    keys = ("node_name", "op_type", "reason")
    listed = [{"node_index": at, **dict(zip(keys, entry, strict=True))} for at, entry in enumerate(entries)]
    (folder / TRACE).write_text(json.dumps({"backend_type": "htp", "schema_version": 2, "unsupported_nodes": listed}))
    return read_support(f"what QNN says\n{support_line(folder, model)}\n")


@pytest.mark.parametrize(
    ("listed", "op", "own"),
    [
        ("/m/Einsum", "Einsum", RefusedNode(node="/m/Einsum", op="Einsum", reason=FAILED)),
        ("/m/MatMul/MatMulAddFusion", "Gemm", RefusedNode(node="/m/MatMul", op="MatMul", reason=FAILED)),
        ("/m/MatMul/MatMulAddFusion_token_7", "Gemm", RefusedNode(node="/m/MatMul", op="MatMul", reason=FAILED)),
        ("/m/Mul_1/LayerNormFusion/", "LayerNormalization", RefusedNode(node="/m/Mul_1", op="Mul", reason=FAILED)),
        ("/m/Reshape_1_new_reshape", "Reshape", RefusedNode(node="/m/Reshape_1", op="Reshape", reason=FAILED)),
        ("/m/Conv_token_12", "Conv", RefusedNode(node="/m/Conv", op="Conv", reason=FAILED)),
        ("x_token_3", "Relu", RefusedNode(node="x_token_3", op="Relu", reason=FAILED)),
        ("Transpose_token_12", "Transpose", RefusedNode(node="", op="Transpose", reason=FAILED)),
        ("gemm_output_reshape_token_287_new_reshape", "Reshape", RefusedNode(node="", op="Reshape", reason=FAILED)),
        ("/m/Conv_1", "Conv", RefusedNode(node="", op="Conv", reason=FAILED)),
    ],
)
def test_names_of_the_optimisers_making_lead_back_to_the_node(
    tmp_path: Path, listed: str, op: str, own: RefusedNode
) -> None:
    ops = {"Einsum": "Einsum", "MatMul": "MatMul", "Mul_1": "Mul", "Reshape_1": "Reshape", "Conv": "Conv"}
    model = probe(tmp_path, {**{f"/m/{name}": op for name, op in ops.items()}, "x_token_3": "Relu"})

    assert support(tmp_path, model, [(listed, op, FAILED)]).refused == (own,)


def test_a_node_that_became_several_is_told_once(tmp_path: Path) -> None:
    model = probe(tmp_path, {"conv": "Conv"})

    entries = [("conv", "Conv", "the first"), ("conv_token_1", "Conv", "the second"), ("Transpose", "Transpose", "")]

    assert [(one.node, one.reason) for one in support(tmp_path, model, entries).refused] == [
        ("conv", "the first"),
        ("", ""),
    ]


def test_a_reason_is_told_without_the_name(tmp_path: Path) -> None:
    model = probe(tmp_path, {"a `name`": "Det"})
    reason = "Operators of type `Det` are not supported by QNN EP.Det node `a `name`` will not be assigned to QNN EP."

    (one,) = support(tmp_path, model, [("a `name`", "Det", reason)]).refused

    assert one.reason == "Operators of type `Det` are not supported by QNN EP."


def test_any_name_comes_back_as_it_was(tmp_path: Path) -> None:
    name = "ü 中\n\"}, {'\x1b[31m\u202e\u2028\r{0}\\"
    model = probe(tmp_path, {name: "Det"})

    assert [one.node for one in support(tmp_path, model, [(name, "Det", "")]).refused] == [name]


def test_inputs_without_a_known_shape_are_told(tmp_path: Path) -> None:
    fixed, open_ended = tmp_path / "fixed", tmp_path / "open"
    for folder, shape in ((fixed, (2, 3)), (open_ended, ("n", 3))):
        folder.mkdir()
        answer = support(folder, probe(folder, {"relu": "Relu"}, shape), [("relu", "Relu", "Cannot get shape")])
        assert answer.unbound == (("t0",) if folder is open_ended else ())
        assert [one.is_consequence for one in answer.refused] == [True]


@pytest.mark.parametrize(
    "text", [None, "", '{"unsupported_nodes": [{"node_name": "a', '{"unsupported_nodes": 3}', "[]"]
)
def test_a_trace_that_is_missing_or_broken_tells_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / TRACE).write_text(text)

    assert read_support(support_line(tmp_path, probe(tmp_path, {"a": "Relu"}))) == Support()


@pytest.mark.parametrize(
    "log", ["", "\n", "onnx-bisect: in QNN's trace: ", "onnx-bisect: in QNN's trace: {x\n", "words"]
)
def test_a_log_without_such_a_line_tells_nothing(log: str) -> None:
    assert read_support(log) == Support()


def test_what_is_compiled_already_is_not_refused(tmp_path: Path) -> None:
    """Once QNN has taken some nodes, onnxruntime inlines a function, and shows QNN all of the graph again."""
    taken = "QNNExecutionProvider.virtual_117084470056821513_1"

    told = support(tmp_path, probe(tmp_path, {"relu": "Relu", "mish": "Mish"}), [(f"{taken}_0", taken, FAILED)])

    assert told.refused == ()
