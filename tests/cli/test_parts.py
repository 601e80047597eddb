"""`onnx-bisect run` with several models: which models are meant, one table, and what their failures have in common."""

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.errors import OptionError
from onnxbisect_cli.parts import parts_of
from support import TESTS
from support.cli.command_line import CASES, Shell

FIRST_OFFENDER = TESTS / "support" / "cli" / "first_offender.py"
DENY = ["--backend", "whitelist", "--option", "whitelist.deny=Sinh,Atan"]
ONE = ["--backend", "whitelist", "--option", "deny=Sinh,Atan"]
RANKS = """
profile = "ranks"
tool = "ranks"
version = "1"
source = "made up"
[ops]
Tanh = {}
[ops.Relu]
constraints = [{ kind = "input", name = "X", rule = "rank_in", value = [1] }]
"""


def save(path: Path, ops: list[str], shape: list[int | str] | None = None, prefix: str = "t") -> str:
    """A chain of ops."""
    names = [f"{prefix}{i}" for i in range(len(ops) + 1)]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]], name=f"{prefix}{i}_{op}") for i, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or [4]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    path.parent.mkdir(exist_ok=True, parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


@pytest.fixture
def three(shell: Shell) -> Shell:
    """Three models below `net/`."""
    save(shell.folder / "net" / "part1.onnx", ["Relu", "Tanh"])
    save(shell.folder / "net" / "part2.onnx", ["Relu", "Sinh", "Tanh", "Sinh"])
    save(shell.folder / "net" / "part10.onnx", ["Atan", "Relu", "Sinh"])
    return shell


def table(shell: Shell, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.call("run", "--format", "json", *arguments).out)
    assert found["format"] == "onnx-bisect/parts@1"
    return found


def refused(found: dict[str, Any], target: str = "whitelist") -> dict[str, dict[str, int]]:
    return {
        row["label"]: {"+".join(it["ops"]): it["places"] for it in row["cells"][target]["refused"]}
        for row in found["models"]
    }


def test_a_folder_is_its_models_in_the_order_of_their_numbers(three: Shell) -> None:
    found = table(three, "net", *ONE)
    assert refused(found) == {"part1": {}, "part2": {"Sinh": 2}, "part10": {"Atan": 1, "Sinh": 1}}
    assert [row["cells"]["whitelist"]["state"] for row in found["models"]] == ["pass", "fail", "fail"]


def test_a_cause_that_several_models_have_is_one(three: Shell) -> None:
    causes = table(three, "net", *ONE)["causes"]
    assert [(cause["text"], [(it["model"], it["places"]) for it in cause["shares"]]) for cause in causes] == [
        ("Sinh", [("part2", 2), ("part10", 1)]),
        ("Atan", [("part10", 1)]),
    ]
    assert "Sinh: 3 places in 2 models (part2 2, part10 1)" in three.call("run", "net", *ONE).out


def test_the_other_models_say_that_an_op_compiles_elsewhere(shell: Shell) -> None:
    (shell.folder / "ranks.toml").write_text(RANKS)
    models = [save(shell.folder / "a.onnx", ["Relu", "Tanh"]), save(shell.folder / "b.onnx", ["Relu", "Tanh"], [2, 4])]
    found = table(shell, *models, "-b", "whitelist", "--option", "profile=ranks.toml")
    assert refused(found) == {"a": {}, "b": {"Relu": 1}}
    assert [cause["passes_in"] for cause in found["causes"]] == [["a"]]


def test_models_by_targets_and_a_report_for_each(three: Shell) -> None:
    out = three.folder / "out"
    done = three.call("run", "net", *DENY, "--backend", "onnxruntime", "--out", str(out))
    assert done.code == 1
    assert "3 models: 1 compiles for whitelist, 3 compile for onnxruntime" in done.out
    for model, ops in (("part1", []), ("part2", ["Sinh"]), ("part10", ["Atan", "Sinh"])):
        report = json.loads((out / model / "whitelist" / "report.json").read_text())
        assert sorted(op for culprit in report["culprits"] for op in culprit["ops"]) == ops
        assert (out / model / "overview.html").is_file()
    for name, link in (("parts.md", "part2/whitelist/report.md"), ("parts.html", "part2/whitelist/report.html")):
        text = (out / name).read_text()
        assert link in text
        assert "Sinh 2" in text
    assert refused(json.loads((out / "parts.json").read_text()))["part2"] == {"Sinh": 2}


def test_what_one_model_taught_is_not_asked_again(three: Shell) -> None:
    """Parts of one network are much alike."""
    alone = three.call("run", save(three.folder / "other.onnx", ["Relu", "Sinh", "Tanh", "Sinh"]), *ONE)
    assert "0 compiler calls" not in alone.out
    found = table(three, "net/part2.onnx", "net/part1.onnx", *ONE)
    assert found["models"][0]["cells"]["whitelist"]["compiler_calls"] == 0


def test_a_model_that_cannot_be_read_does_not_stop_the_others(three: Shell) -> None:
    (three.folder / "net" / "part3.onnx").write_bytes(b"no model")
    done = three.call("run", "net", *ONE, "--out", "out")
    assert done.code == 2
    found = json.loads((three.folder / "out" / "parts.json").read_text())
    assert [row["cells"]["whitelist"]["state"] for row in found["models"]] == ["pass", "fail", "unusable", "fail"]
    assert "part3.onnx" in found["models"][2]["cells"]["whitelist"]["sentence"]
    assert "cannot be asked" in done.out


def test_a_command_is_asked_about_all(three: Shell) -> None:
    models = ["net/part1.onnx", "net/part2.onnx"]
    found = table(three, *models, "--", sys.executable, str(FIRST_OFFENDER), "{model}", "Sinh")
    assert [len(row["cells"]["command"]["refused"]) for row in found["models"]] == [0, 1]


@pytest.mark.parametrize("command", ["run", "fix"])
def test_two_models_are_no_command(three: Shell, command: str) -> None:
    """The second used to be taken for the compiler."""
    done = three.call(command, "net/part1.onnx", "no-such.onnx", "--", "true", "{model}")
    assert done.code == 2
    assert "no-such.onnx" in done.err
    assert "Traceback" not in done.err


def test_a_manifest_names_models_and_binds_their_inputs(three: Shell) -> None:
    save(three.folder / "net" / "dynamic.onnx", ["Sinh"], ["batch"], prefix="d")
    (three.folder / "net" / "sam.toml").write_text(
        '[[part]]\nname = "encoder"\nmodel = "part1.onnx"\n'
        '[[part]]\nmodel = "dynamic.onnx"\ninput_shapes = {d0 = [7]}\n'
    )
    found = table(three, "net/sam.toml", *ONE)
    assert refused(found) == {"encoder": {}, "dynamic": {"Sinh": 1}}


def test_an_input_shape_goes_to_the_models_that_have_the_input(three: Shell) -> None:
    dynamic = save(three.folder / "dynamic.onnx", ["Sinh"], ["batch"], prefix="d")
    assert three.call("run", "net/part1.onnx", dynamic, *ONE, "--input-shape", "d0=3").code == 1
    done = three.call("run", "net/part1.onnx", dynamic, *ONE, "--input-shape", "x=3")
    assert done.code == 2
    assert "their inputs are d0, t0" in done.sentence()


def test_models_of_one_file_name_are_told_apart_by_their_folders(three: Shell) -> None:
    for part in ("encoder", "decoder"):
        save(three.folder / part / "model.onnx", ["Relu"])
    paths = [three.folder / part / "model.onnx" for part in ("encoder", "decoder")]
    assert [part.label for part in parts_of(paths, {}, {}, None)] == ["encoder-model", "decoder-model"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["net", "net/part1.onnx"], "named twice"),
        (["net/part1.onnx", "gone.onnx"], "gone.onnx"),
        (["net", "--samples", "net"], "one model"),
        (["empty"], "no .onnx file"),
        (["wrong.toml"], "part.0.model"),
        (["none.toml"], "cannot be read"),
        (["broken.toml"], "no TOML"),
        (["net", "--format", "sarif"], "one model"),
    ],
)
def test_what_the_user_got_wrong_is_said_before_any_compile(three: Shell, arguments: list[str], words: str) -> None:
    (three.folder / "empty").mkdir()
    (three.folder / "wrong.toml").write_text('[[part]]\nmodell = "a.onnx"\n')
    (three.folder / "broken.toml").write_text("[[part")
    done = three.call("run", *arguments, *ONE)
    assert done.code == 2
    assert words in done.sentence()


