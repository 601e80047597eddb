"""A search through a host comes to what `onnx-bisect run` comes to on the same model, byte for byte."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from jsonschema import validate
from onnx import TensorProto, helper, numpy_helper

from onnx_bisect import report_schema
from onnxbisect.errors import OptionError
from onnxbisect.input_value import written as as_written
from onnxbisect_backends import registry
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import search_context
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.model_requests.protocol import ReportOutcome
from support.backends import pulsar2_tools
from support.worker.hosted import MODELS, Place, searched

PROGRAM = str(Path(sys.executable).with_name("onnx-bisect"))

#: A compiler that knows no Sinh, and says so in its log.
REFUSES_SINH = """
name = "no-sinh"
summary = "Refuses Sinh."
command = ["sh", "-c", "if grep -q Sinh \\"$0\\"; then echo error: op Sinh is not supported; exit 1; fi", "{model}"]
"""


def toml(folder: Path, text: str = REFUSES_SINH) -> str:
    path = folder / "no-sinh.toml"
    path.write_text(text)
    return str(path)


def chain(folder: Path) -> Path:
    """Two Sinh of different weights around: equal structures, so that one verdict is taken for both places."""
    nodes, tensors, at = [], [], "x"
    for number, op in enumerate(["Relu", "Add", "Sinh", "Cosh", "Add", "Sinh", "Relu"]):
        inputs = [at]
        if op == "Add":
            weight = np.full((1, 4), number, np.float32)
            tensors.append(numpy_helper.from_array(weight, f"w{number}"))
            inputs.append(f"w{number}")
        at = f"t{number}"
        nodes.append(helper.make_node(op, inputs, [at], name=f"n{number}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", at)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    path = folder / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def compared(folder: Path, model: Path, backend: str, options: dict[str, str], spec: SearchSpec) -> dict[str, object]:
    """The host's report, once it is shown to be that of `run`."""
    out, shapes = folder / "out", [f"{name}={','.join(map(str, it))}" for name, it in spec.input_shapes.items()]
    words = [f"--option={key}={value}" for key, value in options.items()] + [f"--input-shape={it}" for it in shapes]
    words += [f"--input-value={name}={as_written(value)}" for name, value in spec.input_values.items()]
    subprocess.run(
        [PROGRAM, "run", str(model), "--backend", backend, *words, "--out", str(out)],
        env={**os.environ, "ONNXBISECT_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        check=False,
    )
    expected = json.loads((out / "report.json").read_text())

    place = Place.at(folder / "data")
    case = place.case(model, backend, options=options, spec=spec)
    with place.hosts() as hosts:
        with hosts.acquire(case) as host:
            prepared = host.prepare()
            found = searched(host, prepared)
        stored = place.files.put([prepared.to_bytes()]).sha256
        with hosts.acquire(replace(case, prepared=stored, model_name="as uploaded.onnx")) as other:
            written = other.report(found.begun, folder / "written", logs=found.logs)
            assert isinstance(written, ReportOutcome)
    document: dict[str, Any] = json.loads(json.dumps(written.document))
    validate(document, report_schema())
    assert json.dumps(document["culprits"]) == json.dumps(expected["culprits"])
    for finding in document["preflight"]:  # advice names the file as its user knows it
        finding["fix"] = finding["fix"].replace(" fix 'as uploaded.onnx'`", f" fix {model.name}`")
    for part in ("verdict", "needs_context", "certificate", "op_table", "partition", "preflight", "units"):
        assert document[part] == expected[part], part
    assert document["model"] == {**expected["model"], "name": "as uploaded.onnx"}
    assert "as uploaded.onnx" in document["headline"]
    assert str(folder) not in json.dumps(document)
    of_run = {str(path.relative_to(out)): path for path in out.glob("culprits/*/*") if path.name != "README.md"}
    assert {name: path.read_bytes() for name, path in written.files.items()} == {
        name: path.read_bytes() for name, path in of_run.items()
    }
    assert of_run
    return document


def test_a_compiler_in_a_process(tmp_path: Path) -> None:
    document = compared(tmp_path, chain(tmp_path), toml(tmp_path), {}, SearchSpec())
    assert document["verdict"] == "fail"


def test_a_compiler_whose_limits_at_a_boundary_are_measured(tmp_path: Path) -> None:
    """It takes no bool inputs, which nobody has declared."""
    script = tmp_path / "compile.py"
    script.write_text(
        "import sys, onnx\n"
        "graph = onnx.load(sys.argv[1]).graph\n"
        "bad = any(it.type.tensor_type.elem_type == 9 for it in graph.input)\n"
        "sys.exit(bad or any(it.op_type == 'Atan' for it in graph.node))\n"
    )
    compiler = tmp_path / "strict.toml"
    compiler.write_text('name = "strict"\nversion = "1"\ncommand = ["{python}", "{here}/compile.py", "{model}"]\n')
    path = tmp_path / "flags.onnx"
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x, float[2,3] z) => (float[2,3] y) {
        a = Neg(x)
        f = Greater(a, z)
        b = Atan(x)
        y = Where(f, a, b)
    }"""
    proto = onnx.parser.parse_model(text)
    for node in proto.graph.node:
        node.name = f"make_{node.output[0]}"
    onnx.save(proto, path)

    document = compared(tmp_path, path, str(compiler), {}, SearchSpec())

    assert [culprit["nodes"] for culprit in cast("list[dict[str, Any]]", document["culprits"])] == [["make_b"]]


def test_a_model_with_a_bound_value(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (float[1,8] x, int64 sr) => (float[1,8] y) <int64 rate = {16000}> {
      fast = Equal (sr, rate)
      b = If (fast) <then_branch = t () => (float[1,8] bt) { bt = Sin (x) },
                     else_branch = e () => (float[1,8] be) { be = Cos (x) }>
      y = Relu (b)
    }"""
    onnx.save(onnx.parser.parse_model(text), model)
    document = compared(tmp_path, model, "whitelist", {"deny": "Relu"}, SearchSpec(input_values={"sr": 16000}))
    assert "'sr' is always 16000" in str(document["model"])


