"""Low precision on this machine: measures a model on samples, and runs it with chosen nodes low."""

import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Protocol, Self, runtime_checkable

import onnx

from onnxbisect.cut import write
from onnxbisect.errors import ModelError
from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.model.runnable import Sample
from onnxbisect.precision.low import can_be_low
from onnxbisect.precision.metric import Outputs
from onnxbisect.precision.tensors import SampledTensor, read_seen
from onnxbisect.precision.wanted import Low
from onnxbisect.report.text import clip
from onnxbisect_backends.samples import load, save
from onnxbisect_backends.sandbox.process import AnsweringProcess, clean_env, killable

_SCRIPT = Path(__file__).with_name("low_precision.py")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The outputs of each sample; `problem` says why there are none."""

    outputs: tuple[Outputs, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class ReferenceRun:
    """The model in full precision: its outputs, and what was seen of its tensors and weights."""

    reference: tuple[Outputs, ...]
    seen: Mapping[str, SampledTensor]
    weights: Mapping[str, SampledTensor]


class Arithmetic(Protocol):
    """Runs the model with all nodes low but some; called from as many threads as there are jobs."""

    def run(self, keep: Iterable[str]) -> tuple[Ran, Path]:
        """The outputs, and the path without ending of the model and of the folder of its outputs."""


@runtime_checkable
class WideArithmetic(Arithmetic, Protocol):
    """An arithmetic in which the results of low nodes may have 16 bits."""

    def run_wide(self, keep: Iterable[str], wide: Iterable[str]) -> tuple[Ran, Path]:
        """As `run`, the results of the wide nodes with 16 bits."""


class OrtArithmetic:
    """Low precision as onnxruntime computes it, in processes (`low_precision.py`), one for each thread that asks.

    A context manager, which ends them.
    """

    def __init__(self, model: Model, samples: Sequence[Sample], low: Low, folder: Path, seconds: float) -> None:
        self._model, self._given, self._low, self._folder, self._seconds = model, samples, low, folder, seconds
        self._runs = count(1)
        self._idle: LifoQueue[_OrderedProcess] = LifoQueue()
        self._started: list[_OrderedProcess] = []

    def __enter__(self) -> Self:
        # the normalised model, with the types of all tensors, which a quantiser wants
        file = self._folder / "model.onnx"
        proto = onnx.ModelProto()
        proto.CopyFrom(self._model.proto)
        graph = proto.graph
        known = {it.name for it in (*graph.value_info, *graph.input, *graph.output)}
        made = {name for node in graph.node for name in node.output}
        for name, kind in self._model.types.items():
            if name in made and name not in known:
                graph.value_info.append(onnx.ValueInfoProto(name=name, type=kind))
        write(proto, self._model, file)
        self.samples.mkdir()
        for number, sample in enumerate(self._given):
            save(self.samples / f"{number}.npz", sample)
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._started:
            process.end()

    @property
    def samples(self) -> Path:
        """The folder with the samples' files."""
        return self._folder / "samples"

    @property
    def reference(self) -> Path:
        """The folder with the outputs in full precision."""
        return self._folder / "reference"

    def measure(self) -> ReferenceRun:
        """Run the model in full precision. Raises ModelError if it does not run."""
        if problem := self._carried_out(None):
            raise ModelError(
                english("The model does not run on the samples in full precision: {reason}.", reason=clip(problem, 300))
            )
        seen, weights = read_seen(self._folder / "tensors.json")
        return ReferenceRun(reference=self.outputs(self.reference), seen=seen, weights=weights)

    @property
    def given(self) -> Sequence[Sample]:
        """The samples."""
        return self._given

    @property
    def low_nodes(self) -> frozenset[str]:
        """The names of the nodes that can be low, once it has measured."""
        seen = read_seen(self._folder / "tensors.json")[0]
        return frozenset(node.name for node in self._model.proto.graph.node if can_be_low(node, self._low, seen))

    @property
    def folder(self) -> Path:
        """The folder of everything."""
        return self._folder

    def run(self, keep: Iterable[str]) -> tuple[Ran, Path]:
        """The outputs with all nodes low but these, and the path without ending of the model and their folder."""
        return self.run_wide(keep, ())

    def run_wide(self, keep: Iterable[str], wide: Iterable[str]) -> tuple[Ran, Path]:
        """As `run`, the results of the wide nodes with 16 bits instead of 8."""
        problem, place = self.make(keep, wide, run=True)
        return Ran(problem=problem) if problem else Ran(outputs=self.outputs(place)), place

    def make(self, keep: Iterable[str], wide: Iterable[str] = (), *, run: bool) -> tuple[str, Path]:
        """Write the model with all nodes low but these, and run it if that is wanted: what went wrong, and the path."""
        place = self._folder / str(next(self._runs))
        order = {"keep": sorted(keep), "wide": sorted(wide), "out": place.name, "run": run}
        return self._carried_out(order), place

    def errors(self, keep: Iterable[str]) -> Mapping[str, float]:
        """Signal to noise of each tensor in decibels, at the worst sample, with all nodes low but these.

        Empty where the model does not run.
        """
        file = self._folder / f"{next(self._runs)}.errors"
        if self._carried_out({"keep": sorted(keep), "errors": file.name}):
            return {}
        found: dict[str, float] = json.loads(file.read_text())
        return found

    def _carried_out(self, order: Mapping[str, object] | None) -> str:
        """What was wrong with the order, which an idle process or a new one carries out; None only starts one."""
        try:
            process = self._idle.get_nowait()
        except Empty:
            process = _OrderedProcess(self._folder, self._low, self._seconds)
            self._started.append(process)
            if problem := process.answer(None):
                process.end()
                return problem
        problem = "" if order is None else process.answer(order)
        if process.alive:
            self._idle.put(process)
        return problem

    def outputs(self, folder: Path) -> tuple[Outputs, ...]:
        """The outputs of each sample that are in a folder."""
        return tuple(load(folder / f"{number}.npz") for number in range(len(self._given)))


class _OrderedProcess(AnsweringProcess):
    """A process that measures the model, if none has yet, and carries out orders one after the other."""

    def __init__(self, folder: Path, low: Low, seconds: float) -> None:
        self._seconds = seconds
        path = os.pathsep.join(entry for entry in sys.path if entry)
        super().__init__(
            # -P: this package's own modules must not shadow others
            [sys.executable, "-P", str(_SCRIPT), "model.onnx", "samples", low],
            cwd=folder,
            env=clean_env(folder, extra={"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8:backslashreplace"}),
        )

    def answer(self, order: Mapping[str, object] | None) -> str:
        """What the process says was wrong with the order, or with measuring; a process that says nothing is ended."""
        with killable(self.popen):
            answer = self.ask(order, self._seconds)
        if answer is not None:
            return str(answer.get("problem", ""))
        late = self.alive
        self.end()
        if late:
            return english("it did not end within {seconds} s", seconds=f"{self._seconds:g}")
        code = self.popen.returncode
        return english("its process died ({how})", how=signal.Signals(-code).name if code < 0 else str(code))
