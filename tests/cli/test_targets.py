"""`onnx-bisect run` with several compilers: whose option is whose, one report each, and the table beside them."""

import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_bisect import overview_schema
from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_backends.folders import cache_folder
from onnxbisect_cli.parameters import chosen
from support.cli.command_line import CASES, Shell

C2 = str(CASES / "c2_chain100_3bad.onnx")

#: Both refuse Asinh; one Cosh, the other Atan too.
TWO = ["--backend", "a=whitelist", "--backend", "b=whitelist"]
DENY = ["--option", "a.deny=Asinh,Cosh", "--option", "b.deny=Asinh,Atan"]


def overview(shell: Shell, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.call("run", "--format", "json", *arguments).out)
    jsonschema.validate(found, overview_schema())
    return found


def cells(found: dict[str, Any]) -> dict[str, list[str]]:
    return {"+".join(row["ops"]): [cell["state"] for cell in row["cells"].values()] for row in found["culprits"]}


def test_options_find_their_target_even_with_dots_of_their_own() -> None:
    one, two, three = chosen(
        ["rknn", "ax=pulsar2", "./my.chip.toml"],
        ["rknn.target=rk3566", "ax.quant.calibration_method=MSE", "ax.target_hardware=AX650", "my-chip.a=b.c=d"],
    )
    assert (one.label, one.backend, one.options) == ("rknn", "rknn", {"target": "rk3566"})
    assert (two.backend, two.options) == (
        "pulsar2",
        {"quant.calibration_method": "MSE", "target_hardware": "AX650"},
    )
    assert (three.label, three.backend, three.options) == ("my-chip", "./my.chip.toml", {"a": "b.c=d"})


def test_one_target_takes_its_options_bare() -> None:
    (only,) = chosen(["pulsar2"], ["quant.calibration_method=MSE"])
    assert only.options == {"quant.calibration_method": "MSE"}


@pytest.mark.parametrize(
    ("backends", "options", "words"),
    [
        (["rknn", "qnn"], ["target=rk3588"], "--option rknn.KEY=VALUE"),
        (["rknn", "qnn"], ["quant.method=a"], "(here: rknn, qnn)"),
        (["rknn", "rknn"], [], "--backend rknn-1=rknn"),
        (["rknn", "./rknn.toml"], [], "Two targets are called 'rknn'"),
        (["x=rknn", "X=qnn"], [], "Two targets are called 'X'"),
        (["rknn", "qnn"], ["rknn.target"], "'target' is not KEY=VALUE"),
    ],
)
def test_an_option_of_nobody_is_a_sentence_with_the_forms(backends: list[str], options: list[str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        chosen(backends, options)
    assert words in str(caught.value)


def test_the_table_says_who_refuses_what(shell: Shell) -> None:
    found = overview(shell, C2, *TWO, *DENY, "--backend", "onnxruntime")
    assert cells(found) == {
        "Asinh": ["refused", "refused", "passes"],
        "Cosh": ["refused", "passes", "passes"],
        "Atan": ["passes", "refused", "passes"],
    }
    assert [target["state"] for target in found["targets"]] == ["fail", "fail", "pass"]


def test_a_culprit_of_one_target_in_part_of_the_places_of_another_is_one_row(shell: Shell) -> None:
    """The pair of one holds the single culprit of the other; the places of one row are counted."""
    model = _chain(shell.folder, ["Relu", "Sinh", "Cosh", "Relu", "Sinh", "Relu"])
    pair = ["--option", "a.fail_patterns=Sinh>Cosh", "--option", "b.deny=Cosh"]
    found = overview(shell, model, *TWO, *pair)
    assert cells(found) == {
        "Sinh+Cosh": ["refused", "refused"],
        "Cosh": ["passes", "refused"],
    }


def test_a_target_that_cannot_be_used_stops_nobody(shell: Shell) -> None:
    broken = shell.folder / "broken.toml"
    broken.write_text('name = "broken"\ncommand = ["no-such-compiler", "{model}"]\n')
    out = shell.folder / "out"
    done = shell.call(
        "run",
        C2,
        "--backend",
        "broken.toml",
        "--backend",
        "whitelist",
        "--option",
        "whitelist.deny=Atan",
        "-o",
        str(out),
    )
    assert done.code == 3
    found = json.loads((out / "overview.json").read_text())
    assert [target["state"] for target in found["targets"]] == ["unusable", "fail"]
    assert "no-such-compiler" in found["targets"][0]["sentence"]
    assert cells(found) == {"Atan": ["unknown", "refused"]}
    assert "no-such-compiler" in done.out


def test_every_target_has_its_report_as_if_it_were_alone(shell: Shell) -> None:
    out = shell.folder / "out"
    assert shell.call("run", C2, *TWO, *DENY, "--out", str(out)).code == 1
    for label, ops in (("a", {"Asinh", "Cosh"}), ("b", {"Asinh", "Atan"})):
        report = json.loads((out / label / "report.json").read_text())
        assert {op for culprit in report["culprits"] for op in culprit["ops"]} == ops
        for culprit in report["culprits"]:
            assert [node.op_type for node in onnx.load(out / label / culprit["repro"]).graph.node] == culprit["ops"]
    for name in ("overview.md", "overview.html"):
        text = (out / name).read_text()
        assert all(word in text for word in ("n17_Asinh", "refused", "passes", "a/report."))
    assert shell.call("run", C2, *TWO, "--option", "a.deny=Sinh", "--option", "b.deny=Sinh").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*TWO, "--option", "a.deny=Atan", "--option", "b.dny=Atan"], "'dny' is no option"),
        ([*TWO, *DENY, "--format", "sarif"], "overview"),
        ([*TWO, *DENY, "--", "true", "{model}"], "leave --backend and --option out"),
    ],
)
def test_what_the_user_got_wrong_is_said_before_any_compile(shell: Shell, arguments: list[str], words: str) -> None:
    done = shell.call("run", C2, *arguments)
    assert done.code == 2
    assert words in done.sentence()


