"""The user's calibration set: samples of the model's inputs, from a folder or an archive.

Each sample is a `.npz` file whose keys are the model's inputs, or for a model of one input a `.npy` file. Files are
sorted by name, with numbers in natural order. Errors are one sentence each, and are found from headers before any array
is read, because the files are untrusted.
"""

import hashlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from types import MappingProxyType
from typing import IO, Any, cast

import numpy as np
import onnx
from numpy.lib import format as npy
from onnx import TensorProto, helper

from onnxbisect.errors import OptionError
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.facts import dims_of
from onnxbisect.model.load import ReadSample
from onnxbisect.model.runnable import Sample, fed_dtype
from onnxbisect_backends.options import unknown

_ENDINGS = (".npz", ".npy")
_WANTED = "give a folder, zip or tar of .npz files whose keys are the model's inputs."
#: An .npy header is shorter than this; the rest of a file is its array.
_HEADER_BYTES = 1 << 16
#: Exceptions that Python raises for damaged, encrypted or unknown archives.
_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, RuntimeError, UnicodeDecodeError),
)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Samples and their digest, which is part of the identity of verdicts that depend on them."""

    samples: tuple[Sample, ...]
    digest: str


def calibration_of(samples: Iterable[Sample]) -> Calibration:
    """The samples with their digest."""
    digest = hashlib.sha256()
    kept = tuple(samples)
    for sample in kept:
        for key in sorted(sample):
            digest.update(f"{key}\0{sample[key].dtype}\0{sample[key].shape}\0".encode())
            digest.update(np.ascontiguousarray(sample[key]).tobytes())
    return Calibration(samples=kept, digest=digest.hexdigest()[:16])


def read_calibration(
    path: Path,
    inputs: Sequence[onnx.ValueInfoProto],
    most: int,
    *,
    option: str = "--samples",
    bound: Mapping[str, np.ndarray] = MappingProxyType({}),
    recorded: Sequence[onnx.ValueInfoProto] = (),
) -> Calibration:
    """The first `most` samples at `path`, which `option` names, for a model of these inputs; raises OptionError.

    `bound` are inputs that are constants of the model now: samples may have them, with the same value. They may also
    have the `recorded` tensors of nodes that onnxruntime does not know, whose type may be unknown.
    """
    kinds = {value.name: value.type for value in inputs}
    more = {value.name: value.type for value in recorded if value.name not in kinds}
    with files_at(path, _ENDINGS, f"{option} {path}", _WANTED) as files:
        return calibration_of(_sample(name, file, kinds, bound, more) for name, file in files[:most])


def first_sample(path: Path | None, option: str = "--samples") -> ReadSample | None:
    """Reads the first sample at `path`, for `load`; None without a path."""
    if path is None:
        return None

    def read(
        inputs: Sequence[onnx.ValueInfoProto],
        bound: Mapping[str, np.ndarray],
        recorded: Sequence[onnx.ValueInfoProto] = (),
    ) -> Sample:
        return read_calibration(path, inputs, 1, option=option, bound=bound, recorded=recorded).samples[0]

    return read


@contextmanager
def files_at(path: Path, endings: Sequence[str], option: str, wanted: str) -> Iterator[list[tuple[str, "SampleFile"]]]:
    """The files with these endings in a folder or an archive, by name, in order; hidden ones are left out.

    Raises OptionError if there are none, or if they cannot be read while the context lasts. In its message, `option`
    names the user's option and `wanted` says what to give instead.
    """
    try:
        with ExitStack() as stack:
            if path.is_dir():
                found = {entry.name: SampleFile(entry.open, "rb") for entry in path.iterdir() if entry.is_file()}
            elif zipfile.is_zipfile(path) and path.suffix != ".npz":
                archive = stack.enter_context(zipfile.ZipFile(path))
                found = {name: SampleFile(archive.open, name) for name in archive.namelist()}
            elif path.suffix not in endings and tarfile.is_tarfile(path):
                tar = stack.enter_context(tarfile.open(path))
                found = {member.name: SampleFile(tar.extractfile, member) for member in tar if member.isfile()}
            elif path.suffix in endings:
                found = {path.name: SampleFile(path.open, "rb")}
            else:
                path.stat()
                raise OptionError(f"{option} is neither a folder nor a zip or tar archive; {wanted}")
            files = [(name, file) for name, file in found.items() if _has_ending(name, endings)]
            if not files:
                raise OptionError(f"{option} has no {' or '.join(endings)} files; {wanted}")
            yield sorted(files, key=lambda item: by_number(item[0]))
    except OSError as error:
        raise OptionError(f"{option} cannot be read: {error.strerror or error}; {wanted}") from error
    except _DAMAGE as error:
        raise OptionError(f"{option} is damaged: {error}; {wanted}") from error


class SampleFile:
    """A file that can be opened, in a folder or an archive."""

    def __init__(self, opener: Any, argument: object) -> None:
        self._opener, self._argument = opener, argument

    def open(self) -> IO[bytes]:
        """Open its content for reading."""
        return cast("IO[bytes]", self._opener(self._argument))


def by_number(name: str) -> list[tuple[int, str]]:
    """A sort key that puts `2.npz` before `10.npz`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _has_ending(name: str, endings: Sequence[str]) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in endings and not path.name.startswith(".")


