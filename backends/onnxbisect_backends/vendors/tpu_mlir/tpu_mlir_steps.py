"""A script for TPU-MLIR's own Python, in a process of its own: run one model through the steps of a compile.

`tpu_mlir_steps.py compile MODEL ORDER`, where ORDER is JSON (`TpuMlirBackend._order`): model_transform, then, if a
processor is given, run_calibration and model_deploy, each in a process of its own (`tpu_mlir_tool.py`). All output is
in the working directory. Exit status: that of the failed step, 0 if none failed, 3 if the compiler was not called.
`tpu_mlir_steps.py describe` prints JSON about the tool.
"""

import json
import os
import re
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile, is_zipfile

if TYPE_CHECKING:
    import onnx

_NO_QUESTION = 3

#: The folder with input values.
SAMPLES = "dataset"

#: The prefix of this script's lines in the log.
_MARK = "[onnx-bisect]"

#: The variables with the names of the model's outputs, and the sample that is compared where numbers on the first one
#: are wrong.
_OUTPUTS, _ANOTHER = "ONNXBISECT_OUTPUTS", "ONNXBISECT_ANOTHER_SAMPLE"


def main(words: list[str]) -> int:
    """Run the command that the first word names; returns the exit status."""
    # the modules beside this script must not shadow the tool's
    del sys.path[0]
    root = find_root()
    if root is None:
        print(f"{_MARK} TPU-MLIR is not to be found: its envsetup.sh sets TPUC_ROOT, its package is tpu_mlir.")
        return _NO_QUESTION
    if words[0] == "describe":
        return _describe(root)
    try:
        return _compile(root, words[1], json.loads(words[2]))
    except Exception:  # an error of this script, not of the model
        traceback.print_exc()
        return _NO_QUESTION


def find_root() -> "Path | None":
    """The tool's folder; also sets the environment that its commands need."""
    # the PyPI package sets the environment on import; for an SDK, envsetup.sh has set it
    with suppress(ImportError):
        import_module("tpu_mlir")
    root = os.environ.get("TPUC_ROOT")
    if not root:
        return None
    # the package's own commands start a Python that imports it, to start these
    os.environ["PATH"] = os.pathsep.join((str(Path(root) / "bin"), os.environ.get("PATH", os.defpath)))
    # in the SDK's source tree, TPUC_ROOT is the folder `install` beside the tools
    folders = (Path(root), Path(root).parent)
    return next((folder for folder in folders if (folder / "python/tools/model_transform.py").exists()), None)


def _compile(root: Path, model: str, order: "dict[str, Any]") -> int:
    """Run all steps until one fails; returns the exit status."""
    import onnx

    proto = onnx.load(model, load_external_data=False)
    if order["verify"] and (older := _at_an_older_ir(proto)):
        # the file itself decides; its numbers are those of the same graph in a form that the tool's onnxruntime reads
        if status := _transform(root, model, {**order, "verify": False}, []):
            return status
        proto = older
        model = "older.onnx"
        onnx.save(proto, model)
    if order["verify"] and (why_not := _uncomparable(proto, order["verify_mb"])):
        print(f"{_MARK} not compared: {why_not}")
        order["verify"] = False
    wanted = order["calibrate"] or (1 + order["made_up"]) * order["verify"]
    try:
        samples = write_samples(proto.graph, order["samples"], wanted)
    except (OSError, ValueError, KeyError) as error:
        print(f"{_MARK} the samples of input values cannot be read: {error}")
        return _NO_QUESTION
    if wanted and not samples:
        print(f"{_MARK} not compared: the tool has no way to give the model its inputs")
        order["verify"] = False
    os.environ[_OUTPUTS] = json.dumps([value.name for value in proto.graph.output])
    status = _transform(root, model, order, samples)
    # the outputs are written before they are compared, so without them nothing was compared
    if status and order["verify"] and Path("probe.mlir").exists() and not is_zipfile("outputs.npz"):
        # the runner may have died within a line
        print(f"\n{_MARK} not compared: the tool could not run the model on the samples")
        status, order["verify"] = 0, False
    if status or not order["processor"]:
        return status
    return next((failed for step in deploy(order) if (failed := call(root, *step))), 0)


def _transform(root: Path, model: str, order: "dict[str, Any]", samples: "list[str]") -> int:
    """Convert the model and compare; wrong numbers on one made-up sample may be chance, so another one is told, too."""
    if order["made_up"] and len(samples) > 1:
        os.environ[_ANOTHER] = samples[1]
    try:
        return call(root, *transform(model, order, samples[:1]))
    finally:
        os.environ.pop(_ANOTHER, None)


def _at_an_older_ir(proto: "onnx.ModelProto") -> "onnx.ModelProto | None":
    """The model at the oldest IR version that its operator sets allow, if the tool's onnxruntime reads only that."""
    import onnx
    from onnx import helper

    external = any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in proto.graph.initializer)
    if proto.ir_version <= onnx.IR_VERSION or external:
        return None
    with suppress(KeyError, ValueError):  # an operator set newer than this onnx
        oldest: int = helper.find_min_ir_version_for(list(proto.opset_import))
        if oldest <= onnx.IR_VERSION:
            older = onnx.ModelProto()
            older.CopyFrom(proto)
            older.ir_version = oldest
            return older
    return None


