"""Runs an exported file in onnxruntime on what the module was called with, and compares with the module's outputs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxbisect.model.session import Clock, Session
from onnxbisect.model.wording import brief
from onnxbisect.proof.difference import Tolerance, Value, difference
from onnxbisect_backends.exporting.probe import Exported

#: Rounding of another runtime, over many layers; a frozen branch differs by thousands of that.
TOLERANCE = Tolerance(absolute=1e-4, relative=1e-3)

#: The domain of stand-ins.
HOST = "host"

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class ExportCheck:
    """The result for one exported file.

    `samples` counts those that were compared, `differs` is empty or says how the numbers differ, `lost` names the keys
    of inputs that the file does not have, and `problem` says why nothing was compared.
    """

    samples: int = 0
    differs: str = ""
    lost: tuple[str, ...] = ()
    problem: str = ""


def check(file: Path, exported: Exported) -> ExportCheck:
    """Compare the file with the module, on the captured inputs and on perturbed ones."""
    proto = onnx.load(file, load_external_data=False)
    stand_ins = _cut_stand_ins(proto)
    keys = _keys(proto, exported.inputs, stand_ins)
    if keys is None:
        return ExportCheck(problem="the inputs of the file could not be told apart")
    compared, differs = 0, ""
    lost: tuple[str, ...] = ()
    session: Session | None = None
    for number, origin in enumerate(exported.samples):
        arrays = _load(file, number)
        lost = tuple(it for it in arrays if it.startswith("i") and it not in keys.values())
        if not all(it in arrays for it in keys.values()) or not _steady(arrays):
            continue
        try:
            session = session or Session(_typed(proto, stand_ins, arrays), file.parent)
            feeds = {name: arrays[key] for name, key in keys.items()}
            outputs = session.run([it.name for it in proto.graph.output], feeds, Clock(inf))
        except Exception as error:  # onnxruntime's exceptions share no base class but this
            differs = differs or f"onnxruntime does not run it on {_inputs(origin)}: {brief(str(error))}"
            continue
        compared += 1
        differs = differs or _difference(arrays, outputs, origin)
    chance = "its outputs depend on chance or on rounding" if exported.samples else "that Python has no numpy"
    return ExportCheck(samples=compared, differs=differs, lost=lost, problem="" if compared or differs else chance)


def write_samples(file: Path, exported: Exported, folder: Path) -> int:
    """Write the inputs as `.npz` keyed by the file's input names, for `--samples` and `--calibration`."""
    proto = onnx.load(file, load_external_data=False)
    stand_ins = _cut_stand_ins(proto)
    keys = _keys(proto, exported.inputs, stand_ins)
    if keys is None:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: key for name, key in keys.items() if name not in stand_ins}
    for number, origin in enumerate(exported.samples):
        arrays = _load(file, number)
        named: dict[str, Any] = {name: arrays[key] for name, key in own.items()}
        np.savez(folder / f"{number}-{origin}.npz", **named)
    return len(exported.samples)


def _cut_stand_ins(proto: onnx.ModelProto) -> dict[str, str]:
    """Remove the stand-ins' nodes; the outputs of each become inputs: name to key in the samples."""
    nodes = [node for node in proto.graph.node if node.domain == HOST]
    found: dict[str, str] = {}
    calls = Counter[str]()
    for node in nodes:
        path = next(it.s.decode() for it in node.attribute if it.name == "module")
        found.update((name, f"s{path}:{calls[path]}:{place}") for place, name in enumerate(node.output))
        calls[path] += 1
        proto.graph.node.remove(node)
    return found


def _keys(
    proto: onnx.ModelProto, inputs: Sequence[tuple[str, str]], stand_ins: Mapping[str, str]
) -> dict[str, str] | None:
    """The key of each input in the samples; None if it is not known."""
    stored = {it.name for it in proto.graph.initializer}
    names = [it.name for it in proto.graph.input if it.name not in stored]
    known = dict(inputs)
    return None if any(it not in known for it in names) else {**{it: known[it] for it in names}, **stand_ins}


def _typed(proto: onnx.ModelProto, stand_ins: Mapping[str, str], arrays: Arrays) -> onnx.ModelProto:
    """The model with the stand-ins' outputs as inputs, of the types that the samples have."""
    for name, key in stand_ins.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(arrays[key].dtype)
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, arrays[key].shape))
    return proto


def _load(file: Path, number: int) -> dict[str, np.ndarray]:
    with np.load(f"{file}.{number}.npz") as arrays:
        return dict(arrays)


def _steady(arrays: Arrays) -> bool:
    """Whether the module's outputs stay the same when its inputs change by rounding, or it draws other numbers."""
    outputs = [it for it in arrays if it.startswith("o")]
    return all(
        f"n{it[1:]}" in arrays and difference(it, arrays[it], arrays[f"n{it[1:]}"], TOLERANCE).agrees for it in outputs
    )


def _difference(arrays: Arrays, outputs: Sequence[Value], origin: str) -> str:
    expected = [arrays[it] for it in arrays if it.startswith("o")]
    if len(expected) != len(outputs):
        return f"it has {len(outputs)} outputs, the module {len(expected)}"
    for number, (before, after) in enumerate(zip(expected, outputs, strict=True)):
        found = difference(str(number), before, after, TOLERANCE)
        if not found.agrees:
            return f"output {number} on {_inputs(origin)}: {found.form or f'differs by {found.absolute:.2g}'}"
    return ""


def _inputs(origin: str) -> str:
    return "the captured inputs" if origin == "captured" else f"{origin} inputs"
