"""`onnx-bisect op-table`: a profile measured on a compiler answers as that compiler does."""

import signal
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import onnx
import pytest

from onnx_bisect.measuring import Sweep
from onnx_bisect.verdict_base import InMemoryVerdictBase
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.measurement.node_tests import USUAL_OPSET, NodeTest, NodeTestForm, node_tests
from onnxbisect_backends.simulator.profiles import AttrConstraint, InputConstraint, LogDetail, Profile, Unlisted, load
from support.cli.command_line import Shell

pytestmark = pytest.mark.long

#: A compiler with a limit of every sort, written down so that what is measured can be held against it.
CHIP = """
profile = "chip"
tool = "chip-cc"
version = "7"
source = "these tests"
folds = true
report = "all"
refusal = "E7: op {op} is not there"
[ops]
Abs = {}
Add = { constraints = [{ kind = "input", name = "A", rule = "dtype_in", value = ["FLOAT", "INT32"] }] }
Constant = {}
Conv = { constraints = [{ kind = "input", name = "W", rule = "initializer" }] }
Elu = {}
MaxPool = { constraints = [{ kind = "input", name = "X", rule = "rank_in", value = [4] }] }
Relu = {}
Reshape = { constraints = [{ kind = "input", name = "shape", rule = "initializer" }] }
Resize = { constraints = [{ kind = "attr", name = "mode", rule = "not_in", value = ["cubic"] }] }
[ops.Softmax]
constraints = [{ kind = "attr", name = "axis", rule = "in", value = [-1] }]
"""

ASKED = "Abs,Acos,Acosh,Add,Conv,Elu,MaxPool,Relu,Reshape,Resize,Softmax"


def measured(shell: Shell, *arguments: str) -> Profile:
    done = shell.call("op-table", "-o", "found.toml", *arguments)
    assert done.code == 0, done.err
    return load(str(shell.folder / "found.toml"))[0]


def chip(shell: Shell, text: str = CHIP) -> list[str]:
    (shell.folder / "chip.toml").write_text(text)
    return ["--backend", "whitelist", "--option", f"profile={shell.folder / 'chip.toml'}"]


def verdict(backend: Backend, model: onnx.ModelProto, folder: Path) -> str:
    work = Path(tempfile.mkdtemp(dir=folder))
    probe = folder / "probe.onnx"
    onnx.save(model, probe)
    return backend.judge(backend.compile(probe, work, Limits(seconds=60))).status


def usual(ops: set[str], newest: int) -> list[tuple[NodeTest, onnx.ModelProto]]:
    posed = [
        (test, test.question(NodeTestForm.USUAL, opset=min(newest, USUAL_OPSET), newest_opset=newest))
        for test in node_tests()
        if test.op in ops
    ]
    return [(test, model) for test, model in posed if model is not None]


