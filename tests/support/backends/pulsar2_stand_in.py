"""A stand-in for Axera's `pulsar2`, for tests only: it compiles nothing.

Written from the vendor's documents and from logs of real runs: it validates arguments, configuration and calibration
archives, names the first offending op in pulsar2's words, and leaves its output tree. Texts that no source gives begin
with `[stand-in]`. What an op list can say is judged by the shipped profile of the chip.

Options of its own come before those of pulsar2: `--record FOLDER`, `--lacks FIELD`, `--cosine OP=NUMBER`,
`--refuse OP=TEXT`, `--bare-reshape`, `--hang`, `--abort`.
"""

import argparse
import io
import json
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import helper

from onnxbisect_backends.simulator.profiles import load
from onnxbisect_backends.simulator.refusals import Rules, refusals
from onnxbisect_backends.vendors.pulsar2.settings import lenient_json
from support.backends.pulsar2_stand_in_fields import BOOL, FLAGS, MESSAGES, STRING

TABLE = """                     Quant Precision Table【PerLayer Reference】
┏━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┓
┃ Operator ┃      Type       ┃ Output Tensor ┃     Shape      ┃ DType ┃ QDType ┃ Cosin   ┃ MSE     ┃
┡━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━┩
{rows}
└──────────┴─────────────────┴───────────────┴────────────────┴───────┴────────┴─────────┴─────────┘"""


def main() -> int:
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--refuse", action="append", default=[])
    own.add_argument("--record")
    own.add_argument("--lacks")
    own.add_argument("--cosine", action="append", default=[])
    for flag in ("--bare-reshape", "--hang", "--abort"):
        own.add_argument(flag, action="store_true")
    traps, words = own.parse_known_args()
    if words == ["version"]:
        print("version: 5.1-stand-in\ncommit: 0badcafe")
        return 0
    if words[:1] != ["build"]:
        print("[stand-in] only version and build", file=sys.stderr)
        return 2
    if traps.record:
        record(Path(traps.record), words)
    parser = argparse.ArgumentParser("main.py build")
    parser.add_argument("--input", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--target_hardware", default="AX650", choices=["AX650", "AX620E", "AX615", "M76H", "M57"])
    parser.add_argument("--debug.dump_frontend_graph", dest="dump", action="store_true")
    for flag in FLAGS:
        parser.add_argument(f"--{flag}", nargs="+" if flag == "compiler.static_batch_sizes" else None)
    build(parser.parse_args(words[1:]), traps)
    return 0


def record(folder: Path, words: list[str]) -> None:
    """Keep what this call was given: its words, configuration and model."""
    folder.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=folder, prefix=f"{time.time_ns()}-"))
    (place / "words").write_text("\n".join(words))
    for flag, name in (("--config", "config.json"), ("--input", "model.onnx")):
        shutil.copyfile(words[words.index(flag) + 1], place / name)


def build(args: argparse.Namespace, traps: argparse.Namespace) -> None:
    if traps.lacks and f'"{traps.lacks}"' in Path(args.config).read_text():
        fail("ConfigError", 1, f'Message type "pulsar2.build.QuantConfig" has no field named "{traps.lacks}"')
    config = lenient_json(Path(args.config).read_text(encoding="utf-8"))
    for flag in FLAGS:
        if (word := getattr(args, flag)) is not None:
            put(config, flag, word)
    validate(config, "BuildConfig")
    output = Path(args.output_dir)
    output.mkdir()
    (output / "build_context.json").write_text(json.dumps(config))
    model = onnx.load(args.input)
    change(model, config)
    parse(model, args.target_hardware, traps)
    log("INFO", "yamain.command.build:quant:806", "save optimized onnx to [output/frontend/optimized.onnx]")
    write(output / "frontend/optimized.onnx", model.SerializeToString())
    if args.dump:
        write(output / "frontend/optimzied_quant_axmodel.onnx", b"quantised")  # the vendor's spelling
    calibrate(model, config, output)
    print("Network Quantization Finished.", file=sys.stderr)
    write(output / "quant/quant_axmodel.onnx", b"quantised")
    if config.get("quant", {}).get("precision_analysis"):
        cosines = dict(rule.split("=") for rule in traps.cosine)
        rows = [
            f"│ {n.name} │ AxQuantized{n.op_type} │ {n.output[0]} │ │ FP32 │ U8 │ {cosine} │ 0.01 │"
            for n in model.graph.node
            for cosine in [cosines.get(n.op_type, "0.99")]
        ]
        print(TABLE.format(rows="\n├──────────┤\n".join(rows)))
    backend(model, traps)
    node = helper.make_node("neu mode", [], ["out"], name="subgraph_npu_0")
    compiled = helper.make_model(helper.make_graph([node], "npu", [], []), producer_name="Pulsar2")
    write(output / "compiled.axmodel", compiled.SerializeToString())
    log("INFO", "yamain.command.build:compile_ptq_model:1297", "fuse 1 subgraph(s)")


