"""The user's own `calibration_dataset`: what the model is fed with, in all four formats, and what is refused."""

import io
import json
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from PIL import Image

from onnxbisect.errors import OptionError
from onnxbisect.model.runnable import Sample
from onnxbisect_backends.vendors.pulsar2 import Pulsar2Backend

ONE = "net (float[1,3,2,4] x) => (float[1,3,2,4] y) { y = Relu(x) }"
LAST = "net (float[1,2,4,3] x) => (float[1,2,4,3] y) { y = Relu(x) }"
GRAY = "net (float[2,1,2,4] x) => (float[2,1,2,4] y) { y = Relu(x) }"
TOKENS = "net (float[2,3] x, int64[2] tokens) => (float[2,3] y, int64[2] t) { y = Relu(x)  t = Abs(tokens) }"


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


def png(color: tuple[int, int, int], size: tuple[int, int] = (8, 6)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, color).save(stream, "PNG")
    return stream.getvalue()


def tar(path: Path, files: Mapping[str, bytes], mode: str = "w") -> str:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]  # the mode is a word here
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)


def entry(dataset: str, kind: str, name: str = "DEFAULT", **more: object) -> dict[str, object]:
    return {"tensor_name": name, "calibration_dataset": dataset, "calibration_format": kind, **more}


def samples(folder: Path, text: str, *entries: object, processors: object = (), most: int = 4) -> list[Sample]:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    config = folder / "config.json"
    config.write_text(json.dumps({"quant": {"input_configs": entries}, "input_processors": processors}))
    found = Pulsar2Backend({"config": str(config)}).for_model(model.graph).samples(model.graph.input, most)
    assert found is not None
    return list(found)


def refusal(folder: Path, text: str, *entries: object, **more: Any) -> str:
    with pytest.raises(OptionError) as error:
        samples(folder, text, *entries, **more)
    return str(error.value)


@pytest.mark.parametrize(("format_", "order"), [("BGR", [3, 2, 1]), ("RGB", [1, 2, 3]), ("AutoColorSpace", [3, 2, 1])])
def test_images_become_inputs(tmp_path: Path, format_: str, order: list[int]) -> None:
    data = tar(tmp_path / "d.tar", {"folder/1.png": png((12, 24, 36)), "folder/._1.png": b"of a Mac"})
    mean = [order[0] * 2, order[1] * 2, order[2] * 2]

    (sample,) = samples(
        tmp_path,
        ONE,
        entry(data, "Image", calibration_mean=mean, calibration_std=[10, 10, 10]),
        processors=[{"tensor_name": "DEFAULT", "tensor_format": format_}],
    )

    assert sample["x"].shape == (1, 3, 2, 4)
    np.testing.assert_allclose(sample["x"][0, :, 1, 3], order, rtol=1e-6)


def test_images_follow_the_layout_and_the_channels_of_the_input(tmp_path: Path) -> None:
    data = tar(tmp_path / "d.tar.gz", {"1.png": png((12, 24, 36))}, "w:gz")

    (last,) = samples(tmp_path, LAST, entry(data, "Image"), processors=[{"tensor_name": "x", "tensor_layout": "NHWC"}])
    (gray,) = samples(tmp_path, GRAY, entry(data, "Image"))

    assert last["x"][0, 1, 3].tolist() == [36, 24, 12]
    assert gray["x"].shape == (2, 1, 2, 4)
    assert gray["x"][1, 0, 0, 0] == 22


def test_files_of_one_name_are_one_sample(tmp_path: Path) -> None:
    floats = {f"x/{number}.npy": npy(np.full((2, 3), number, np.float32)) for number in (10, 2, 1)}
    tokens = {f"t/{number}.bin": np.array([number, 0], "<i8").tobytes() for number in (2, 10, 3)}
    entries = [
        entry(tar(tmp_path / "x.tar", floats), "Numpy", "x"),
        entry(tar(tmp_path / "t.tar", tokens), "Binary", "tokens"),
    ]

    found = samples(tmp_path, TOKENS, *entries)

    assert [(it["x"][0, 0], it["tokens"][0]) for it in found] == [(2, 2), (10, 10)]
    assert found[0]["tokens"].dtype == np.int64


