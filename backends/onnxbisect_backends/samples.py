"""Samples of a probe's input values: files beside the probe, for targets that need them.

`model.onnx` has its samples in `model.samples/0.npz`, `1.npz`, …: each maps the input names of the probe file to arrays
of their dtype and full shape. Types that numpy lacks are stored in the next wider one (bfloat16 as float32, int4 as
int8); inputs that are no tensors are left out.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.cut.packed_boundary import packed_inputs
from onnxbisect.model.facts import with_rank
from onnxbisect.model.runnable import fed_dtype
from onnxbisect.model.scopes import fed_inputs
from onnxbisect.model.values import TensorValues

#: The file that marks samples as made up.
_MADE_UP = "made_up"


def samples_folder(probe: Path) -> Path:
    """The folder of a probe's samples, which may not exist."""
    return probe.with_suffix(".samples")


def load(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, by name."""
    with np.load(file) as arrays:
        return dict(arrays)


def samples_of(probe: Path) -> tuple[Path, ...]:
    """The sample files of a probe in order; empty if there are none."""
    return tuple(sorted(samples_folder(probe).glob("*.npz"), key=lambda path: int(path.stem)))


def made_up(probe: Path) -> bool:
    """Whether the samples come from made-up inputs of the model, not from the user's."""
    return (samples_folder(probe) / _MADE_UP).exists()


def write_samples(probe: Path, renamed: Mapping[str, str], values: TensorValues, *, own: bool = True) -> None:
    """Write the values of the probe's inputs in each sample; `renamed` maps probe names to model names.

    An input that has another rank or dtype than its tensor (`onnxbisect.cut.neutral_boundary`) gets the tensor's values
    in its own form, and one that several became (`onnxbisect.cut.packed_boundary`) theirs in a row. Without `own` the
    samples are marked as made up.
    """
    graph = onnx.load(probe, load_external_data=False).graph
    inner = {value.name: value.type for value in graph.value_info}
    packed = packed_inputs(graph)
    inputs = []
    forms = {}
    parts = [onnx.ValueInfoProto(name=part, type=inner[part]) for joined in packed.values() for part in joined]
    for value in [*fed_inputs(graph), *parts]:
        if value.name in packed:
            continue
        name = renamed.get(value.name, value.name)
        forms[name] = value
        inputs.append(onnx.ValueInfoProto(name=name, type=inner.get(name, value.type)))
    folder = samples_folder(probe)
    folder.mkdir()
    if not own:
        (folder / _MADE_UP).touch()
    for number, sample in enumerate(values.samples(inputs)):
        arrays = {forms[name].name: _as_input(array, forms[name]) for name, array in sample.items()}
        for name, joined in packed.items():
            arrays[name] = np.concatenate([arrays.pop(part).reshape(1, -1) for part in joined], axis=1)
        save(folder / f"{number}.npz", arrays)


def _as_input(array: np.ndarray, value: onnx.ValueInfoProto) -> np.ndarray:
    """The array with the rank and the dtype of this graph input: leading dimensions of 1 more, or joined to one."""
    tensor = value.type.tensor_type
    shape = with_rank(array.shape, len(tensor.shape.dim)) if tensor.HasField("shape") else array.shape
    dtype = fed_dtype(tensor.elem_type)
    # strings as numpy strings, because objects would be pickled
    return array.reshape(shape).astype(str if dtype == np.dtype(object) else dtype, copy=False)


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as `.npz`, like numpy.savez, which cannot store a tensor called `file`."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