def test_a_target_that_needs_bound_dimensions_is_told_before_the_others_are_asked(shell: Shell) -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), shell.folder / "d.onnx"
    )
    done = shell.call("run", "d.onnx", "--backend", "onnxruntime", "--backend", "b=whitelist", "--option", "b.deny=Sin")
    assert done.code == 2
    assert "--input-shape x=1,3" in done.sentence()


@pytest.mark.compiler
def test_its_page_shows_what_is_printed(shell: Shell) -> None:
    """By the real compilers, whose environments are those of the user."""
    for name, version in (("qnn", {}), ("rknn", {}), ("tpu-mlir", {"version": "1.30.2"})):
        if complaint := registry.make(name, dict(version)).check():
            pytest.skip(complaint)
    cache = Path(shell.environment["ONNXBISECT_CACHE_DIR"])
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "toolchains").symlink_to(cache_folder() / "toolchains")
    root = Path(__file__).parents[2]
    block = next(
        it for it in (root / "docs" / "run.md").read_text().split("```console\n$ onnx-bisect ") if " -b " in it
    )
    command, _, rest = block.replace("\\\n", "").partition("\n")
    run, model, *options = command.split()
    printed = shell.call(run, str(root / model), *options).out
    # what a search costs is shown, and held to, elsewhere
    seconds = r"[\d.]+ (?:s|min \d+ s)"
    cost = re.compile(rf"\d+ compiler calls?, {seconds} \({seconds} compiling\)")
    shown, documented = (cost.sub("…", text).splitlines() for text in (printed, rest.partition("```")[0]))
    assert shown == documented


def test_an_interrupt_keeps_what_is_there(shell: Shell) -> None:
    slow = shell.folder / "slow.toml"
    (shell.folder / "slow.py").write_text(
        "import pathlib, time; pathlib.Path(__file__).with_name('begun').touch(); time.sleep(300)"
    )
    slow.write_text(f'name = "slow"\ncommand = [{json.dumps(sys.executable)}, "{{here}}/slow.py", "{{model}}"]\n')
    last = ["--backend", "z=whitelist", "--option", "z.deny=Atan"]
    arguments = ["run", C2, "--backend", "a=whitelist", *DENY[:2], "--backend", "slow.toml", *last]
    with shell.start(*arguments, "--format", "json", "--out", "out") as process:
        _wait_for(shell.folder / "begun")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads(out)
    assert [target["state"] for target in found["targets"]] == ["fail", "unresolved", "not_asked"]
    assert cells(found)["Asinh"] == ["refused", "unknown", "unknown"]
    assert json.loads((shell.folder / "out" / "overview.json").read_text()) == found


def test_an_interrupt_before_a_search_keeps_what_is_there(shell: Shell) -> None:
    """A version command that hangs is not part of a search: signals come as anywhere else in the program."""
    slow = shell.folder / "slow.toml"
    code = "import pathlib, time; me = pathlib.Path(__file__); n = len(list(me.parent.glob('asked*')))\n"
    code += "(me.parent / f'asked{n}').touch(); time.sleep(300 * (n > 0)); print('version 1')"
    (shell.folder / "slow.py").write_text(code)
    words = json.dumps([sys.executable, "{here}/slow.py"])
    slow.write_text(
        f'name = "slow"\ncommand = ["true", "{{model}}"]\n[version]\ncommand = {words}\nregex = "version (.*)"\n'
    )
    arguments = ["run", C2, "--backend", "a=whitelist", *DENY[:2], "--backend", "slow.toml"]
    with shell.start(*arguments, "--format", "json") as process:
        _wait_for(shell.folder / "asked1")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert [target["state"] for target in json.loads(out)["targets"]] == ["fail", "not_asked"]


def _wait_for(path: Path) -> None:
    give_up = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < give_up, "the compiler did not start"
        time.sleep(0.05)


def _chain(folder: Path, ops: list[str]) -> str:
    nodes = [helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], name=f"n{i}_{op}") for i, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("t0", f"t{len(ops)}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    return "m.onnx"
