"""Everything that `pulsar2 build` can be told, can be told; what it would not take is one sentence."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from onnxbisect.errors import OptionError
from onnxbisect_backends.vendors.pulsar2 import Pulsar2Backend
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig, BuildOptions
from onnxbisect_backends.vendors.pulsar2.settings import OURS, read_settings, scalars
from support.backends.pulsar2_stand_in_fields import MESSAGES

#: `pulsar2 build -h` of the vendor's guide, without the paths that onnx-bisect gives.
HELP = """
model_type target_hardware npu_mode input_shapes onnx_opt.disable_onnx_optimization onnx_opt.enable_onnxsim
onnx_opt.model_check onnx_opt.disable_transformation_check onnx_opt.save_tensors_data quant.calibration_method
quant.precision_analysis quant.precision_analysis_method quant.precision_analysis_mode quant.highest_mix_precision
quant.conv_bias_data_type quant.refine_weight_threshold quant.enable_smooth_quant quant.smooth_quant_threshold
quant.smooth_quant_strength quant.transformer_opt_level quant.ln_scale_data_type quant.check
quant.disable_auto_refine_scale quant.enable_easy_quant quant.disable_quant_optimization quant.enable_brecq
quant.enable_lsq quant.enable_adaround quant.finetune_epochs quant.finetune_block_size quant.finetune_batch_size
quant.finetune_lr quant.device compiler.static_batch_sizes compiler.max_dynamic_batch_size compiler.ddr_bw_limit
compiler.disable_ir_fix compiler.check compiler.npu_perf compiler.check_mode compiler.check_rtol compiler.check_atol
compiler.check_cosine_simularity compiler.check_tensor_black_list compiler.enable_slice_mode compiler.enable_tile_mode
compiler.enable_data_soft_compression
"""

JSON = """{
  "model_type": "ONNX",
  "npu_mode": "NPU2", # two cores
  "quant": {
    "input_configs": [
      {
        "tensor_name": "images", // not "DEFAULT"
        "calibration_dataset": "./dataset/imagenet-32-images.tar",
        "calibration_mean": [103.5, 116.5, 123.5],
      },
    ],
    "layer_configs": [{"op_type": "Add", "data_type": "U16"}, {"layer_names": ["conv4_3"], "data_type": "FP32"},],
    "calibration_method": "MSE",
  },
  "op_processors": [{"op_name": "pool6", "attrs": {"ceil_mode": 1}}],
  "compiler": {"check": 3, "sub_configs": [{"start_tensor_names": ["a"], "end_tensor_names": ["b"], "check": 0}]}
}"""

YAML = """
model_type: ONNX
npu_mode: NPU2 # two cores
quant:
  input_configs:
    - {tensor_name: images, calibration_dataset: ./dataset/imagenet-32-images.tar, calibration_mean: [103.5, 116.5, 123.5]}
  layer_configs:
    - {op_type: Add, data_type: U16}
    - {layer_names: [conv4_3], data_type: FP32}
  calibration_method: MSE
op_processors:
  - {op_name: pool6, attrs: {ceil_mode: 1}}
