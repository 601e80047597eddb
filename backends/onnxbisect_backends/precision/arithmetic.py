"""Low precision on this machine: measures a model on samples, and runs it with chosen nodes low."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Empty, LifoQueue
from types import TracebackType
from typing import IO, Self, cast

import numpy as np
import onnx

from onnxbisect.cut import write
from onnxbisect.errors import ModelError
from onnxbisect.language import english
from onnxbisect.model.feeds import Sample
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import is_constant, reads
from onnxbisect.precision.low import can_be_low
from onnxbisect.precision.metric import Outputs
from onnxbisect.precision.tensors import SampledTensor, read_seen
from onnxbisect.precision.wanted import Low
from onnxbisect.report.text import clip
from onnxbisect_backends.contract import Backend, Limits, compute, compute_mixed, list_quantised
from onnxbisect_backends.judging import last_words
from onnxbisect_backends.samples import save
from onnxbisect_backends.sandbox.process import clean_env, killable
from onnxbisect_backends.verifying import computed

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
        _write_model(self._model, self._folder / "model.onnx")
        self.samples.mkdir()
        for number, sample in enumerate(self._given):
            save(self.samples / f"{number}.npz", sample)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        found = []
        for number in range(len(self._given)):
            with np.load(folder / f"{number}.npz") as arrays:
                found.append(dict(arrays))
        return tuple(found)


class _OrderedProcess:
    """A process that measures the model, if none has yet, and carries out orders one after the other."""

    def __init__(self, folder: Path, low: Low, seconds: float) -> None:
        self._seconds = seconds
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(
            # -P: this package's own modules must not shadow others
            [sys.executable, "-P", str(_SCRIPT), "model.onnx", "samples", low],
            cwd=folder,
            env=clean_env(folder, extra={"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8:backslashreplace"}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        """Whether it takes orders."""
        return self._process.poll() is None

    def answer(self, order: Mapping[str, object] | None) -> str:
        """What the process says was wrong with the order, or with measuring; a process that says nothing is ended."""
        orders, answers = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        with killable(self._process):
            try:
                if order is not None:
                    orders.write(json.dumps(order).encode() + b"\n")
                    orders.flush()
                late = not select.select([answers], [], [], self._seconds)[0]
                line = b"" if late else answers.readline()
            except BrokenPipeError:
                late, line = False, b""
        if line:
            return str(json.loads(line).get("problem", ""))
        self.end()
        if late:
            return english("it did not end within {seconds} s", seconds=f"{self._seconds:g}")
        code = self._process.returncode
        return english("its process died ({how})", how=signal.Signals(-code).name if code < 0 else str(code))

    def end(self) -> None:
        """Kill it; may be called again."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                cast("IO[bytes]", pipe).close()


class TargetArithmetic:
    """A compiler's own arithmetic: runs the mixed models that onnxruntime's quantiser writes."""

    def __init__(self, quantiser: OrtArithmetic, backend: Backend, limits: Limits) -> None:
        self._quantiser, self._backend, self._limits = quantiser, backend, limits

    def run(self, keep: Iterable[str]) -> tuple[Ran, Path]:
        """As `OrtArithmetic.run`."""
        return self.run_wide(keep, ())

    def run_wide(self, keep: Iterable[str], wide: Iterable[str]) -> tuple[Ran, Path]:
        """As `OrtArithmetic.run_wide`."""
        problem, place = self._quantiser.make(keep, wide, run=False)
        if problem:
            return Ran(problem=problem), place
        work = place.with_name(f"{place.name}.work")
        work.mkdir()
        ended = compute(self._backend, place.with_suffix(".onnx"), self._quantiser.samples, place, work, self._limits)
        shutil.rmtree(work, ignore_errors=True)
        if ended.exit_code != 0:
            return Ran(problem=last_words(ended)), place
        return Ran(outputs=self._quantiser.outputs(place)), place


