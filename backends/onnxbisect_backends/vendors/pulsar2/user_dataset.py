"""The samples that the user's own configuration names: `calibration_dataset` in all four formats of pulsar2.

Files of the same name are one sample, as in pulsar2 (pulsar2-docs, user_guides_advanced, several inputs).
"""

import io
import pickle
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import onnx
from numpy.lib import format as npy
from onnx import helper
from PIL import Image, UnidentifiedImageError

from onnxbisect.errors import OptionError
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.facts import dims_of
from onnxbisect.model.runnable import Fill, Sample, feed
from onnxbisect_backends.calibration import SampleFile, by_number, files_at, read_array
from onnxbisect_backends.samples import samples_of
from onnxbisect_backends.vendors.pulsar2.probe_configuration import EVERY
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig, DataFormat, InputProcessor, InputQuantConfig

FOLDER = "dataset"


def write_datasets(inputs: Sequence[onnx.ValueInfoProto], probe: Path, workdir: Path, count: int) -> dict[str, str]:
    """Write an archive for each input in `workdir`; returns their relative paths by input name.

    The samples are those beside the probe, or `count` generated ones. Raises ValueError with a sentence if an input has
    neither samples nor a shape.
    """
    files = samples_of(probe)[:count]
    folder = workdir / FOLDER
    folder.mkdir()
    archives = {}
    for number, value in enumerate(inputs):
        archives[value.name] = f"{FOLDER}/{number}.tar"
        with tarfile.open(workdir / archives[value.name], "w") as archive:
            for index, array in enumerate(_samples(value, files, count)):
                stream = io.BytesIO()
                np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
                member = tarfile.TarInfo(f"{index}.npy")
                member.size = stream.tell()
                stream.seek(0)
                archive.addfile(member, stream)
    return archives


def _samples(value: onnx.ValueInfoProto, files: Sequence[Path], count: int) -> Iterator[np.ndarray]:
    for file in files:
        with np.load(file) as sample:
            if value.name in sample.files:
                yield sample[value.name]
                continue
        yield _made_up(value, int(file.stem))
    if not files:
        for number in range(count):
            yield _made_up(value, number)


def _made_up(value: onnx.ValueInfoProto, number: int) -> np.ndarray:
    if not value.type.HasField("tensor_type") or is_unbound(value.type):
        raise ValueError(f"the shape of the input '{value.name}' is not known, so there are no samples to calibrate on")
    return feed(value, Fill.RANDOM, number)


_ENDINGS: Mapping[DataFormat, tuple[str, ...]] = {
    "Image": (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm"),
    "Numpy": (".npy",),
    "Binary": (".bin",),
    "NumpyObject": (".npy",),
}
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")

#: The classes and functions in a pickled dictionary of numpy arrays; others are refused.
_PICKLED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
    *((f"numpy.{core}.{module}", name) for core in ("core", "_core") for module, name in (
        ("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"),
    )),
}  # fmt: skip

#: Reads one input's value in one sample, given the file's name and the file.
_Read = Callable[[str, SampleFile], np.ndarray]


def read_user_dataset(build: BuildConfig, inputs: Sequence[onnx.ValueInfoProto], most: int) -> list[Sample] | None:
    """The first `most` samples of a model of these inputs; None if the configuration names no data.

    Raises OptionError if an input has no data, or if the data do not fit it.
    """
    configs = {it.tensor_name: it for it in build.quant.input_configs}
    if not configs or not inputs:
        return None
    chosen = {}
    for value in inputs:
        if (config := configs.get(value.name) or configs.get(EVERY)) is None:
            raise OptionError(
                f"quant.input_configs of the pulsar2 configuration has no entry for the input '{value.name}', and "
                f"pulsar2 calibrates every input; one for '{EVERY}' is for all."
            )
        chosen[value.name] = config
    processors = {it.tensor_name: it for it in build.input_processors}
    with ExitStack() as stack:
        archives = {config: _files(stack, config) for config in dict.fromkeys(chosen.values())}
        files = {name: archives[config] for name, config in chosen.items()}
        common = [stem for stem in next(iter(files.values())) if all(stem in found for found in files.values())]
        if not common:
            raise OptionError(
                "The calibration datasets of the pulsar2 configuration have no file name in common, and files of one "
                "name are one sample."
            )
        sizes = [most, *(it.calibration_size for it in chosen.values() if it.calibration_size > 0)]
        readers = {
            value.name: _reader(value, chosen[value.name], processors.get(value.name) or processors.get(EVERY))
            for value in inputs
        }
        return [{name: readers[name](*files[name][stem]) for name in readers} for stem in common[: min(sizes)]]