compiler: {check: 3, sub_configs: [{start_tensor_names: [a], end_tensor_names: [b], check: 0}]}
"""  # noqa: E501

TOML = """
model_type = "ONNX"
npu_mode = "NPU2"
op_processors = [{ op_name = "pool6", attrs = { ceil_mode = 1 } }]
[quant]
calibration_method = "MSE"
layer_configs = [{ op_type = "Add", data_type = "U16" }, { layer_names = ["conv4_3"], data_type = "FP32" }]
[[quant.input_configs]]
tensor_name = "images"
calibration_dataset = "./dataset/imagenet-32-images.tar"
calibration_mean = [103.5, 116.5, 123.5]
[compiler]
check = 3
sub_configs = [{ start_tensor_names = ["a"], end_tensor_names = ["b"], check = 0 }]
"""

PROTOTXT = """
model_type: ONNX
npu_mode: NPU2  # two cores
quant {
  input_configs {
    tensor_name: "images" calibration_dataset: "./dataset/imagenet-32-images.tar"
    calibration_mean: [103.5, 116.5, 123.5]
  }
  layer_configs { op_type: "Add" data_type: U16 }
  layer_configs { layer_names: "conv4_3" data_type: FP32 }
  calibration_method: MSE
}
op_processors { op_name: "pool6" attrs { fields { key: "ceil_mode" value { number_value: 1 } } } }
compiler { check: 3 sub_configs { start_tensor_names: "a" end_tensor_names: "b" check: 0 } }
"""


def file(folder: Path, text: str, ending: str = "json") -> str:
    path = folder / f"config.{ending}"
    path.write_text(text)
    return str(path)


def build(**options: str) -> dict[str, Any]:
    return read_settings({key.replace("__", "."): value for key, value in options.items()}).build.model_dump(
        mode="json", exclude_unset=True
    )


def test_every_option_of_the_tools_help_is_an_option() -> None:
    assert set(scalars(BuildConfig)) == set(HELP.split())
    assert set(scalars(BuildOptions)) == {*HELP.split(), "debug.dump_frontend_graph"}


def test_every_scalar_takes_a_word() -> None:
    """The value that the field has anyway: what matters is that a word gets there."""
    for key, several in scalars(BuildConfig).items():
        *path, last = key.split(".")
        default: Any = BuildConfig()
        for part in (*path, last):
            default = getattr(default, part)
        word = "1,2" if several else str(default).lower() if isinstance(default, bool) else str(default)

        found: Any = build(**{key: word})

        for part in (*path, last):
            found = found[part]
        assert found == default or several, key


def test_the_schema_has_every_field_that_was_written_down_elsewhere() -> None:
    for message, fields in MESSAGES.items():
        model = next(model for model in _messages() if model.__name__ == message)
        assert set(fields) <= set(model.model_fields), message


def _messages() -> list[Any]:
    from onnxbisect_backends.vendors.pulsar2 import schema

    return [it for it in vars(schema).values() if isinstance(it, type) and issubclass(it, schema.Message)]


@pytest.mark.parametrize(("ending", "text"), [("yaml", YAML), ("yml", YAML), ("toml", TOML), ("prototxt", PROTOTXT)])
def test_the_four_formats_say_the_same(tmp_path: Path, ending: str, text: str) -> None:
    expected = build(config=file(tmp_path, JSON))

    assert expected["compiler"]["sub_configs"][0]["check"] == 0
    assert expected["quant"]["input_configs"][0]["calibration_mean"] == [103.5, 116.5, 123.5]
    assert build(config=file(tmp_path, text, ending)) == expected


def test_options_win_over_the_file(tmp_path: Path) -> None:
    options = {"config": file(tmp_path, JSON), "npu_mode": "NPU1", "compiler.check": "0", "target_hardware": "AX620E"}

    found = build(**options)

    assert (found["npu_mode"], found["compiler"]["check"], found["target_hardware"]) == ("NPU1", 0, "AX620E")
    assert found["quant"]["calibration_method"] == "MSE"
    assert len(found["compiler"]["sub_configs"]) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_hardwar": "AX620E"}, "did you mean 'target_hardware'?"),
        ({"quant.calibration_methd": "MSE"}, "did you mean 'quant.calibration_method'?"),
        ({"quant.calibration_method": "mse"}, "quant.calibration_method: input should be 'MinMax', 'Percentile'"),
        ({"compiler.check": "4"}, "compiler.check: input should be less than or equal to 3"),
        ({"target_hardware": "AX615", "npu_mode": "NPU3"}, "npu_mode is NPU3, and AX615 has only NPU1 and NPU2"),
        ({"target_hardware": "AX620E", "npu_mode": "NPU3"}, "AX620E has only NPU1 and NPU2"),
        (
            {"target_hardware": "M57", "model_type": "QuantONNX"},
            "QuantONNX, which M57 does not take; AX650 and M76H do",
        ),
        ({"model_type": "OptimizedQuantAxModel"}, "model_type: input should be 'ONNX', 'QuantAxModel' or 'QuantONNX'"),
        ({"quant.conv_bias_data_type": "U8"}, "conv_bias_data_type: input should be 'S32' or 'FP32'"),
        ({"quant.ln_scale_data_type": "S8"}, "ln_scale_data_type: input should be 'FP32', 'S32' or 'U32'"),
        (
            {"compiler.static_batch_sizes": "1,2", "compiler.max_dynamic_batch_size": "4"},
            "static_batch_sizes and max_dynamic_batch_size exclude each other",
        ),
        ({"input_shapes": "x=1,3"}, "'x=1,3' is not NAME:1x3x224x224"),
        ({"debug.dump_frontend": "1"}, "did you mean 'debug.dump_frontend_graph'?"),
        ({"output_dir": "x"}, "sets 'output_dir' of pulsar2 itself"),
        ({"quant.layer_configs": "x"}, "--option config=FILE"),
        ({"calibration_size": "none"}, "calibration_size"),
        ({"config": "missing.json"}, "missing.json cannot be read: No such file"),
        ({"config": "config.ini"}, "'.ini' is no ending"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as error:
        read_settings(options)

    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "ending", "words"),
    [
        ('{"quant": {"calibration_methd": "MSE"}}', "json", "no field of quant; did you mean 'calibration_method'?"),
        ("quant { calibration_methd: MSE }", "prototxt", "did you mean 'calibration_method'?"),
        (
            "input_processors { dst_format: BGR }",
            "prototxt",
            "'dst_format' is no field of InputProcessor",
        ),
        (
            '{"input_processors": [{"tensor_name": "x", "dst_format": "BGR"}]}',
            "json",
            "'dst_format' is no field",
        ),
        ("npu_mode: NPU9", "prototxt", "NPU9"),
        ('{"quant": {"layer_configs": [{"op_type": "Add", "layer_name": "x"}]}}', "json", "exactly one of layer_name"),
        ('{"quant": ', "json", "cannot be parsed"),
        ("quant: [", "yaml", "cannot be parsed"),
        ("- quant", "yaml", "holds no fields but list"),
        ('{"layer_configs": []}', "json", "'layer_configs' is a field of quant, and stands beside it; write it inside"),
        (
            '{"input_processors": [{"tensor_name": "x", "src_format": "RGBA"}]}',
            "json",
            "should be 'AutoColorSpace', 'GRAY'",
        ),
        ('{"input_processors": [{"tensor_name": "x", "csc_mat": [1, 2]}]}', "json", "csc_mat has 2 numbers"),
        (
            '{"quant": {"layer_configs": [{"op_type": "Conv", "data_type": "FP32"}]}}',
            "json",
            "its output_data_type can",
        ),
        (
            '{"quant": {"layer_configs": [{"op_type": "Add", "data_type": "U32"}]}}',
            "json",
            "should be 'U8', 'S8', 'U16'",
        ),
        ('{"debug": {"dump_frontend_graph": true}}', "json", "'debug' is no field of BuildConfig"),
        ('{"const_processors": [{"name": "w", "data_path": "gone.npy"}]}', "json", "gone.npy, cannot be read"),
        ('{"compiler": {"sub_configs": [{"chek": 1}]}}', "json", "did you mean 'check'?"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, ending: str, words: str) -> None:
    with pytest.raises(OptionError) as error:
        read_settings({"config": file(tmp_path, text, ending)})

    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_may_say_what_onnx_bisect_says_itself(tmp_path: Path) -> None:
    text = '{"input": "m.onnx", "output_dir": "out", "work_dir": "w", "quant": {"input_sample_dir": "s"}}'

    assert read_settings({"config": file(tmp_path, text)}).build.input == "m.onnx"
    assert "quant.input_sample_dir" in OURS


def test_an_edited_configuration_or_constant_is_another_target(tmp_path: Path) -> None:
    constant = tmp_path / "w.bin"
    constant.write_bytes(b"1")
    text = json.dumps({"npu_mode": "NPU1", "const_processors": [{"name": "w", "data_path": str(constant)}]})
    options = {"config": file(tmp_path, text)}
    first = Pulsar2Backend(options).options
    constant.write_bytes(b"2")
    second = Pulsar2Backend(options).options
    file(tmp_path, text.replace("NPU1", "NPU2"))
    third = Pulsar2Backend(options).options

    assert first != second != third
    assert Pulsar2Backend(options).options == third


def test_without_the_tool_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    on_path, in_container = (Pulsar2Backend(options).check() for options in ({}, {"image": "pulsar2:5.1"}))

    assert on_path is not None
    assert "--option image=" in on_path
    assert in_container is not None
    assert "docker was not found" in in_container


def test_an_image_is_no_flag_of_docker() -> None:
    with pytest.raises(OptionError, match="image"):
        Pulsar2Backend({"image": "--privileged"})


NET = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,3,4,4] images) => (float[1,3,4,4] y) <float[1] half = {0.5}> { a = Relu(images)  y = Mul(a, half) }"""