def _uncomparable(proto: "onnx.ModelProto", most_mb: int) -> str:
    """Why the outputs cannot be compared with the tool's onnxruntime; empty if they can."""
    import onnx
    from onnx import helper

    if proto.ir_version > onnx.IR_VERSION:
        return f"the tool's onnxruntime does not read IR version {proto.ir_version}"
    size = 0
    for value in (*proto.graph.value_info, *proto.graph.output):
        kind = value.type.tensor_type
        with suppress(KeyError):  # an element type newer than this onnx
            size += helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize * prod(d.dim_value for d in kind.shape.dim)
    if size > most_mb << 20:
        return f"its tensors hold {size >> 20} MB, more than verify_mb={most_mb}"
    return ""


def transform(model: str, order: "dict[str, Any]", samples: "list[str]") -> "list[str]":
    """The tool that converts the model, and its arguments."""
    words = ["model_transform", "--model_name", "probe", "--model_def", model, "--mlir", "probe.mlir"]
    if order["verify"]:
        words += ["--test_input", samples[0], "--test_result", "outputs.npz", "--tolerance", order["tolerance"]]
    return words


def calibration(count: int) -> "list[str]":
    """The tool that finds the ranges of tensors, and its arguments."""
    return ["run_calibration", "probe.mlir", "--dataset", SAMPLES, "--input_num", str(count), "-o", "table"]


def deploy(order: "dict[str, Any]") -> "list[list[str]]":
    """The tools that compile the converted model for a processor, with arguments, in order."""
    steps = []
    words = ["model_deploy", "--mlir", "probe.mlir", "--chip", order["processor"], "--quantize", order["quantize"]]
    if order["calibrate"]:
        steps.append(calibration(order["calibrate"]))
        words += ["--calibration_table", "table"]
    if order["verify"]:
        words += ["--test_input", "probe_in_f32.npz", "--test_reference", "outputs.npz"]
        words += ["--tolerance", order["deploy_tolerance"]] if order["deploy_tolerance"] else []
    return [*steps, [*words, "--model", order["result"]]]


def call(root: Path, tool: str, *words: str) -> int:
    """Run one of the tool's scripts; its exit status, as a shell gives it after a signal."""
    script = str(root / "python" / "tools" / f"{tool}.py")
    runner = str(Path(__file__).absolute().with_name("tpu_mlir_tool.py"))
    done = subprocess.run([sys.executable, runner, script, *words], check=False)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def write_samples(graph: "onnx.GraphProto", given: "list[str]", count: int, folder: Path = Path()) -> "list[str]":
    """Files of input values in `SAMPLES` of the folder, in the tool's form; empty if it cannot read them."""
    import numpy
    from onnx import helper

    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    types = {value.name: value.type.tensor_type for value in inputs if value.type.HasField("tensor_type")}
    try:
        dtypes = {name: numpy.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)) for name, kind in types.items()}
    except KeyError:  # an element type newer than this onnx
        return []
    if not inputs or len(types) < len(inputs) or any(dtype.kind not in "fiub" for dtype in dtypes.values()):
        return []
    (folder / SAMPLES).mkdir()
    shapes = {name: [max(1, dim.dim_value) for dim in kind.shape.dim] for name, kind in types.items()}
    files = []
    for number in range(count):
        values = {name: _random(numpy, dtypes[name], shapes[name], number) for name in types}
        if number < len(given):
            # the file lacks tensors whose values are unknown
            with numpy.load(given[number]) as stored:
                values.update({name: stored[name] for name in types if name in stored.files})
        files.append(f"{SAMPLES}/{number}.npz")
        # like numpy.savez, which cannot store a tensor called `file`
        with ZipFile(folder / files[-1], "w") as archive:
            for name, value in values.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    # the tool turns scalars into vectors of one element
                    numpy.lib.format.write_array(member, value.reshape(value.shape or 1))
    return files


def _random(numpy: Any, dtype: Any, shape: "list[int]", seed: int) -> Any:
    """Values valid for most ops: an integer may be an index, so it is 0."""
    random = numpy.random.default_rng(seed)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2 if dtype.kind == "b" else 1, shape).astype(dtype)


def _describe(root: Path) -> int:
    import onnx
    from onnx import defs

    code = "import pymlir; print(getattr(pymlir, '__version__', None) or pymlir.module().version)"
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    converter = (root / "python" / "transform" / "OnnxConverter.py").read_text(encoding="utf-8")
    facts = {
        "version": said.stdout.split()[-1].lstrip("v"),
        "ir": onnx.IR_VERSION,
        "opset": defs.onnx_opset_version(),
        "ops": sorted(set(re.findall(r'"(\w+)": lambda node: self\.convert_', converter))),
    }
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