def _files(stack: ExitStack, config: InputQuantConfig) -> dict[str, tuple[str, SampleFile]]:
    """The files of one archive by their names without folder and ending, in order."""
    name = f"calibration_dataset {config.calibration_dataset} of the pulsar2 configuration"
    if not config.calibration_dataset.endswith(_ARCHIVES):
        raise OptionError(f"{name} is no archive; pulsar2 takes .tar, .tar.gz and .zip.")
    wanted = "its path is taken from the working directory, and --samples takes other samples instead."
    path = Path(config.calibration_dataset)
    files = stack.enter_context(files_at(path, _ENDINGS[config.calibration_format], name, wanted))
    named = {PurePosixPath(name).stem: (name, file) for name, file in files}
    return {stem: named[stem] for stem in sorted(named, key=by_number)}


def _reader(value: onnx.ValueInfoProto, config: InputQuantConfig, processor: InputProcessor | None) -> _Read:
    if not value.type.HasField("tensor_type") or is_unbound(value.type):
        raise OptionError(f"The input '{value.name}' has no fixed shape, and cannot be calibrated with files.")
    match config.calibration_format:
        case "Numpy":
            return lambda name, file: _numpy(name, file, value)
        case "Binary":
            return lambda name, file: _binary(name, file, value)
        case "NumpyObject":
            return lambda name, file: _of_object(name, file, value)
        case "Image":
            return _image_reader(value, config, processor or InputProcessor(tensor_name=value.name))


def _numpy(name: str, file: SampleFile, value: onnx.ValueInfoProto) -> np.ndarray:
    with file.open() as stream:
        return read_array(name, value.name, stream, value.type)


def _binary(name: str, file: SampleFile, value: onnx.ValueInfoProto) -> np.ndarray:
    shape = dims_of(value.type)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    with file.open() as stream:
        data = stream.read()
    wanted = int(np.prod(shape)) * dtype.itemsize
    if len(data) != wanted:
        raise OptionError(
            f"The calibration file {name} has {len(data)} bytes, and the input '{value.name}', {dtype} of "
            f"{'x'.join(map(str, shape))}, has {wanted}."
        )
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def _of_object(name: str, file: SampleFile, value: onnx.ValueInfoProto) -> np.ndarray:
    with file.open() as stream:
        try:
            version = npy.read_magic(stream)
            (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)
            loaded = _Arrays(stream).load()
            found = loaded.item() if isinstance(loaded, np.ndarray) and loaded.shape == () else loaded
        except (ValueError, EOFError, AttributeError, pickle.UnpicklingError) as error:
            raise OptionError(f"The calibration file {name} is no dictionary of arrays: {error}.") from error
    if not isinstance(found, dict):
        raise OptionError(f"The calibration file {name} is no dictionary of arrays, as NumpyObject is.")
    if value.name not in found:
        raise OptionError(f"The calibration file {name} has no array for the input '{value.name}'.")
    # written as .npy again, so that `read_array` checks it like other arrays
    packed = io.BytesIO()
    np.save(packed, np.asarray(found[value.name]), allow_pickle=False)
    packed.seek(0)
    return read_array(name, value.name, packed, value.type)


class _Arrays(pickle.Unpickler):
    """Loads only arrays, because a pickle can run any program."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PICKLED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which is no array")
        return super().find_class(module, name)


def _image_reader(value: onnx.ValueInfoProto, config: InputQuantConfig, processor: InputProcessor) -> _Read:
    shape = dims_of(value.type)
    channels_last = processor.tensor_layout == "NHWC"
    if len(shape) != 4 or shape[3 if channels_last else 1] not in (1, 3):
        raise OptionError(
            f"calibration_format Image is for inputs of {processor.tensor_layout} with 1 or 3 channels, and "
            f"'{value.name}' is {'x'.join(map(str, shape))}; Numpy, Binary and NumpyObject are for the others."
        )
    channels, height, width = (shape[axis] for axis in ((3, 1, 2) if channels_last else (1, 2, 3)))
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    mean, std = (
        np.asarray(_each_channel(values, channels, what), np.float32)
        for values, what in ((config.calibration_mean or (0,), "mean"), (config.calibration_std or (1,), "std"))
    )

    def read(name: str, file: SampleFile) -> np.ndarray:
        try:
            with file.open() as stream, Image.open(stream) as image:
                pixels = image.convert("L" if channels == 1 else "RGB").resize(
                    (width, height), Image.Resampling.BILINEAR
                )
        except (UnidentifiedImageError, Image.DecompressionBombError, ValueError) as error:
            raise OptionError(f"The calibration file {name} is no image: {error}.") from error
        array = np.asarray(pixels, np.float32).reshape(height, width, channels)
        if processor.tensor_format != "RGB":
            array = array[:, :, ::-1]
        array = (array - mean) / std
        laid_out = array if channels_last else array.transpose(2, 0, 1)
        return np.ascontiguousarray(np.broadcast_to(laid_out, shape), dtype)

    return read


def _each_channel(values: Sequence[float], channels: int, what: str) -> Sequence[float]:
    if len(values) not in (1, channels):
        raise OptionError(
            f"calibration_{what} of the pulsar2 configuration has {len(values)} numbers, and the input has {channels} "
            "channels."
        )
    return values