def test_a_folder_of_one_model_is_that_model(shell: Shell) -> None:
    save(shell.folder / "net" / "only.onnx", ["Relu"])
    (shell.folder / "net" / "exported.onnx").mkdir()
    (part,) = parts_of([shell.folder / "net"], {"t0": [4]}, {}, None)
    assert (part.label, part.input_shapes) == ("only", {"t0": [4]})


def test_two_nameless_wishes_are_an_error(tmp_path: Path) -> None:
    for folder in ("a/x", "b/x"):
        save(tmp_path / folder / "model.onnx", ["Relu"])
    with pytest.raises(OptionError, match="Two models are called 'x-model'"):
        parts_of([tmp_path / "a/x/model.onnx", tmp_path / "b/x/model.onnx"], {}, {}, None)


def test_names_in_the_table_are_not_trusted(shell: Shell) -> None:
    """Ops of a model stand in cells and in causes."""
    evil = "Evil\x1b[31m|<b>"
    for name in ("a", "b"):
        node = helper.make_node(evil, ["x"], ["y"], domain="acme")
        ends = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [4]) for value in "xy"]
        graph = helper.make_graph(
            [node, helper.make_node("Relu", ["y"], ["z"])],
            "g",
            ends[:1],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4])],
            value_info=ends[1:],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), shell.folder / f"{name}.onnx")
    done = shell.call("run", "a.onnx", "b.onnx", "-b", "whitelist", "--option", "ops=Relu", "--out", "out")
    text = done.out + "".join((shell.folder / "out" / f"parts.{form}").read_text() for form in ("md", "html"))
    assert "Evil" in text
    assert "\x1b" not in text
    assert "<b>" not in (shell.folder / "out" / "parts.html").read_text()


def test_the_parts_of_a_real_network(shell: Shell) -> None:
    """A chain of the tests' cases beside a part of Segment Anything, whose record names these ops."""
    prompt = CASES.parent / "models" / "sam_part1_prompt__ts11.onnx"
    found = table(
        shell, str(prompt), str(CASES / "c1_chain100_1bad.onnx"), "-b", "whitelist", "--option", "deny=Sin,Cos"
    )
    assert refused(found) == {"sam_part1_prompt__ts11": {"Sin": 1, "Cos": 1}, "c1_chain100_1bad": {}}
