"""What a user does wrong is one sentence and an exit status, never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect_cli import main
from support.cli.command_line import CASES, PROGRAM, Shell

C1 = str(CASES / "c1_chain100_1bad.onnx")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "missing.onnx", "--backend", "onnxruntime"], 2, "missing.onnx"),
        (["run", ".", "--backend", "onnxruntime"], 2, "no .onnx file"),
        (["run", __file__, "--backend", "onnxruntime"], 2, "test_mistakes.py"),
        (["run", C1], 2, "--backend NAME"),
        (["run", C1, "--backend", "onnxruntime", "--", "true", "{model}"], 2, "leave --backend and --option out"),
        (["run", C1, "--backend", "onnxruntim"], 2, "onnxruntime"),
        (["run", C1, "--backend", "whitelist", "--option", "profil=edgesam"], 2, "profile"),
        (["run", C1, "--backend", "whitelist", "--option", "profile=./gone.toml"], 2, "No such file or directory."),
        (["run", C1, "--backend", "onnxruntime", "--option", "x"], 2, "KEY=VALUE"),
        (["run", C1, "--backend", "./missing.toml"], 2, "missing.toml"),
        (["run", C1, "--input-shape", "x=one", "--", "true", "{model}"], 2, "x=one"),
        (["run", C1, "--input-shape", "nothing=1", "--", "true", "{model}"], 2, "nothing"),
        (["run", C1, "--", "true"], 2, "{model}"),
        (["run", C1, "--", "no-such-compiler", "{model}"], 3, "no-such-compiler"),
        (["run", C1, "--out", "/dev/null/x", "--", "true", "{model}"], 2, "/dev/null/x"),
        (["run", C1, "--out", "/proc/self", "--", "true", "{model}"], 2, "cannot be written to"),
        (["inspect", "missing.onnx"], 2, "missing.onnx"),
        (["extract", C1, "-o", "piece.onnx"], 2, "--nodes"),
        (["extract", C1, "-o", "piece.onnx", "--scope", "/decoder"], 2, "'/decoder'"),
        (["extract", C1, "-o", "piece.onnx", "--scope", "/decoder", "--nodes", "n17_Asinh"], 2, "either"),
        (["extract", C1, "-o", C1, "--nodes", "n17_Asinh"], 2, "the model itself"),
        (["extract", C1, "-o", "no/such/piece.onnx", "--nodes", "n17_Asinh"], 2, "no/such"),
        (["report", "missing.json"], 2, "missing.json"),
        (["report", C1], 2, "no report"),
    ],
)
def test_one_sentence_and_the_exit_status(shell: Shell, arguments: list[str], code: int, words: str) -> None:
    done = shell.call(*arguments)
    assert words in done.sentence()
    assert done.code == code


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", C1, "--no-such-option"], ["no-such-command"], ["run", C1, "--jobs", "0"], []]
)
def test_a_wrong_command_line_is_two(shell: Shell, arguments: list[str]) -> None:
    done = shell.call(*arguments)
    assert done.code == 2
    assert "Usage:" in done.out + done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "", "--", "true", "{model}"],
        ["run", C1, "--out", "", "--", "true", "{model}"],
        ["fix", C1, "--out", "", "--", "true", "{model}"],
        ["submit", "", "--server", "http://127.0.0.1:1", "--token", "x", "--backend", "qnn"],
    ],
    ids=lambda arguments: f"{arguments[0]} {len(arguments)}",
)
def test_an_unset_variable_is_not_the_folder_one_is_in(shell: Shell, arguments: list[str]) -> None:
    """As `--out "$UNSET"`; an empty path would be the current folder."""
    (shell.folder / "another.onnx").write_bytes(Path(C1).read_bytes())
    done = shell.call(*arguments)
    assert done.code == 2
    assert "it is empty" in done.err
    assert [file.name for file in shell.folder.iterdir() if file.name != "cache"] == ["another.onnx"]


@pytest.mark.parametrize(
    ("dims", "example"), [(["batch", 3, "side"], "1,3,1"), (["batch", 3, "height", "width"], "1,3,224,224")]
)
def test_dynamic_dimensions_are_refused_with_what_to_type(shell: Shell, dims: list[str | int], example: str) -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, shell.folder / "dynamic.onnx")
    done = shell.call("run", "dynamic.onnx", "--backend", "whitelist", "--option", "deny=Sinh")
    assert done.code == 2
    sentence = done.sentence()
    assert f"[{', '.join(map(str, dims))}]" in sentence
    assert f"--input-shape x={example}." in sentence
    bound = ["--input-shape", f"x={example}", "--backend", "whitelist", "--option", "deny=Sinh"]
    assert shell.call("run", "dynamic.onnx", *bound).code == 0
    assert shell.call("run", "dynamic.onnx", "--", "true", "{model}").code == 0


def test_a_bug_of_ours_asks_for_a_report_and_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("division\x1b[2J by zero")

    monkeypatch.setattr(main, "app", broken)
    monkeypatch.delenv("ONNXBISECT_DEBUG", raising=False)
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert caught.value.code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "a bug in onnx-bisect (ZeroDivisionError: division\\x1b[2J by zero)" in line
    monkeypatch.setenv("ONNXBISECT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main.run()


def test_help_and_version_import_no_onnx() -> None:
    """What makes them fast."""
    code = (
        "import sys; sys.argv = ['onnx-bisect', 'run', '--help']\n"
        "from onnxbisect_cli.main import run\n"
        "try: run()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'onnx', 'onnxruntime', 'numpy', 'rich', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_version_is_that_of_the_distribution(shell: Shell) -> None:
    from importlib.metadata import version

    assert shell.call("--version").out == f"onnx-bisect {version('onnx-bisect')}\n"


def test_a_reader_that_closes_the_pipe_is_no_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [PROGRAM, "inspect", C1], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_report_with_a_part_missing_is_damaged(shell: Shell, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"format": "onnx-bisect/report@1"}')
    done = shell.call("report", str(report))
    assert "is damaged" in done.sentence()
    assert done.code == 2


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"culprits": [{}]}, "culprits[0].id"),
        ({"units": []}, "units"),
        ({"model": None}, "model"),
        ({"stats": {"rounds": "3"}}, "stats.compiler_calls"),
        ({"op_table": [{"op": "Abs", "domain": "", "nodes": "1"}]}, "op_table[0].nodes"),
        ({"partition": [{"size": 1, "nodes": ["a", 3]}]}, "partition[0].nodes[1]"),
    ],
)
def test_what_is_damaged_within_a_report_is_named(
    shell: Shell, tmp_path: Path, change: dict[str, object], place: str
) -> None:
    golden = Path(__file__).parents[1] / "engine" / "golden" / "report.json"
    report = tmp_path / "report.json"
    report.write_text(json.dumps({**json.loads(golden.read_text("utf-8")), **change}))
    for words in (("report", str(report)), ("compare", str(golden), str(report))):
        done = shell.call(*words)
        assert f"is damaged: '{place}' is missing or wrong" in done.sentence()
        assert done.code == 2


@pytest.mark.parametrize("closed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_closed_stream_does_not_cost_the_files(tmp_path: Path, closed: int) -> None:
    words = [PROGRAM, "run", C1, "--backend", "onnxruntime", "--no-cache", "--out", str(tmp_path / "out")]
    shut = ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *words]
    assert subprocess.run(shut, check=False, capture_output=True).returncode == 0
    assert (tmp_path / "out" / "report.json").exists()
