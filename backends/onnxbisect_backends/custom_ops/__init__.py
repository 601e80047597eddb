"""What nodes compute that onnxruntime does not know: recorded in the user's samples, or by the user's functions.

A function runs in a process of its own. Its results become recorded tensors of samples, which are all that proofs know
(`onnxbisect.model.opaque`).
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxbisect.errors import ModelError, OptionError
from onnxbisect.fingerprint import brief
from onnxbisect.language import english, quoted
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import around, opaque_nodes, recorded_tensors
from onnxbisect.model.runnable import Sample
from onnxbisect.model.scopes import captures, domain_of, reads
from onnxbisect.model.session import Clock, Session
from onnxbisect.proof import random_feeds
from onnxbisect.report.text import clip
from onnxbisect_backends.calibration import read_calibration
from onnxbisect_backends.contract import Limits
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.sandbox.process import run

_SCRIPT = Path(__file__).with_name("call_op.py")
#: Most samples taken from the user's.
_MOST_SAMPLES = 100
_LIMITS = Limits(seconds=300.0)


@dataclass(frozen=True, kw_only=True)
class CustomOps:
    """What is known of the ops of a model that onnxruntime does not know.

    `samples` is a folder, zip or tar of .npz keyed by input names; each may also have tensors of custom ops, by their
    names: what they made, and what they were given. `functions` maps `domain:name` to `FILE.py:FUNCTION`.
    """

    samples: Path | None = None
    functions: Mapping[str, str] = field(default_factory=dict)

    def read(self, model: Model, original: onnx.ModelProto) -> tuple[Sample, ...]:
        """The user's samples, complete; raises OptionError."""
        if self.samples is None:
            return ()
        inputs = model.proto.graph.input
        recorded = [
            onnx.ValueInfoProto(name=name, type=model.types.get(name))
            for names in recorded_tensors(model.proto)
            for name in names
        ]
        found = read_calibration(
            self.samples, inputs, _MOST_SAMPLES, option="--samples", bound=model.input_values, recorded=recorded
        )
        return tuple(self.computed(model, original, found.samples))

    def for_proof(self, model: Model, original: onnx.ModelProto, count: int = 3) -> tuple[Sample, ...]:
        """The user's samples, or else random ones of which the functions have computed what they can."""
        if self.samples is not None or not self.functions:
            return self.read(model, original)
        inputs = around(model.proto, model.types.get).graph.input
        return tuple(self.computed(model, original, [*random_feeds(inputs, count)]))

    def computed(self, model: Model, original: onnx.ModelProto, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with what the functions compute; as they are where there is no function for an op of the model.

        Raises OptionError for a function that cannot be used.
        """
        if not self.functions or not samples:
            return list(samples)
        whole = around(original, model.types.get)
        completed: list[dict[str, Any]] = [dict(it) for it in samples]
        for index in opaque_nodes(original):
            node = original.graph.node[index]
            source = self.functions.get(f"{domain_of(node) or 'ai.onnx'}:{node.op_type}")
            if source is None:
                continue
            given = _before(whole, reads(node), completed, model.path.parent)
            arguments = [*node.input, *captures(node)]
            values = [[it[name] if name else None for name in arguments] for it in given]
            for sample, made in zip(completed, _called(source, node, values), strict=True):
                for name, array in zip(node.output, made, strict=False):
                    if name:
                        sample[name] = _as_declared(array, name, model, source)
        return list(completed)


def functions_of(given: Sequence[str], samples: Path | None) -> CustomOps:
    """What `--op` and `--samples` say; raises OptionError."""
    found = {}
    for text in given:
        op, _, source = text.partition("=")
        file, _, function = source.rpartition(":")
        if not op.rpartition(":")[0] or not file.endswith(".py") or not function.isidentifier():
            raise OptionError(
                english(
                    "--op is DOMAIN:NAME=FILE.py:FUNCTION, such as --op my.ops:Gate=ops.py:gate, and not {given}.",
                    given=quoted(text),
                )
            )
        if not Path(file).is_file():
            raise OptionError(english("There is no file {file} of a custom op.", file=clip(file, 200)))
        found[op] = source
    return CustomOps(samples=samples, functions=found)


def _before(
    whole: onnx.ModelProto, wanted: Sequence[str], samples: Sequence[Sample], folder: Path
) -> list[dict[str, np.ndarray]]:
    """The tensors of these names in each sample: its own, constants, and what onnxruntime computes."""
    part = onnx.ModelProto()
    part.CopyFrom(whole)
    graph = part.graph
    needed, kept = set(wanted), []
    for index in reversed(range(len(graph.node))):
        if needed.intersection(graph.node[index].output):
            needed.update(reads(graph.node[index]))
            kept.append(index)
    for index in sorted(set(range(len(graph.node))).difference(kept), reverse=True):
        del graph.node[index]
    inputs = [value for value in graph.input if value.name in needed]
    del graph.input[:]
    graph.input.extend(inputs)
    del graph.output[:]
    stored = {it.name: it for it in graph.initializer}
    made = {name for node in graph.node for name in node.output}
    computed = [name for name in wanted if name in made]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed)
    constants = {it: onnx.numpy_helper.to_array(stored[it], str(folder)) for it in wanted if it in stored}
    session = Session(part, folder) if computed else None
    found = []
    for sample in samples:
        feeds = {value.name: sample[value.name] for value in inputs}
        try:
            values = [] if session is None else session.run(computed, feeds, Clock(inf))
        except Exception as error:  # onnxruntime's exceptions share no base class but this
            raise ModelError(
                english("what comes before a custom op does not run: {said}", said=brief(str(error)))
            ) from error
        found.append({**constants, **feeds, **dict(zip(computed, values, strict=True))})
    return found


def _called(source: str, node: onnx.NodeProto, values: Sequence[Sequence[np.ndarray | None]]) -> list[list[np.ndarray]]:
    """What the user's function returns for each of the lists of arguments."""
    file, _, function = source.rpartition(":")
    with working_folder() as folder:
        for number, arguments in enumerate(values):
            given: dict[str, Any] = {str(place): it for place, it in enumerate(arguments) if it is not None}
            np.savez(folder / f"{number}.npz", **given)
        (folder / "node.onnx").write_bytes(node.SerializeToString())
        path = os.pathsep.join(entry for entry in sys.path if entry)
        argv = [sys.executable, "-P", str(_SCRIPT), str(Path(file).absolute()), function, str(folder), str(len(values))]
        ended = run(argv, cwd=Path.cwd(), env={**os.environ, "PYTHONPATH": path}, limits=_LIMITS)
        call = f"{function}() of {Path(file).name}"
        answer = folder / "answer.json"
        said = json.loads(answer.read_text()) if answer.is_file() else None
        if said is None:
            lines = [line.strip() for line in ended.log.splitlines() if line.strip()]
            why = f"it did not end within {_LIMITS.seconds:.0f} s" if ended.timed_out else (lines or ["it died"])[-1]
            raise OptionError(english("{call} gave no answer: {reason}.", call=call, reason=clip(why, 300)))
        if said["problem"]:
            raise OptionError(english("{call}: {said}.", call=call, said=clip(said["problem"], 300)))
        found = []
        for number in range(len(values)):
            with np.load(folder / f"made-{number}.npz", allow_pickle=False) as arrays:
                found.append([arrays[str(place)] for place in range(len(arrays.files))])
        return found


def _as_declared(array: np.ndarray, name: str, model: Model, source: str) -> np.ndarray:
    kind = model.types.get(name)
    wanted = None if kind is None else kind.tensor_type
    if wanted is not None and wanted.elem_type and wanted.HasField("shape"):
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in wanted.shape.dim]
        dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        same = len(dims) == array.ndim and all(it in (None, size) for it, size in zip(dims, array.shape, strict=True))
        if dtype != wanted.elem_type or not same:
            raise OptionError(
                english(
                    "{source} returned {dtype} {shape} for {tensor}, which the model has as {declared} {dims}: declare "
                    "its type in the file (value_info), or give samples with the recorded tensor.",
                    source=clip(source, 200),
                    dtype=str(array.dtype),
                    shape=str(list(array.shape)),
                    tensor=quoted(name),
                    declared=str(onnx.helper.tensor_dtype_to_np_dtype(wanted.elem_type)),
                    dims=str(dims),
                )
            )
    return array
