"""Low precision in a compiler's own arithmetic, where it can be run on this machine."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from queue import Empty, LifoQueue

import numpy as np
import onnx

from onnxbisect.cut import write
from onnxbisect.errors import ModelError
from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import is_constant, reads
from onnxbisect.report.text import clip
from onnxbisect_backends.contract import Backend, Limits, compute, compute_mixed, list_quantised
from onnxbisect_backends.logs import last_words
from onnxbisect_backends.precision.arithmetic import OrtArithmetic, Ran
from onnxbisect_backends.samples import save
from onnxbisect_backends.verifying import computed


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
        #: The nodes of the layers in which it sees errors itself, the worst layer first.
        self.blamed: Sequence[Sequence[str]] = ()

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
        if (errors := self._work / "errors.json").is_file():
            self.blamed = [tuple(tensors_of_nodes(graph, it)) for it in json.loads(errors.read_text())]
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
