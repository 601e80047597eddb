#!/usr/bin/env python3
"""Run the pieces of a split model one after another, in onnxruntime. Needs numpy and onnxruntime, nothing else.

    python run.py                              # random inputs
    python run.py inputs.npz                   # keys are the names of the model's inputs
    python run.py image=image.npy --out y.npz  # one file for one input; the rest is random
    python run.py --compare model.onnx         # runs the whole model, too: are the outputs the same, bit for bit?
    python run.py --op my:Gate=ops.py:gate     # computes the custom op Gate of the domain my by this function

`manifest.json` beside this file lists the pieces and their tensors. To run the NPU's pieces on the NPU, replace
`run_on_npu`. Pieces of the kind `custom` have one node that onnxruntime does not know: `--op` names a function for it,
or `inputs.npz` has its outputs, recorded on the same inputs, by the tensors' names. Where it has outputs of the model,
these are compared.
"""

import argparse
import importlib
import json
import os
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read on import: some builds report to their vendor
import onnxruntime


def run_on_npu(file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Replace this: run what your compiler made of `file`; arrays go in and out by the names in that file."""
    return run_on_host(file, inputs)


def run_custom(piece: dict[str, Any], inputs: dict[str, Any], given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a node that onnxruntime does not know: by the user's function, or from tensors that were recorded."""
    custom = piece["custom"]
    tensors = {it["name"]: it["tensor"] for it in (*piece["inputs"], *piece["outputs"])}
    made = [name for name in custom["outputs"] if name]
    if custom["op"] in functions:
        stored = dict(np.load(folder / custom["constants"], allow_pickle=False)) if custom["constants"] else {}
        arguments = [
            stored.get(str(number)) if name is None else inputs[name] for number, name in enumerate(custom["arguments"])
        ]
        outputs = called(functions[custom["op"]], arguments, custom["attributes"])
        return {name: value for name, value in zip(custom["outputs"], outputs, strict=False) if name}
    if not all(tensors[name] in given for name in made):
        sys.exit(
            f"onnxruntime does not know {custom['op']}: name a function, --op {custom['op']}=FILE.py:FUNCTION, or give "
            f"its recorded outputs in the inputs: {', '.join(repr(tensors[name]) for name in made)}."
        )
    for name, value in inputs.items():
        recorded = given.get(tensors[name])
        if recorded is not None and not (
            recorded.shape == value.shape and np.allclose(recorded, value, rtol=1e-3, atol=1e-4, equal_nan=True)
        ):
            sys.exit(f"The tensors of {custom['op']} were recorded on other inputs: {tensors[name]!r} differs.")
    return {name: given[tensors[name]] for name in made}


#: Functions for custom ops, by `domain:name`.
functions: dict[str, Callable[..., Any]] = {}


def function_of(text: str) -> tuple[str, Callable[..., Any]]:
    """The op and the function of `DOMAIN:NAME=FILE.py:FUNCTION`."""
    op, _, source = text.partition("=")
    file, _, name = source.rpartition(":")
    sys.path.insert(0, str(Path(file).absolute().parent))
    return op, getattr(importlib.import_module(Path(file).stem), name)


def called(function: Callable[..., Any], arguments: list[Any], attributes: dict[str, Any]) -> list[Any]:
    """The outputs of a function: an array, or a list or tuple of arrays, as its node has outputs."""
    made = function(*arguments, **attributes)
    return [np.asarray(it) for it in (made if isinstance(made, list | tuple) else [made])]


def run_on_host(file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run a piece in onnxruntime on the CPU."""
    runtime = session(file)
    names = [output.name for output in runtime.get_outputs()]
    return dict(zip(names, runtime.run(names, inputs), strict=True))


def run(
    folder: Path,
    inputs: dict[str, Any],
    *,
    progress: bool = False,
    by: Callable[[Path, dict[str, Any]], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run all pieces in `folder` on inputs of the model; its outputs.

    `progress`: print a line for each piece. `by` runs every piece, whatever it is for.
    """
    manifest = read_manifest(folder)
    values = dict(inputs)
    forms = {it["name"]: it for it in manifest["inputs"]}
    for piece in manifest["pieces"]:
        began = perf_counter()
        taken = {it["name"]: converted(values[it["tensor"]], forms.get(it["tensor"]), it) for it in piece["inputs"]}
        if piece["kind"] == "custom" and by is None:
            made = run_custom(piece, taken, inputs, folder)
        else:
            made = (by or (run_on_npu if piece["kind"] == "npu" else run_on_host))(folder / piece["file"], taken)
        values.update((it["tensor"], made[it["name"]]) for it in piece["outputs"])
        forms.update((it["tensor"], it) for it in piece["outputs"])
        if progress:
            print(f"{piece['file']}  {(perf_counter() - began) * 1000:.1f} ms")
    return {it["name"]: converted(values[it["name"]], forms.get(it["name"]), it) for it in manifest["outputs"]}


def converted(value: Any, made: dict[str, Any] | None, wanted: dict[str, Any]) -> Any:
    """A tensor that one piece makes as another takes it: an NPU may want another rank or dtype at its boundary."""
    if made is None or not isinstance(value, np.ndarray):
        return value
    if made["shape"] is not None and wanted["shape"] is not None:
        more = len(wanted["shape"]) - len(made["shape"])
        if more and None not in wanted["shape"]:
            value = value.reshape(wanted["shape"])
        elif more:
            value = value.reshape((1,) * more + value.shape if more > 0 else value.shape[-more:])
    return value if made["dtype"] == wanted["dtype"] else value.astype(wanted["dtype"])


@cache
def session(file: Path) -> Any:
    """A piece in onnxruntime. Optimisation would fuse other nodes in a piece than in the whole: other last bits."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `manifest.json` says."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return manifest


def same(one: Any, other: Any) -> bool:
    """Whether two results are the same to the last bit."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool((one == other).all()) if one.dtype == object else one.tobytes() == other.tobytes()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Runs the pieces of a split model one after another.")
    parser.add_argument("inputs", nargs="*", metavar="FILE.npz|NAME=FILE.npy", help="inputs; missing ones are random")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", default=Path("outputs.npz"), help="for the outputs")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs")
    parser.add_argument("--compare", type=Path, metavar="MODEL.onnx", help="the whole model, to compare outputs with")
    parser.add_argument("--op", action="append", default=[], metavar="DOMAIN:NAME=FILE.py:FUNCTION", help="a custom op")
    given = parser.parse_args()
    folder = Path(__file__).resolve().parent
    functions.update(map(function_of, given.op))
    inputs = _inputs(read_manifest(folder), given.inputs, np.random.default_rng(given.seed))
    outputs = run(folder, inputs, progress=True)
    # as numpy.savez does, which cannot take some names, such as "file"
    with zipfile.ZipFile(given.out, "w") as archive:
        for name, value in outputs.items():
            several = enumerate(value) if isinstance(value, list) else ()
            for key, array in {f"{name}[{number}]": it for number, it in several}.items() or [(name, value)]:
                content = np.asarray(array)
                with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                    plain = content.astype(str) if content.dtype == object else content
                    np.lib.format.write_array(file, plain, allow_pickle=False)
    for name, value in outputs.items():
        apart = f", at most {np.abs(value - inputs[name]).max():.2g} from the given one" if name in inputs else ""
        print(f"{name!r}: {getattr(value, 'dtype', type(value).__name__)} {getattr(value, 'shape', '')}{apart}")
    print(f"The outputs are in {given.out}.")
    if given.compare is not None:
        whole = run_on_host(given.compare, {it["name"]: inputs[it["name"]] for it in read_manifest(folder)["inputs"]})
        different = [name for name, value in outputs.items() if not same(value, whole[name])]
        if different:
            sys.exit(f"Outputs that differ from those of the whole model: {', '.join(map(repr, different))}.")
        print("The whole model gives the same outputs, bit for bit.")


