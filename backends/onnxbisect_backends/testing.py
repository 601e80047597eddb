"""What the drivers rely on, as tests: subclass `BackendConformance` for every backend. pytest finds its tests by name.

```python
class TestMyChip(BackendConformance):
    def backend(self) -> Backend:
        return MyChipBackend({})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")  # something that the compiler refuses
```
"""

# ruff: noqa: D102, S101 - tests: their names say what a docstring would, and pytest reads assert

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.verdict import Status, Verdict
from onnxbisect_backends.contract import Backend, Limits

#: Old enough for every compiler of the day.
_IR, _OPSET = 8, 13

#: Names that have broken compilers: blanks, quotes, colons, slashes, what shells and formats expand, other scripts.
_ODD_NAME = "/a b/'c\"d':0{x}%s$HOME;`e`\\n-ü中"


class BackendConformance:
    """The tests. `backend` and `refused` must be given; the rest may be overridden where a compiler needs it."""

    #: Bounds of each compile here; enough for the slowest compiler under test.
    limits = Limits(seconds=120)

    def backend(self) -> Backend:
        """A new instance, with the options under test."""
        raise NotImplementedError

    def accepted(self) -> onnx.ModelProto:
        """A model that compiles."""
        return conv_net()

    def refused(self) -> onnx.ModelProto:
        """A model that does not compile, with named nodes."""
        raise NotImplementedError

    def test_is_usable_and_says_who_it_is(self) -> None:
        backend = self.backend()
        description = backend.describe()

        assert backend.check() is None
        assert backend.name
        assert description.tool
        assert description.version.strip() == description.version != ""
        assert description == self.backend().describe()

    def test_two_instances_are_the_same_target(self) -> None:
        assert self.backend().options == self.backend().options

    def test_survives_the_way_to_a_worker_process(self) -> None:
        backend = self.backend()

        copy = pickle.loads(pickle.dumps(backend))  # noqa: S301 - our own bytes

        assert (copy.name, copy.options, copy.describe()) == (backend.name, backend.options, backend.describe())

    def test_passes_a_plain_net(self, tmp_path: Path) -> None:
        verdict = self._ask(self.accepted(), tmp_path)

        assert verdict.status is Status.PASS, verdict

    def test_fails_what_it_cannot_do_in_its_own_words(self, tmp_path: Path) -> None:
        verdict = self._ask(self.refused(), tmp_path)

        assert verdict.status is Status.FAIL, verdict
        assert verdict.kind is not None
        assert verdict.message
        assert verdict.message.isprintable()
        assert len(verdict.fingerprint) <= 300

    def test_the_same_failure_has_the_same_fingerprint_under_other_names(self, tmp_path: Path) -> None:
        model = self.refused()
        first = self._ask(model, tmp_path / "first")
        for number, node in enumerate(model.graph.node):
            node.name = f"/renamed/{node.op_type}_{number + 70}"

        second = self._ask(model, tmp_path / "second")

        assert second.fingerprint == first.fingerprint

    def test_hints_point_at_what_is_there(self, tmp_path: Path) -> None:
        model = self.refused()
        hints = self._ask(model, tmp_path).hints
        ops = {f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in model.graph.node}
        tensors = {name for node in model.graph.node for name in (*node.input, *node.output)}

        assert set(hints.ops) <= ops
        assert set(hints.nodes) <= {node.name for node in model.graph.node}
        assert set(hints.tensors) <= tensors

    def test_odd_names_change_nothing(self, tmp_path: Path) -> None:
        model = self.accepted()
        for number, node in enumerate(model.graph.node):
            node.name = f"{_ODD_NAME}{number}"
        folder = tmp_path / "a b 'c' {x} ü"

        assert self._ask(model, folder).status is Status.PASS

    def test_compiles_side_by_side_do_not_meet(self, tmp_path: Path) -> None:
        models = [self.accepted(), self.refused()] * 2

        with ThreadPoolExecutor(max_workers=len(models)) as pool:
            folders = [tmp_path / str(number) for number in range(len(models))]
            verdicts = list(pool.map(self._ask, models, folders))

        assert [verdict.status for verdict in verdicts] == [Status.PASS, Status.FAIL] * 2

    def test_a_killed_compile_leaves_nobody_alive_and_is_no_failure(self, tmp_path: Path) -> None:
        backend = self.backend()
        probe, workdir = _save(self.accepted(), tmp_path)

        outcome = backend.compile(probe, workdir, Limits(seconds=0.02))

        # a compiler may be faster than this limit; then it has answered
        assert outcome.timed_out == (backend.judge(outcome).status is Status.UNRESOLVED)
        assert processes_in(workdir) == []

    def test_leaves_the_probe_as_it_was(self, tmp_path: Path) -> None:
        backend = self.backend()
        probe, workdir = _save(self.accepted(), tmp_path)
        before = probe.read_bytes()

        outcome = backend.compile(probe, workdir, self.limits)

        assert probe.read_bytes() == before
        assert sorted(path.name for path in probe.parent.iterdir()) == [probe.name]
        assert all((workdir / path).is_file() for path in outcome.artifacts)

    def _ask(self, model: onnx.ModelProto, folder: Path) -> Verdict:
        backend = self.backend()
        probe, workdir = _save(model, folder)
        outcome = backend.compile(probe, workdir, self.limits)
        assert not outcome.broken, outcome.broken
        return backend.judge(outcome)


def conv_net() -> onnx.ModelProto:
    """Conv, Relu, MaxPool, Conv, Relu on floats of shape (1, 3, 16, 16)."""
    shape = (1, 3, 16, 16)
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w1"),
        numpy_helper.from_array(rng.standard_normal((2, 4, 3, 3)).astype(np.float32), "w2"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="conv_1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu_1"),
        helper.make_node("MaxPool", ["b"], ["c"], name="pool_1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w2"], ["d"], name="conv_2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["y"], name="relu_2"),
    ]
    return _model(nodes, shape, (1, 2, 8, 8), weights)


def with_op(op_type: str, domain: str = "", **attributes: Any) -> onnx.ModelProto:
    """A net with one more op between two Relus: for compilers that refuse that op."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node(op_type, ["a"], ["b"], name="the_op", domain=domain, **attributes),
        helper.make_node("Relu", ["b"], ["y"], name="after"),
    ]
    return _model(nodes, (1, 3, 16, 16), (1, 3, 16, 16), [], domain)


def processes_in(workdir: Path) -> list[int]:
    """Processes that have to do with a work directory: they stand in it, or name it in words or environment.

    Linux only; elsewhere nothing is found.
    """
    mark = os.fsencode(workdir)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            stands = os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue
        if int(entry.name) != os.getpid() and (mark in words or stands.startswith(mark)):
            found.append(int(entry.name))
    return found


def _model(
    nodes: list[onnx.NodeProto],
    shape_in: tuple[int, ...],
    shape_out: tuple[int, ...],
    weights: list[onnx.TensorProto],
    domain: str = "",
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape_out)],
        weights,
    )
    opsets = [helper.make_opsetid("", _OPSET)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR)


def _save(model: onnx.ModelProto, folder: Path) -> tuple[Path, Path]:
    """The model in a directory of its own, and an empty work directory beside it."""
    probe, workdir = folder / "probe" / "model.onnx", folder / "work"
    probe.parent.mkdir(parents=True)
    workdir.mkdir()
    onnx.save(model, probe)
    return probe, workdir
