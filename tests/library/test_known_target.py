"""What is known of a target before it is asked: what the tool says of itself, else what a profile says of it."""

from pathlib import Path

import onnx
import pytest

from onnx_bisect.steps.known_target import inspect_for, known_target
from onnxbisect.model import Model, load
from onnxbisect.preflight import Severity, inspect
from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends import registry
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import profile
from onnxbisect_backends.simulator.profiles import shipped

FILE = 'name = "chip"\ncommand = ["{command}", "{{model}}"]\n{more}'


@pytest.fixture
def net(tmp_path: Path) -> Model:
    text = '<ir_version: 10, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { y = IsNaN(x) }'
    proto = onnx.parser.parse_model(text.replace("float[2,3] y", "bool[2,3] y"))
    onnx.save(proto, tmp_path / "net.onnx")
    return load(tmp_path / "net.onnx")


def chip(folder: Path, command: str, more: str = "") -> TomlBackend:
    (folder / "chip.toml").write_text(FILE.format(command=command, more=more))
    return TomlBackend(folder / "chip.toml", {})


def test_a_tool_that_lists_its_ops_is_known_by_them(tmp_path: Path, net: Model) -> None:
    seen = inspect_for(net, known_target(chip(tmp_path, "true", 'ops = ["Relu"]\nnewest_ir = 9\n')))
    errors = [it.id for it in seen.findings if it.severity is Severity.ERROR]
    assert errors[:2] == ["ir-newer-than-tool", "op-refused"]


def test_a_tool_that_is_not_here_is_known_by_its_profile(tmp_path: Path, net: Model) -> None:
    absent = chip(tmp_path, "no-such-compiler", 'profile = "rknn-2.3.2-measured"\n')
    seen = inspect_for(net, known_target(absent))
    assert "op-refused" in {it.id for it in seen.findings}
    assert "no-such-compiler" in seen.notes[0]
    assert "rknn-2.3.2-measured" in seen.notes[1]


def test_of_a_tool_that_is_not_here_and_not_recorded_general_findings_are_told(tmp_path: Path, net: Model) -> None:
    seen = inspect_for(net, known_target(chip(tmp_path, "no-such-compiler")))
    assert "no-such-compiler" in seen.notes[0]
    assert "Nothing here records which ops" in seen.notes[1]
    assert {it.id for it in seen.findings} == {it.id for it in inspect(net).findings}
    assert seen.ops


def test_of_a_tool_without_a_list_the_findings_stay_general(tmp_path: Path, net: Model) -> None:
    target = known_target(chip(tmp_path, "true"))
    assert (target.rules, target.limits.probe_format) == (None, ProbeFormat())
    seen = inspect_for(net, target)
    assert "Nothing here records which ops" in seen.notes[0]
    assert "op-refused" not in {it.id for it in seen.findings}


@pytest.mark.parametrize("name", ["iree", "mnn", "openvino", "pulsar2", "qnn", "rknn", "tpu-mlir"])
def test_the_profile_that_a_backend_names_is_shipped(name: str) -> None:
    options = {"target_hardware": "AX650"} if name == "pulsar2" else {"soc_model": "SM8550"} if name == "qnn" else {}
    assert profile(registry.make(name, options)) in {*shipped(), ""}


def test_what_single_ops_showed_is_a_warning_and_what_a_list_says_an_error(tmp_path: Path) -> None:
    """QNN takes Erf within Gelu, and a profile measured with single ops refuses it."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { e = Erf(x) y = Mul(e, x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "gelu.onnx")
    model = load(tmp_path / "gelu.onnx")
    found = {}
    for options in ({"profile": "qnn-2.7.0-measured"}, {"ops": "Mul"}):
        seen = inspect_for(model, known_target(registry.make("whitelist", options))).findings
        (found[next(iter(options))],) = [it for it in seen if it.id == "op-refused"]
    measured, listed = found["profile"], found["ops"]
    assert measured.detail == listed.detail == "Erf: 1 node"
    assert (measured.severity, listed.severity) == (Severity.WARNING, Severity.ERROR)
    assert measured.why.startswith("Refused alone,")
    assert listed.why.startswith("Refused, ")