def put(config: dict[str, Any], flag: str, word: Any) -> None:
    *path, last = flag.split(".")
    message = "BuildConfig"
    for part in path:
        message, config = MESSAGES[message][part], config.setdefault(part, {})
    expected = MESSAGES[message][last]
    if isinstance(expected, list):
        config[last] = list(map(int, word))
        return
    config[last] = word if expected is STRING else word in ("1", "true") if expected is BOOL else json.loads(word)


def change(model: onnx.ModelProto, config: dict[str, Any]) -> None:
    """What the configuration makes of the model before it is quantised."""
    shapes = dict(entry.rsplit(":", 1) for entry in config.get("input_shapes", "").split(";") if entry)
    inputs = {value.name: value for value in model.graph.input}
    for name, dims in shapes.items():
        if name not in inputs:
            fail("OnnxOptimizationError", 13, f"[stand-in] input_shapes names {name}, which is no input")
        for slot, dim in zip(inputs[name].type.tensor_type.shape.dim, dims.split("x"), strict=True):
            slot.dim_value = int(dim)
    if shapes:
        log("WARNING", "yamain.command.load_model:optimize_onnx_model:640", f"change input shape to {shapes}")
    nodes = {node.name for node in model.graph.node}
    stored = {tensor.name for tensor in model.graph.initializer}
    for entry in config.get("op_processors", []):
        if entry["op_name"] not in nodes:
            fail("OnnxOptimizationError", 13, f"[stand-in] there is no op {entry['op_name']}")
        for name, value in entry["attrs"].items():
            place = "yamain.command.load_model:op_attr_patch:488"
            log("INFO", place, f"set op [{entry['op_name']}] attr [{name}] to {value}")
    for entry in config.get("const_processors", []):
        if entry["name"] not in stored:
            fail("OnnxOptimizationError", 13, f"[stand-in] there is no constant {entry['name']}")
        place = "yamain.command.load_model:const_patch:512"
        log("WARNING", place, f"update data of const tensor [{entry['name']}]")
    ends = {"input": inputs, "output": {value.name for value in model.graph.output}}
    for end, names in ends.items():
        for entry in config.get(f"{end}_processors", []):
            if entry["tensor_name"] not in (*names, "DEFAULT"):
                fail("OnnxOptimizationError", 13, f"[stand-in] there is no {end} {entry['tensor_name']}")


def validate(data: dict[str, Any], message: str) -> None:
    for name, value in data.items():
        if name not in MESSAGES[message]:
            fail("ConfigError", 1, f'Message type "pulsar2.build.{message}" has no field named "{name}"')
        expected = MESSAGES[message][name]
        several = isinstance(expected, list)
        for one in value if several else [value]:
            check(one, expected[0] if several else expected, f"{message}.{name}")


def check(value: Any, expected: Any, where: str) -> None:
    if isinstance(expected, str):
        validate(value, expected)
    elif not any(value == it if isinstance(it, str) else type(value) is it for it in expected):
        fail("ConfigError", 1, f"[stand-in] {where} cannot be {value!r}")


