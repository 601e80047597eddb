"""What pulsar2 is asked about a probe: the user's configuration as far as it is there, and data that fit."""

import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxbisect.cut import Cutter, write
from onnxbisect.model import load
from onnxbisect.model.values import TensorValues
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.samples import write_samples
from onnxbisect_backends.vendors.pulsar2 import Pulsar2Backend
from onnxbisect_backends.vendors.pulsar2.probe_configuration import Ends, ProbeConfiguration
from onnxbisect_backends.vendors.pulsar2.settings import read_settings
from support.backends import pulsar2_tools

MODEL = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,3,4,4] images, int64[2] tokens) => (float[1,3,4,4] y, float[2,3] e)
<float[5,3] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}>
{
  a = Relu(images)
  b = Sigmoid(a)
  y = Add(b, a)
  g = Gather(table, tokens)
  e = Exp(g)
}"""


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pulsar2_tools.stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def model(text: str = MODEL) -> onnx.ModelProto:
    proto = parser.parse_model(text)
    for node in proto.graph.node:
        node.name = node.name or f"make_{node.output[0]}"
    return proto


def config_of(
    folder: Path,
    data: Mapping[str, Any],
    probe: onnx.ModelProto,
    *,
    whole: onnx.ModelProto | None = None,
    **options: str,
) -> dict[str, Any]:
    """What is asked about a piece of the `whole` model, or about the model itself."""
    path = folder / "user.json"
    path.write_text(json.dumps(data))
    build = read_settings({"config": str(path), **options}).build
    datasets = {value.name: f"{value.name}.tar" for value in probe.graph.input}
    ends = Ends.of((whole or probe).graph)
    return ProbeConfiguration(model=probe, build=build, ends=ends).config(datasets, 4)


def compiled(probe: Path, workdir: Path, **options: str) -> tuple[Pulsar2Backend, Outcome]:
    workdir.mkdir()
    backend = Pulsar2Backend(options)
    outcome = backend.compile(probe, workdir, Limits(seconds=60))
    assert backend.judge(outcome).status is Status.PASS, outcome.log
    return backend, outcome


def arrays(archive: Path) -> dict[str, np.ndarray]:
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            assert stream is not None
            found[member.name] = np.load(io.BytesIO(stream.read()))
    return found


def test_the_least_that_builds_is_what_is_written(tmp_path: Path) -> None:
    config = config_of(tmp_path, {}, model())

    assert config == {
        "model_type": "ONNX",
        "npu_mode": "NPU1",
        "quant": {
            "input_configs": [
                {
                    "tensor_name": name,
                    "calibration_dataset": f"{name}.tar",
                    "calibration_format": "Numpy",
                    "calibration_size": 4,
                }
                for name in ("images", "tokens")
            ]
        },
        "input_processors": [{"tensor_name": "tokens", "src_dtype": "S32"}],
    }


def test_every_sample_of_the_model_reaches_the_tool_with_its_partners(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "whole.onnx")
    whole = load(tmp_path / "whole.onnx")
    given: list[dict[str, np.ndarray]] = [
        {"images": np.full((1, 3, 4, 4), number, np.float32), "tokens": np.array([number, 4], np.int64)}
        for number in range(3)
    ]
    units = sum(1 << whole.unit_of_node[f"make_{name}"] for name in ("y", "e"))
    probe = tmp_path / "model.onnx"
    write(Cutter(whole).cut(units), whole, probe)
    write_samples(probe, {}, TensorValues(whole, given=given))
    workdir = tmp_path / "work"

    compiled(probe, workdir)

    config = json.loads((workdir / "config.json").read_text())
    found = {
        entry["tensor_name"]: arrays(workdir / entry["calibration_dataset"])
        for entry in config["quant"]["input_configs"]
    }
    assert set(found) == {"a", "b", "g"}
    for name in found:
        assert list(found[name]) == ["0.npy", "1.npy", "2.npy"]
    for number in range(3):
        a, b, g = (found[name][f"{number}.npy"] for name in "abg")
        np.testing.assert_allclose(b, 1 / (1 + np.exp(-a)), rtol=1e-6)
        assert a.max() == number
        assert g[0].tolist() == [3 * number, 3 * number + 1, 3 * number + 2]


@pytest.mark.parametrize(
    "dtype", [TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT16]
)
def test_inputs_of_other_dtypes_are_calibrated_with_their_own(tmp_path: Path, dtype: int) -> None:
    value = [helper.make_tensor_value_info(name, dtype, [2, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"], name="i")], "g", value[:1], value[1:])
    probe = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), probe)

    compiled(probe, tmp_path / "work", calibration_size="2")

    found = arrays(tmp_path / "work" / "dataset" / "0.tar")
    assert [array.shape for array in found.values()] == [(2, 3), (2, 3)]


def test_what_the_user_says_of_an_input_follows_it_into_probes_that_have_it(tmp_path: Path) -> None:
    data = {
        "quant": {
            "input_configs": [
                {"tensor_name": "DEFAULT", "calibration_dataset": "x.tar", "calibration_mean": [1, 2, 3]},
                {"tensor_name": "tokens", "calibration_dataset": "x.tar"},
            ]
        },
        "input_processors": [{"tensor_name": "images", "src_dtype": "U8", "src_layout": "NHWC"}],
        "output_processors": [{"tensor_name": "y", "dst_perm": [0, 2, 3, 1]}],
    }
    whole = config_of(tmp_path, data, model())
    other = model('<ir_version: 8, opset_import: ["": 17]> g (float[2] q) => (float[2] r) {r = Exp(q)}')
    part = config_of(tmp_path, data, other, whole=model())

    assert whole["input_processors"] == [
        {"tensor_name": "images", "src_dtype": "U8", "src_layout": "NHWC"},
        {"tensor_name": "tokens", "src_dtype": "S32"},
    ]
    images, tokens = whole["quant"]["input_configs"]
    assert images["calibration_mean"] == [1, 2, 3]
    assert images["calibration_format"] == "Numpy"
    assert "calibration_mean" not in tokens
    assert whole["output_processors"] == data["output_processors"]
    assert set(part) == {"model_type", "npu_mode", "quant"}
    assert "calibration_mean" not in part["quant"]["input_configs"][0]


def test_default_means_the_ends_of_the_model_and_not_those_of_a_cut(tmp_path: Path) -> None:
    data = {
        "input_processors": [
            {"tensor_name": "DEFAULT", "src_dtype": "U8"},
            {"tensor_name": "tokens", "src_dtype": "S32"},
        ],
        "output_processors": [{"tensor_name": "DEFAULT", "output_dtype": "U8"}],
    }
    whole = config_of(tmp_path, data, model())
    head = model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,3,4,4] images) => (float[1,3,4,4] a) {a = Relu(images)}'
    )
    tail = model('<ir_version: 8, opset_import: ["": 17]> g (float[2,3] g) => (float[2,3] e) {e = Exp(g)}')

    assert whole["input_processors"] == [
        {"tensor_name": "tokens", "src_dtype": "S32"},
        {"tensor_name": "images", "src_dtype": "U8"},
    ]
    assert [entry["tensor_name"] for entry in whole["output_processors"]] == ["e", "y"]
    of_head = config_of(tmp_path, data, head, whole=model())
    assert of_head["input_processors"] == [{"tensor_name": "images", "src_dtype": "U8"}]
    assert "output_processors" not in of_head
    of_tail = config_of(tmp_path, data, tail, whole=model())
    assert "input_processors" not in of_tail
    assert of_tail["output_processors"] == [{"tensor_name": "e", "output_dtype": "U8"}]


def test_further_sizes_are_for_probes_all_of_whose_inputs_have_them(tmp_path: Path) -> None:
    entry = {"tensor_name": "images", "src_extra_shapes": [{"shape": [1, 3, 8, 8]}]}
    only = model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,3,4,4] images) => (float[1,3,4,4] a) {a = Relu(images)}'
    )

    kept = config_of(tmp_path, {"input_processors": [entry]}, only, whole=model())
    mixed = config_of(tmp_path, {"input_processors": [entry]}, model())

    assert kept["input_processors"] == [entry]
    assert mixed["input_processors"][0] == {"tensor_name": "images"}


def test_layers_that_the_probe_lacks_are_left_out(tmp_path: Path) -> None:
    layers = [
        {"layer_name": "make_y", "data_type": "U16"},
        {"layer_name": "elsewhere", "data_type": "U16"},
        {"layer_names": ["make_a", "elsewhere"], "data_type": "FP32"},
        {"op_type": "Add", "data_type": "U16"},
        {"op_type": "Conv", "data_type": "U16"},
        {"op_types": ["Conv", "Sigmoid"], "data_type": "U16"},
        {"op_type": "Silu", "data_type": "U16"},
        {"start_tensor_names": ["DEFAULT"], "end_tensor_names": ["DEFAULT"], "data_type": "U16"},
        {"start_tensor_names": ["a"], "end_tensor_names": ["y"], "data_type": "U16"},
        {"start_tensor_names": ["a"], "end_tensor_names": ["gone"], "data_type": "U16"},
    ]
    config = config_of(tmp_path, {"quant": {"layer_configs": layers}}, model())

    assert config["quant"]["layer_configs"] == [
        layers[0],
        {"layer_names": ["make_a"], "data_type": "FP32"},
        layers[3],
        {"op_types": ["Sigmoid"], "data_type": "U16"},
        layers[6],
        layers[7],
        layers[8],
    ]


def test_patches_and_parts_that_the_probe_lacks_are_left_out(tmp_path: Path) -> None:
    data = {
        "compiler": {
            "check": 1,
            "sub_configs": [
                {"start_tensor_names": ["a"], "end_tensor_names": ["y"], "check": 2},
                {"start_tensor_names": ["op_37:AxQuantizedConv_out"], "end_tensor_names": ["y"], "check": 3},
            ],
        },
        "op_processors": [{"op_name": "make_a", "attrs": {"k": 1}}, {"op_name": "pool6", "attrs": {"k": 1}}],
        "quant_op_processors": [{"op_name": "pool6", "attrs": {"k": 1}}],
        "const_processors": [{"name": "table", "data": [0] * 15}, {"name": "gone", "data": [1]}],
    }
    config = config_of(tmp_path, data, model())

    assert config["compiler"] == {"check": 1, "sub_configs": data["compiler"]["sub_configs"][:1]}  # type: ignore[index]
    assert config["op_processors"] == data["op_processors"][:1]  # type: ignore[index]
    assert config["const_processors"] == [{"name": "table", "data": [0.0] * 15}]
    assert "quant_op_processors" not in config


def test_renamed_boundary_tensors_keep_their_entries(tmp_path: Path) -> None:
    probe = model('<ir_version: 8, opset_import: ["": 17]> g (float[2] a_b_0) => (float[2] r) {r = Exp(a_b_0)}')
    layer = {"start_tensor_names": ["a/b:0"], "end_tensor_names": ["r"], "data_type": "U16"}
    data = {
        "input_processors": [{"tensor_name": "a/b:0", "src_dtype": "FP16"}],
        "quant": {"layer_configs": [layer]},
    }
    config = config_of(tmp_path, data, probe)

    assert config["input_processors"] == [{"tensor_name": "a_b_0", "src_dtype": "FP16"}]
    assert config["quant"]["layer_configs"] == [{**layer, "start_tensor_names": ["a_b_0"]}]


def test_constants_of_files_are_brought_along(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.zeros((5, 3)))
    user = tmp_path / "user.json"
    user.write_text(json.dumps({"const_processors": [{"name": "table", "data_path": str(tmp_path / "t.npy")}]}))
    probe = tmp_path / "model.onnx"
    onnx.save(model(), probe)

    compiled(probe, tmp_path / "work", config=str(user))

    (entry,) = json.loads((tmp_path / "work" / "config.json").read_text())["const_processors"]
    assert np.load(tmp_path / "work" / entry["data_path"]).shape == (5, 3)


def test_debug_switches_are_for_the_command_line(tmp_path: Path) -> None:
    probe = tmp_path / "model.onnx"
    onnx.save(model(), probe)
    options = {"debug.dump_frontend_graph": "true"}

    compiled(probe, tmp_path / "work", **options)

    assert (tmp_path / "work/output/frontend/optimzied_quant_axmodel.onnx").exists()


@pytest.mark.parametrize("model_type", ["QuantONNX", "QuantAxModel"])
def test_other_kinds_of_models_are_said_to_be_such(tmp_path: Path, model_type: str) -> None:
    assert config_of(tmp_path, {}, model(), model_type=model_type)["model_type"] == model_type


def test_an_input_without_a_shape_is_no_failure_of_the_model(tmp_path: Path) -> None:
    value = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None), helper.make_empty_tensor_value_info("y")]
    weight = numpy_helper.from_array(np.ones(1, np.float32), "w")
    node = helper.make_node("Add", ["x", "w"], ["y"], name="n")
    graph = helper.make_graph([node], "g", value[:1], value[1:], [weight])
    probe = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), probe)
    (tmp_path / "work").mkdir()
    backend = Pulsar2Backend({})

    verdict = backend.judge(backend.compile(probe, tmp_path / "work", Limits(seconds=60)))

    assert verdict.status is Status.UNRESOLVED
    assert "shape of the input 'x' is not known" in verdict.message


def test_the_precision_analysis_comes_back_as_a_table(tmp_path: Path) -> None:
    probe = tmp_path / "model.onnx"
    onnx.save(model(), probe)

    options = {"quant.precision_analysis": "true"}
    backend, outcome = compiled(probe, tmp_path / "work", **options)

    (table,) = backend.judge(outcome).tables
    assert [row[0] for row in table.rows] == ["make_a", "make_b", "make_y", "make_g", "make_e"]
