"""Any command as a compiler, as `git bisect run` has it."""

import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

from onnxbisect.errors import OptionError
from onnxbisect.fingerprint import headline
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.commands.any_command import CommandBackend, mentions
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.testing import conv_net


def ask(backend: CommandBackend, tmp_path: Path, **limits: float) -> tuple[Outcome, Verdict]:
    probe, workdir = tmp_path / "probe.onnx", tmp_path / "work"
    onnx.save(conv_net(), probe)
    workdir.mkdir(exist_ok=True)
    outcome = backend.compile(probe, workdir, Limits(**{"seconds": 30, **limits}))  # type: ignore[arg-type]
    return outcome, backend.judge(outcome)


def shell(script: str, cwd: Path | None = None) -> CommandBackend:
    return CommandBackend(["sh", "-c", script, "sh", "{model}", "{workdir}", "{out}"], cwd=cwd)


@pytest.mark.parametrize(
    ("script", "status", "kind"),
    [
        ("exit 0", Status.PASS, None),
        ("echo 'error: but fine'; exit 0", Status.PASS, None),
        ("exit 125", Status.UNRESOLVED, Kind.ERROR),
        ("exit 1", Status.FAIL, Kind.ERROR),
        ("exit 2", Status.FAIL, Kind.ERROR),
        ("exit 126", Status.FAIL, Kind.ERROR),
        ("exit 255", Status.FAIL, Kind.ERROR),
        ("kill -SEGV $$", Status.FAIL, Kind.CRASH),
        ("kill -KILL $$", Status.UNRESOLVED, Kind.RESOURCE),
        ("exit 139", Status.FAIL, Kind.CRASH),
        ("echo MemoryError; exit 1", Status.UNRESOLVED, Kind.RESOURCE),
        ("echo 'numpy.core._exceptions._ArrayMemoryError: 8 GiB'; exit 1", Status.UNRESOLVED, Kind.RESOURCE),
        ("echo '  what():  std::bad_alloc'; kill -ABRT $$", Status.UNRESOLVED, Kind.RESOURCE),
        ("echo 'LLVM ERROR: out of memory'; exit 134", Status.UNRESOLVED, Kind.RESOURCE),
        ("echo 'no op MemoryError'; exit 1", Status.FAIL, Kind.ERROR),
        ("echo 'Error: License checkout failed (-15,578)'; exit 1", Status.UNRESOLVED, Kind.ERROR),
        ("echo 'Cannot connect to license server system.'; exit 255", Status.UNRESOLVED, Kind.ERROR),
        ("echo 'FATAL: no valid licence for feature NPU_COMPILER'; exit 3", Status.UNRESOLVED, Kind.ERROR),
        ("echo 'the license file has expired'; exit 1", Status.UNRESOLVED, Kind.ERROR),
        ("echo 'License server: ok'; echo 'cannot lower op Abs'; exit 1", Status.FAIL, Kind.ERROR),
        ("echo 'Licensed under Apache-2.0, see file LICENSE'; exit 1", Status.FAIL, Kind.ERROR),
        ("echo 'License checkout failed, going on without'; exit 0", Status.PASS, None),
        ("exit 134", Status.FAIL, Kind.CRASH),
        ("exit 136", Status.FAIL, Kind.CRASH),
        ("exit 140", Status.FAIL, Kind.ERROR),
    ],
)
def test_the_exit_status_decides(tmp_path: Path, script: str, status: Status, kind: Kind | None) -> None:
    _, verdict = ask(shell(script), tmp_path)

    assert (verdict.status, verdict.kind) == (status, kind)


def test_a_hang_is_unresolved(tmp_path: Path) -> None:
    _, verdict = ask(shell("sleep 60"), tmp_path, seconds=0.3)

    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.TIMEOUT)
    assert "raise the time limit" in verdict.message


def test_a_command_that_vanishes_is_unresolved(tmp_path: Path) -> None:
    _, verdict = ask(CommandBackend(["./gone", "{model}"], cwd=tmp_path), tmp_path)

    assert verdict.status is Status.UNRESOLVED
    assert "./gone" in verdict.message


def test_the_command_gets_the_probe_and_the_places_it_asked_for(tmp_path: Path) -> None:
    script = 'test -f "$1" && test -z "$(ls -A "$2")" && test "$TMPDIR" = "$2" && test ! -e "$3" && echo x > "$3"'

    outcome, verdict = ask(shell(script), tmp_path)

    assert verdict.status is Status.PASS, outcome.log
    assert outcome.artifacts == (Path("out"),)


