"""Tests of what drivers require of a backend: subclass `BackendConformance`; pytest finds its tests by name.

```python
class TestMyChip(BackendConformance):
    def backend(self) -> Backend:
        return MyChipBackend({})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")  # something that the compiler refuses
```
"""

# ruff: noqa: S101 - pytest reads assert

import json
import multiprocessing
import os
import pickle
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.errors import ShortageError
from onnxbisect.model import load
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend, Limits, Outcome, compute, computes, verification
from onnxbisect_backends.measurement.sample_models import conv_net, oddly_named, with_op, write_units, write_whole
from onnxbisect_backends.options import VerifyOptions
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.verifying import COMPARED_ON, as_compared, compared, verified

__all__ = ["BackendConformance", "ComputesWrong", "conv_net", "processes_in", "with_op"]

#: Seconds after its limit in which a compile must return, on a busy machine.
_LATE = 15.0


class BackendConformance:
    """The tests. Override `backend` and `refused`; override the rest only where a compiler needs it.

    Models become probes as the drivers make them: in the format and with the samples that the
    backend's description states.
    """

    #: Limits of each compile; enough for the slowest compiler under test.
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
        options = self.backend().options

        assert self.backend().options == options
        assert json.loads(json.dumps(options)) == options

    def test_survives_the_way_to_a_worker_process(self) -> None:
        backend = self.backend()

        copy = pickle.loads(pickle.dumps(backend))  # noqa: S301 - our own bytes

        assert (copy.name, copy.options, copy.describe()) == (backend.name, backend.options, backend.describe())

    def test_passes_a_plain_net_and_leaves_it_as_it_was(self, tmp_path: Path) -> None:
        backend, probe = self.backend(), _probe(tmp_path)
        self._write(self.accepted(), tmp_path)
        workdir = _workdir(tmp_path)
        before = {path: path.read_bytes() for path in probe.parent.rglob("*") if path.is_file()}

        outcome = backend.compile(probe, workdir, self.limits)

        verdict = backend.judge(outcome)
        assert verdict.status is Status.PASS, verdict
        assert {path: path.read_bytes() for path in probe.parent.rglob("*") if path.is_file()} == before
        assert all((workdir / path).is_file() for path in outcome.artifacts)

    def test_fails_what_it_cannot_do_in_its_own_words(self, tmp_path: Path) -> None:
        """The fingerprint does not depend on node names; hints name only ops, nodes and tensors of the probe."""
        model = self.refused()
        first = self._ask(model, tmp_path / "first")
        for number, node in enumerate(model.graph.node):
            node.name = f"/renamed/{node.op_type}_{number + 70}"
        second = self._ask(model, tmp_path / "second")
        nodes = onnx.load(_probe(tmp_path / "second")).graph.node
        ops = {f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes}
        tensors = {name for node in nodes for name in (*node.input, *node.output)}

        assert first.status is Status.FAIL, first
        assert first.kind is not None
        assert first.message
        assert first.message.isprintable()
        assert len(first.fingerprint) <= 300
        assert second.fingerprint == first.fingerprint
        assert set(second.hints.ops) <= ops
        assert set(second.hints.nodes) <= {node.name for node in nodes}
        assert {*second.hints.tensors, *second.hints.right} <= tensors

    def test_computes_the_numbers_of_onnxruntime(self, tmp_path: Path) -> None:
        """What it says of what it compiled (`contract.compute`), on samples of the inputs; odd names change nothing."""
        backend, probe, workdir = self.backend(), _probe(tmp_path), _workdir(tmp_path)
        if not computes(backend):
            pytest.skip("it does not compute here")
        source = tmp_path / "source.onnx"
        onnx.save(oddly_named(self.accepted()), source)
        write_whole(source, replace(backend.describe(), samples=COMPARED_ON), probe)
        passed = backend.judge(backend.compile(probe, workdir, self.limits))

        verdict = compared(backend, probe, workdir, self.limits, passed, 0.02)

        assert (verdict.status, verdict.message) == (Status.PASS, "")
        assert verdict.tables[-1].rows[0][1] == "same"

    def test_verify_finds_the_op_that_is_computed_wrong_and_no_other(self, tmp_path: Path) -> None:
        """Each node alone, and all together, by a compiler whose results of one op are halved."""
        if not computes(self.backend()):
            pytest.skip("it does not compute here")
        source = tmp_path / "source.onnx"
        onnx.save(self.accepted(), source)
        model = load(source)
        ops = [model.proto.graph.node[unit.node].op_type for unit in model.units]
        backend = ComputesWrong(self.backend(), min(ops, key=ops.count))
        description = as_compared(backend, backend.describe())

        def ask(units: UnitSet) -> Verdict:
            probe, workdir = _probe(tmp_path / f"{units:x}"), _workdir(tmp_path / f"{units:x}")
            write_units(model, units, description, probe)
            passed = backend.judge(backend.compile(probe, workdir, self.limits))
            return verified(backend, probe, workdir, self.limits, passed)

        alone = {unit: ask(1 << unit) for unit in range(len(ops))}
        whole = ask(model.universe.everything)

        assert {ops[unit] for unit, verdict in alone.items() if not verdict.passed} == {backend.op}
        assert {verdict.message for verdict in alone.values() if verdict.passed} == {""}  # all were compared
        assert (whole.status, whole.kind) == (Status.FAIL, Kind.NUMERIC)

    def test_odd_names_change_nothing(self, tmp_path: Path) -> None:
        assert self._ask(oddly_named(self.accepted()), tmp_path / "a b 'c' {x} ü").status is Status.PASS

    def test_what_is_no_model_does_not_pass(self, tmp_path: Path) -> None:
        backend, workdir = self.backend(), _workdir(tmp_path)
        _probe(tmp_path).write_bytes(b"\x08\x08:\xff\xff no protobuf")

        verdict = backend.judge(backend.compile(_probe(tmp_path), workdir, self.limits))

        assert verdict.status is not Status.PASS

    def test_compiles_side_by_side_do_not_meet(self, tmp_path: Path) -> None:
        models = [self.accepted(), self.refused()] * 2

        with ThreadPoolExecutor(max_workers=len(models)) as pool:
            folders = [tmp_path / str(number) for number in range(len(models))]
            verdicts = list(pool.map(self._ask, models, folders))

        assert [verdict.status for verdict in verdicts] == [Status.PASS, Status.FAIL] * 2

    def test_a_compile_past_its_time_leaves_nobody_alive_and_is_no_failure(self, tmp_path: Path) -> None:
        backend, limits = self.backend(), Limits(seconds=0.02)
        self._write(self.accepted(), tmp_path)
        workdir = _workdir(tmp_path)
        begun = time.monotonic()

        outcome = backend.compile(_probe(tmp_path), workdir, limits)

        # a compiler may be faster than this limit, and then has a verdict
        assert outcome.timed_out == (backend.judge(outcome).status is Status.UNRESOLVED)
        assert time.monotonic() - begun < limits.seconds + _LATE
        assert processes_in(workdir) == []

    def test_a_compile_that_is_stopped_leaves_nobody_alive_and_is_no_failure(self, tmp_path: Path) -> None:
        backend = self.backend()
        self._write(self.accepted(), tmp_path)
        workdir = _workdir(tmp_path)

        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(backend.compile, _probe(tmp_path), workdir, self.limits)
            while not future.done() and not processes_in(workdir):
                time.sleep(0.005)
            kill_running()
            outcome = future.result(timeout=_LATE)

        assert backend.judge(outcome).status is not Status.FAIL
        assert processes_in(workdir) == []

    def test_a_compile_dies_with_the_process_that_asked(self, tmp_path: Path) -> None:
        self._write(self.accepted(), tmp_path)
        workdir = _workdir(tmp_path)
        compiling, words = self.backend().compile, (_probe(tmp_path), workdir, self.limits)

        driver = multiprocessing.get_context("spawn").Process(target=compiling, args=words)
        driver.start()
        while driver.is_alive() and not processes_in(workdir):
            time.sleep(0.005)
        driver.kill()
        driver.join()

        deadline = time.monotonic() + _LATE
        while processes_in(workdir):
            assert time.monotonic() < deadline, "the compiler outlives the process that asked"
            time.sleep(0.02)

    def test_writes_nowhere_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        backend = self.backend()
        self._write(self.accepted(), tmp_path)
        elsewhere = [tmp_path / name for name in ("here", "home")]
        for folder in elsewhere:
            folder.mkdir()
        monkeypatch.chdir(elsewhere[0])
        monkeypatch.setenv("HOME", str(elsewhere[1]))

        backend.compile(_probe(tmp_path), _workdir(tmp_path), self.limits)

        assert [path for folder in elsewhere for path in folder.iterdir()] == []

    @pytest.mark.parametrize("disk", ["full", "read-only"])
    def test_a_bad_disk_is_not_the_models_fault(self, tmp_path: Path, disk: str) -> None:
        backend = self.backend()
        self._write(self.accepted(), tmp_path)

        with bad_disk(tmp_path / "disk", disk) as workdir:
            try:
                verdict = backend.judge(backend.compile(_probe(tmp_path), workdir, self.limits))
            except (OSError, ShortageError):
                return  # drivers treat this as no answer

        assert verdict.status is not Status.FAIL, verdict

    def _ask(self, model: onnx.ModelProto, folder: Path) -> Verdict:
        backend = self.backend()
        self._write(model, folder)
        workdir = _workdir(folder)
        outcome = backend.compile(_probe(folder), workdir, self.limits)
        assert not outcome.broken, outcome.broken
        assert processes_in(workdir) == []
        return backend.judge(outcome)

    def _write(self, model: onnx.ModelProto, folder: Path) -> None:
        probe = _probe(folder)
        source = folder / "source.onnx"
        onnx.save(model, source)
        write_whole(source, self.backend().describe(), probe)