class HostedTarget:
    """The arithmetic of a compiler that computes float32 models in float16: kept nodes run on the host in float32.

    The other nodes are compiled in pieces, as few as the kept ones leave, and run where the compiler does.
    """

    def __init__(self, quantiser: OrtArithmetic, model: Model, backend: Backend, limits: Limits) -> None:
        self._quantiser, self._model, self._backend, self._limits = quantiser, model, backend, limits
        self._work = quantiser.folder / "target"
        self._work.mkdir()
        self._runs = count(1)

    def run(self, keep: Iterable[str]) -> tuple[Ran, Path]:
        """As `OrtArithmetic.run`; there is no model of its own."""
        place = self._work / f"out{next(self._runs)}"
        steps = in_turns(self._model.proto.graph, frozenset(keep), self._quantiser.low_nodes)
        samples = [dict(it) for it in self._quantiser.given]
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            for number, (on_host, nodes) in enumerate(steps):
                problem = self._step(Path(folder, str(number)), nodes, samples, on_host=on_host)
                if problem:
                    return Ran(problem=problem), place
        names = [it.name for it in self._model.proto.graph.output]
        place.mkdir()
        outputs = []
        for number, sample in enumerate(samples):
            outputs.append({str(slot): sample[name] for slot, name in enumerate(names) if name in sample})
            save(place / f"{number}.npz", outputs[-1])
        return Ran(outputs=tuple(outputs)), place

    def _step(
        self, folder: Path, nodes: Sequence[onnx.NodeProto], samples: Sequence[dict[str, np.ndarray]], *, on_host: bool
    ) -> str:
        """Compute some nodes, and add what they make to the samples; what went wrong."""
        folder.mkdir()
        piece = piece_of(self._model, nodes)
        file, given, out, work = (folder / name for name in ("model.onnx", "samples", "out", "work"))
        write(piece, self._model, file, self_contained=True)
        given.mkdir()
        work.mkdir()
        for number, sample in enumerate(samples):
            save(given / f"{number}.npz", {it.name: sample[it.name] for it in piece.graph.input})
        if on_host:
            ended = computed(file, "disable_all", given, out, work, self._limits)
        else:
            ended = compute(self._backend, file, given, out, work, self._limits)
        if ended.exit_code != 0:
            return last_words(ended)
        for number, sample in enumerate(samples):
            with np.load(out / f"{number}.npz") as arrays:
                sample.update({it.name: arrays[str(slot)] for slot, it in enumerate(piece.graph.output)})
        return ""


def in_turns(
    graph: onnx.GraphProto, keep: frozenset[str], lowerable: frozenset[str]
) -> list[tuple[bool, list[onnx.NodeProto]]]:
    """The nodes in steps that run one after the other, alternately on the host and on the target.

    Of kept nodes and others it is as few steps as there can be. Where everything that can be low is kept, all runs on
    the host. Constants belong to each step that reads them (`piece_of`).
    """
    nodes = [node for node in graph.node if not is_constant(node)]
    if lowerable <= keep:
        return [(True, nodes)]
    steps: dict[int, list[onnx.NodeProto]] = {}
    turn: dict[str, int] = {}
    for node in nodes:
        host = node.name in keep
        before = max((turn.get(name, 0) for name in reads(node)), default=0)
        own = before if before % 2 == host else before + 1
        steps.setdefault(own, []).append(node)
        turn |= dict.fromkeys(node.output, own)
    return [(turn_of % 2 == 1, steps[turn_of]) for turn_of in sorted(steps)]


def piece_of(model: Model, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """These nodes as a model: it gives what the rest of the model, or its caller, reads."""
    whole = model.proto.graph
    own = {id(node) for node in nodes}
    constants = {name: node for node in whole.node if is_constant(node) for name in node.output}
    made = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for node in nodes for name in reads(node) if name not in made)
    elsewhere = {name for node in whole.node if id(node) not in own for name in reads(node)}
    wanted = elsewhere | {it.name for it in whole.output}
    stored = [it for it in whole.initializer if it.name in read]
    given = {it.name for it in stored} | {it.values.name for it in whole.sparse_initializer}
    proto = onnx.ModelProto(ir_version=model.proto.ir_version, functions=model.proto.functions)
    proto.opset_import.extend(model.proto.opset_import)
    graph = proto.graph
    graph.name = "piece"
    graph.node.extend([*(constants[name] for name in read if name in constants), *nodes])
    graph.initializer.extend(stored)
    graph.sparse_initializer.extend(whole.sparse_initializer)
    types = {it.name: it.type for it in (*whole.input, *whole.output)} | dict(model.types)
    inputs = [name for name in read if name not in constants and name not in given]
    graph.input.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in inputs)
    outputs = [name for node in nodes for name in node.output if name in wanted]
    graph.output.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in outputs)
    graph.value_info.extend(
        onnx.ValueInfoProto(name=name, type=types[name]) for name in made if name in types and name not in outputs
    )
    return proto


