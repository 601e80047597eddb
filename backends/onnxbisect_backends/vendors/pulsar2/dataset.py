"""Writes calibration data for `pulsar2 build`: for each input a tar of `.npy` files, one name per sample.

Every file has exactly the dtype and the full shape of the input (pulsar2-docs, user_guides_advanced, custom datasets).
"""

import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.feeds import Fill, feed
from onnxbisect_backends.samples import samples_of

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