def test_it_runs_where_the_user_stands_with_the_users_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "project"
    home.mkdir()
    (home / "check.py").write_text("import os, sys; open('calls.jsonl', 'a').write('x'); print(os.environ['MY_SDK'])")
    monkeypatch.chdir(home)
    monkeypatch.setenv("MY_SDK", "here it is")
    backend = CommandBackend([sys.executable, "check.py", "{model}", "--log", "calls.jsonl"])
    monkeypatch.chdir("/")

    outcome, _ = ask(backend, tmp_path)

    assert outcome.log == "here it is\n"
    assert (home / "calls.jsonl").read_text() == "x"


def test_other_braces_stay_as_they_are(tmp_path: Path) -> None:
    outcome, _ = ask(CommandBackend(["echo", '{"model": {x}}', "--in={model}"]), tmp_path)

    assert outcome.log == '{"model": {x}} --in=model.onnx\n'


def test_a_failure_has_the_commands_last_complaint(tmp_path: Path) -> None:
    _, verdict = ask(shell("echo start; echo \"error: node '/a/Erf_3' is bad\"; echo bye; exit 1"), tmp_path)

    assert verdict.message == "error: node '/a/Erf_3' is bad"
    assert verdict.fingerprint == "error: node <name> is bad"
    assert not verdict.hints  # the probe has no such node


@pytest.mark.parametrize(
    ("words", "ops", "nodes"),
    [
        ("unsupported op Conv", ("Conv",), ()),
        ("ONNX::Conv: no converter", ("Conv",), ()),
        ("Conv is not supported.", ("Conv",), ()),
        ("cannot convert 'Conv' of node 'conv_0'", ("Conv",), ("conv_0",)),
        ("error: my.Conv, Convolution and Conv2d failed", (), ()),
        ("Not supported, and Relu is fine", ("Relu",), ()),
        ("failed to legalize operation 'onnx.Conv'", ("Conv",), ()),
        ('failed to legalize operation "onnx.Conv" that was explicitly marked illegal', ("Conv",), ()),
        ("error: onnx.Conv: no pattern", ("Conv",), ()),
        ("'onnx::Conv' is not supported", ("Conv",), ()),
        ("<unknown>:0: error: 'top.Conv' op failed", ("Conv",), ()),
        ('error: torch.operator "onnx.Conv" is illegal', ("Conv",), ()),
        ("unsupported layer CONV", ("Conv",), ()),
        ("unsupported layer GLOBAL_AVERAGE_POOL (3)", ("GlobalAveragePool",), ()),
        ("no kernel for global_average_pool", ("GlobalAveragePool",), ()),
        ("no kernel for 'conv'", ("Conv",), ()),
        ("cannot convert Conv_12", ("Conv",), ()),
        ("cannot convert [Conv:12]", ("Conv",), ()),
        ("cannot convert node conv_01, conv_0_1 or xconv_0", (), ()),
        ("invalid node (conv_0)", (), ("conv_0",)),
        ('{"level": "error", "node": "conv_0", "op": "Conv"}', ("Conv",), ("conv_0",)),
        ("error in node 'relu'", (), ("relu",)),
        ("error: Relu (relu) is not supported", ("Relu",), ("relu",)),
        ("error: relu and conv are NOT supported", (), ()),
        ("error in a;b (1)/c: no", (), ("a;b (1)/c",)),
        ("error in a;b (1)/cd: no", (), ()),
    ],
)
def test_a_failure_that_names_ops_or_nodes_of_the_probe_gives_hints(
    tmp_path: Path, words: str, ops: tuple[str, ...], nodes: tuple[str, ...]
) -> None:
    model = tmp_path / "model.onnx"
    names = ("conv_0", "relu", "not", "a;b (1)/c")
    ops_of_model = ("Conv", "Relu", "Not", "GlobalAveragePool")
    made = [helper.make_node(op, ["x"], [name], name=name) for op, name in zip(ops_of_model, names, strict=True)]
    onnx.save(helper.make_model(helper.make_graph(made, "probe", [], [])), model)

    hints = mentions(words, model).hints

    assert (hints.ops, hints.nodes) == (ops, nodes)


LINES = "{0}: op {1} has too many dimensions, not supported"


