"""What stands beside a culprit for the vendor's support: the commands of the compile and what they refer to."""

import json
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxbisect_backends.contract import Backend, vendor_files
from onnxbisect_backends.registry import make
from onnxbisect_backends.samples import samples_folder

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y) { y = Sinh(x) }'


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    """A culprit with two samples of its input."""
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    samples_folder(path).mkdir()
    for number in range(2):
        np.savez(samples_folder(path) / f"{number}.npz", x=np.full((2, 3), number, np.float32))
    return path


def commands(backend: Backend, probe: Path) -> list[list[str]]:
    vendor_files(backend, probe)
    lines = (probe.parent / "reproduce.sh").read_text().splitlines()
    return [shlex.split(line) for line in lines if not line.startswith("#") and line != "set -e"]


def test_tpu_mlir_has_all_its_commands(probe: Path) -> None:
    backend = make("tpu-mlir", {"processor": "bm1684x", "quantize": "INT8", "calibration": "2"})

    transform, calibrate, deploy = commands(backend, probe)

    assert transform[:3] == ["model_transform.py", "--model_name", "probe"]
    assert transform[transform.index("--model_def") + 1] == "model.onnx"
    assert transform[transform.index("--test_input") + 1] == "dataset/0.npz"
    assert calibrate == ["run_calibration.py", "probe.mlir", "--dataset", "dataset", "--input_num", "2", "-o", "table"]
    assert deploy[:7] == ["model_deploy.py", "--mlir", "probe.mlir", "--chip", "bm1684x", "--quantize", "INT8"]
    assert deploy[-2:] == ["--model", "probe.bmodel"]
    with np.load(probe.parent / "dataset/1.npz") as sample:
        assert sample["x"].max() == 1


def test_tpu_mlir_without_a_processor_converts_only(probe: Path) -> None:
    (transform,) = commands(make("tpu-mlir", {"verify": "false"}), probe)

    words = "model_transform.py --model_name probe --model_def model.onnx --mlir probe.mlir"
    assert shlex.join(transform) == words
    assert not (probe.parent / "dataset").exists()


def test_rknn_has_the_script_with_its_samples(probe: Path) -> None:
    (call,) = commands(make("rknn", {"target": "rk3588", "quantize": "true"}), probe)

    assert call[:4] == ["python", "rknn_convert.py", "model.onnx", "out.rknn"]
    order = json.loads(call[4])
    assert order["config"]["target_platform"] == "rk3588"
    assert [(probe.parent / sample).exists() for sample in order["samples"]] == [True, True]
    compile((probe.parent / call[1]).read_text(), call[1], "exec")


def test_qnn_has_the_script_with_its_options(probe: Path) -> None:
    (call,) = commands(make("qnn", {}), probe)

    assert call[:4] == ["python", "qnn_session.py", "model.onnx", "context.onnx"]
    assert json.loads(call[4])["backend_type"] == "htp"
    compile((probe.parent / call[1]).read_text(), call[1], "exec")


def test_other_backends_have_nothing_more(probe: Path) -> None:
    vendor_files(make("onnxruntime", {}), probe)

    assert {path.name for path in probe.parent.iterdir()} == {"model.onnx", "model.samples"}