class ComputesWrong:
    """A backend with `verify`, whose compiler computes an op wrong on purpose: half of what it is.

    It computes everything else as the backend does, and says nothing of it when it compiles.
    """

    def __init__(self, backend: Backend, op: str) -> None:
        self._backend, self.op = backend, op
        self.verifies_within = verification(backend) or VerifyOptions().tolerance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compute(self, model: Path, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
        """`contract.compute`, of a changed model."""
        proto = onnx.load(model)
        nodes = list(proto.graph.node)
        del proto.graph.node[:]
        for node in nodes:
            proto.graph.node.append(node)
            if node.op_type == self.op:
                right, half = f"{node.output[0]}_right", f"{node.output[0]}_half"
                proto.graph.initializer.append(helper.make_tensor(half, TensorProto.FLOAT, [1], [0.5]))
                proto.graph.node.append(helper.make_node("Mul", [right, half], [node.output[0]], name=half))
                proto.graph.node[-2].output[0] = right
        folder = workdir / "wrong"
        folder.mkdir()
        changed = folder / "wrong.onnx"
        onnx.save(proto, changed)
        if isinstance(self._backend, TomlBackend):  # it computes what it has compiled
            self._backend.compile(changed, folder, limits)
        return compute(self._backend, changed, samples, out, folder, limits)


def _probe(folder: Path) -> Path:
    """The path of a test's probe, in a directory of its own, which is created."""
    probe = folder / "probe" / "model.onnx"
    probe.parent.mkdir(parents=True, exist_ok=True)
    return probe


def _workdir(folder: Path) -> Path:
    workdir = folder / "work"
    workdir.mkdir(parents=True)
    return workdir


def processes_in(workdir: Path) -> list[int]:
    """Processes that belong to a work directory: it is their working directory, or in their arguments or environment.

    Linux only; on other systems the result is empty.
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


@contextmanager
def bad_disk(folder: Path, disk: str) -> Iterator[Path]:
    """A work directory on a disk that is `full` or `read-only`; skips the test if it cannot be created."""
    workdir = folder / "work"
    workdir.mkdir(parents=True)
    if os.geteuid() != 0:
        if disk == "full":
            pytest.skip("only root may mount a small disk to fill it")
        workdir.chmod(0o555)
        yield workdir
        return
    done = _mount("-t", "tmpfs", "-o", "size=64k", "onnx-bisect-test", str(folder))
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        workdir.mkdir()
        if disk == "read-only":
            _mount("-o", "remount,ro", str(folder)).check_returncode()
        else:
            with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1024))
        yield workdir
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607 - the system's own


def _mount(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *words], capture_output=True, text=True)  # noqa: S607 - the system's own