@pytest.mark.parametrize(
    ("log", "nodes"),
    [
        ("\n".join(LINES.format(f"n{number}", "Abs") for number in (1, 12, 3)), {"n1", "n12", "n3"}),
        ("\r\n".join(f"\x1b[31m{LINES.format(f'n{number}', 'Abs')}\x1b[0m" for number in (1, 12)), {"n1", "n12"}),
        ("\n".join(f"12:00:0{number} {LINES.format(f'n{number}', 'Abs')}" for number in (1, 3)), {"n1", "n3"}),
        ("\n".join(f'{{"error": "unsupported", "node": "n{number}"}}' for number in (1, 12)), {"n1", "n12"}),
        ("\n".join(f"error: 'n{number}' is bad" for number in (1, 12)) + "\n2 errors, aborted", {"n1", "n12"}),
        # of progress only the complaint counts, and a compiler that ends without one was at the last node
        ("converting n1\nconverting n12\nconverting n3\nerror: n12 is not supported", {"n12"}),
        ("converting n1\nconverting n12\nconverting n3", {"n3"}),
        # lines of another form are about something else
        ("error: n1 was not found in the table of weights\nerror: n12 is not supported", {"n12"}),
    ],
)
def test_the_lines_of_one_form_are_read_together(tmp_path: Path, log: str, nodes: set[str]) -> None:
    model = tmp_path / "model.onnx"
    made = [helper.make_node("Abs", ["x"], [f"y{number}"], name=f"n{number}") for number in (1, 2, 3, 12)]
    onnx.save(helper.make_model(helper.make_graph(made, "probe", [], [])), model)

    assert set(mentions(headline(log), model, log).hints.nodes) == nodes


def test_two_ops_refused_in_the_same_words_have_the_same_fingerprint(tmp_path: Path) -> None:
    found = [ask(shell(f"echo 'error: unsupported op {op}'; exit 1"), tmp_path)[1] for op in ("Conv", "Relu")]

    assert [verdict.hints.ops for verdict in found] == [("Conv",), ("Relu",)]
    assert found[0].fingerprint == found[1].fingerprint
    assert "Conv" in found[0].message


def test_what_a_passing_compile_or_one_without_an_answer_names_is_no_hint(tmp_path: Path) -> None:
    for status in (0, 125):
        _, verdict = ask(shell(f"echo 'warning: Conv is slow'; exit {status}"), tmp_path)
        assert not verdict.hints


def test_a_silent_failure_still_has_a_message(tmp_path: Path) -> None:
    _, verdict = ask(shell("exit 7"), tmp_path)

    assert verdict.message == "Ended with exit status 7, without a word."
    assert verdict.fingerprint == ""


@pytest.mark.parametrize("argv", [[], ["python", "compile.py"], ["compile", "{models}", "model"]])
def test_a_command_without_a_place_for_the_model_is_refused(argv: list[str]) -> None:
    with pytest.raises(OptionError, match=r"\{model\}"):
        CommandBackend(argv)


def test_check_says_what_is_missing(tmp_path: Path) -> None:
    missing = CommandBackend(["no-such-compiler", "{model}"]).check()

    assert missing is not None
    assert "no-such-compiler" in missing
    assert shell("true").check() is None


def test_editing_a_file_that_the_command_names_makes_it_another_target(tmp_path: Path) -> None:
    def version() -> str:
        argv = ["python", "check.py", "{model}", "--rule=rule.json", "--log", "seen", "-o", "result.bin", "calls.jsonl"]
        return CommandBackend(argv, cwd=tmp_path).describe().version

    seen = []
    for name in ["check.py", "rule.json"]:
        (tmp_path / name).write_text("1")
        seen.append(version())
        (tmp_path / name).write_text("2")
        seen.append(version())
    assert len(set(seen)) == 4
    assert version() == seen[-1]

    for name in ["seen", "result.bin", "calls.jsonl"]:  # files that the command writes
        (tmp_path / name).write_text("grows with every call")
        assert version() == seen[-1]


def test_a_rebuilt_compiler_is_another_target_though_too_large_to_read(tmp_path: Path) -> None:
    compiler = tmp_path / "mycc"
    compiler.write_bytes(bytes(2 << 20))
    before = CommandBackend(["./mycc", "{model}"], cwd=tmp_path).describe()
    compiler.write_bytes(bytes(2 << 20) + b"1")

    assert CommandBackend(["./mycc", "{model}"], cwd=tmp_path).describe() != before
