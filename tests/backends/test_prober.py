"""One question from cut to verdict, with real commands as compilers and onnx's and onnxruntime's own opinions."""

import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.cut import Cutter, write
from onnxbisect.errors import BackendUnusableError, CutError, ShortageError
from onnxbisect.model import Model, load
from onnxbisect.model.values import TensorValues
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.probing.loaded_model import Validity
from onnxbisect_backends.probing.prober import Objection, Prober, WriteSamples, file_digest
from onnxbisect_backends.registry import make
from onnxbisect_backends.samples import write_samples


def fair(units: UnitSet, probe: Path) -> None:
    """No objection to any cut."""


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Relu, Sinh, Cosh in a row, on floats."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Sinh", ["a"], ["b"], name="second/:0"),
        helper.make_node("Cosh", ["b"], ["y"], name="third"),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", value[:1], value[1:])
    path = tmp_path / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return load(path)


def prober(
    model: Model,
    folder: Path,
    command: Sequence[str],
    *,
    objection: Objection = fair,
    seconds: float = 60.0,
    probe_format: ProbeFormat | None = None,
    samples: WriteSamples | None = None,
) -> Prober:
    cutter = Cutter(model)
    folder.mkdir()

    def cut(units: UnitSet, path: Path) -> Mapping[str, str]:
        piece = cutter.cut(units, probe_format or ProbeFormat())
        write(piece, model, path)
        return piece.renamed

    backend = CommandBackend(command)
    limits = Limits(seconds=seconds)
    return Prober(write=cut, backend=backend, limits=limits, objection=objection, folder=folder, samples=samples)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code, "{model}", "{workdir}"]


def test_the_compiler_gets_the_piece_in_an_empty_folder_and_nothing_stays(model: Model, tmp_path: Path) -> None:
    code = (
        "import sys, os, onnx; names = [n.name for n in onnx.load(sys.argv[1]).graph.node];"
        "print('nodes', names, 'beside', os.listdir(sys.argv[2])); sys.exit(1)"
    )
    asked = prober(model, tmp_path / "work", python(code)).ask(0b110)
    assert asked.compiled
    assert asked.answer is not None
    assert asked.answer.verdict.failed
    assert "nodes ['second/:0', 'third'] beside []" in asked.answer.log
    assert len(asked.answer.file_sha256) == 64
    assert asked.engine_seconds > 0
    assert list((tmp_path / "work").iterdir()) == []


def test_samples_stand_beside_the_probe_and_are_no_part_of_its_bytes(model: Model, tmp_path: Path) -> None:
    code = (
        "import sys, os, numpy; folder = sys.argv[1].replace('.onnx', '.samples');"
        "print([numpy.load(os.path.join(folder, name))['a'].tolist() for name in sorted(os.listdir(folder))]); exit(1)"
    )
    values = TensorValues(model, given=[{"x": np.full((1, 4), number, np.float32)} for number in (-1, 2)])
    sampled = prober(model, tmp_path / "one", python(code), samples=partial(write_samples, values=values)).ask(0b010)
    plain = prober(model, tmp_path / "other", python("raise SystemExit(1)")).ask(0b010)

    assert sampled.answer is not None
    assert plain.answer is not None
    assert "[[[0.0, 0.0, 0.0, 0.0]], [[2.0, 2.0, 2.0, 2.0]]]" in sampled.answer.log
    assert sampled.answer.file_sha256 == plain.answer.file_sha256


def test_samples_that_cannot_be_made_are_no_answer_of_the_compiler(model: Model, tmp_path: Path) -> None:
    def broken(probe: Path, renamed: Mapping[str, str]) -> None:
        raise ValueError("no samples of strings")

    asked = prober(model, tmp_path / "work", python("exit(1)"), samples=broken).ask(1)

    assert not asked.compiled
    assert asked.answer is not None
    assert (asked.answer.verdict.status, asked.answer.verdict.kind) == (Status.UNRESOLVED, Kind.ERROR)
    assert "no samples of strings" in asked.answer.verdict.message


def test_a_full_disk_is_no_answer(
    model: Model, tmp_path: Path, small_disk: Callable[[int], Path], fill: Callable[[Path], Path]
) -> None:
    disk = small_disk(1024)
    asking = prober(model, disk / "work", python("exit(1)"))
    other = fill(disk)
    for _ in range(2):
        with pytest.raises(ShortageError, match="disk"):
            asking.ask(1)
    other.unlink()
    again = asking.ask(1)
    assert again.answer is not None
    assert again.answer.verdict.failed


