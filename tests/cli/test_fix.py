"""`onnx-bisect fix`, from a refused model to one that the compiler takes."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.cli.command_line import Shell

ROOT = Path(__file__).parents[2]
DECODER = ROOT / "examples" / "sam_decoder.onnx"
SCRIPT = ROOT / "tests" / "support" / "cli" / "first_offender.py"


def refusing(ops: str) -> list[str]:
    """A compiler of which nothing is known but its command."""
    return ["--", sys.executable, "-I", "-S", str(SCRIPT), "{model}", ops]


def document(shell: Shell, folder: str = "repair") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shell.folder / folder / "repair.json").read_text())
    return found


def small(shell: Shell, *ops: str, dims: tuple[int | str, ...] = (2, 3)) -> str:
    """A chain of ops as a file; returns its name."""
    tensors = ["x", *(f"t{number}" for number in range(len(ops) - 1)), "y"]
    nodes = [
        helper.make_node(op, [tensors[number]], [tensors[number + 1]], name=f"{op}_{number}")
        for number, op in enumerate(ops)
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("x", "y")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", value[:1], value[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, shell.folder / "small.onnx")
    return "small.onnx"


@pytest.mark.long
def test_the_decoder_compiles_after_what_its_team_did_by_hand(shell: Shell) -> None:
    """A compiler that refuses Gather, Abs, Sin and Cos and names the first offender, asked by its bare command."""
    compiler = refusing("Gather,Abs,Sin,Cos")
    within_rounding = shell.call("fix", str(DECODER), *compiler)
    assert within_rounding.code == 1
    assert "2 places with no remedy" in within_rounding.out
    told = document(shell)
    assert sorted(left["ops"] for left in told["left"]) == [["Cos"], ["Sin"]]
    assert all(any("--allow domain" in reason for reason in left["reasons"]) for left in told["left"])
    assert len(told["changes"]) == 10
    assert all(change["compiles"] for change in told["changes"])
    left = json.loads((shell.folder / "repair" / "report.json").read_text())
    assert left["model"]["name"] == "repaired.onnx"
    assert sorted(culprit["ops"] for culprit in left["culprits"]) == [["Cos"], ["Sin"]]
    command = shlex.join(["onnx-bisect", "split", "repair/repaired.onnx", "--report", "repair", *compiler])
    assert command in within_rounding.out
    split = shell.call(*shlex.split(command)[1:])
    assert split.code == 0
    assert "1 piece for the NPU" in split.out
    done = shell.call("fix", str(DECODER), "--allow", "domain", *compiler)
    assert done.code == 0, done.out + done.err
    assert "sam_decoder.onnx compiles" in done.out
    told = document(shell)
    assert told["verdict"] == "pass"
    assert {change["op"] for change in told["changes"]} == {"Gather", "Abs", "Sin", "Cos"}
    assert len(told["changes"]) == 12
    exact = [change for change in told["changes"] if change["op"] in ("Gather", "Abs")]
    assert all(it["absolute"] == 0 for change in exact for it in change["differences"])
    assert all(it["beyond"] == 0 for it in told["outputs"])
    # What passed before are the ops, not these forms of them: one call for the pieces with Slice and Mul, one for the
    # piece with Floor, one for the repaired model.
    assert told["repair_calls"] <= 3
    assert told["diagnosis_calls"] <= 22
    assert not (shell.folder / "repair" / "report.json").exists()
    repaired = shell.folder / "repair" / "repaired.onnx"
    assert shell.call("compare", str(DECODER), str(repaired)).code == 0
    assert shell.call("run", str(repaired), *compiler).code == 0


def test_verdicts_are_shared_with_run_so_a_known_diagnosis_costs_nothing(shell: Shell) -> None:
    compiler = ("--backend", "whitelist", "--option", "deny=Abs,HardSwish", "--option", "report=all")
    model = small(shell, "Relu", "Abs", "Neg", "HardSwish", "Exp")
    run = shell.call("run", model, *compiler)
    assert "onnx-bisect fix small.onnx --backend whitelist --option deny=Abs,HardSwish" in run.out
    assert "replace by Relu, Mul, Add (abs-relu, exact)" in run.out
    assert shell.call("fix", model, *compiler).code == 0
    told = document(shell)
    assert told["diagnosis_calls"] == 0
    assert told["repair_calls"] <= 2
    again = shell.call("fix", model, *compiler)
    assert again.code == 0
    assert "0 compiler calls for the diagnosis, 0 for the repair." in again.out


def test_the_command_that_run_suggests_has_its_samples(shell: Shell) -> None:
    model = small(shell, "Relu", "Abs")
    (shell.folder / "my samples").mkdir()
    np.savez(shell.folder / "my samples" / "0.npz", x=np.ones((2, 3), np.float32))
    run = shell.call("run", model, "--samples", "my samples", *refusing("Abs"))
    assert "onnx-bisect fix small.onnx --samples 'my samples' -- " in run.out


def test_untouched_nodes_and_metadata_are_the_same_bytes(shell: Shell) -> None:
    name = small(shell, "Relu", "Abs", "Exp")
    model = onnx.load(shell.folder / name)
    for node in model.graph.node:
        entry = node.metadata_props.add()
        trace = f'File "net.py", line 7, in forward\n    line of {node.name}'
        entry.key, entry.value = "pkg.torch.onnx.stack_trace", trace
    onnx.save(model, shell.folder / name)
    done = shell.call("fix", name, *refusing("Abs"))
    assert done.code == 0
    assert "    net.py:7  line of Abs_1\n" in done.out
    assert "compiles: `net.py:7  line of Abs_1`\n" in (shell.folder / "repair" / "repair.md").read_text()
    after = onnx.load(shell.folder / "repair" / "repaired.onnx").graph.node
    new = [node.SerializeToString() for node in after]
    assert all(node.SerializeToString() in new for node in model.graph.node if node.op_type != "Abs")
    replaced = [node for node in after if node.name.startswith("Abs_1/")]
    assert {node.metadata_props[0].value.splitlines()[-1].strip() for node in replaced} == {"line of Abs_1"}


def test_what_the_compiler_says_nothing_about_is_not_called_refused(shell: Shell) -> None:
    """The profile refuses Sin and Floor, and knows nothing of Clip and Round."""
    target = ["--backend", "whitelist", "--option", "profile=edgesam"]
    assert shell.call("fix", small(shell, "Relu", "Sin", "Relu"), *target, "--allow", "domain").code == 1
    (left,) = document(shell)["left"]
    reasons = dict(reason.split(": ", 1) for reason in left["reasons"] if ": " in reason)
    assert reasons["sin-folding"] == "the compiler gave no answer"


def test_a_plan_changes_nothing(shell: Shell) -> None:
    done = shell.call("fix", small(shell, "Relu", "Abs", "Exp"), "--plan", *refusing("Abs"))
    assert done.code == 1
    assert "abs-relu" in done.out
    assert not (shell.folder / "repair").exists()


def test_a_model_that_compiles_needs_no_repair(shell: Shell) -> None:
    done = shell.call("fix", small(shell, "Relu", "Exp"), *refusing("Abs"))
    assert done.code == 0
    assert "small.onnx compiles with " in done.out
    assert "first_offender.py '{model}' Abs as it is" in done.out
    assert not (shell.folder / "repair" / "repaired.onnx").exists()


def test_a_file_of_an_earlier_repair_does_not_stay_where_there_is_none(shell: Shell) -> None:
    stale = shell.folder / "repair" / "repaired.onnx"
    assert shell.call("fix", small(shell, "Relu", "Abs"), *refusing("Abs")).code == 0
    assert stale.exists()
    assert shell.call("fix", small(shell, "Relu", "Abs"), *refusing("Abs,Relu,Max,Min,Clip")).code == 1
    assert not stale.exists()


def test_a_budget_ends_the_repair_and_the_same_command_goes_on(shell: Shell) -> None:
    arguments = ("fix", small(shell, "Relu", "Abs", "Exp", "HardSwish"), *refusing("Abs,HardSwish"))
    short = shell.call(*arguments[:2], "--budget-calls", "2", *arguments[2:])
    assert short.code in (1, 3)
    assert "its budget spent; run it again" in short.out
    assert "no remedy" not in short.out
    assert not (shell.folder / "repair" / "repaired.onnx").exists()
    assert shell.call(*arguments).code == 0


def test_what_would_have_to_be_allowed_is_said_and_mends_it(shell: Shell) -> None:
    model = small(shell, "Relu", "Sign", "Erf")
    done = shell.call("fix", model, *refusing("Sign,Erf,Tanh,Where"))
    assert done.code == 1
    assert "With --allow domain, rules would be tried for what is left at 2 places." in done.out
    assert {tuple(it["ops"]): it["allow"] for it in document(shell)["left"]} == {
        ("Sign",): "domain",
        ("Erf",): "approximate",
    }
    assert "With --allow domain" in (shell.folder / "repair" / "repair.md").read_text()
    allowed = shell.call("fix", model, "--allow", "domain", *refusing("Sign,Erf,Tanh,Where"))
    assert allowed.code == 0
    assert "--allow" not in allowed.out


def _of_other_form(op: str) -> onnx.ModelProto:
    """An op in a form that a rule replaces by another form of the op, and others replace only that."""
    random = np.random.default_rng(0)
    dims: tuple[int, ...] = (1, 2, 7, 7)
    given: dict[str, np.ndarray] = {}
    attributes: dict[str, Any] = {}
    if op == "MaxPool":
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    else:
        dims, gates = (3, 1, 4), {"LSTM": 4, "GRU": 3}[op]
        attributes = {"hidden_size": 5, "direction": "bidirectional"}
        given = {"w": random.standard_normal((2, 5 * gates, 4)), "r": random.standard_normal((2, 5 * gates, 5))}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node(op, ["a", *given], ["b"], name="other", **attributes),
        helper.make_node("Neg", ["b"], ["y"], name="behind"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(it.astype(np.float32), name) for name, it in given.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "MaxPool"])
def test_an_op_that_is_refused_in_its_other_form_too_is_replaced_by_others(shell: Shell, op: str) -> None:
    """A rule that gives it another form, then one that replaces that."""
    onnx.save(_of_other_form(op), shell.folder / "other.onnx")
    done = shell.call("fix", "other.onnx", *refusing(op))
    assert done.code == 0, done.out
    (change,) = document(shell)["changes"]
    assert len(change["rules"]) > 1
    assert op not in {node.op_type for node in onnx.load(shell.folder / "repair" / "repaired.onnx").graph.node}


def test_samples_of_the_user_take_part_in_the_proof(shell: Shell) -> None:
    import numpy as np

    model = small(shell, "Relu", "Abs")
    folder = shell.folder / "samples"
    folder.mkdir()
    np.savez(folder / "1.npz", x=np.ones((2, 3), np.float32))
    assert shell.call("fix", model, "--samples", "samples", "--count", "1", *refusing("Abs")).code == 0
    assert document(shell)["samples"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--allow", "almost"), "--allow cannot be 'almost': it is exact, rounding, approximate, domain."),
        (("--out", "small.onnx"), "cannot be a folder"),
        (("--samples", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_are_said_in_a_sentence(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    done = shell.call("fix", small(shell, "Relu", "Abs"), *arguments, *refusing("Abs"))
    assert done.code == 2
    assert said in done.sentence()


def test_dynamic_dimensions_are_to_be_bound(shell: Shell) -> None:
    model = small(shell, "Relu", "Abs", dims=("n", 3))
    done = shell.call("fix", model, *refusing("Abs"))
    assert done.code == 2
    assert "--input-shape" in done.sentence()
    bound = shell.call("fix", model, "--input-shape", "x=2,3", *refusing("Abs"))
    assert bound.code == 0
    assert document(shell)["input_shapes"] == {"x": [2, 3]}
    assert "only for the inputs" in (shell.folder / "repair" / "repair.md").read_text()


CONTROL = ROOT / "tests" / "models" / "control_captures.onnx"


def test_what_the_preflight_finds_wrong_with_the_file_is_changed_before_anything_is_searched(shell: Shell) -> None:
    done = shell.call("fix", str(CONTROL), "--backend", "whitelist", "--option", "deny=Loop,Scan")
    assert done.code == 0
    told = document(shell)
    assert told["file_change"] == {"sentence": "1 Loop written out; 1 Scan written out", "exactness": "exact"}
    assert not told["changes"]
    assert told["diagnosis_calls"] + told["repair_calls"] == 2
    assert {it["absolute"] for it in told["outputs"]} == {0}
    ops = {node.op_type for node in onnx.load(shell.folder / "repair" / "repaired.onnx").graph.node}
    assert ops.isdisjoint({"Loop", "Scan"})


def test_where_that_does_not_do_nodes_of_the_changed_file_are_replaced(shell: Shell) -> None:
    done = shell.call("fix", str(CONTROL), "--backend", "whitelist", "--option", "deny=Loop,Scan,ReduceMean")
    told = document(shell)
    assert done.code == 0, done.out
    assert "Loop written out" in told["file_change"]["sentence"]
    assert {change["op"] for change in told["changes"]} == {"ReduceMean"}
    repaired = str(shell.folder / "repair" / "repaired.onnx")
    assert shell.call("compare", str(CONTROL), repaired).code == 0
    assert told["model"] == "control_captures.onnx"


def test_a_plan_tells_of_changes_of_the_file(shell: Shell) -> None:
    done = shell.call("fix", str(CONTROL), "--plan", "--backend", "whitelist", "--option", "deny=Loop,Scan")
    assert "first, the whole file: 1 Loop written out; 1 Scan written out" in done.out


def test_the_name_of_the_file_cannot_move_the_cursor_of_who_reads_the_hint(shell: Shell) -> None:
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["y"], name="n")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    name = "a\x1b[2J.onnx"
    onnx.save(model, shell.folder / name)
    done = shell.call("run", name, "--backend", "whitelist", "--option", "deny=Abs")
    assert "next: To replace culprits and prove the result" in done.out
    assert "\x1b" not in done.out + done.err
    whitelist = ("--backend", "whitelist", "--option", "deny=Abs")
    commands = (
        ("fix", name, *whitelist, "-o", "b\x1b[2J/c.onnx"),
        ("extract", name, "--nodes", "n", "-o", "\x1b[2J.onnx"),
    )
    for command in commands:
        done = shell.call(*command)
        assert "\\x1b" in done.out + done.err
        assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize(("ir", "opset"), [(14, 17), (10, 28), (14, 28)])
def test_a_model_that_is_newer_than_onnxruntime_is_repaired_and_proven(shell: Shell, ir: int, opset: int) -> None:
    name = small(shell, "HardSigmoid", "Relu")
    model = onnx.load(shell.folder / name)
    model.ir_version = ir
    model.opset_import[0].version = opset
    onnx.save(model, shell.folder / name)
    done = shell.call("fix", name, "--out", ".", *refusing("HardSigmoid"))
    assert done.code == 0, done.err
    assert "this program's own runs take it at lower versions" in done.err
    assert document(shell)["samples"] == 8
    same = shell.call("compare", name, "repair/repaired.onnx")
    assert same.code == 0, same.err
    assert "IR version 14 as 13" in same.err or ir == 10


def test_a_model_that_onnxruntime_does_not_run_is_asked_about_first(shell: Shell) -> None:
    """An op that only the compiler knows: nothing is to be proven where nothing is changed, else around the op."""
    name = small(shell, "Abs", "Neg")
    model = onnx.load(shell.folder / name)
    model.graph.node[1].domain = "com.vendor"
    model.opset_import.append(helper.make_opsetid("com.vendor", 1))
    onnx.save(model, shell.folder / name)
    done = shell.call("fix", name, "--out", ".", *refusing("Cos"))
    assert done.code == 0, done.err
    assert "compiles" in done.out
    refused = shell.call("fix", name, "--out", "refused", *refusing("Abs"))
    assert refused.code == 0, refused.err
    assert document(shell, "refused/repair")["samples"] == 8


def test_a_pool_without_a_batch_gets_one(shell: Shell) -> None:
    """As PyTorch's older exporter writes it; onnxruntime runs neither the file nor, so, a proof against it."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[3,4,4] x) => (float[d,e,f] y) {'
        " a = Relu(x) b = MaxPool <kernel_shape = [2,2]> (a) y = Sigmoid(b) }"
    )
    onnx.save(onnx.parser.parse_model(text), shell.folder / "net.onnx")

    run = shell.call("run", "net.onnx", "--backend", "onnxruntime")
    fixed = shell.call("fix", "net.onnx", "--backend", "onnxruntime")

    assert "after: a batch of one for 1 pool" in run.out
    assert fixed.code == 0, fixed.out
    assert "The outputs are identical" in fixed.out