def _inputs(manifest: dict[str, Any], files: list[str], random: np.random.Generator) -> dict[str, Any]:
    declared: list[dict[str, Any]] = manifest["inputs"]
    given: dict[str, Any] = {}
    custom = (piece for piece in manifest["pieces"] if piece["kind"] == "custom")
    recorded = {it["tensor"] for piece in custom for it in (*piece["inputs"], *piece["outputs"])}
    for text in files:
        name, _, path = text.rpartition("=")
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            given[name or declared[0]["name"]] = loaded
        else:
            given.update(loaded)
    unknown = given.keys() - {it["name"] for it in (*declared, *manifest["outputs"])} - recorded
    if unknown:
        sys.exit(f"The model has no input {min(unknown)!r}; it has {', '.join(repr(it['name']) for it in declared)}.")
    for it in [it for it in declared if it["name"] not in given]:
        shape = it["shape"]
        if shape is None or None in shape or it["dtype"] == "string":
            sys.exit(f"Give a value for the input {it['name']!r}.")
        dtype = np.dtype(it["dtype"])
        # integers are 0 and 1, which are valid where they index something
        made_up = random.normal(size=shape) if dtype.kind == "f" else random.integers(0, 2, size=shape)
        given[it["name"]] = made_up.astype(dtype)
    return given


if __name__ == "__main__":
    main()