def test_the_profile_of_a_real_compiler_answers_as_the_compiler_does(shell: Shell) -> None:
    ops = {"BitShift", "GRU", "Relu", "ai.onnx.preview.training::Adagrad"}
    profile = measured(shell, "--backend", "onnxruntime", "--only", ",".join(sorted(ops)))
    assert profile.ops.keys() == {"BitShift", "Constant", "GRU", "Relu"}
    assert "Adagrad" in profile.refused["ai.onnx.preview.training::Adagrad"]
    assert profile.version == registry.make("onnxruntime", {}).describe().version
    compiler = registry.make("onnxruntime", {})
    simulation = registry.make("whitelist", {"profile": str(shell.folder / "found.toml")})
    answers = {
        test.name: (verdict(compiler, model, shell.folder), verdict(simulation, model, shell.folder))
        for test, model in usual(ops, newest=26)
    }
    assert {said for said, _ in answers.values()} == {"pass", "fail"}
    assert [name for name, (said, simulated) in answers.items() if said != simulated] == []


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "backend", "options"),
    [
        ("iree-3.13.0-measured", "iree", {}),
        ("nncase-1.9.0-measured", "nncase", {}),
        ("openvino-2026.4.1-measured", "openvino", {}),
        ("qnn-2.7.0-measured", "qnn", {}),
        ("rknn-2.3.2-measured", "rknn", {}),
        ("tpu-mlir-1.8.1-measured", "tpu-mlir", {"version": "1.8.1"}),
        ("tpu-mlir-1.30.2-measured", "tpu-mlir", {"version": "1.30.2"}),
    ],
)
def test_a_shipped_profile_answers_as_its_compiler(
    name: str, backend: str, options: dict[str, str], tmp_path: Path
) -> None:
    """Some of the models that it was measured with, spread over the ops, but for those that its notes name."""
    compiler = registry.make(backend, options)
    if complaint := compiler.check():
        pytest.skip(complaint)
    profile, _ = load(name)
    description = compiler.describe()
    assert (profile.tool, profile.version) == (description.tool, description.version)
    simulation = registry.make("whitelist", {"profile": name})
    ops = {op for op, support in profile.ops.items() if support.node_tests} | profile.refused.keys()
    models = usual(ops, newest=description.newest_opset or 20)
    named = " ".join(profile.notes).replace(".", ",") + ","
    first = [(test, model) for test, model in models if test.place == 0 and f" {test.name}," not in named]
    asked = first[:: len(first) // 8]
    sweep = Sweep(
        backend=compiler, description=description, base=InMemoryVerdictBase(), folder=tmp_path, limits=Limits()
    )
    answers = {
        test.name: (said.status, verdict(simulation, model, tmp_path))
        for (test, model), said in zip(asked, sweep.ask([model for _, model in asked], lambda *_: None), strict=True)
        if said is not None and (said.passed or said.failed)
    }
    assert {said for said, _ in answers.values()} == {"pass", "fail"}
    assert [name for name, (said, simulated) in answers.items() if said != simulated] == []


def test_limits_are_those_that_the_compiler_has_and_the_profile_answers_as_it_does(shell: Shell) -> None:
    profile = measured(shell, *chip(shell), "--only", ASKED)
    assert profile.refused == {"Acos": "E7: op Acos is not there", "Acosh": "E7: op Acosh is not there"}
    assert profile.refusal == "E7: op {op} is not there"
    assert (profile.folds, profile.report) == (True, LogDetail.ALL)
    found = {
        (op, limit.name, limit.rule, limit.value)
        for op, support in profile.ops.items()
        for limit in support.constraints
        if isinstance(limit, AttrConstraint | InputConstraint)
    }
    assert ("Conv", "W", "initializer", ()) in found
    assert ("Reshape", "shape", "initializer", ()) in found
    assert ("Resize", "mode", "not_in", ("cubic",)) in found
    ((_, name, rule, dtypes),) = [limit for limit in found if limit[0] == "Add"]
    assert (name, rule) == ("A", "dtype_not_in")
    assert isinstance(dtypes, tuple)
    assert set(dtypes) == {"INT8", "INT16", "UINT8", "UINT16", "UINT32", "UINT64"}
    assert all(("MaxPool", "X", "rank_not_in", (rank,)) not in found for rank in (4,))
    assert not profile.ops["Relu"].constraints
    assert not profile.ops["Elu"].refuses
    # tests whose limit is not of a form that is learnt, as lists and shapes, are listed one by one
    assert not [note for note in profile.notes if "otherwise" in note]
    simulation = registry.make("whitelist", {"profile": str(shell.folder / "found.toml")})
    compiler = registry.make("whitelist", {"profile": str(shell.folder / "chip.toml")})
    for test, model in usual(set(ASKED.split(",")), newest=28):
        assert verdict(simulation, model, shell.folder) == verdict(compiler, model, shell.folder), test.name


@pytest.mark.parametrize(("report", "folds"), [("first", "false"), ("none", "true")])
def test_how_the_compiler_speaks_and_folds_is_measured(shell: Shell, report: str, folds: str) -> None:
    manners = ["--option", f"report={report}", "--option", f"folds={folds}"]
    profile = measured(shell, *chip(shell), *manners, "--only", "Abs,Acos,Acosh")
    assert (profile.report, profile.folds) == (LogDetail(report), folds == "true")


def test_a_second_run_asks_nothing_and_writes_the_same_bytes(shell: Shell) -> None:
    arguments = ["op-table", *chip(shell), "--only", "Acos,Add,Reshape", "-o", "found.toml"]
    first = shell.call(*arguments, "--jobs", "2")
    text = (shell.folder / "found.toml").read_bytes()
    second = shell.call(*arguments)
    assert (shell.folder / "found.toml").read_bytes() == text
    assert "; 0 compiler calls" in second.out
    assert "; 0 compiler calls" not in first.out


def test_how_the_compiler_speaks_is_asked_after_the_budget(shell: Shell) -> None:
    arguments = ["op-table", *chip(shell), "--only", "Acos,Acosh", "-o", "found.toml"]
    assert shell.call(*arguments).code == 0
    found = load(str(shell.folder / "found.toml"))[0]
    base = shell.folder / "cache" / "verdicts.sqlite"
    with closing(sqlite3.connect(base)) as answers, answers:
        answers.execute("DELETE FROM answer WHERE kept_at = (SELECT max(kept_at) FROM answer)")
    done = shell.call(*arguments, "--budget-seconds", "0.001")
    assert "; 1 compiler call" in done.out
    assert load(str(shell.folder / "found.toml"))[0] == found


def test_what_the_budget_did_not_reach_is_not_refused(shell: Shell) -> None:
    done = shell.call("op-table", "-o", "found.toml", *chip(shell), "--only", "Acos,Relu", "--budget-seconds", "0.001")
    assert "0 ops supported, 0 refused, 2 not known" in done.out
    profile = load(str(shell.folder / "found.toml"))[0]
    assert not profile.refused
    assert "Acos" not in profile.ops
    assert profile.unlisted is Unlisted.UNKNOWN
    assert "No answer in every form about Acos, Relu." in profile.notes


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--backend", "onnxruntime", "-o", "x.toml", "--only", "Rellu"], 2, "did you mean 'Relu'"),
        (["--backend", "onnxruntime", "-o", "x.json"], 2, "ends in .toml"),
        (["--backend", "onnxruntime", "-o", "no/such/x.toml"], 2, "no/such"),
        (["--backend", "onnxruntime", "-o", "/proc/x.toml"], 2, "/proc/x.toml cannot be written"),
        (["--backend", "onnxruntim", "-o", "x.toml"], 2, "onnxruntime"),
        (["--backend", "absent.toml", "-o", "x.toml"], 3, "no-such-compiler"),
    ],
)
def test_a_mistake_is_one_sentence(shell: Shell, arguments: list[str], code: int, words: str) -> None:
    (shell.folder / "absent.toml").write_text('name = "absent"\ncommand = ["no-such-compiler", "{model}"]\n')
    done = shell.call("op-table", *arguments)
    assert words in done.sentence()
    assert done.code == code


def answers(base: Path) -> int:
    """How many are kept there, when it is there and has its tables."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{base}?mode=ro", uri=True)) as opened:
        return int(opened.execute("SELECT count(*) FROM answer").fetchone()[0])
    return 0


def test_an_interrupt_writes_no_profile_and_keeps_the_verdicts(shell: Shell) -> None:
    arguments = ["op-table", *chip(shell), "--only", "Add,MaxPool,Resize", "-o", "found.toml"]
    base = shell.folder / "cache" / "verdicts.sqlite"
    with shell.start(*arguments, "--option", "delay=0.2") as process:
        give_up = time.monotonic() + 60
        while not answers(base):
            assert time.monotonic() < give_up, "nothing was answered"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "no profile is written" in err
    assert not (shell.folder / "found.toml").exists()
    assert answers(base)