class SelfQuantisingTarget:
    """The arithmetic of a compiler that quantises by itself, and is told which tensors to leave in high precision.

    It fuses nodes first, so that some have no tensor of their own, and others several.
    """

    def __init__(self, quantiser: OrtArithmetic, backend: Backend, limits: Limits) -> None:
        self._quantiser, self._backend, self._limits = quantiser, backend, limits
        self._work = quantiser.folder / "target"
        self._model = quantiser.folder / "model.onnx"
        self._runs, self._copies = count(1), count(1)
        self._idle: LifoQueue[Path] = LifoQueue()
        self.tensors: Mapping[str, Sequence[str]] = {}

    def quantise(self, graph: onnx.GraphProto) -> None:
        """Find the `tensors` of each node, by its name. Raises ModelError if the compiler refuses."""
        self._work.mkdir()
        ended = list_quantised(self._backend, self._model, self._quantiser.samples, self._work, self._limits)
        if ended.exit_code != 0:
            said = clip(last_words(ended), 300)
            raise ModelError(
                english("{backend} does not quantise the model: {reason}.", backend=self._backend.name, reason=said)
            )
        self.tensors = tensors_of_nodes(graph, json.loads((self._work / "tensors.json").read_text()))
        self._idle.put(self._work)

    def run(self, keep: Iterable[str]) -> tuple[Ran, Path]:
        """As `OrtArithmetic.run`; there is no model of its own.

        Compilers write files of fixed names: what runs at a time has folders of its own.
        """
        place = self._quantiser.folder / f"target-out{next(self._runs)}"
        names = sorted(name for node in keep for name in self.tensors.get(node, ()))
        try:
            work = self._idle.get_nowait()
        except Empty:
            work = Path(shutil.copytree(self._work, self._work.with_name(f"target{next(self._copies)}")))
        ended = compute_mixed(self._backend, self._model, self._quantiser.samples, names, place, work, self._limits)
        self._idle.put(work)
        if ended.exit_code != 0:
            return Ran(problem=last_words(ended)), place
        return Ran(outputs=self._quantiser.outputs(place)), place


def tensors_of_nodes(graph: onnx.GraphProto, tensors: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Which of a compiler's tensors each node makes.

    Those that it adds are named after an output or a node, with an ending (`y_int8`, `MatMul_3_2conv0`). The longest
    such name counts; those of inputs and weights belong to no node.
    """
    owner = dict.fromkeys([*(it.name for it in graph.input), *(it.name for it in graph.initializer)], "")
    owner |= {node.name: node.name for node in graph.node}
    owner |= {name: node.name for node in graph.node for name in node.output if name}
    found: dict[str, list[str]] = {}
    for tensor in tensors:
        ends = [len(tensor), *(place for place in range(len(tensor) - 1, 0, -1) if tensor[place] in "_-")]
        node = next((owner[tensor[:end]] for end in ends if tensor[:end] in owner), "")
        if node:
            found.setdefault(node, []).append(tensor)
    return found


def _write_model(model: Model, file: Path) -> None:
    """The normalised model, with the types of all tensors, which a quantiser wants."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    known = {it.name for it in (*graph.value_info, *graph.input, *graph.output)}
    made = {name for node in graph.node for name in node.output}
    for name, kind in model.types.items():
        if name in made and name not in known:
            graph.value_info.append(onnx.ValueInfoProto(name=name, type=kind))
    write(proto, model, file)
