"""Limits of a process that reads models: seconds and memory, enforced by the kernel even in C code."""

import resource
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import onnx

from onnxbisect.model.runnable import Sample
from onnxbisect.verdict import Verdict
from onnxbisect_backends import contract


class Bounds:
    """Alarm and memory limit of this process. SIGALRM ends it after the seconds; allocations beyond the memory fail.

    RLIMIT_DATA counts requested writable memory; RLIMIT_AS would also count what allocators reserve, 64 MB for each
    thread, and mapped models.
    """

    def __init__(self, *, seconds: float, memory: int) -> None:
        self._seconds = seconds
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        self._memory = memory if most == resource.RLIM_INFINITY else min(memory, most)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Enforce the limits during one request."""
        _set_memory(self._memory)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Stop the alarm while processes of this one work, which have time limits of their own and inherit none."""
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, left)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Lift the limits while a compiler runs, which has its own and would inherit these."""
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        _set_memory(resource.getrlimit(resource.RLIMIT_DATA)[1])
        try:
            yield
        finally:
            _set_memory(self._memory)
            signal.setitimer(signal.ITIMER_REAL, left)


class UnboundBackend:
    """A backend whose tool runs without the limits of the calling process."""

    def __init__(self, backend: contract.Backend, bounds: Bounds) -> None:
        self._backend = backend
        self._bounds = bounds

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def options(self) -> dict[str, Any]:
        return self._backend.options

    @property
    def input_shapes(self) -> Mapping[str, Sequence[int]]:
        return contract.input_shapes(self._backend)

    def for_model(self, graph: onnx.GraphProto) -> "UnboundBackend":
        return UnboundBackend(contract.for_model(self._backend, graph), self._bounds)

    def samples(self, inputs: Sequence[onnx.ValueInfoProto], most: int) -> Sequence[Sample] | None:
        return contract.own_samples(self._backend, inputs, most)

    def describe(self) -> contract.Description:
        with self._bounds.lifted():
            return self._backend.describe()

    def check(self) -> str | None:
        with self._bounds.lifted():
            return self._backend.check()

    def compile(self, probe: Path, workdir: Path, limits: contract.Limits) -> contract.Outcome:
        with self._bounds.lifted():
            return self._backend.compile(probe, workdir, limits)

    def judge(self, outcome: contract.Outcome) -> Verdict:
        return self._backend.judge(outcome)

    @property
    def verifies_within(self) -> float | None:
        return contract.verification(self._backend)

    def compute(
        self, model: Path, samples: Path, out: Path, workdir: Path, limits: contract.Limits
    ) -> contract.Outcome:
        with self._bounds.lifted():
            return contract.compute(self._backend, model, samples, out, workdir, limits)

    def lifted(self) -> AbstractContextManager[None]:
        return self._bounds.lifted()


class UnboundQuantiser(UnboundBackend):
    """A backend that quantises by itself, whose tool runs without the limits of the calling process."""

    def list_quantised(self, model: Path, samples: Path, workdir: Path, limits: contract.Limits) -> contract.Outcome:
        with self._bounds.lifted():
            return contract.list_quantised(self._backend, model, samples, workdir, limits)

    def compute_mixed(
        self, model: Path, samples: Path, keep: Sequence[str], out: Path, workdir: Path, limits: contract.Limits
    ) -> contract.Outcome:
        with self._bounds.lifted():
            return contract.compute_mixed(self._backend, model, samples, keep, out, workdir, limits)


def _set_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (size, resource.getrlimit(resource.RLIMIT_DATA)[1]))