def _sample(
    name: str,
    file: SampleFile,
    kinds: Mapping[str, onnx.TypeProto],
    bound: Mapping[str, np.ndarray],
    recorded: Mapping[str, onnx.TypeProto],
) -> dict[str, np.ndarray]:
    try:
        return dict(_arrays(name, file, kinds, bound, recorded))
    except _DAMAGE as error:
        raise OptionError(f"The sample file {name} is damaged: {error}.") from error


def _arrays(
    name: str,
    file: SampleFile,
    kinds: Mapping[str, onnx.TypeProto],
    bound: Mapping[str, np.ndarray],
    recorded: Mapping[str, onnx.TypeProto],
) -> Iterator[tuple[str, np.ndarray]]:
    if _has_ending(name, (".npy",)):
        if len(kinds) != 1:
            raise OptionError(
                f"The sample file {name} holds one array, and the model has {len(kinds)} inputs: write .npz "
                f"files with the keys {', '.join(sorted(kinds))}."
            )
        (key,) = kinds
        with file.open() as stream:
            yield key, read_array(name, key, stream, kinds[key])
        return
    with file.open() as stream, zipfile.ZipFile(stream) as archive:
        keys = {member.removesuffix(".npy"): member for member in archive.namelist()}
        for key in [] if kinds.keys() <= keys.keys() else keys:  # more arrays than inputs do no harm
            if key not in kinds and key not in bound and key not in recorded:
                raise OptionError(f"The sample file {name} is wrong: {unknown('input of the model', key, kinds)}")
        for key, value in bound.items():
            if key in keys:
                kind = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                with archive.open(keys[key]) as member:
                    array = read_array(name, key, member, kind)
                    if not np.array_equal(array, value):
                        raise OptionError(
                            f"The sample file {name} has another value of '{key}' than the one that it is bound to."
                        )
        for key, kind in kinds.items():
            if key not in keys:
                raise OptionError(f"The sample file {name} has no array for the input '{key}'.")
            with archive.open(keys[key]) as member:
                yield key, read_array(name, key, member, kind)
        for key, kind in recorded.items():
            if key in keys:
                with archive.open(keys[key]) as member:
                    yield key, read_array(name, key, member, kind, recorded=True)


def read_array(name: str, key: str, stream: IO[bytes], kind: onnx.TypeProto, *, recorded: bool = False) -> np.ndarray:
    """Read one array if its header matches the tensor's type; raises OptionError if not.

    Raises it for non-finite values, too, and for an input of no type; a `recorded` tensor may have both.
    """
    elem_type = kind.tensor_type.elem_type
    unknown_type = recorded and elem_type == TensorProto.UNDEFINED
    if elem_type in (TensorProto.UNDEFINED, TensorProto.STRING) and not unknown_type:
        raise OptionError(f"The input '{key}' is no array of numbers, and cannot be given in files.")
    try:
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = header(stream, max_header_size=_HEADER_BYTES)
    except (ValueError, TokenError) as error:
        raise OptionError(f"The sample file {name} is damaged at '{key}': {error}.") from error
    if unknown_type and dtype.kind not in "biufc":
        raise OptionError(f"The sample file {name} has no array of numbers for '{key}'.")
    expected = dtype if unknown_type else fed_dtype(elem_type)
    if dtype != expected:
        raise OptionError(f"The sample file {name} has {dtype} for the input '{key}', which is {expected}: convert it.")
    if not unknown_type and not is_unbound(kind) and shape != dims_of(kind):
        raise OptionError(
            f"The sample file {name} has the shape {_dims(shape)} for the input '{key}', which is "
            f"{_dims(dims_of(kind))}, the batch included."
        )
    data = stream.read(prod(shape) * dtype.itemsize)
    if len(data) != prod(shape) * dtype.itemsize:
        raise OptionError(f"The sample file {name} is damaged at '{key}': it ends too early.")
    array: np.ndarray = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    if not recorded and dtype.kind in "fc" and not np.isfinite(array).all():
        raise OptionError(f"The sample file {name} has values for the input '{key}' that are not finite.")
    return array


def _dims(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