def test_a_compile_that_fills_the_disk_by_itself_is_unresolved(
    model: Model, tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    code = """
import sys
try:
    with open(sys.argv[2] + "/much", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError:
    raise SystemExit(1)
"""
    asked = prober(model, small_disk(1024) / "work", python(code)).ask(1)
    assert asked.answer is not None
    assert (asked.answer.verdict.status, asked.answer.verdict.kind) == (Status.UNRESOLVED, Kind.RESOURCE)
    assert not asked.interrupted


def test_too_many_open_files_are_no_answer(model: Model, tmp_path: Path) -> None:
    """With none left nothing can be written; with a few, the referees cannot open the file and call it invalid."""
    asking = prober(model, tmp_path / "work", python("exit(1)"), objection=Validity(model.path, 7).objection)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    answers: set[Status | str | None] = set()
    for spare in range(24):
        used = len(list(Path("/proc/self/fd").iterdir())) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
        try:
            answer = asking.ask(1).answer
            answers.add(None if answer is None else answer.verdict.status)
        except ShortageError as error:
            answers.add(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert answers == {Status.FAIL, "This process has too many files open (ulimit -n)."}


#: Whoever runs the tests may ignore some signals, as nohup does.
DIES = "import os, signal as s; {number} == s.SIGKILL or s.signal({number}, s.SIG_DFL); os.kill(os.getpid(), {number})"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_compile_that_somebody_ends_says_nothing(model: Model, tmp_path: Path, number: signal.Signals) -> None:
    asked = prober(model, tmp_path / "work", python(DIES.format(number=int(number)))).ask(1)
    assert asked.interrupted
    assert asked.answer is not None
    assert asked.answer.verdict.status is Status.UNRESOLVED


def test_a_compile_that_crashes_is_an_answer(model: Model, tmp_path: Path) -> None:
    asked = prober(model, tmp_path / "work", python("import os; os.abort()")).ask(1)
    assert not asked.interrupted
    assert asked.answer is not None
    assert (asked.answer.verdict.status, asked.answer.verdict.kind) == (Status.FAIL, Kind.CRASH)


def test_what_the_kernel_kills_for_want_of_memory_was_not_interrupted(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter([4, 5])
    monkeypatch.setattr("onnxbisect_backends.probing.prober.oom_kills", lambda: next(counted))
    asked = prober(model, tmp_path / "work", python("import os; os.kill(os.getpid(), 9)")).ask(1)
    assert not asked.interrupted


def test_equal_cuts_are_equal_bytes_and_other_cuts_are_not(model: Model, tmp_path: Path) -> None:
    asking = prober(model, tmp_path / "work", python("raise SystemExit(1)"))
    digests = [asked.answer.file_sha256 for units in (2, 2, 4) if (asked := asking.ask(units)).answer]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "change",
    [
        "open(probe, 'ab').write(b'more')",
        "os.chmod(probe, 0)",
        "shutil.rmtree(os.path.dirname(probe))",
        "open(os.path.dirname(probe) + '/own.data', 'w').close()",
    ],
    ids=["written to", "locked", "removed", "accompanied"],
)
def test_a_compiler_that_changes_its_input_has_failed_on_the_piece(model: Model, tmp_path: Path, change: str) -> None:
    untouched = prober(model, tmp_path / "work", python("exit(1)")).ask(1).answer
    code = f"import os, shutil, sys; probe = sys.argv[1]; {change}; exit(1)"
    objection = Validity(model.path, 0b111).objection
    asked = prober(model, tmp_path / "again", python(code), objection=objection).ask(1).answer
    assert asked is not None
    assert untouched is not None
    assert asked.verdict.failed, asked.verdict
    assert asked.file_sha256 == untouched.file_sha256


def test_a_file_and_the_data_beside_it_are_one_digest(tmp_path: Path) -> None:
    probe = tmp_path / "model.onnx"
    probe.write_bytes(b"graph")
    alone = file_digest(probe)
    (tmp_path / "model.data").write_bytes(b"weights")
    with_data = file_digest(probe)
    (tmp_path / "model.data").write_bytes(b"weight5")
    assert len({alone, with_data, file_digest(probe)}) == 3


def test_a_compile_that_hangs_is_unresolved(model: Model, tmp_path: Path) -> None:
    asked = prober(model, tmp_path / "work", python("import time; time.sleep(60)"), seconds=0.3).ask(1)
    assert asked.answer is not None
    assert asked.answer.verdict.status is Status.UNRESOLVED
    assert asked.answer.verdict.kind is Kind.TIMEOUT


def test_a_compile_that_the_budget_ends_is_no_answer(model: Model, tmp_path: Path) -> None:
    asked = prober(model, tmp_path / "work", python("import time; time.sleep(60)")).ask(1, seconds_left=0.3)
    assert asked.answer is None
    assert asked.compiled


@pytest.mark.parametrize(
    ("left", "kind", "most"), [(30.0, Kind.TIMEOUT, 3.0), (0.3, None, 2.0)], ids=["its own limit", "the budget"]
)
def test_the_limit_of_a_compiler_holds_within_any_budget(
    model: Model, tmp_path: Path, left: float, kind: Kind | None, most: float
) -> None:
    (tmp_path / "slow.toml").write_text(
        "name = 's'\ncommand = ['sh', '-c', 'exec sleep 60', '{model}']\nlimits.seconds = 0.8\n"
    )
    (tmp_path / "work").mkdir()
    cutter = Cutter(model)

    def cut(units: UnitSet, path: Path) -> Mapping[str, str]:
        write(cutter.cut(units, ProbeFormat()), model, path)
        return {}

    slow = make(str(tmp_path / "slow.toml"), {})
    asking = Prober(write=cut, backend=slow, limits=Limits(), objection=fair, folder=tmp_path / "work")
    began = time.monotonic()

    answer = asking.ask(1, seconds_left=left).answer

    assert (None if answer is None else answer.verdict.kind) is kind
    assert time.monotonic() - began < most


#: Hangs where Sinh stands without Relu before it.
HANGS = """
import onnx, sys, time
ops = [node.op_type for node in onnx.load(sys.argv[1]).graph.node]
time.sleep(60 if ops[0] == "Sinh" else 0)
"""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers of tests start in a second."""
    monkeypatch.setattr("onnxbisect_backends.probing.prober._SHORTEST", 3.0)


@pytest.mark.usefixtures("short")
def test_a_compile_that_takes_several_times_as_long_as_others_is_given_up(model: Model, tmp_path: Path) -> None:
    asking = prober(model, tmp_path / "work", python(HANGS))
    assert asking.ask(0b011).answer is not None
    began = time.monotonic()

    answer = asking.ask(0b110).answer

    assert time.monotonic() - began < 20
    assert answer is not None
    assert (answer.verdict.status, answer.verdict.kind) == (Status.UNRESOLVED, Kind.TIMEOUT)
    assert "a probe of its size was expected to take" in answer.verdict.message
    assert answer.verdict.hints == Hints()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("seconds", "left"), [(1.0, None), (60.0, 1.0)], ids=["the user's limit", "the budget"])
def test_what_ends_a_compile_earlier_still_does(
    model: Model, tmp_path: Path, seconds: float, left: float | None
) -> None:
    quick = "import sys, time; time.sleep(60 if open(sys.argv[1], 'rb').read().count(b'Sinh') else 0)"
    command = [sys.executable, "-S", "-c", quick, "{model}"]
    asking = prober(model, tmp_path / "work", command, seconds=seconds)
    assert asking.ask(0b001).answer is not None

    answer = asking.ask(0b010, seconds_left=left).answer

    if left is not None:
        assert answer is None
    else:
        assert answer is not None
        assert "raise the time limit" in answer.verdict.message


@pytest.mark.usefixtures("short")
def test_the_first_compiles_have_all_of_the_time_limit(model: Model, tmp_path: Path) -> None:
    answer = prober(model, tmp_path / "work", python(HANGS.replace("60", "5"))).ask(0b110).answer
    assert answer is not None
    assert answer.verdict.passed


def test_a_piece_that_cannot_be_cut_is_unresolved_and_no_call(tmp_path: Path) -> None:
    def refuse(units: UnitSet, path: Path) -> Mapping[str, str]:
        raise CutError("too large")

    asking = Prober(
        write=refuse, backend=CommandBackend(["true", "{model}"]), limits=Limits(), objection=fair, folder=tmp_path
    )
    asked = asking.ask(1)
    assert not asked.compiled
    assert asked.answer is not None
    assert asked.answer.verdict.kind is Kind.INVALID
    assert "too large" in asked.answer.verdict.message


def test_a_failing_piece_that_somebody_objects_to_is_unresolved(model: Model, tmp_path: Path) -> None:
    command = python("raise SystemExit(1)")
    asked = prober(model, tmp_path / "work", command, objection=lambda units, probe: "it is crooked").ask(1)
    assert asked.answer is not None
    assert asked.answer.verdict.status is Status.UNRESOLVED
    assert asked.answer.verdict.kind is Kind.INVALID
    assert asked.answer.verdict.message == "it is crooked"


def test_nobody_is_asked_about_a_passing_piece(model: Model, tmp_path: Path) -> None:
    asked = prober(model, tmp_path / "work", ["true", "{model}"], objection=lambda units, probe: "crooked").ask(1)
    assert asked.answer is not None
    assert asked.answer.verdict.passed


def test_hints_come_back_in_the_model_s_names(tmp_path: Path, model: Model) -> None:
    class Talkative(CommandBackend):
        def judge(self, outcome: Outcome) -> Verdict:
            return Verdict(status=Status.FAIL, hints=Hints(nodes=("first",), tensors=("safe_1",)))

    def cut(units: UnitSet, path: Path) -> Mapping[str, str]:
        path.write_bytes(b"")
        return {"safe_1": "/weird:name"}

    asking = Prober(write=cut, backend=Talkative(["true", "{model}"]), limits=Limits(), objection=fair, folder=tmp_path)
    answer = asking.ask(1).answer
    assert answer is not None
    assert answer.verdict.hints == Hints(nodes=("first",), tensors=("/weird:name",))


def test_a_backend_with_a_bug_costs_one_answer_and_an_unusable_one_the_run(tmp_path: Path, model: Model) -> None:
    class Buggy(CommandBackend):
        error: Exception = ZeroDivisionError("division by zero")

        def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
            raise self.error

    def cut(units: UnitSet, path: Path) -> Mapping[str, str]:
        path.write_bytes(b"")
        return {}

    backend = Buggy(["true", "{model}"])
    asking = Prober(write=cut, backend=backend, limits=Limits(), objection=fair, folder=tmp_path)
    answer = asking.ask(1).answer
    assert answer is not None
    assert answer.verdict.status is Status.UNRESOLVED
    assert "ZeroDivisionError" in answer.verdict.message
    backend.error = BackendUnusableError("The licence server is gone.")
    with pytest.raises(BackendUnusableError):
        asking.ask(1)
    assert list(tmp_path.glob("probe-*")) == []


class TestValidity:
    """Real checkers on real cuts."""

    def test_a_fair_cut_is_not_objected_to(self, model: Model, tmp_path: Path) -> None:
        write(Cutter(model).cut(2), model, tmp_path / "probe.onnx")
        assert Validity(model.path, 7).objection(2, tmp_path / "probe.onnx") is None

    def test_the_checker_s_word_counts_where_it_accepts_the_model(self, model: Model, tmp_path: Path) -> None:
        piece = Cutter(model).cut(2).proto
        piece.graph.node[0].op_type = "Sihn"
        onnx.save(piece, tmp_path / "probe.onnx")
        objection = Validity(model.path, 7).objection(2, tmp_path / "probe.onnx")
        assert objection is not None
        assert objection.startswith("onnx.checker refuses this cut")
        assert Validity(tmp_path / "probe.onnx", 7).objection(2, tmp_path / "probe.onnx") is None

    @pytest.mark.parametrize(("unit", "end"), [(0, "output 'a'"), (1, "input 'a'")])
    def test_an_end_of_unknown_rank_is_what_the_checker_refuses(self, tmp_path: Path, unit: int, end: str) -> None:
        """It says that a shape is missing, and not of what; the model is fine to it."""
        text = "g (float[2,3] x) => (float[4,5] y) <int64[2] pads = {1,1}> { a = Pad(x, pads) y = Relu(a) }"
        path, probe = tmp_path / "model.onnx", tmp_path / "probe.onnx"
        onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), path)
        model = load(path)
        write(Cutter(model).cut(1 << unit), model, probe)
        objection = Validity(path, 3).objection(1 << unit, probe)
        assert objection == f"onnx.checker refuses this cut for its {end}, whose rank is not known"

    def test_onnxruntime_s_word_counts_where_it_loads_the_model(self, model: Model, tmp_path: Path) -> None:
        piece = Cutter(model).cut(2).proto
        piece.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
        piece.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
        onnx.save(piece, tmp_path / "probe.onnx")
        objection = Validity(model.path, 7).objection(2, tmp_path / "probe.onnx")
        assert objection is not None
        assert objection.startswith("onnxruntime refuses this cut")
        assert Validity(tmp_path / "probe.onnx", 7).objection(2, tmp_path / "probe.onnx") is None

    def test_the_whole_model_is_never_objected_to(self, tmp_path: Path) -> None:
        (tmp_path / "broken.onnx").write_bytes(b"\xff")
        assert Validity(tmp_path / "broken.onnx", 7).objection(7, tmp_path / "broken.onnx") is None


def test_onnxruntime_as_a_backend_names_the_custom_op(tmp_path: Path) -> None:
    cases = Path(__file__).parents[1] / "cases"
    model = load(cases / "c12_custom_domain.onnx")
    cutter = Cutter(model)

    def cut(units: UnitSet, path: Path) -> Mapping[str, str]:
        write(cutter.cut(units), model, path)
        return {}

    everything = model.universe.everything
    objection = Validity(model.path, everything).objection
    asking = Prober(write=cut, backend=make("onnxruntime", {}), limits=Limits(), objection=objection, folder=tmp_path)
    custom = next(unit for unit, op in enumerate(model.universe.op) if "AcmeNorm" in op)
    answer = asking.ask(1 << custom).answer
    assert answer is not None
    assert answer.verdict.failed
    assert "AcmeNorm" in answer.verdict.message
