"""Every configuration and every command of pulsar2's guide, from end to end over the stand-in.

The configurations are in `pulsar2_guide/` as the guide prints them (pulsar2-docs, user_guides_advanced/
advanced_build_guides.md of 2026-04-23). What comes of each is a row of the table in docs/backends/pulsar2.md.
"""

import io
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from PIL import Image

from onnxbisect_backends.vendors.pulsar2.settings import lenient_json
from support.backends import pulsar2_tools
from support.cli.command_line import Done, Shell

GUIDE = Path(__file__).with_name("pulsar2_guide")
DOCS = Path(__file__).parents[2] / "docs" / "backends" / "pulsar2.md"

#: As large as the guide's where the size matters: it makes 224 into 384.
SIZE = 224

MOBILENET = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,3,{size},{size}] {name}) => (float[1,2,{half},{half}] output)
<float[2,3,1,1] w1 = {{1, 2, 3, 4, 5, 6}}, float[2,2,1,1] w2 = {{1, 2, 3, 4}}> {{
  conv2_1_linear_bn = Conv({name}, w1)
  relu2_2_dwise = Relu(conv2_1_linear_bn)
  c = Conv(relu2_2_dwise, w2)
  d = Conv(c, w2)
  e = Add(c, d)
  f = Sub(e, c)
  output = AveragePool<count_include_pad = 1, kernel_shape = [2, 2], strides = [2, 2]>(f)
}}"""
#: What the guide calls nodes, by what they make.
NODES = {"c": "conv4_3", "d": "conv6_4", "output": "pool6", "y": "reshape_0"}

TWO_INPUTS = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,3,16,16] input1, float[1,3,16,16] input2) => (float[1,3,16,16] output) {
  a = Relu(input1)
  output = Add(a, input2)
}"""

RGB_AND_EMBEDDING = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,2,3,224,224] rgb, float[1,384] inst_emb) => (float[1,2,3,224,224] y, float[1,384] z) {
  y = Relu(rgb)
  z = Sigmoid(inst_emb)
}"""

RESHAPE = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,48,96] x) => (float[1,96,48] z) <int64[3] reshape_0_shape = {1, 96, 48}> {
  a = Relu(x)
  y = Reshape(a, reshape_0_shape)
  z = Sigmoid(y)
}"""