@pytest.mark.long
def test_a_simulated_compiler(tmp_path: Path) -> None:
    compared(tmp_path, MODELS / "sam_part1_prompt__ts11.onnx", "whitelist", {"deny": "Sin,Abs"}, SearchSpec())


@pytest.mark.long
def test_onnxruntime(tmp_path: Path) -> None:
    compared(tmp_path, MODELS / "custom_domain_unknown.onnx", "onnxruntime", {}, SearchSpec())


@pytest.mark.long
def test_a_model_with_external_data_and_bound_dimensions(tmp_path: Path) -> None:
    model = MODELS / "real" / "bert_base12_h256_dyn__ts17.onnx"
    shapes = {
        value.name: tuple(dim.dim_value or 8 for dim in value.type.tensor_type.shape.dim)
        for value in onnx.load(model, load_external_data=False).graph.input
    }
    compared(tmp_path, model, "whitelist", {"deny": "Range,Tanh"}, SearchSpec(input_shapes=shapes))


@pytest.fixture
def pulsar2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in for pulsar2, which wants samples of inputs, on PATH."""
    folder = pulsar2_tools.forked_stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.long
@pytest.mark.usefixtures("pulsar2")
def test_the_samples_of_the_order_are_given_to_the_compiler(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    for number in range(2):
        np.savez(samples / f"{number}.npz", x=np.full((1, 4), number, np.float32))
    model = chain(tmp_path)
    place = Place.at(tmp_path / "data")
    stored = {path.name: place.store(path) for path in samples.iterdir()}
    case = place.case(model, "pulsar2", spec=SearchSpec(calibration=stored))
    local = search_context(LoadedModel(model, {}), registry.make("pulsar2", {}), samples)
    with place.hosts() as hosts, hosts.acquire(case) as host:
        prepared = host.prepare()
        assert prepared.identity == local.identity
        assert prepared.target.calibration == local.target.calibration != ""
        found = searched(host, prepared)
        written = host.report(found.begun, tmp_path / "written", logs=found.logs)
        assert isinstance(written, ReportOutcome)
    assert [culprit["ops"] for culprit in written.document["culprits"]] == [["Cosh"], ["Sinh"]]
    assert "made-up inputs" not in " ".join(written.document["model"]["notes"])


@pytest.mark.usefixtures("pulsar2")
def test_wrong_samples_are_a_sentence(tmp_path: Path) -> None:
    sentences = {
        "0.txt": "The job's calibration has no .npz or .npy files; ",
        "0.npz": "The sample file 0.npz is wrong: ",
        "../0.npz": "A calibration file cannot be called '../0.npz': ",
        "..": "A calibration file cannot be called '..': ",
        "\x1b.npz": "A calibration file cannot be called '\\x1b.npz': ",
        "1²3.npz": "The sample file 1²3.npz is damaged: ",
    }
    np.savez(tmp_path / "0.npz", other=np.zeros((1, 4), np.float32))
    place = Place.at(tmp_path / "data")
    (tmp_path / "damaged").write_bytes((tmp_path / "0.npz").read_bytes()[:-30])
    stored, model = place.store(tmp_path / "0.npz"), chain(tmp_path)
    damaged = place.store(tmp_path / "damaged")
    with place.hosts() as hosts:
        for name, sentence in sentences.items():
            samples = {name: damaged if "damaged" in sentence else stored}
            case = place.case(model, "pulsar2", spec=SearchSpec(calibration=samples))
            with hosts.acquire(case) as host, pytest.raises(OptionError) as refused:
                host.prepare()
            assert str(refused.value).startswith(sentence)
            assert str(tmp_path) not in str(refused.value)
            assert "--" not in str(refused.value)


def test_a_culprit_whose_own_file_was_not_seen_to_fail_has_no_file(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "data")
    case = place.case(chain(tmp_path), toml(tmp_path))
    with place.hosts() as hosts, hosts.acquire(case) as host:
        found = searched(host, host.prepare())
        # places of equal structure share an answer, whose file is that of the first
        first = {it.file_sha256: it for it in reversed(found.begun.answers) if it.verdict.failed and it.file_sha256}
        small = list(first.values())
        assert host.digests([it.units for it in small]) == [it.file_sha256 for it in small]
        without = [replace(it, file_sha256="") for it in found.begun.answers]
        written = host.report(replace(found.begun, answers=without), tmp_path / "written", logs=found.logs)
        assert isinstance(written, ReportOutcome)
    culprits = written.document["culprits"]
    assert small
    assert culprits
    assert [culprit["repro"] for culprit in culprits] == [None] * len(culprits)
    assert not written.files


def test_a_host_without_the_compiler_gives_keys_and_reports(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "data")
    backend = toml(tmp_path)
    case = place.case(chain(tmp_path), backend)
    with place.hosts() as hosts, hosts.acquire(case) as host:
        prepared = host.prepare()
        keys = [host.key(1 << unit) for unit in range(len(prepared.universe.op))]
        found = searched(host, prepared)
    stored = place.files.put([prepared.to_bytes()]).sha256
    Path(backend).unlink()
    with place.hosts() as hosts, hosts.acquire(replace(case, prepared=stored)) as host:
        assert [host.key(1 << unit) for unit in range(len(keys))] == keys
        # places of equal structure share an answer, whose file is that of the first
        failures = [it for it in found.begun.answers if it.verdict.failed and it.file_sha256]
        first = {it.file_sha256: it.units for it in reversed(failures)}
        failed = {units: digest for digest, units in first.items()}
        assert host.digests([*failed]) == [*failed.values()]
        written = host.report(found.begun, tmp_path / "written", logs=found.logs)
        assert isinstance(written, ReportOutcome)
    assert written.document["verdict"] == "fail"
