"""Runs an exported file in onnxruntime on what the module was called with, and compares with the module's outputs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxbisect.fingerprint import brief
from onnxbisect.model.opaque import around
from onnxbisect.model.session import Clock, Session, narrow_types
from onnxbisect.proof import RECORDED, difference
from onnxbisect.proof.outputs import Value
from onnxbisect.terms import Tolerance
from onnxbisect_backends.exporting.probe import Exported

#: The domain of stand-ins.
HOST = "host"
#: Relative tolerances of what is rounded to these types: four steps, for sums are rounded at other places.
ROUNDED: dict[int, float] = {onnx.TensorProto.FLOAT16: 2**-8, onnx.TensorProto.BFLOAT16: 2**-5}

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
    made, read = _stand_ins(proto, _load(file, 0) if exported.samples else {})
    keys = _keys(proto, exported.inputs, made)
    if keys is None:
        return ExportCheck(problem="the inputs of the file could not be told apart")
    tolerance = replace(RECORDED, relative=max([RECORDED.relative, *(ROUNDED[it] for it in narrow_types(proto))]))
    compared, differs = 0, ""
    lost: tuple[str, ...] = ()
    session: Session | None = None
    for number, origin in enumerate(exported.samples):
        arrays = _load(file, number)
        lost = tuple(it for it in arrays if it.startswith("i") and it not in keys.values())
        if not all(it in arrays for it in keys.values()):
            continue
        # whether its outputs stay when its inputs change by rounding, or it draws other numbers
        if not all(
            f"n{it[1:]}" in arrays and difference(it, arrays[it], arrays[f"n{it[1:]}"], tolerance).agrees
            for it in arrays
            if it.startswith("o")
        ):
            continue
        try:
            own = around(proto, partial(_type_of, made, arrays), drawn=False)
            feeds = {name: arrays[key] for name, key in keys.items()}
            names = [it.name for it in own.graph.output if it.name not in feeds]
            if names:  # onnxruntime loads no file without nodes, as one of stand-ins alone is
                session = session or Session(own, file.parent)
            made_here = session.run(names, feeds, Clock(inf)) if session else []
            found = {**feeds, **dict(zip(names, made_here, strict=True))}
        except Exception as error:  # onnxruntime's exceptions share no base class but this
            differs = differs or f"onnxruntime does not run it on {_inputs(origin)}: {brief(str(error))}"
            continue
        compared += 1
        differs = differs or _difference(arrays, [found[it.name] for it in proto.graph.output], origin, tolerance)
        if "m" not in arrays:
            given = {name: found[name] for name in read if name in found}
            differs = differs or _into_stand_ins(given, read, arrays, tolerance)
    chance = "its outputs depend on chance or on rounding" if exported.samples else "that Python has no numpy"
    return ExportCheck(samples=compared, differs=differs, lost=lost, problem="" if compared or differs else chance)


def write_samples(file: Path, exported: Exported, folder: Path) -> int:
    """Write samples as `.npz` keyed by the file's names of tensors, for `--samples`.

    They have the inputs, what stand-ins made and were given, and the module's outputs.
    """
    proto = onnx.load(file, load_external_data=False)
    made, read = _stand_ins(proto, _load(file, 0) if exported.samples else {})
    keys = _keys(proto, exported.inputs, made)
    if keys is None:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for number, origin in enumerate(exported.samples):
        arrays = _load(file, number)
        if "m" in arrays:  # what PyTorch and the file compute at padded positions differs
            continue
        outputs = zip((it.name for it in proto.graph.output), (it for it in arrays if it[0] == "o"), strict=False)
        named: dict[str, Any] = {
            name: arrays[key] for name, key in {**read, **dict(outputs), **keys}.items() if key in arrays
        }
        np.savez(folder / f"{number}-{origin}.npz", **named)
    return len(exported.samples)


def _stand_ins(proto: onnx.ModelProto, recorded: Arrays) -> tuple[dict[str, str], dict[str, str]]:
    """The keys in the samples of what stand-ins make, and of what they read, by the names of the file.

    What they read is left out where the file gives them more than tensors: the older exporter makes tensors of numbers.
    """
    made: dict[str, str] = {}
    read: dict[str, str] = {}
    calls = Counter[str]()
    for node in proto.graph.node:
        if node.domain == HOST:
            path = next(it.s.decode() for it in node.attribute if it.name == "module")
            made.update((name, f"s{path}:{calls[path]}:{place}") for place, name in enumerate(node.output))
            keys = [f"t{path}:{calls[path]}:{place}" for place in range(len(node.input) + 1)]
            if keys[-1] not in recorded and all(it in recorded for it in keys[:-1]):
                read.update(zip(node.input, keys, strict=False))
            calls[path] += 1
    return made, read


def _keys(
    proto: onnx.ModelProto, inputs: Sequence[tuple[str, str]], stand_ins: Mapping[str, str]
) -> dict[str, str] | None:
    """The key of each input in the samples; None if it is not known."""
    stored = {it.name for it in proto.graph.initializer}
    names = [it.name for it in proto.graph.input if it.name not in stored]
    known = dict(inputs)
    return None if any(it not in known for it in names) else {**{it: known[it] for it in names}, **stand_ins}


def _type_of(made: Mapping[str, str], arrays: Arrays, name: str) -> onnx.TypeProto | None:
    """The type that the samples have of what a stand-in makes."""
    if name not in made:
        return None
    array = arrays[made[name]]
    known = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    kind = onnx.TensorProto.BFLOAT16 if made[name] in arrays.get("b", ()) else known
    return onnx.helper.make_tensor_type_proto(kind, array.shape)


def _into_stand_ins(found: Mapping[str, Value], read: Mapping[str, str], arrays: Arrays, tolerance: Tolerance) -> str:
    """How what stand-ins are given differs from what their modules were given; empty if it does not."""
    for name, value in found.items():
        if read[name] in arrays:
            apart = difference(name, arrays[read[name]], value, tolerance)
            if not apart.agrees:
                module = read[name][1:].partition(":")[0]
                return f"an input of {module} {apart.form or f'differs by {apart.absolute:.2g}'}"
    return ""


def _load(file: Path, number: int) -> dict[str, np.ndarray]:
    with np.load(f"{file}.{number}.npz") as arrays:
        return dict(arrays)


def _difference(arrays: Arrays, outputs: Sequence[Value], origin: str, tolerance: Tolerance) -> str:
    expected = [arrays[it] for it in arrays if it.startswith("o")]
    if len(expected) != len(outputs):
        return f"it has {len(outputs)} outputs, the module {len(expected)}"
    for number, (before, after) in enumerate(zip(expected, outputs, strict=True)):
        if "m" in arrays:  # nothing reads what is at padded positions, and it differs
            kept = arrays["m"].astype(bool)
            if before.shape[:2] != kept.shape:
                continue
            if isinstance(after, np.ndarray) and after.shape == before.shape:
                before, after = before[kept], after[kept]
        found = difference(str(number), before, after, tolerance)
        if not found.agrees:
            return f"output {number} on {_inputs(origin)}: {found.form or f'differs by {found.absolute:.2g}'}"
    return ""


def _inputs(origin: str) -> str:
    return "the captured inputs" if origin == "captured" else f"{origin} inputs"
