"""The files that tell vendors' compilers which nodes stay precise."""

import json
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import helper

from onnxbisect.precision.wanted import Low
from onnxbisect_backends.precision.configurations import configurations
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig
from onnxbisect_backends.vendors.pulsar2.settings import read_config

NODES = [
    helper.make_node("Mul", ["x", "s"], ["up"], name="/scale/Mul"),
    helper.make_node("Conv", ["up", "w"], ["c"], name="conv"),
]


def test_each_vendor_is_told_in_its_own_form(tmp_path: Path) -> None:
    files = configurations(NODES, Low.INT8)
    (tmp_path / "pulsar2.json").write_text(files["pulsar2.json"].content)
    read = BuildConfig.model_validate(read_config(tmp_path / "pulsar2.json"))
    assert [(it.layer_names, it.data_type) for it in read.quant.layer_configs] == [
        (("/scale/Mul",), "FP32"),
        (("conv",), "U16"),
    ]
    assert files["tpu_mlir.qtable"].content == "up_Mul F16\nc_Conv F16\n"
    assert yaml.safe_load(files["rknn.hybrid.yaml"].content) == {
        "custom_quantize_layers": {"up": "float16", "c": "float16"}
    }
    assert files["tensorrt.txt"].content == (
        "--int8 --precisionConstraints=obey --layerPrecisions=/scale/Mul:fp32,conv:fp32\n"
    )
    assert all(not it.left_out for it in files.values())


def test_float16_has_the_forms_that_know_it() -> None:
    files = configurations(NODES, Low.FLOAT16)
    assert set(files) == {"tpu_mlir.qtable", "tensorrt.txt"}
    assert files["tpu_mlir.qtable"].content.startswith("up_Mul F32\n")
    assert files["tensorrt.txt"].content.startswith("--fp16 ")


def test_without_nodes_there_is_nothing_to_say() -> None:
    assert configurations([], Low.INT8) == {}


@pytest.mark.parametrize("name", ["a,b", "a:fp16", "two words", "line\nbreak", "#x", "*", 'q"'])
def test_a_name_that_would_say_something_else_is_left_out(name: str) -> None:
    node = helper.make_node("Mul", ["x", "s"], [name], name=name)
    files = configurations([node, NODES[1]], Low.INT8)
    for form in ("tpu_mlir.qtable", "tensorrt.txt"):
        assert files[form].left_out == (name,)
        assert name not in files[form].content
    (layers,) = [
        it for it in json.loads(files["pulsar2.json"].content)["quant"]["layer_configs"] if name in it["layer_names"]
    ]
    assert layers["data_type"] == "FP32"
    assert yaml.safe_load(files["rknn.hybrid.yaml"].content)["custom_quantize_layers"][name] == "float16"


def test_nodes_of_one_kind_make_one_entry() -> None:
    made = configurations([NODES[0], onnx.NodeProto(name="b", op_type="Add", output=["y"])], Low.INT8)
    (entry,) = json.loads(made["pulsar2.json"].content)["quant"]["layer_configs"]
    assert entry == {"layer_names": ["/scale/Mul", "b"], "data_type": "FP32"}


def test_16_bits_are_named_where_they_do() -> None:
    made = configurations([NODES[0], onnx.NodeProto(name="b", op_type="Add", output=["y"])], Low.INT8, wide={"b"})
    layers = json.loads(made["pulsar2.json"].content)["quant"]["layer_configs"]
    assert layers == [
        {"layer_names": ["/scale/Mul"], "data_type": "FP32"},
        {"layer_names": ["b"], "data_type": "U16"},
    ]
