"""Compilers described by TOML files."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.testing import conv_net
from onnxbisect_backends.toolchains.toolchain import Toolchain, toolchains

HEAD = 'name = "t"\n'


def backend(tmp_path: Path, text: str, **options: str) -> TomlBackend:
    path = tmp_path / "t.toml"
    path.write_text(HEAD + text)
    return TomlBackend(path, options)


def shell(script: str, more: str = "") -> str:
    return f"command = ['sh', '-c', '''{script}''', 'sh', '{{model}}', '{{out}}']\n{more}"


def ask(it: TomlBackend, tmp_path: Path, limits: Limits | None = None) -> tuple[Outcome, Verdict]:
    probe, workdir = tmp_path / "probe.onnx", tmp_path / "work"
    onnx.save(conv_net(), probe)
    workdir.mkdir()
    outcome = it.compile(probe, workdir, limits or Limits(seconds=30))
    return outcome, it.judge(outcome)


@pytest.mark.parametrize(
    ("script", "rules", "status", "message"),
    [
        ("exit 0", "", Status.PASS, ""),
        ("echo error; exit 3", "[success]\nexit_codes = [0, 3]", Status.PASS, ""),
        ("exit 4", "[success]\nexit_codes = [0, 3]", Status.FAIL, "Ended with exit status 4."),
        ("exit 139", "[success]\nexit_codes = [139]", Status.PASS, ""),
        ("echo x > a.rknn", "[success]\nfiles = ['*.rknn']", Status.PASS, ""),
        ("mkdir d; echo x > d/a.rknn", "[success]\nfiles = ['d/*.rknn']", Status.PASS, ""),
        ("touch a.rknn", "[success]\nfiles = ['*.rknn']", Status.FAIL, "wrote no file '*.rknn'"),
        ('echo x > "$2"', "[success]\nfiles = ['out']", Status.PASS, ""),
        ("echo Converted Success!", "[success]\nlog_must_match = ['Success!$']", Status.PASS, ""),
        ("echo hm", "[success]\nlog_must_match = ['Success!$']", Status.FAIL, "nothing like 'Success!$'"),
        (
            "echo; echo No lowering for x",
            "[success]\nlog_must_not_match = ['^No low.*']",
            Status.FAIL,
            "No lowering for x",
        ),
        ("echo bad x", "[[patterns]]\nregex = 'bad'\nfails = true", Status.FAIL, "bad x"),
        ("echo bad x", "[[patterns]]\nregex = 'bad'", Status.PASS, ""),
        ("exit 9", "[unresolved]\nexit_codes = [9]", Status.UNRESOLVED, "could not answer (exit status 9)"),
        ("echo no licence; exit 1", "[unresolved]\nlog_matches = ['licen[cs]e']", Status.UNRESOLVED, "no licence"),
    ],
)
def test_what_counts_as_success(tmp_path: Path, script: str, rules: str, status: Status, message: str) -> None:
    _, verdict = ask(backend(tmp_path, shell(script, rules)), tmp_path)

    assert verdict.status is status
    assert message in verdict.message


def test_coloured_logs_are_matched_without_colours(tmp_path: Path) -> None:
    script = r"printf '\033[31mNo \033[0mlowering\r\nmore\n'"
    text = shell(script.replace("'", '"'), "[success]\nlog_must_not_match = ['^No lowering$']")

    assert ask(backend(tmp_path, text), tmp_path)[1].failed


PATTERNS = """
[[patterns]]
regex = 'No lowering found for: (?P<node>.+?), node type = (?P<op>\\w+)'
fails = true
[[patterns]]
regex = 'No conversion rule found for operations: (?P<op>.*)'
[[patterns]]
regex = 'Not match tensor (?P<tensor>.+):out\\d+'
kind = "error"
[[patterns]]
regex = 'Memory allocation'
kind = "resource"
"""


@pytest.mark.parametrize(
    ("log", "kind", "hints", "fingerprint"),
    [
        (
            "noise\nNo lowering found for: /a, b/Det_5, node type = Det\nNo lowering found for: q, node type = Foo\n",
            Kind.UNSUPPORTED,
            Hints(ops=("Det", "Foo"), nodes=("/a, b/Det_5", "q")),
            "No lowering found for: <node>, node type = <op>",
        ),
        (
            "-- No conversion rule found for operations: Det-17, my.domain.MyOp, ai.onnx.ml.Scaler-1, ONNX::X\n",
            Kind.UNSUPPORTED,
            Hints(ops=("Det", "my.domain::MyOp", "ai.onnx.ml::Scaler", "X")),
            "No conversion rule found for operations: <op>",
        ),
        (
            "W 18:09:38 Not match tensor det_5_o0:out0\nTypeError: None\n",
            Kind.ERROR,
            Hints(tensors=("det_5_o0",)),
            None,
        ),
        ("Error: Memory allocation related error\n", Kind.RESOURCE, Hints(), "Memory allocation"),
        ("Error: at node 'x_1'\nbye", Kind.ERROR, Hints(), "Error: at node <name>"),
    ],
)
def test_patterns_say_in_which_way_and_where(
    tmp_path: Path, log: str, kind: Kind, hints: Hints, fingerprint: str | None
) -> None:
    it = backend(tmp_path, shell("", PATTERNS))

    verdict = it.judge(Outcome(exit_code=1, log=log))

    assert (verdict.status, verdict.kind, verdict.hints) == (Status.FAIL, kind, hints)
    assert fingerprint is None or verdict.fingerprint == fingerprint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "[19:54:23] :220: No conversion rule found for operations: X",
            ":220: No conversion rule found for operations: X",
        ),
        ("2024/08/06 14:44:00 - Memory allocation failed", "Memory allocation failed"),
        ("2024-01-02T11:30:27.123 | ERROR | no pattern for this", "ERROR | no pattern for this"),
    ],
)
def test_a_message_does_not_begin_with_the_time(tmp_path: Path, line: str, message: str) -> None:
    it = backend(tmp_path, shell("", PATTERNS))

    assert it.judge(Outcome(exit_code=1, log=line)).message == message


def test_a_crash_keeps_the_hints_of_its_log(tmp_path: Path) -> None:
    it = backend(tmp_path, shell("", PATTERNS))

    verdict = it.judge(Outcome(signal=11, log="No lowering found for: n, node type = Det\n"))

    assert (verdict.kind, verdict.hints.ops) == (Kind.CRASH, ("Det",))
    assert verdict.fingerprint.startswith("SIGSEGV: ")
    assert verdict.message.startswith("Killed by SIGSEGV. Its last words: No lowering")


@pytest.mark.parametrize(
    ("outcome", "mark"),
    [
        (Outcome(signal=9, over_memory=True, peak_memory=300 << 20), "memory limit, holding 300 MB"),
        (Outcome(signal=25), "larger than the file limit"),
        (Outcome(exit_code=153), "larger than the file limit"),
    ],
)
def test_limits_of_the_target_are_failures_for_want_of_resources(tmp_path: Path, outcome: Outcome, mark: str) -> None:
    verdict = backend(tmp_path, shell("")).judge(outcome)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.RESOURCE)
    assert mark in verdict.message


@pytest.mark.parametrize("outcome", [Outcome(signal=9, peak_memory=300 << 20), Outcome(exit_code=137)])
def test_what_the_kernel_kills_for_want_of_memory_is_no_failure_of_the_model(tmp_path: Path, outcome: Outcome) -> None:
    verdict = backend(tmp_path, shell("")).judge(outcome)

    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.RESOURCE)
    assert f"holding {outcome.peak_memory >> 20} MB" in verdict.message


def test_the_compile_has_an_empty_directory_as_home_and_only_the_declared_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("SDK", "2")
    script = 'test -z "$(ls -A)" && test "$HOME" = "$PWD" && echo "$SECRET-$SDK-$OUT-$HERE"'
    env = 'inherit_env = ["SDK"]\nenv = { OUT = "{out}", HERE = "{here}" }\n'

    outcome, _ = ask(backend(tmp_path, shell(script, env)), tmp_path)

    assert outcome.log == f"-2-./out-{tmp_path}\n"


def test_it_can_run_beside_its_file(tmp_path: Path) -> None:
    outcome, _ = ask(backend(tmp_path, shell("pwd", 'cwd = "here"\n')), tmp_path)

    assert outcome.log == f"{tmp_path}\n"


def test_a_compiler_that_rewrites_its_input_gets_a_copy(tmp_path: Path) -> None:
    it = backend(tmp_path, shell('echo gone > "$1"; echo x > "$1.aux"', "[probe_format]\nself_contained = true"))

    outcome, verdict = ask(it, tmp_path)

    assert verdict.passed
    assert onnx.load(tmp_path / "probe.onnx").graph.node[0].op_type == "Conv"
    assert not (tmp_path / "probe.onnx.aux").exists()
    assert outcome.artifacts == (Path("model.onnx.aux"),)


def test_options_fill_placeholders_and_are_part_of_the_target(tmp_path: Path) -> None:
    text = "command = ['echo', '{model}', '--chip={chip}', '{{chip}}', '{ x }', 'v{level}']\n"
    text += "[options.chip]\ndefault = 'a1'\nchoices = ['a1', 'b2']\n[options.level]\ndefault = 3\n"
    it = backend(tmp_path, text, chip="b2")

    assert ask(it, tmp_path)[0].log.endswith(" --chip=b2 {chip} { x } v3\n")
    assert it.options["chip"] == "b2"
    assert it.options["level"] == "3"
    with pytest.raises(OptionError, match=r"'b1' is no value of the option 'chip'.*did you mean 'b2'"):
        backend(tmp_path, text, chip="b1")
    with pytest.raises(
        OptionError, match=r"'chop' is no option of the backend 't'; did you mean 'chip'\? Valid: chip, level"
    ):
        backend(tmp_path, text, chop="a1")


def test_two_named_files_of_one_name_both_count(tmp_path: Path) -> None:
    text = 'command = ["python", "{here}/a/s.py", "{here}/b/s.py", "{model}"]\n'
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.py").write_text("")
    seen = {backend(tmp_path, text).options["definition"]}
    for folder in ("a", "b"):
        (tmp_path / folder / "s.py").write_text("# edited\n" + folder)
        seen.add(backend(tmp_path, text).options["definition"])
    assert len(seen) == 3


def test_editing_the_file_or_the_script_makes_another_target(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("1")
    text = 'command = ["python", "{here}/s.py", "{model}"]\n'
    first = backend(tmp_path, text).options
    (tmp_path / "s.py").write_text("2")
    second = backend(tmp_path, text).options
    third = backend(tmp_path, text + "[success]\nexit_codes = [1]").options

    assert first != second != third != first


@pytest.mark.parametrize(
    ("asked", "seconds"), [(Limits(), 0.4), (Limits(seconds=0.2), 0.2)], ids=["the file's", "the user's"]
)
def test_limits_of_the_file_hold_where_the_user_asks_for_none(tmp_path: Path, asked: Limits, seconds: float) -> None:
    it = backend(tmp_path, shell("exec sleep 60", "[limits]\nseconds = 0.4\nlog_kb = 1"))

    outcome, _ = ask(it, tmp_path, asked)

    assert outcome.timed_out
    assert seconds <= outcome.seconds < seconds + 2


def test_log_and_memory_limits_are_in_the_units_of_their_names(tmp_path: Path) -> None:
    outcome, _ = ask(backend(tmp_path, shell("seq 100000", "[limits]\nlog_kb = 2")), tmp_path)

    assert outcome.log_truncated
    assert 2048 <= len(outcome.log) < 2148


@pytest.mark.parametrize(
    "rules",
    [
        "[[patterns]]\nregex = 'No lowering'\nfails = true",
        "[success]\nlog_must_not_match = ['No lowering']",
        "[success]\nlog_must_match = ['No lowering']",
    ],
)
def test_a_cut_log_proves_nothing_where_the_log_decides(tmp_path: Path, rules: str) -> None:
    script = "seq 5000; printf '%2000s\\n' 'No lowering'; seq 5000"

    outcome, verdict = ask(backend(tmp_path, shell(script, f"[limits]\nlog_kb = 2\n{rules}")), tmp_path)

    assert "No lowering" not in outcome.log
    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.ERROR)
    assert "log_kb" in verdict.message


def test_a_cut_log_changes_nothing_where_something_else_decides(tmp_path: Path) -> None:
    rules = "[success]\nfiles = ['out']\nlog_must_not_match = ['5000']"
    missing, said = (
        backend(tmp_path, shell("true", rules)).judge(Outcome(exit_code=0, log=log, log_truncated=True))
        for log in ("", "5000")
    )
    passed = backend(tmp_path, shell("true")).judge(Outcome(exit_code=0, log_truncated=True))

    assert (missing.status, said.status, passed.status) == (Status.FAIL, Status.FAIL, Status.PASS)


def test_the_description_is_what_the_file_says(tmp_path: Path) -> None:
    text = shell(
        "",
        'version = "1.2"\ntool = "T"\nops = ["Conv", "v::X"]\nweights_matter = true\ndynamic_shapes = true\n'
        "newest_opset = 15\nnewer_unfolded = true\n",
    )
    text += '[probe_format]\nsafe_names = true\nfolds = false\ninput_dtypes = ["float"]\n'

    it = backend(tmp_path, text).describe()

    assert (it.tool, it.version, it.weights_matter, it.dynamic_shapes) == ("T", "1.2", True, True)
    assert (it.newest_ir, it.newest_opset, it.newer_unfolded) == (None, 15, True)
    assert it.ops == frozenset({"Conv", "v::X"})
    assert (it.probe_format.safe_names, it.probe_format.folds) == (True, False)
    assert it.probe_format.input_dtypes == frozenset({"float"})
    assert not it.probe_format.self_contained


@pytest.mark.parametrize(
    ("how", "version"),
    [
        ("{ command = ['echo', 'mycc v3.2.1-rc1 (x)'] }", "3.2.1-rc1"),
        ("{ command = ['echo', 'mycc release R7'], regex = 'release (?:R)(\\d)' }", "7"),
    ],
)
def test_the_tool_is_asked_for_its_version(tmp_path: Path, how: str, version: str) -> None:
    assert backend(tmp_path, shell("", f"version = {how}\n")).describe().version == version


@pytest.mark.parametrize(
    ("command", "sentence"), [("['no-such-tool']", "was not found on PATH"), ("['echo', 'hi']", "printed 'hi'")]
)
def test_a_tool_that_does_not_tell_its_version_is_unusable(tmp_path: Path, command: str, sentence: str) -> None:
    it = backend(tmp_path, shell("", f"version = {{ command = {command} }}\n"))

    with pytest.raises(BackendUnusableError, match=sentence):
        it.describe()


def test_a_tool_that_does_not_tell_its_version_may_not_be_there(tmp_path: Path) -> None:
    text = "install = 'the SDK'\nversion = { command = ['sh', '-c', \"echo No module 'sdk'\"] }\n"
    it = backend(tmp_path, shell("", text))

    with pytest.raises(BackendUnusableError, match=r"No module.*; install the SDK\.$"):
        it.describe()


def test_check_says_what_to_install(tmp_path: Path) -> None:
    assert backend(tmp_path, shell("")).check() is None
    assert "rknn_convert" in (backend(tmp_path, "command = ['rknn_convert', '{model}']").check() or "")
    assert "rknn_convert" in (backend(tmp_path, "command = ['{here}/rknn_convert', '{model}']").check() or "")


GOOD = 'name = "x"\ncommand = ["a", "{model}"]\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x =", "is not valid TOML: invalid value (at end of document)."),
        (b"name = '\xff'", "is not UTF-8 text."),
        ('name = "x"', "the key 'command' is missing."),
        ('name = "x"\ncommand = "a {model}"', "command: input should be a list."),
        ('name = "x"\ncommand = ["a"]', "write {model} in its place."),
        (GOOD + "[sucess]", "'sucess' is no key; did you mean 'success'?"),
        (GOOD + "[success]\nexit_code = [0]", "'exit_code' is no key of success; did you mean 'exit_codes'?"),
        (GOOD + "[[patterns]]\nregexp = 'x'", "'regexp' is no key of patterns.0; did you mean 'regex'?"),
        (GOOD + "[[patterns]]\nregex = '('", "patterns.0.regex: '(' is not a regular expression"),
        (GOOD + "[[patterns]]\nregex = '(?P<name>x)'", "has the group 'name'; groups are op, node and tensor."),
        (GOOD + "[[patterns]]\nregex = 'x'\nkind = 'unsuported'", "patterns.0.kind: input should be 'unsupported'"),
        (GOOD + "[success]\nlog_must_match = ['*']", "success.log_must_match.0: '*' is not a regular expression"),
        (GOOD + "[limits]\nseconds = 0", "limits.seconds: input should be greater than 0."),
        (GOOD + "version = { command = ['a'], regx = '1' }", "'regx' is no key of version; did you mean 'regex'?"),
        (
            GOOD + "env = { A = '{chip}' }",
            "'{chip}' has the placeholder {chip}, which is neither built in nor an option",
        ),
        (GOOD + "[options.model]\ndefault = ''", "options.model has the name of a built-in placeholder."),
        (
            GOOD + "[[patterns]]\nregex = 'x'\nwhen = { chop = '1' }\n[options.chip]\ndefault = '1'",
            "patterns.0.when: 'chop' is no option; did you mean 'chip'? Valid: chip.",
        ),
        (
            GOOD + "[[patterns]]\nregex = 'x'\nwhen = { c = 'z' }\n[options.c]\ndefault = 'x'\nchoices = ['x']",
            "patterns.0.when: 'z' is no choice of options.c; valid: x.",
        ),
        (GOOD + "prepare = [[]]", "prepare.0: "),
        (GOOD + "[options.chip]\nhelp = ''", "the key 'options.chip.default' is missing."),
        (GOOD + "[options.c]\ndefault = 'x'\nchoices = ['y']", "the default 'x' is none of its choices."),
        ('name = "a b"\ncommand = ["{model}"]', "name: "),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(OptionError) as caught:
        TomlBackend(path, {})

    said = str(caught.value)
    assert sentence in said
    assert str(path) in said
    assert "\n" not in said
    assert said.endswith(".")


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nope\.toml cannot be read: No such file"):
        TomlBackend(tmp_path / "nope.toml", {})


STEPS = """
prepare = [
    ['sh', '-c', 'echo first; cp "$1" imported; exit $2', 'sh', '{model}', '{first}'],
    ['sh', '-c', 'echo second; cp imported again'],
]
command = ['sh', '-c', 'echo third; cp again "$1"', 'sh', '{out}']
[options.first]
default = 0
[success]
files = ['out']
"""


def test_commands_run_in_turn_in_one_directory(tmp_path: Path) -> None:
    outcome, verdict = ask(backend(tmp_path, STEPS), tmp_path)

    assert verdict.passed
    assert outcome.log == "first\nsecond\nthird\n"
    assert Path("out") in outcome.artifacts


def test_the_first_command_that_fails_is_the_end(tmp_path: Path) -> None:
    outcome, verdict = ask(backend(tmp_path, STEPS, first="7"), tmp_path)

    assert (outcome.exit_code, outcome.log) == (7, "first\n")
    assert (verdict.status, verdict.message) == (Status.FAIL, "first")


def test_the_last_command_decides_where_the_first_ends_in_a_status_of_success(tmp_path: Path) -> None:
    text = "prepare = [['sh', '-c', 'exit 1']]\n" + shell("exit 2", "[success]\nexit_codes = [0, 1]")

    outcome, verdict = ask(backend(tmp_path, text), tmp_path)

    assert outcome.exit_code == 2
    assert verdict.failed


def test_the_limits_are_those_of_all_commands_together(tmp_path: Path) -> None:
    text = "prepare = [['sleep', '1.5'], ['seq', '100000']]\n" + shell("seq 100000; exec sleep 60")

    outcome, _ = ask(backend(tmp_path, text), tmp_path, Limits(seconds=2.5, log_bytes=9000))

    assert outcome.timed_out
    assert 2.5 <= outcome.seconds < 4
    assert outcome.log_truncated
    assert len(outcome.log) < 9500


def test_every_command_must_be_there(tmp_path: Path) -> None:
    it = backend(tmp_path, "prepare = [['no-such-importer', '{model}']]\ncommand = ['echo']\n")

    assert "no-such-importer" in (it.check() or "")


def test_a_pattern_may_wait_for_the_value_of_an_option(tmp_path: Path) -> None:
    text = shell("echo Placing on CPU: Sin") + "[options.fallback]\ndefault = 'allow'\nchoices = ['allow', 'forbid']\n"
    text += "[[patterns]]\nregex = 'on CPU: (?P<op>\\w+)'\nkind = 'fallback'\nfails = true\n"
    text += "when = { fallback = 'forbid' }\n"

    allowed, forbidden = (
        backend(tmp_path, text, fallback=value).judge(Outcome(exit_code=0, log="Placing on CPU: Sin\n"))
        for value in ("allow", "forbid")
    )

    assert (allowed.status, allowed.hints) == (Status.PASS, Hints())
    assert (forbidden.status, forbidden.kind, forbidden.hints) == (Status.FAIL, Kind.FALLBACK, Hints(ops=("Sin",)))


def test_ops_are_spelt_as_onnx_spells_them(tmp_path: Path) -> None:
    text = shell("") + "[[patterns]]\nregex = 'for op type onnx_(?P<op>\\w+)'\n"
    log = "for op type onnx_hardsigmoid for op type onnx_Einsum for op type onnx_myOwn"

    verdict = backend(tmp_path, text).judge(Outcome(exit_code=1, log=log))

    assert verdict.hints.ops == ("HardSigmoid", "Einsum", "myOwn")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    """A toolchain whose environment holds one program, `tinyc`; not yet marked as installed."""
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    nothing: dict[str, Any] = {"requirements": (), "elsewhere": {}, "set_aside": ()}
    it = Toolchain(name="tiny", version="1.5", pythons=("3.11",), gigabytes=0.1, digest="d", **nothing)
    monkeypatch.setattr("onnxbisect_backends.toolchains.toolchain.toolchains", lambda: {**toolchains(), "tiny": (it,)})
    program = it.folder / "bin" / "tinyc"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$0" "$@"; echo "home $HOME"; cat /proc/net/dev; test "$FLAG" = on\n')
    program.chmod(0o755)
    return it


TINY = "toolchain = 'tiny'\ncommand = ['tinyc', '{toolchain}/lib', '{model}']\nenv = { FLAG = 'on' }\n"


def test_a_toolchain_that_is_not_installed_is_asked_for(tmp_path: Path, tiny: Toolchain) -> None:
    it = backend(tmp_path, TINY)

    assert it.check() == tiny.missing
    assert "onnx-bisect backends install tiny==1.5" in str(it.check())


def test_the_version_of_a_toolchain_is_an_option(
    tmp_path: Path, tiny: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = replace(tiny, version="1.4"), replace(tiny, version="1.6")
    known = {"tiny": (older, tiny, newer)}
    monkeypatch.setattr("onnxbisect_backends.toolchains.toolchain.toolchains", lambda: known)
    assert backend(tmp_path, TINY).toolchain == newer
    assert backend(tmp_path, TINY, version="1.4").toolchain == older
    assert backend(tmp_path, TINY, version="1.4").options["version"] == "1.4"
    assert "version" not in backend(tmp_path, TINY).options
    with pytest.raises(OptionError, match=r"'1\.7' is no version of tiny"):
        backend(tmp_path, TINY, version="1.7")

    tiny.python.symlink_to(sys.executable)
    (tiny.folder / "onnx-bisect-complete").touch()

    assert backend(tmp_path, TINY).toolchain == tiny  # the newest that is installed
    pinned = TINY.replace("'tiny'", "'tiny==1.4'")
    assert backend(tmp_path, pinned).toolchain == older
    with pytest.raises(OptionError, match="'version' is no option"):
        backend(tmp_path, pinned, version="1.6")


def test_what_is_worth_trying_is_one_of_the_choices(tmp_path: Path) -> None:
    text = shell("") + '[options.chip]\ndefault = "a"\nchoices = ["a", "b"]\nworth_trying = ["c"]\n'
    with pytest.raises(OptionError, match="'c', which is worth trying, is none of its choices"):
        backend(tmp_path, text)


def test_a_compiler_runs_in_its_toolchain(tmp_path: Path, tiny: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.python.symlink_to(sys.executable)
    (tiny.folder / "onnx-bisect-complete").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tinyc").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(elsewhere), prepend=":")
    it = backend(tmp_path, TINY)

    outcome, verdict = ask(it, tmp_path)

    assert it.check() is None
    assert it.toolchain == tiny
    assert it.describe().version == "1.5"  # the toolchain's, where the file does not say how to ask
    assert verdict.status is Status.PASS, outcome.log
    assert it.describe().environment == tiny.digest  # other pins, other answers
    assert outcome.log.splitlines()[0] == "bin/tinyc lib model.onnx"  # nobody else has this user's cache
    assert "home ." in outcome.log.splitlines()
    if subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        assert re.findall(r"(\w+):", outcome.log.partition("home .")[2]) == ["lo"]  # it has nobody to talk to


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("toolchain = 'openvno'\ncommand = ['ovc', '{model}']", "did you mean 'openvino'?"),
        ("toolchain = 'openvino==1'\ncommand = ['ovc', '{model}']", "'1' is no version of openvino"),
        ("command = ['{toolchain}/bin/ovc', '{model}']", "has the placeholder {toolchain}, which is neither"),
    ],
)
def test_a_toolchain_that_does_not_exist_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        backend(tmp_path, text)

    assert sentence in str(caught.value)


def test_what_to_install_is_told_where_the_command_is_not_found(tmp_path: Path) -> None:
    it = backend(tmp_path, "command = ['no-such-atc', '{model}']\ninstall = 'the CANN toolkit of your board'")

    assert it.check() == "The command 'no-such-atc' was not found on PATH; install the CANN toolkit of your board."
