"""The user's calibration set: read in order, bounded, and refused in one sentence that says what is wrong."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxbisect.errors import OptionError
from onnxbisect_backends.calibration import read_calibration

IMAGE = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3])
TOKENS = helper.make_tensor_value_info("file", TensorProto.INT64, [2])
HALF = helper.make_tensor_value_info("h", TensorProto.BFLOAT16, [2])


def sample(number: float) -> dict[str, np.ndarray]:
    return {"image": np.full((1, 3), number, np.float32), "file": np.array([number, 0], np.int64)}


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", npy(array))
    return stream.getvalue()


def npy(array: np.ndarray, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def no_deflate(content: bytes) -> bytes:
    """The archive with a first block of data that is of no kind."""
    start = 30 + len("image.npy")
    return content[:start] + b"\x07" + content[start + 1 :]


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"calib/{name}", content)
    return path


def tarred(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./calib/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("write", [folder, zipped, tarred])
def test_samples_come_in_the_order_of_their_numbers(
    tmp_path: Path, write: Callable[[Path, Mapping[str, bytes]], Path]
) -> None:
    files = {f"s{number}.npz": npz(sample(number)) for number in (10, 2, 1, 30)}
    path = write(tmp_path / "calibration", {"README.txt": b"no sample", **files})

    found = read_calibration(path, [IMAGE, TOKENS], 3)

    assert [one["image"].max() for one in found.samples] == [1, 2, 10]
    assert [one["file"].tolist() for one in found.samples] == [[1, 0], [2, 0], [10, 0]]


def test_a_digit_that_is_no_decimal_number_is_a_letter_of_the_name(tmp_path: Path) -> None:
    files = {name: npz(sample(1)) for name in ("1²3.npz", "1²10.npz", "٣.npz", "x⑦.npz")}

    assert len(read_calibration(folder(tmp_path / "c", files), [IMAGE, TOKENS], 9).samples) == 4


@pytest.mark.parametrize("name", ["0.npy", "0.NPY"])
def test_npy_files_serve_a_model_of_one_input(tmp_path: Path, name: str) -> None:
    values = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    path = folder(tmp_path / "c", {name: npy(values)})

    (one,) = read_calibration(path, [value], 4).samples

    assert one["x"].tolist() == values.tolist()


def test_the_digest_is_that_of_the_values_that_are_used(tmp_path: Path) -> None:
    files = {f"{number}.npz": npz(sample(number)) for number in range(3)}
    one = read_calibration(folder(tmp_path / "a", files), [IMAGE, TOKENS], 2).digest
    packed = read_calibration(zipped(tmp_path / "b.zip", files), [IMAGE, TOKENS], 2).digest
    more = read_calibration(tmp_path / "a", [IMAGE, TOKENS], 3).digest
    files["1.npz"] = npz(sample(7))
    other = read_calibration(folder(tmp_path / "c", files), [IMAGE, TOKENS], 2).digest

    assert one == packed
    assert len({one, more, other}) == 3


def test_what_numpy_lacks_is_given_wider(tmp_path: Path) -> None:
    path = folder(tmp_path / "c", {"0.npy": npy(np.ones(2, np.float32))})

    (one,) = read_calibration(path, [HALF], 1).samples

    assert one["h"].dtype == np.float32


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no .npz or .npy files"),
        (
            {"0.npz": npz({"file": sample(1)["file"], "imgae": np.ones(1)})},
            "'imgae' is no input of the model; did you mean 'image'?",
        ),
        ({"0.npz": npz({"image": np.ones((1, 3), np.float32)})}, "0.npz has no array for the input 'file'"),
        (
            {"0.npz": npz({**sample(1), "image": np.ones((1, 3))})},
            "0.npz has float64 for the input 'image', which is float32",
        ),
        (
            {"0.npz": npz({**sample(1), "image": np.ones(3, np.float32)})},
            "0.npz has the shape [3] for the input 'image', which is [1, 3], the batch included",
        ),
        ({"0.npz": npz(sample(1)), "1.npz": npz(sample(1))[:80]}, "is damaged"),
        ({"0.npz": b"PK"}, "is damaged"),
        ({"0.npz": npz(sample(1)).replace(b"\x08\x00", b"\x63\x00")}, "is damaged"),
        ({"0.npz": no_deflate(npz(sample(1)))}, "is damaged"),
        ({"0.npz": npz({**sample(1), "image": np.full((1, 3), np.inf, np.float32)})}, "not finite"),
        ({"0.npy": npy(np.ones(3))}, "one array, and the model has 2 inputs: write .npz files with the keys file, im"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    path = folder(tmp_path / "calibration", files)

    with pytest.raises(OptionError) as error:
        read_calibration(path, [IMAGE, TOKENS], 4)

    assert words in str(error.value)
    assert str(error.value).count("\n") == 0


def test_a_header_that_is_no_python_is_one_sentence(tmp_path: Path) -> None:
    path = folder(tmp_path / "c", {"0.npy": npy(np.ones((1, 3), np.float32)).replace(b"), }", b"(, }")})

    with pytest.raises(OptionError, match="is damaged at 'image'"):
        read_calibration(path, [IMAGE], 1)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = folder(tmp_path / "c", {"0.npy": npy(np.array([{"a": 1}], object), allow_pickle=True)})

    with pytest.raises(OptionError, match="object"):
        read_calibration(path, [IMAGE], 1)


@pytest.mark.parametrize(("name", "words"), [("missing", "No such file"), ("notes.txt", "neither a folder nor")])
def test_a_path_that_holds_nothing_is_one_sentence(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    with pytest.raises(OptionError, match=words):
        read_calibration(tmp_path / name, [IMAGE], 1)


def test_an_input_that_is_no_tensor_takes_no_files(tmp_path: Path) -> None:
    value = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    path = folder(tmp_path / "c", {"0.npy": npy(np.ones(2, np.float32))})

    with pytest.raises(OptionError, match="'s' is no array of numbers"):
        read_calibration(path, [value], 1)


def test_an_array_is_not_read_before_its_header_is_believed(tmp_path: Path) -> None:
    """A small archive that unpacks to gigabytes."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("image.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": (1 << 28, 3)})
        for _ in range(64):
            member.write(bytes(1 << 20))
    path = folder(tmp_path / "c", {"0.npz": bomb.getvalue()})

    with pytest.raises(OptionError, match=r"has the shape \[268435456, 3\]"):
        read_calibration(path, [IMAGE], 1)


def test_samples_may_hold_an_input_that_is_bound_to_the_same_value(tmp_path: Path) -> None:
    rate = np.array(16000)
    given = folder(tmp_path / "a", {"0.npz": npz({**sample(1), "sr": rate})})
    inputs = [IMAGE, TOKENS]
    assert read_calibration(given, inputs, 1, bound={"sr": rate}).samples[0].keys() == sample(1).keys()
    with pytest.raises(OptionError, match=r"0.npz has another value of 'sr' than the one that it is bound to"):
        read_calibration(given, inputs, 1, bound={"sr": np.array(8000)})