def parse(model: onnx.ModelProto, hardware: str, traps: argparse.Namespace) -> None:
    chip = "ax650" if hardware == "M76H" else hardware.lower()
    profile, _ = load(f"pulsar2-{chip}")
    for refusal in refusals(model, Rules(profile=profile))[:1]:
        op, node = refusal.ops[0].rpartition("::")[2], refusal.nodes[0]
        if refusal.reason:
            print(f"op name: {node}, {op}, {{}} get opr failed.", file=sys.stderr)
            fail("OnnxOptimizationError", 13, f"AssertionError: check onnx parser e2e failed, ['{node}']")
        fail("OnnxOptimizationError", 13, f"KeyError: 'dont support {op} opr in AXOPS/ONNXOPS/CUSTOM_OPS'")
    ends = {value.name for value in model.graph.output}
    if traps.bare_reshape and any(
        node.op_type in ("Reshape", "Squeeze") and node.output[0] in ends for node in model.graph.node
    ):
        fail("NPUBackendError", 8, "ZeroDivisionError: division by zero")


def calibrate(model: onnx.ModelProto, config: dict[str, Any], output: Path) -> None:
    entries = {entry["tensor_name"]: entry for entry in config.get("quant", {}).get("input_configs", [])}
    processors = {entry["tensor_name"]: entry for entry in config.get("input_processors", [])}
    for known in (entries, processors):
        if "DEFAULT" in known:
            known.update({value.name: known["DEFAULT"] for value in model.graph.input if value.name not in known})
    batches: set[tuple[str, ...]] = set()
    for value in model.graph.input:
        if value.name not in entries:
            fail("QuantError", 3, f"NotImplementedError: Seems config of input({value.name}) doesn't exist")
        entry = entries[value.name]
        if entry.get("calibration_format", "Image") != "Numpy":
            names = [Path(name).stem for name, _ in members(Path(entry["calibration_dataset"]))]
            batches.add(tuple(names[: entry.get("calibration_size", 32) % (1 << 32)]))
            continue
        tensor = value.type.tensor_type
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        if dtype == np.int64 and processors.get(value.name, {}).get("src_dtype") != "S32":
            fail("QuantError", 3, f"[stand-in] the int64 input {value.name} is not fed as S32")
        names = []
        for name, content in members(Path(entry["calibration_dataset"])):
            place = write(output / "quant/dataset" / value.name / name, content)
            array = np.load(io.BytesIO(content), allow_pickle=False)
            if array.dtype != dtype:
                fail(
                    "QuantError",
                    3,
                    f"AssertionError: Numpy File({place}) has dtype({array.dtype}), however corresponding type of "
                    f"inputs({value.name}) is {dtype.type}",
                )
            if list(array.shape) != [dim.dim_value for dim in tensor.shape.dim]:
                fail("QuantError", 3, f"[stand-in] {place} has the shape {array.shape}")
            names.append(Path(name).stem)
        batches.add(tuple(names[: entry.get("calibration_size", 32) % (1 << 32)]))
    if len(batches) > 1 or batches == {()}:
        fail("QuantError", 3, f"[stand-in] inputs do not have the same samples: {sorted(batches)}")


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    if not path.exists():
        fail("QuantError", 3, f"FileNotFoundError: Could not find file `{path}' in `calib_data'")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            yield from ((name, packed.read(name)) for name in packed.namelist())
        return
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read()


def backend(model: onnx.ModelProto, traps: argparse.Namespace) -> None:
    if traps.hang:
        time.sleep(600)
    if traps.abort:
        print("terminate called after throwing an instance of 'std::runtime_error'", file=sys.stderr, flush=True)
        sys.exit(134)
    for rule in traps.refuse:
        op, _, text = rule.partition("=")
        for node in model.graph.node:
            if node.op_type == op:
                fail("NPUBackendError", 8, f"{text}\n    op: {node.name}")


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def log(level: str, place: str, message: str) -> None:
    print(f"2026-01-01 00:00:00.000 | {level:8} | {place} - {message}", file=sys.stderr)


def fail(code: str, number: int, inner: str) -> NoReturn:
    print(
        'Traceback (most recent call last):\n  File "</opt/pulsar2/yamain/main.py>", line 4, in <module>',
        file=sys.stderr,
    )
    print(inner, file=sys.stderr)
    print(f"yamain.common.error.CodeException: (<ErrorCode.{code}: {number}>, {inner!r})", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
