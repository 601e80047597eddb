"""`rules` and `compare`."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxbisect.rewrites import apply, installed
from support.cli.command_line import Shell

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"
DECODER = MODELS / "sam_part1_prompt__ts11.onnx"
RULES = {rule.id: rule for rule in installed().rules}


def test_rules_are_listed_with_what_they_promise(shell: Shell) -> None:
    done = shell.call("rules")
    assert done.code == 0
    (row,) = [line for line in done.out.splitlines() if line.startswith("abs-relu ")]
    assert row.split()[:3] == ["abs-relu", "Abs", "exact"]
    assert "torch.relu(x) + torch.relu(-x)" in row


def test_rules_are_filtered_by_the_ops_that_they_take(shell: Shell) -> None:
    told = json.loads(shell.call("rules", "abs", "Gather", "--format", "json").out)["rules"]
    assert {it["id"] for it in told} == {id_ for id_, it in RULES.items() if {"Abs", "Gather"} & set(it.takes)}
    none = shell.call("rules", "Abbs")
    assert (none.code, none.out) == (2, "")
    assert none.err == "onnx-bisect: No rule takes Abbs; `onnx-bisect rules` lists what rules take.\n"
    assert shell.call("rules", "Abs", "--match", str(DECODER)).code == 2


def test_rules_as_json_have_everything(shell: Shell) -> None:
    told = json.loads(shell.call("rules", "--format", "json").out)
    assert told["broken"] == []
    assert {it["id"] for it in told["rules"]} == set(RULES)
    (sine,) = [it for it in told["rules"] if it["id"] == "sin-polynomial"]
    assert sine["bound"] == "within 4e-07"
    assert sine["domain"].startswith("magnitudes up to 1000")


def test_the_table_of_the_documentation_is_what_the_command_prints(shell: Shell) -> None:
    """Run `onnx-bisect rules --format md` and put it between the marks where this fails."""
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    table = text.split("<!-- rules -->\n")[1].split("<!-- end of rules -->")[0]
    assert table == shell.call("rules", "--format", "md").out


def test_match_says_where_rules_would_apply_and_changes_nothing(shell: Shell) -> None:
    before = DECODER.read_bytes()
    done = shell.call("rules", "--match", str(DECODER))
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()]
    assert ["/Abs", "Abs", "abs-relu", "exact", "Relu,", "Mul,", "Add"] in rows
    assert rows[-1][-5:] == ["the", "model", "was", "not", "changed."]
    assert DECODER.read_bytes() == before


def test_match_as_json_says_why_rules_do_not_apply(shell: Shell) -> None:
    told = json.loads(shell.call("rules", "--match", str(DECODER), "--format", "json").out)["matches"]
    refused = {(it["node"], it["rule"]): it["refused"] for it in told}
    assert refused["/Abs", "abs-relu"] == ""
    assert refused["/Concat", "concat-pairs"] == "there are no more than two inputs"


def test_hostile_names_are_shown_harmless(shell: Shell) -> None:
    name = "\x1b[31mred\n[bold]\u202e"
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["y"], name=name)],
        "g",
        [helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, shell.folder / "h.onnx")
    done = shell.call("rules", "--match", "h.onnx")
    assert done.code == 0
    assert r"\x1b[31mred\n[bold]\u202e" in done.out
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


@pytest.mark.parametrize("arguments", [["rules", "--match", "missing.onnx"], ["compare", "missing.onnx", str(DECODER)]])
def test_a_file_that_is_missing_is_said_in_a_sentence(shell: Shell, arguments: list[str]) -> None:
    done = shell.call(*arguments)
    assert done.code == 2
    assert "missing.onnx does not exist" in done.sentence()


def changed(folder: Path, rule: str, node: str = "/Abs") -> Path:
    onnx.save(apply(DECODER, {node: RULES[rule]}), folder / "after.onnx")
    return folder / "after.onnx"


def test_equal_models_compare_equal(shell: Shell) -> None:
    done = shell.call("compare", str(DECODER), str(changed(shell.folder, "abs-relu")))
    assert done.code == 0, done.err
    assert "equal" in done.out
    assert done.out.splitlines()[-1].startswith("The models agree within 1e-06 + 0.0001")


def test_different_models_compare_different_in_numbers(shell: Shell) -> None:
    after = changed(shell.folder, "abs-relu")
    model = onnx.load(after)
    (minus,) = [it for it in model.graph.initializer if "abs-relu" in it.name]
    minus.CopyFrom(numpy_helper.from_array(np.array(-1.5, np.float32), minus.name))
    onnx.save(model, after)
    done = shell.call("compare", str(DECODER), str(after), "--format", "json")
    assert done.code == 1
    told = json.loads(done.out)
    assert told["agrees"] is False
    assert told["samples"] == 8
    assert any(it["beyond"] > 0 and it["absolute"] > 0 for it in told["differences"])


def test_samples_of_the_user_are_compared_too(shell: Shell) -> None:
    """A difference that shows at one value only."""
    graph = helper.make_graph(
        [helper.make_node("Equal", ["x", "magic"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [1])],
        [helper.make_tensor_value_info("y", 9, [1])],
    )
    for name, value in (("a", 12345.0), ("b", 54321.0)):
        graph.ClearField("initializer")
        graph.initializer.append(numpy_helper.from_array(np.array([value], np.float32), "magic"))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, shell.folder / f"{name}.onnx")
    (shell.folder / "samples").mkdir()
    np.savez(shell.folder / "samples" / "0.npz", x=np.array([12345], np.float32))
    assert shell.call("compare", "a.onnx", "b.onnx").code == 0
    assert shell.call("compare", "a.onnx", "b.onnx", "--samples", "samples").code == 1


def test_dynamic_dimensions_must_be_bound(shell: Shell) -> None:
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n"])],
        [helper.make_tensor_value_info("y", 1, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, shell.folder / "d.onnx")
    assert "--input-shape" in shell.call("compare", "d.onnx", "d.onnx").sentence()
    assert shell.call("compare", "d.onnx", "d.onnx", "--input-shape", "x=3").code == 0
