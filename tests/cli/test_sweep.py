"""Many small questions to one compiler: which are asked at all, and how they end."""

import threading
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnx_bisect.measuring import Sweep
from onnx_bisect.verdict_base import InMemoryVerdictBase
from onnxbisect.errors import BackendUnusableError
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.sandbox.process import clean_env, run


class Removed:
    """A compiler that somebody uninstalls while it compiles: the second compile finds it gone."""

    name = "removed"

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.outcomes: list[Outcome] = []
        self._first = threading.Lock()
        self._started = threading.Event()

    def describe(self) -> Description:
        return Description(tool="cc", version="1", probe_format=ProbeFormat(input_dtypes=frozenset({"float", "int32"})))

    def check(self) -> str | None:
        return None

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        if not self._first.acquire(blocking=False):
            self._started.wait()
            raise BackendUnusableError("cc is gone")
        self._started.set()
        outcome = run(["sleep", "60"], cwd=workdir, env=clean_env(workdir), limits=limits)
        self.outcomes.append(outcome)
        return outcome

    def judge(self, outcome: Outcome) -> Verdict:
        return Verdict(status=Status.UNRESOLVED, kind=Kind.ERROR)


def sweep(backend: Removed, folder: Path, *, jobs: int) -> Sweep:
    return Sweep(
        backend=backend,
        description=backend.describe(),
        base=InMemoryVerdictBase(),
        folder=folder,
        limits=Limits(),
        jobs=jobs,
    )


def abs_of(dtype: int) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, dtype, [2]) for name in "xy")
    return helper.make_model(helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y]), ir_version=9)


def test_an_unusable_compiler_ends_the_other_compiles_instead_of_waiting_for_them(tmp_path: Path) -> None:
    backend = Removed()
    with pytest.raises(BackendUnusableError):
        sweep(backend, tmp_path, jobs=2).ask([abs_of(TensorProto.FLOAT), abs_of(TensorProto.INT32)], lambda *_: None)
    (outcome,) = backend.outcomes
    assert outcome.broken  # it was killed, whether it had begun or not


def test_an_input_of_a_dtype_that_the_compiler_takes_nowhere_is_no_question_about_the_op(tmp_path: Path) -> None:
    backend = Removed()
    (verdict,) = sweep(backend, tmp_path, jobs=1).ask([abs_of(TensorProto.INT8)], lambda *_: None)
    assert verdict is not None
    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.INVALID)
    assert not backend.outcomes


class Edgy(Removed):
    """A compiler that trips over an Identity at the edge of a model."""

    def describe(self) -> Description:
        return Description(tool="cc", version="1", probe_format=ProbeFormat(covered=("Identity",)))

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        return Outcome(exit_code=0, log=" ".join(node.op_type for node in onnx.load(probe).graph.node))

    def judge(self, outcome: Outcome) -> Verdict:
        return Verdict(status=Status.FAIL if outcome.log.endswith("Identity") else Status.PASS)


def test_an_op_that_the_compiler_trips_over_at_the_edge_is_asked_about_inside_of_a_model(tmp_path: Path) -> None:
    model = abs_of(TensorProto.FLOAT)
    model.graph.node[0].op_type = "Identity"
    (verdict,) = sweep(Edgy(), tmp_path, jobs=1).ask([model], lambda *_: None)
    assert verdict is not None
    assert verdict.passed
    assert [node.op_type for node in model.graph.node] == ["Identity"]
