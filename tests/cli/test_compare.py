"""`onnx-bisect compare`: two reports, or two models tensor by tensor."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.cli.command_line import CASES, Shell

C2 = str(CASES / "c2_chain100_3bad.onnx")


@pytest.fixture
def reports(shell: Shell) -> Shell:
    """Folders `a` and `b` with reports of the same model."""
    for folder, deny in (("a", "Asinh,Atan"), ("b", "Asinh")):
        assert shell.call("run", C2, "-b", "whitelist", "--option", f"deny={deny}", "-o", folder).code == 1
    return shell


def test_what_is_fixed_new_and_unchanged(reports: Shell) -> None:
    fixed = reports.call("compare", "a", "b")
    assert fixed.code == 0
    first, *_rest, gone, same = fixed.out.splitlines()
    assert first == "1 fixed, 0 new, 1 unchanged"
    assert [gone.split()[:4], same.split()[:4]] == [
        ["fixed", "Atan", "1", "place"],
        ["unchanged", "Asinh", "1", "place"],
    ]
    broken = reports.call("compare", "b/report.json", "a/report.json")
    assert broken.code == 1
    assert "0 fixed, 1 new, 1 unchanged" in broken.out


def test_programs_and_pull_requests_get_it_too(reports: Shell) -> None:
    told = json.loads(reports.call("compare", "a", "b", "--format", "json").out)
    assert told["format"] == "onnx-bisect/compare@1"
    assert [culprit["ops"] for culprit in told["fixed"]] == [["Atan"]]
    shown = reports.call("compare", "a", "b", "--format", "md").out
    assert "| fixed | `Atan` | 1 place |" in shown


def test_a_search_that_ended_early_leaves_doubt(reports: Shell) -> None:
    arguments = ["-b", "whitelist", "--option", "deny=Cosh", "--budget-calls", "1", "--no-cache"]
    reports.call("run", C2, *arguments, "-o", "early")
    shown = reports.call("compare", "a", "early").out
    assert "  fixed (not certain)  " in shown


def test_kinds_are_not_mixed(reports: Shell) -> None:
    assert "compare two of a kind" in reports.call("compare", "a", C2).sentence()
    assert "are for models" in reports.call("compare", "a", "b", "--tensors").sentence()
    assert "cannot be read" in reports.call("compare", "a", "gone.json").sentence()
    assert reports.call("compare", "a", "gone.json").code == 2


def test_tensors_within_are_compared_by_name(shell: Shell) -> None:
    """A difference that the output does not show."""
    for name, factor in (("a", 2.0), ("b", 3.0)):
        save(shell.folder / f"{name}.onnx", factor)
    plain = shell.call("compare", "a.onnx", "b.onnx")
    assert plain.code == 0
    assert "scaled" not in plain.out
    within = shell.call("compare", "a.onnx", "b.onnx", "--tensors")
    assert within.code == 0
    assert "Within, 2 of 3 tensors of the same name differ; the first is scaled." in within.out
    told = json.loads(shell.call("compare", "a.onnx", "b.onnx", "--tensors", "--format", "json").out)
    assert [(it["output"], it["beyond"] > 0) for it in told["within"]] == [
        ("first", False),
        ("scaled", True),
        ("raised", True),
    ]


def test_a_difference_from_nothing_is_json_still(shell: Shell) -> None:
    """As a share of zero it is infinite, which JSON does not know."""
    for name, factor in (("a", 0.0), ("b", 1.0)):
        save(shell.folder / f"{name}.onnx", factor)
    told = shell.call("compare", "a.onnx", "b.onnx", "--format", "json")
    assert told.code == 1
    assert json.loads(told.out, parse_constant=pytest.fail)["differences"][0]["relative"] is None


def test_samples_that_are_not_there_are_told_by_their_option(shell: Shell) -> None:
    save(shell.folder / "a.onnx", 1.0)
    told = shell.call("compare", "a.onnx", "a.onnx", "--samples", "gone")
    assert told.code == 2
    assert "--samples gone cannot be read" in told.sentence()


def save(path: Path, factor: float) -> None:
    """x -> Abs -> Mul(factor) -> Relu -> Sign"""
    nodes = [
        helper.make_node("Abs", ["x"], ["first"]),
        helper.make_node("Mul", ["first", "factor"], ["scaled"]),
        helper.make_node("Relu", ["scaled"], ["raised"]),
        helper.make_node("Sign", ["raised"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.array(factor, np.float32), "factor")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


#: As in the report of a model whose numbers were gone after a conversion: (600 x)^2 overflows in float16.
NORMALISED = "a = Mul(x, k) p = Mul(a, a) m = ReduceMean<axes = [1]>(p) s = Sqrt(m) y = Div(a, s)"


def save_normalised(path: Path, kind: str) -> None:
    to = {"float": 1, "float16": 10, "bfloat16": 16}[kind]
    inner = NORMALISED.replace("(x", "(low").replace("y =", "high =").replace("k)", "scale)")
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,512] x) => (float[1,512] y) <float[1] k = {{600}}> {{
        low = Cast<to = {to}>(x) scale = Cast<to = {to}>(k) {inner} y = Cast<to = 1>(high) }}"""
    onnx.save(onnx.parser.parse_model(text), path)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_model_in_another_type_is_computed_in_that_type(shell: Shell, kind: str) -> None:
    """onnxruntime alone computes all of it in float32, or does not load it."""
    save_normalised(shell.folder / "before.onnx", "float")
    save_normalised(shell.folder / "after.onnx", kind)

    done = shell.call("compare", "before.onnx", "after.onnx", "--tensors")
    close = shell.call("compare", "before.onnx", "after.onnx", "--relative", "0.05", "--format", "json")

    assert done.code == 1
    assert "The models do not agree" in done.out
    assert "rounded after each node" in done.out
    found = json.loads(close.out)
    assert found["agrees"] == (kind == "bfloat16")
    assert found["differences"][0]["absolute"] > (3 if kind == "float16" else 1e-3)


def test_tensors_of_other_types_are_measured_too(shell: Shell) -> None:
    save_normalised(shell.folder / "before.onnx", "float")
    save_normalised(shell.folder / "after.onnx", "float16")
    done = shell.call("compare", "before.onnx", "after.onnx", "--tensors", "--format", "json")
    within = {it["output"]: it for it in json.loads(done.out)["within"]}
    assert within["p"]["unlike"] > 0
    assert within["a"]["absolute"] > 0