def test_dictionaries_hold_all_inputs(tmp_path: Path) -> None:
    sample = {"x": np.ones((2, 3), np.float32), "tokens": np.array([3, 4])}
    data = tar(tmp_path / "d.tar", {"data.npy": npy(sample, allow_pickle=True)})

    (found,) = samples(tmp_path, TOKENS, entry(data, "NumpyObject", calibration_size=-1))

    assert found["tokens"].tolist() == [3, 4]
    np.testing.assert_array_equal(found["x"], sample["x"])


def test_a_dictionary_runs_no_program(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "here",)

    data = tar(tmp_path / "d.tar", {"data.npy": npy({"x": Evil()}, allow_pickle=True)})

    assert "which is no array" in refusal(tmp_path, ONE, entry(data, "NumpyObject"))
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(("size", "most", "count"), [(2, 4, 2), (-1, 4, 4), (32, 3, 3), (-1, 100, 6)])
def test_no_more_samples_than_anybody_says(tmp_path: Path, size: int, most: int, count: int) -> None:
    files = {f"{number}.npy": npy(np.zeros((1, 3, 2, 4), np.float32)) for number in range(6)}
    data = tar(tmp_path / "d.tar", files)

    found = samples(tmp_path, ONE, entry(data, "Numpy", calibration_size=size), most=most)

    assert len(found) == count


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ({"1.npy": npy(np.zeros((1, 3, 2, 4)))}, "Numpy", "has float64 for the input 'x', which is float32"),
        ({"1.npy": npy(np.zeros((3, 2, 4), np.float32))}, "Numpy", "the batch included"),
        ({"1.bin": b"1234"}, "Binary", "1.bin has 4 bytes, and the input 'x', float32 of 1x3x2x4, has 96"),
        ({"1.png": b"no picture"}, "Image", "1.png is no image"),
        ({"1.npy": npy(np.zeros(3))}, "NumpyObject", "no dictionary of arrays"),
        ({"1.npy": npy(np.array(3), allow_pickle=True)[:-8] + pickle.dumps([])}, "NumpyObject", "no dictionary"),
        ({"1.npy": npy({"y": np.zeros(3)}, allow_pickle=True)}, "NumpyObject", "has no array for the input 'x'"),
        ({"1.txt": b""}, "Numpy", "has no .npy files"),
    ],
)
def test_data_that_does_not_fit_is_one_sentence(
    tmp_path: Path, files: Mapping[str, bytes], kind: str, words: str
) -> None:
    assert words in refusal(tmp_path, ONE, entry(tar(tmp_path / "d.tar", files), kind))


def test_what_is_no_picture_cannot_be_fed_with_pictures(tmp_path: Path) -> None:
    data = tar(tmp_path / "d.tar", {"1.png": png((1, 2, 3))})

    assert "Image is for inputs of NCHW with 1 or 3 channels, and 'x' is 1x2x4x3" in refusal(
        tmp_path, LAST, entry(data, "Image")
    )
    assert "calibration_mean of the pulsar2 configuration has 2 numbers" in refusal(
        tmp_path, ONE, entry(data, "Image", calibration_mean=[1, 2])
    )


def test_data_must_be_there_for_every_input(tmp_path: Path) -> None:
    data = tar(tmp_path / "d.tar", {"1.npy": npy(np.zeros((2, 3), np.float32))})
    other = tar(tmp_path / "o.tar", {"2.npy": npy(np.zeros(2, np.int64))})

    assert "has no entry for the input 'tokens'" in refusal(tmp_path, TOKENS, entry(data, "Numpy", "x"))
    assert "no file name in common" in refusal(
        tmp_path, TOKENS, entry(data, "Numpy", "x"), entry(other, "Numpy", "tokens")
    )
    assert "gone.tar of the pulsar2 configuration cannot be read: No such file" in refusal(
        tmp_path, ONE, entry("gone.tar", "Numpy")
    )
    assert "pulsar2 takes .tar, .tar.gz and .zip" in refusal(tmp_path, ONE, entry("images", "Numpy"))


def test_a_configuration_without_data_leaves_it_to_others(tmp_path: Path) -> None:
    graph = onnx.GraphProto()

    assert Pulsar2Backend({}).samples(graph.input, 4) is None