def named_net() -> onnx.GraphProto:
    graph = parser.parse_model(NET).graph
    for node in graph.node:
        node.name = f"make_{node.output[0]}"
    return graph


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"op_processors": [{"op_name": "make_b"}]},
            "op_processors names 'make_b', which is no node of the model; did",
        ),
        ({"quant_op_processors": [{"op_name": "make_b"}]}, "quant_op_processors names 'make_b'"),
        ({"const_processors": [{"name": "hafl"}]}, "'hafl', which is no constant of the model; did you mean 'half'?"),
        ({"input_processors": [{"tensor_name": "image"}]}, "no input of the model; did you mean 'images'?"),
        (
            {"output_processors": [{"tensor_name": "a"}]},
            "output_processors names 'a', which is no output of the model; it",
        ),
        ({"quant": {"layer_configs": [{"layer_name": "make_z"}]}}, "no node of the model; did you mean 'make_y'?"),
        ({"quant": {"layer_configs": [{"op_types": ["Rellu"]}]}}, "'Rellu', which is no op type; did you mean"),
        (
            {"quant": {"layer_configs": [{"start_tensor_names": ["make_a"], "end_tensor_names": ["y"]}]}},
            "quant.layer_configs names 'make_a', which is no tensor of the model",
        ),
        (
            {"quant": {"input_configs": [{"tensor_name": "data", "calibration_dataset": "d.tar"}]}},
            "quant.input_configs names 'data', which is no input of the model; it has 'DEFAULT', 'images'.",
        ),
        (
            {"compiler": {"sub_configs": [{"start_tensor_names": ["aa"], "end_tensor_names": ["y"]}]}},
            "compiler.sub_configs names 'aa', which is no tensor of the model",
        ),
    ],
)
def test_entries_about_what_the_model_lacks_are_refused(tmp_path: Path, data: dict[str, Any], words: str) -> None:
    backend = Pulsar2Backend({"config": file(tmp_path, json.dumps(data))})

    with pytest.raises(OptionError) as error:
        backend.for_model(named_net())

    assert words in str(error.value)


def test_names_that_no_file_has_are_left_to_the_tool(tmp_path: Path) -> None:
    """Tensors of its front end, ops of its own, and ops that another model of the user's has."""
    layers = [{"op_type": "Silu", "data_type": "U16"}, {"op_type": "Gemm", "data_type": "U16"}]
    part = {"start_tensor_names": ["op_37:AxQuantizedConv_out"], "end_tensor_names": ["op_5:AxQuantizedConv_out"]}
    data = {"quant": {"layer_configs": layers}, "compiler": {"sub_configs": [part]}}

    Pulsar2Backend({"config": file(tmp_path, json.dumps(data))}).for_model(named_net())
