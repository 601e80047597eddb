"""No name of a file, a node, a tensor or an option brings control codes to the terminal."""

import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from support.cli.command_line import Shell

ESC = "\x1b[2J"
NAME = f"a{ESC}.onnx"
REFUSES = ("--backend", "whitelist", "--option", "deny=Abs")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model."""
    folder = tmp_path_factory.mktemp("hostile")
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Abs", [f"x{ESC}"], [f"t{ESC}"], name=f"/m{ESC}/Abs"),
        helper.make_node("Relu", [f"t{ESC}"], [f"y{ESC}"], name=f"/m{ESC}/Relu"),
    ]
    graph = helper.make_graph(
        nodes,
        f"g{ESC}",
        [value(f"x{ESC}", TensorProto.FLOAT, [2, 3])],
        [value(f"y{ESC}", TensorProto.FLOAT, [2, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model.producer_name = f"p{ESC}"
    onnx.save(model, folder / NAME)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("run", NAME, *REFUSES, "--no-cache", "--out", f"out{ESC}"),
        ("run", NAME, *REFUSES, "--no-cache", "--format", "md"),
        ("run", NAME, *REFUSES, "--input-shape", f"x{ESC}=2,3", "--no-cache"),
        ("run", NAME, *REFUSES, "--input-shape", f"z{ESC}=2,3"),
        ("run", NAME, "--backend", f"{ESC}.toml"),
        ("run", NAME, "--backend", ESC),
        ("run", NAME, "--backend", "whitelist", "--option", f"{ESC}=1"),
        ("run", NAME, "--backend", "whitelist", "--option", f"deny={ESC}"),
        ("run", NAME, *REFUSES, "--", "sh", "-c", f"echo {ESC} >&2; exit 1"),
        ("run", NAME, "--no-cache", "--", "sh", "-c", "printf 'E: \\033[2J no Abs\\n' >&2; exit 1", "{model}"),
        ("run", f"no{ESC}.onnx", *REFUSES),
        ("fix", NAME, *REFUSES, "--no-cache", "-o", f"r{ESC}/c.onnx"),
        ("fix", NAME, *REFUSES, "--no-cache", "--dry-run"),
        ("split", NAME, *REFUSES, "--no-cache", "-o", f"s{ESC}"),
        ("inspect", NAME),
        ("inspect", NAME, "--backend", "rknn"),
        ("inspect", NAME, "--format", "md"),
        ("extract", NAME, "--nodes", f"/m{ESC}/Abs", "-o", f"e{ESC}.onnx"),
        ("extract", NAME, "--nodes", f"/n{ESC}/Abs", "-o", "e.onnx"),
        ("share", NAME, *REFUSES, "-o", f"shared{ESC}.onnx"),
        ("rules", "--model", NAME),
        ("rules", ESC),
        ("compare", NAME, NAME),
        ("compare", NAME, f"no{ESC}"),
        ("regress", NAME, "--backend", ESC, "--versions", "1..2"),
        ("op-table", "--backend", "whitelist", "--option", "deny=Abs", "--only", "Abs", "-o", f"p{ESC}.toml"),
        ("op-table", "--backend", "whitelist", "--option", "deny=Abs", "--only", ESC, "-o", "p.toml"),
        ("backends", "check", f"{ESC}.toml"),
        ("backends", "options", ESC),
        ("backends", "install", ESC),
        ("submit", NAME, *REFUSES, "--server", f"http://127.0.0.1:1/{ESC}", "--token", "x"),
        (ESC,),
        ("run", f"--{ESC}"),
    ],
    ids=lambda command: "-".join(command[:1] + command[2:4]).encode("unicode_escape").decode()[:40],
)
def test_no_output_has_control_codes(shell: Shell, model_folder: Path, command: tuple[str, ...]) -> None:
    shutil.copy(model_folder / NAME, shell.folder)
    done = shell.call(*command)
    assert done.out + done.err
    assert "\x1b" not in done.out + done.err


def test_reports_and_profiles_that_are_read_again_have_none(shell: Shell, model_folder: Path) -> None:
    shutil.copy(model_folder / NAME, shell.folder)
    assert shell.call("run", NAME, *REFUSES, "--no-cache", "--out", "out").code == 1
    for form in ("text", "md", "html", "junit"):
        assert "\x1b" not in shell.call("report", "out", "--format", form).out
    for command in (("compare", "out", "out"), ("compare", "out", "out", "--format", "md")):
        assert "\x1b" not in shell.call(*command).out
    done = shell.call("profile", "--from", f"out{ESC}", "-o", f"p{ESC}.toml")
    assert done.code == 2
    assert "\x1b" not in done.err