def mobilenet(name: str = "input") -> str:
    return MOBILENET.format(name=name, size=SIZE, half=SIZE // 2)


def as_it_is(text: str) -> str:
    return text


def in_quant(text: str) -> str:
    return f'{{"quant": {text}}}'


def at_the_root(text: str) -> str:
    return "{" + text.rstrip().rstrip(",") + "}"


def in_compiler(text: str) -> str:
    return '{"compiler": {' + text + "}}"


def with_the_rest_left_out(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip(" ,") != "...")


def with_its_brace(text: str) -> str:
    return text.rstrip().rstrip(",") + "}"


def fetched(text: str) -> str:
    """With the data that the vendor has on a server as a file of this machine."""
    return text.replace("s3://npu-ci/data/", "")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration and the flags of a command; `made` tells of what is no whole file how it becomes one."""

    config: str
    says: str
    model: str = field(default_factory=mobilenet)
    made: Callable[[str], str] = as_it_is
    flags: Mapping[str, str] = field(default_factory=dict)
    #: What a file of it as it stands is told.
    refused: str = ""

    @property
    def shown(self) -> str:
        """The configuration and the flags, as the table has them."""
        return " ".join([self.config[:2], *(f"`{name}={value}`" for name, value in self.flags.items())])


CASES = [
    Case(config="01-two-cores", says="two cores"),
    Case(config="01-two-cores", says="precision analysis by a flag", flags={"quant.precision_analysis": "1"}),
    Case(config="01-two-cores", says="another size by a flag", flags={"input_shapes": "input:1x3x384x384"}),
    Case(config="01-two-cores", says="the model of the front end", flags={"debug.dump_frontend_graph": "true"}),
    Case(config="02-precision-analysis", says="precision analysis"),
    Case(config="03-numpy", says="calibration data as `.npy`"),
    Case(config="04-two-inputs", says="images for two inputs", model=TWO_INPUTS),
    Case(config="05-numpy-object", says="calibration data as dictionaries", model=RGB_AND_EMBEDDING),
    Case(config="06-mixed-precision", says="precision of ops, layers and a part"),
    Case(
        config="07-whole-graph",
        says="precision of the whole graph",
        made=in_quant,
        refused="'layer_configs' is a field of quant, and stands beside it; write it inside.",
    ),
    Case(config="08-convolution-output", says="convolutions with float outputs", made=in_quant),
    Case(config="09-all-but-convolutions", says="all but convolutions as floats", made=in_quant),
    Case(
        config="10-input-shapes",
        says="another size",
        model=mobilenet("data"),
        made=with_the_rest_left_out,
        refused="cannot be parsed",
    ),
    Case(config="11-extra-shapes", says="a further size", model=mobilenet("data"), made=with_the_rest_left_out),
    Case(config="12-op-attribute", says="another attribute of an op", made=at_the_root),
    Case(config="13-constant", says="another constant", model=RESHAPE, made=at_the_root),
    Case(config="14-sub-configs", says="options for a part", made=in_compiler),
    Case(config="15-transformer", says="a transformer", made=at_the_root),
    Case(
        config="16-quantised-resnet50",
        says="QuantONNX",
        model=mobilenet("data"),
        made=fetched,
        flags={"target_hardware": "AX650"},
        refused="s3://npu-ci/data/dataset_v04.zip of the pulsar2 configuration cannot be read: No such file",
    ),
    Case(config="17-quantised-yolov5s", says="QuantONNX, precision of Silu", made=fetched),
    Case(config="18-colour-space", says="YUV inputs"),
    Case(
        config="19-adaround",
        says="AdaRound on a GPU",
        made=with_its_brace,
        refused="cannot be parsed: expecting property name",
    ),
    Case(config="01-two-cores", says="batches of 1, 2 and 4", flags={"compiler.static_batch_sizes": "1,2,4"}),
    Case(config="01-two-cores", says="batches up to 4", flags={"compiler.max_dynamic_batch_size": "4"}),
]


def saved(text: str, path: Path) -> onnx.ModelProto:
    model = parser.parse_model(text)
    for node in model.graph.node:
        node.name = NODES.get(node.output[0], f"make_{node.output[0]}")
    onnx.save(model, path)
    return model


def archives(
    config: Mapping[str, Any], model: onnx.ModelProto, folder: Path, sizes: Mapping[str, Sequence[int]]
) -> None:
    """The data that a configuration names, three samples of each."""
    random = np.random.default_rng(0)
    shapes = {it.name: [dim.dim_value for dim in it.type.tensor_type.shape.dim] for it in model.graph.input}
    shapes |= {name: list(shape) for name, shape in sizes.items()}
    for entry in config.get("quant", {}).get("input_configs", []):
        shape = shapes.get(entry["tensor_name"], next(iter(shapes.values())))
        files = {}
        for number in range(3):
            stream = io.BytesIO()
            match entry.get("calibration_format", "Image"):
                case "Image":
                    Image.fromarray(random.integers(0, 255, (20, 30, 3), np.uint8)).save(stream, "PNG")
                    files[f"images/{number}.png"] = stream.getvalue()
                case "Binary":
                    files[f"{number}.bin"] = random.random(shape, np.float32).tobytes()
                case "Numpy":
                    np.save(stream, random.random(shape, np.float32))
                    files[f"{number}.npy"] = stream.getvalue()
                case "NumpyObject":
                    arrays = {name: random.random(it, np.float32) for name, it in shapes.items()}
                    np.save(stream, arrays)  # type: ignore[arg-type]  # as the guide does
                    files[f"{number}.npy"] = stream.getvalue()
        pack(folder / entry["calibration_dataset"], files)


def pack(path: Path, files: Mapping[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def recorded(shell: Shell) -> list[dict[str, Any]]:
    """The configurations that the stand-in was called with, in order."""
    return [json.loads((it / "config.json").read_text()) for it in sorted((shell.folder / "record").iterdir())]


def outcome(done: Done, report: Mapping[str, Any] | None) -> str:
    if report is None:
        return done.sentence()
    return "compiles" if report["verdict"] == "pass" else f"culprits: {[it['ops'] for it in report['culprits']]}"


@pytest.fixture
def guide(shell: Shell) -> Shell:
    """A folder to work in, with the stand-in on PATH."""
    folder = pulsar2_tools.forked_stand_in(shell.folder / "bin", "--record", str(shell.folder / "record"))
    shell.monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return shell


def laid_out(case: Case, folder: Path) -> str:
    """Writes model, configuration and data; returns the text of the configuration."""
    model = saved(case.model, folder / "model.onnx")
    text = case.made((GUIDE / f"{case.config}.txt").read_text())
    (folder / "config.json").write_text(text)
    config = lenient_json(text)
    given = {**config, **case.flags}.get("input_shapes", "")
    shapes = {name: [int(dim) for dim in dims.split("x")] for name, _, dims in [given.rpartition(":")] if name}
    archives(config, model, folder, shapes)
    return text


def call(case: Case) -> list[str]:
    flags = [word for name, value in case.flags.items() for word in ("--option", f"{name}={value}")]
    return ["run", "model.onnx", "--backend", "pulsar2", "--option", "config=config.json", *flags]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=[f"{case.config}, {case.says}" for case in CASES])
def test_what_the_guide_shows_works(guide: Shell, case: Case) -> None:
    laid_out(case, guide.folder)

    done = guide.call(*call(case), "--format", "json")
    report = json.loads(done.out) if done.out else None

    row = f"| {case.shown} | {case.says} | {outcome(done, report)} |"
    assert f"\n{row}\n" in DOCS.read_text(), row
    assert report is not None
    samples = any("made-up" in note for note in report["model"]["notes"])
    assert samples == ("input_configs" not in (guide.folder / "config.json").read_text())


@pytest.mark.parametrize("case", [case for case in CASES if case.refused], ids=lambda case: case.config)
def test_what_the_guide_prints_and_no_tool_takes_is_one_sentence(guide: Shell, case: Case) -> None:
    laid_out(case, guide.folder)
    (guide.folder / "config.json").write_text((GUIDE / f"{case.config}.txt").read_text())

    assert case.refused in guide.call(*call(case)).sentence()


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=[f"{case.config}, {case.says}" for case in CASES])
def test_the_stand_in_takes_what_the_guide_shows(guide: Shell, case: Case) -> None:
    """Else it could not tell that we ask it something else."""
    config = lenient_json(laid_out(case, guide.folder))
    if "input_configs" not in config.get("quant", {}):
        entry = {"tensor_name": "DEFAULT", "calibration_dataset": "images.tar"}
        config.setdefault("quant", {})["input_configs"] = [entry]
        pack(guide.folder / "images.tar", {"1.png": b""})
        (guide.folder / "config.json").write_text(json.dumps(config))
    flags = [
        word
        for name, value in case.flags.items()
        for word in (f"--{name}", *([] if value == "true" else value.split(",")))
    ]

    words = ["build", "--input", "model.onnx", "--output_dir", "output", "--config", "config.json", *flags]
    done = subprocess.run(
        [str(guide.folder / "bin" / "pulsar2"), *words],
        cwd=guide.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (guide.folder / "output/compiled.axmodel").exists()


def test_the_first_compile_has_the_users_entries_and_samples(guide: Shell) -> None:
    laid_out(CASES[0], guide.folder)

    guide.call(*call(CASES[0]))

    whole = recorded(guide)[0]
    assert whole["npu_mode"] == "NPU2"
    (entry,) = whole["input_processors"]
    assert (entry["tensor_name"], entry["src_layout"], entry["csc_mode"]) == ("input", "NHWC", "NoCSC")
    (samples,) = whole["quant"]["input_configs"]
    assert samples["calibration_mean"] == [103.939, 116.779, 123.68]
    assert samples["calibration_size"] == 3


def test_a_model_of_another_size_is_cut_at_that_size(guide: Shell) -> None:
    case = next(case for case in CASES if case.config.startswith("10"))
    laid_out(case, guide.folder)

    report = json.loads(guide.call(*call(case), "--format", "json").out)

    (call_of_whole,) = sorted((guide.folder / "record").iterdir())
    dims = onnx.load(call_of_whole / "model.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 3, 384, 384]
    assert "Not at the size of the file: 'data' is 1x3x384x384 instead of 1x3x224x224." in report["model"]["notes"]
    assert "input_shapes" not in recorded(guide)[0]
