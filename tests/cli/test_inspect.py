"""`onnx-bisect inspect --backend`: what a target minds about a model, before anything is compiled."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.cli.command_line import Shell

SEEN = """profile = "seen"
tool = "chip"
version = "1"
source = "a test"
unlisted = "unknown"
[ops]
Add = {}
Constant = {}
Gather = {}
Identity = {}
If = {}
Loop = {}
Relu = {}
Softmax = {}
Where = {}
[refused]
IsNaN = "no IsNaN"
Det = "no Det"
"""


@pytest.fixture
def seen(shell: Shell) -> list[str]:
    """The options for a target that is known by a record."""
    (shell.folder / "seen.toml").write_text(SEEN)
    return ["--backend", "whitelist", "--option", f"profile={shell.folder / 'seen.toml'}"]


def save(shell: Shell, text: str, *, ir_version: int = 8) -> str:
    proto = onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : 17]>\n{text}')
    onnx.save(proto, shell.folder / "model.onnx")
    return "model.onnx"


def inspected(shell: Shell, *arguments: str) -> dict[str, Any]:
    done = shell.call("inspect", *arguments, "--format", "json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def finding(inspection: dict[str, Any], id_: str) -> dict[str, Any]:
    (found,) = [it for it in inspection["findings"] if it["id"] == id_]
    return found  # type: ignore[no-any-return]  # parsed JSON


def scripted_loop(folder: Path, op: str) -> str:
    """`for i in range(3): x = x + op(table[i])`, with the op inside of an If."""
    number = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    going = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    branch = helper.make_graph(
        [helper.make_node(op, ["row"], ["made"], name="inner")],
        "then",
        [],
        [helper.make_tensor_value_info("made", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Relu", ["x2"], ["same"], name="kept")],
        "else",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "i"], ["row"], name="read"),
            helper.make_node("If", ["c"], ["chosen"], name="choose", then_branch=branch, else_branch=other),
            helper.make_node("Add", ["x2", "chosen"], ["x3"], name="sum"),
            helper.make_node("Identity", ["c"], ["c2"], name="go_on"),
        ],
        "body",
        [number, going, helper.make_tensor_value_info("x2", TensorProto.FLOAT, [2, 2])],
        [
            helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x3", TensorProto.FLOAT, [2, 2]),
        ],
        [numpy_helper.from_array(np.ones((3, 2, 2), np.float32), "table")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "t", "x"], ["y"], name="loop", body=body)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(np.array(3, np.int64), "n"), numpy_helper.from_array(np.array(True), "t")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "loop.onnx")
    return "loop.onnx"


def test_what_is_refused_inside_of_a_loop_is_named_with_its_place(shell: Shell, seen: list[str]) -> None:
    found = finding(inspected(shell, scripted_loop(shell.folder, "Det"), *seen), "op-refused")
    assert (found["severity"], found["nodes"]) == ("error", ["loop"])
    assert found["detail"] == "Det: 1 node; loop > body > choose > then_branch > inner"


def test_a_loop_is_described_by_what_decides_its_course(shell: Shell) -> None:
    found = finding(inspected(shell, scripted_loop(shell.folder, "Relu")), "control-flow")
    assert "the trip count is constant, 3; the condition is always true" in found["detail"]
    assert "the index is computed of read" in found["detail"]


def test_a_guard_against_nan_blocks_a_target_that_refuses_it(shell: Shell, seen: list[str]) -> None:
    guard = "g (float[2,3] x, float z) => (float[2,3] y) { s = Softmax(x)  n = IsNaN(s)  y = Where(n, z, s) }"
    path = save(shell, guard)
    assert finding(inspected(shell, path), "isnan-guard")["severity"] == "info"
    assert finding(inspected(shell, path, *seen), "isnan-guard")["severity"] == "error"


def test_what_a_target_takes_is_no_error_there(shell: Shell, seen: list[str]) -> None:
    """A general finding gives way to what is known of this target."""
    path = scripted_loop(shell.folder, "Relu")
    assert finding(inspected(shell, path), "control-flow")["severity"] == "error"
    assert finding(inspected(shell, path, *seen), "control-flow")["severity"] == "info"


def test_an_if_with_one_possible_branch_is_no_error(shell: Shell) -> None:
    taken = "then_branch = t () => (float[2,3] a) { a = Relu(x) }"
    left = "else_branch = e () => (float[2,3] b) { b = Abs(x) }"
    text = f"g (float[2,3] x) => (float[2,3] y) <bool k = {{1}}> {{ y = If (k) <{taken}, {left}> }}"
    found = inspected(shell, save(shell, text))["findings"]
    assert {it["id"]: it["severity"] for it in found}["control-flow-constant-condition"] == "warning"
    assert "control-flow" not in {it["id"] for it in found}


def test_the_version_of_the_file_comes_first_and_what_would_fold_then_says_so(shell: Shell) -> None:
    """TPU-MLIR does not fold a file of an IR version that its onnx does not know; so Size stays."""
    text = "g (float[2,3] x) => (float[2,3] y) { s = Shape(x)  n = Size(s)  f = Cast <to = 1> (n)  y = Add(x, f) }"
    options = ("--backend", "whitelist", "--option", "profile=tpu-mlir-1.30.2")
    path = save(shell, text, ir_version=10)
    size = finding(inspected(shell, path, *options), "op-refused")
    assert "would fold away" in size["why"]
    found = inspected(shell, path, "--backend", "tpu-mlir")["findings"]
    assert [it["id"] for it in found][:2] == ["ir-newer-than-tool", "op-refused"]
    older = inspected(shell, save(shell, text, ir_version=9), "--backend", "tpu-mlir")["findings"]
    assert {"ir-newer-than-tool", "op-refused"}.isdisjoint(it["id"] for it in older)


def test_an_op_that_the_record_does_not_know_is_a_warning(shell: Shell, seen: list[str]) -> None:
    found = finding(
        inspected(shell, save(shell, "g (float[2,3] x) => (float[2,3] y) { y = Cosh(x) }"), *seen), "op-not-known"
    )
    assert (found["severity"], found["detail"]) == ("warning", "Cosh: 1 node")


@pytest.mark.parametrize(
    ("op", "fail_on", "code"),
    [
        ("IsNaN", "error", 1),
        ("Cosh", "error", 0),
        ("Cosh", "warning", 1),
        ("Cosh", "never", 0),
        ("Relu", "warning", 0),
        ("Relu", "info", 1),
    ],
)
def test_the_exit_status_is_for_ci(shell: Shell, seen: list[str], op: str, fail_on: str, code: int) -> None:
    out = "bool" if op == "IsNaN" else "float"
    path = save(shell, f"g (float[2,3] x) => ({out}[2,3] y) {{ y = {op}(x) }}")
    assert shell.call("inspect", path, *seen, "--fail-on", fail_on).code == code


@pytest.mark.parametrize("written", ["names", "metadata"])
def test_components_tell_what_depends_on_the_data(shell: Shell, written: str) -> None:
    text = "g (float[2,3] x) => (float[2,3] y, int64[2,N] z) { s = Shape(x)  y = Reshape(x, s)  z = NonZero(y) }"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    for node, module in zip(proto.graph.node, ("encoder", "encoder", "decoder"), strict=True):
        if written == "names":
            node.name = f"/{module}/{node.op_type}"
        else:
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', '{module}', '{node.op_type}']")
    onnx.save(proto, shell.folder / "parts.onnx")
    encoder, decoder = inspected(shell, "parts.onnx")["components"]
    assert (encoder["name"], encoder["dynamic"], encoder["settled"]) == ("encoder", [], [["Shape", 1]])
    assert (decoder["name"], decoder["dynamic"], decoder["settled"]) == ("decoder", [["NonZero", 1]], [])
    assert "NonZero 1" in shell.call("inspect", "parts.onnx").out
    assert "| `decoder` | 1 | NonZero 1 |" in shell.call("inspect", "parts.onnx", "--format", "md").out


def test_an_option_without_a_backend_is_a_mistake(shell: Shell) -> None:
    done = shell.call("inspect", save(shell, "g (float[2] x) => (float[2] y) { y = Relu(x) }"), "--option", "a=b")
    assert done.code == 2
    assert "--backend" in done.err


DISPUTED = """profile = "disputed"
tool = "chip"
version = "1"
source = "a test"
[ops]
Constant = {}
Mul = {}
Sin = {}
If = {}
[disputed]
Sin = "listed, yet: it crashed"
"""


@pytest.mark.parametrize("made_constant", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_an_op_about_which_real_runs_contradicted_the_profile(shell: Shell, within: bool, made_constant: bool) -> None:
    (shell.folder / "disputed.toml").write_text(DISPUTED)
    target = ["--backend", "whitelist", "--option", "profile=disputed.toml"]
    sine = "Sin (k)" if made_constant else "Sin (x)"
    branches = f"""If (c) <then_branch = t () => (float[2] a) {{ a = {sine} }},
        else_branch = e () => (float[2] b) {{ b = Mul (x, x) }}>"""
    save(
        shell,
        f"""g (float[2] x, bool c) => (float[2] y) <float[2] k = {{1, 2}}> {{
            p = {branches if within else sine} y = Mul (p, x)
        }}""",
    )

    found = inspected(shell, "model.onnx", *target)["findings"]
    shell.call("run", "model.onnx", *target, "--no-cache", "-o", "out")
    report = json.loads((shell.folder / "out/report.json").read_text())

    if made_constant and not within:
        assert "op-disputed" not in {it["id"] for it in found}
        assert report["certificate"]["status"] == "proven"
        return
    (warning,) = [it for it in found if it["id"] == "op-disputed"]
    assert warning["severity"] == "warning"
    assert warning["detail"] == "Sin: 1 node; listed, yet: it crashed"
    assert report["verdict"] == "pass"
    assert report["certificate"]["status"] == "bounded"
    assert "whether the profile is right about Sin" in report["certificate"]["unknown"][0]
    assert "Real runs contradicted the profile. Sin: 1 node; listed, yet: it crashed." in report["model"]["notes"]


def test_a_shipped_profile_shows_its_disputes_without_the_tool(shell: Shell) -> None:
    save(shell, "g (float[1,255] x) => (float[1,255] y) { y = Sin (x) }")
    found = inspected(shell, "model.onnx", "--backend", "pulsar2", "--option", "target_hardware=AX620E")
    assert "TileFailException" in finding(found, "op-disputed")["detail"]


def test_the_inspection_is_told_in_chinese(shell: Shell, seen: list[str]) -> None:
    net = save(shell, "g (float[2] x) => (float[2] y) { y = IsNaN(x) }")
    done = shell.call("--lang", "zh", "inspect", net, *seen)
    assert done.code == 0
    assert "\n  大小    1 个节点" in done.out
    assert "办法: 替换它" in done.out
    assert done.out.splitlines()[-1].startswith("IsNaN ")
