"""Folders of a split: what run.py computes is what the whole model computes, and the manifest says what is true."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from onnxbisect.cut import Cutter
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.errors import CutError, OptionError
from onnxbisect.model import Model, load
from onnxbisect.model.runnable import Sample
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.proof import random_feeds
from onnxbisect.split import Manifest, split
from onnxbisect.split import write as writing
from onnxbisect.split.choose import flow, needed
from onnxbisect.split.manifest import SplitProof
from onnxbisect.unitset import of
from onnxbisect.verdict import Kind, Status, Verdict
from support import TESTS
from support.engine.cut_models import BRANCHES, FILES, bound, external, matmuls, read, same_bits, session
from support.examples import models

pytestmark = pytest.mark.long

DECODER = TESTS / "models" / "sam_part1_prompt__ts11.onnx"
#: What `run.py` is given: nothing of the environment, none of the project.
BARE = [sys.executable, "-I"]

MIDDLE = """<ir_version: 8, opset_import: ["": 17]>
middle (float[2,3] x) => (float[2,3] y) {
  a = Sigmoid(x)
  b = Exp(a)
  c = Sin(b)
  d = Mul(c, a)
  y = Tanh(d)
}"""

#: Two branches; Cos is in one of them, and the result of the other leaves the model, too.
BRANCH = """<ir_version: 8, opset_import: ["": 17]>
branch (float[2,3] x, float[3] w) => (float[2,3] y, float[2,3] left) {
  first = Add(x, w)
  l0 = Sigmoid(first)
  left = Exp(l0)
  r0 = Mul(first, w)
  right = Cos(r0)
  r1 = Tanh(right)
  both = Add(left, r1)
  y = Neg(both)
}"""

#: Cos makes a constant of a shape: it fails alone, and no piece needs it.
FOLDED = """<ir_version: 8, opset_import: ["": 17]>
folded (float[2,3] x) => (float[2,3] y) {
  s = Shape(x)
  f = Cast<to = 1>(s)
  c = Cos(f)
  m = ReduceMax<keepdims = 0>(c)
  a = Exp(x)
  b = Sin(a)
  y = Mul(b, m)
}"""

#: A mask of booleans goes from Greater to Where.
MASK = """<ir_version: 8, opset_import: ["": 17]>
mask (float[2,3] x) => (float[2,3] y) {
  a = Sigmoid(x)
  m = Greater(a, x)
  n = Not(m)
  w = Where(n, a, x)
  y = Tanh(w)
}"""

DATA_DEPENDENT = """<ir_version: 8, opset_import: ["": 17]>
found (float[2,3] x) => (float[n] y) {
  p = Tanh(x)
  q = Relu(p)
  indices = NonZero(q)
  rows = Transpose(indices)
  y = GatherND(p, rows)
}"""

STORED = """<ir_version: 8, opset_import: ["": 17]>
stored (float[2] x) => (float[2] y, float[2] w)
<float[2] w = {1, 2}>
{
  y = Add(x, w)
}"""


def without(model: Model, *ops: str) -> list[int]:
    """What passed: all units but those of these ops."""
    return [of(unit for unit, op in enumerate(model.universe.op) if op not in ops)]


def whole(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    runner = session(onnx.load(path).SerializeToString())
    names = [value.name for value in runner.get_outputs()]
    return dict(zip(names, runner.run(names, feeds), strict=True))


def feeds_of(model: Model) -> dict[str, np.ndarray]:
    (feeds,) = random_feeds(model.proto.graph.input, 1)
    return dict(feeds)


def ran(folder: Path, feeds: dict[str, np.ndarray], *arguments: str) -> dict[str, np.ndarray]:
    """The outputs of run.py on these inputs, in a process that sees only numpy and onnxruntime."""
    given = folder.parent / "given.npz"
    outputs = folder.parent / "outputs.npz"
    np.savez(given, **feeds)  # type: ignore[arg-type] # numpy takes any names but its own parameters
    subprocess.run([*BARE, folder / "run.py", given, "--out", outputs, *arguments], check=True, capture_output=True)
    with np.load(outputs) as loaded:
        return dict(loaded)


def kinds(manifest: Manifest) -> list[str]:
    return [piece.kind.value for piece in manifest.pieces]


def demand_same(model: Model, folder: Path) -> None:
    feeds = feeds_of(model)
    found, expected = ran(folder, feeds), whole(model.path, feeds)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert same_bits(value, found[name]), name


@pytest.mark.parametrize(
    ("text", "refused", "share", "expected"),
    [
        (MIDDLE, ["Sin"], 0.1, ["npu", "host", "npu"]),
        (MIDDLE, ["Sigmoid"], 0.1, ["host", "npu"]),
        (MIDDLE, ["Tanh"], 0.1, ["npu", "host"]),
        (MIDDLE, ["Exp"], 0.3, ["host", "npu"]),
        (MIDDLE, ["Exp", "Mul"], 0, ["npu", "host", "npu", "host", "npu"]),
        (BRANCH, ["Cos"], 0.1, ["npu", "host", "npu"]),
        (BRANCH, ["Cos"], 0.5, ["host", "npu"]),
        (BRANCH, ["Cos", "Exp"], 0, ["npu", "host", "npu"]),
    ],
    ids=["middle", "first", "last", "prefix", "twice", "branch", "branch and prefix", "both branches"],
)
def test_run_py_gives_the_whole_models_outputs_bit_for_bit(
    text: str, refused: list[str], share: float, expected: list[str], tmp_path: Path
) -> None:
    model = read(tmp_path, text)
    manifest = split(model, without(model, *refused), tmp_path / "split", share=share)
    assert kinds(manifest) == expected
    assert manifest.proof.proven
    for piece in manifest.pieces:
        ops = {model.universe.op[model.unit_of_node[name]] for name in piece.nodes}
        assert piece.kind.value == "host" or ops.isdisjoint(refused)
    demand_same(model, tmp_path / "split")


def test_the_decoder_of_sam_in_pieces(tmp_path: Path) -> None:
    model = load(DECODER)
    manifest = split(model, without(model, "Sin", "Cos", "Abs"), tmp_path / "split", share=0)
    assert len(manifest.pieces) > 1
    assert manifest.proof.proven
    demand_same(model, tmp_path / "split")


#: What onnxruntime cannot load, whole or in pieces, or of whose custom op the shape is not known.
NOT_RUN = {"custom_domain_unknown", "duplicate_names"}


@pytest.mark.parametrize("path", models(FILES))
@given(data=st.data())
@settings(max_examples=2, suppress_health_check=list(HealthCheck), deadline=None)
def test_the_pieces_of_any_model_that_runs_are_proven(
    path: Path, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = bound(path)
    passed = data.draw(st.integers(1, model.universe.everything))
    wiring = read_wiring(model)
    assume(passed & needed(model, wiring, flow(model, wiring)))
    folder = tmp_path_factory.mktemp("split") / "split"
    manifest = split(model, [passed], folder, share=data.draw(st.sampled_from([0, 0.2])))
    if path.stem in NOT_RUN:
        assert not manifest.proof.proven
        assert "onnxruntime does not" in (reason := manifest.proof.reason) or "is no op of onnxruntime" in reason
        return
    for piece in manifest.pieces:
        onnx.checker.check_model(folder / piece.file)
    assert manifest.proof.proven, manifest.proof.reason


def test_the_manifest_says_where_every_tensor_comes_from(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCH)
    folder = tmp_path / "split"
    split(model, without(model, "Cos"), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == "onnx-bisect/split@1"
    assert manifest["model"] == {"name": "model.onnx", "sha256": model.sha256}
    assert [(it["name"], it["dtype"], it["shape"]) for it in manifest["inputs"]] == [
        ("x", "float32", [2, 3]),
        ("w", "float32", [3]),
    ]
    first, second, third = manifest["pieces"]
    assert [piece["file"] for piece in (first, second, third)] == ["00_npu.onnx", "01_host.onnx", "02_npu.onnx"]
    assert {it["tensor"]: it["source"] for it in first["inputs"]} == {"x": None, "w": None}
    made = {it["tensor"]: (it["readers"], it["output"]) for piece in manifest["pieces"] for it in piece["outputs"]}
    assert made["r0"] == (["01_host.onnx"], False)
    assert made["right"] == (["02_npu.onnx"], False)
    assert made["y"] == ([], True)
    assert made["left"][1]
    assert {it["tensor"]: it["source"] for it in third["inputs"]}["right"] == "01_host.onnx"
    for piece in manifest["pieces"]:
        content = (folder / piece["file"]).read_bytes()
        assert piece["sha256"] == hashlib.sha256(content).hexdigest()
        proto = onnx.load_from_string(content)
        assert [value.name for value in proto.graph.input] == [it["name"] for it in piece["inputs"]]
        assert [value.name for value in proto.graph.output] == [it["name"] for it in piece["outputs"]]
    assert manifest["proof"]["proven"]
    assert manifest["proof"]["samples"] == 4
    assert sum(piece["share"] for piece in manifest["pieces"]) == pytest.approx(1, abs=1e-4)


def test_only_files_that_were_compiled_are_said_to_compile(tmp_path: Path) -> None:
    model = read(tmp_path, MIDDLE)
    (rest,) = without(model, "Sin")
    first = of([0, 1])
    manifest = split(model, [rest, first], tmp_path / "split")
    assert [piece.compiled for piece in manifest.pieces] == [False, None, False]
    assert not manifest.refused
    assert "Exactly these nodes were seen to compile, in the file of a probe" in manifest.pieces[0].note
    assert "not by themselves" in manifest.pieces[2].note


@pytest.mark.parametrize(("ir", "opset"), [(14, 17), (10, 28), (14, 28)])
def test_a_model_that_is_newer_than_onnxruntime_is_split_and_proven(tmp_path: Path, ir: int, opset: int) -> None:
    proto = onnx.parser.parse_model(MIDDLE)
    proto.ir_version = ir
    proto.opset_import[0].version = opset
    model = read(tmp_path, proto)
    manifest = split(model, without(model, "Sin"), tmp_path / "split")
    assert manifest.proof.proven, manifest.proof.reason
    assert not list((tmp_path / "split").glob("whole*"))
    ran = subprocess.run([sys.executable, "-I", tmp_path / "split" / "run.py"], cwd=tmp_path, capture_output=True)
    assert ran.returncode == 0, ran.stderr


def test_what_a_hook_says_of_the_pieces_is_on_record(tmp_path: Path) -> None:
    model = read(tmp_path, MIDDLE)
    asked: list[str] = []

    def compile_piece(file: Path, renamed: Mapping[str, str]) -> Verdict:
        assert not renamed
        onnx.checker.check_model(file)
        asked.append(file.name)
        if len(asked) == 1:
            return Verdict(status=Status.PASS)
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message="no Tanh today")

    folder = tmp_path / "split"
    manifest = split(model, without(model, "Sin"), folder, compile_piece=compile_piece)
    assert asked == ["00_npu.onnx", "02_npu.onnx"]
    assert [piece.compiled for piece in manifest.pieces] == [True, None, False]
    assert manifest.refused
    assert json.loads((folder / "manifest.json").read_text())["pieces"][2]["note"].endswith("no Tanh today")


def test_a_hook_without_an_answer_changes_nothing(tmp_path: Path) -> None:
    model = read(tmp_path, MIDDLE)
    no_answer = Verdict(status=Status.UNRESOLVED, message="no licence")
    passed = [*without(model, "Sin"), of([0, 1])]
    manifest = split(model, passed, tmp_path / "split", compile_piece=lambda *_: no_answer)
    assert [piece.compiled for piece in manifest.pieces] == [False, None, False]
    assert all("no licence" in piece.note for piece in manifest.pieces if piece.compiled is not None)


def test_what_computes_constants_needs_no_host(tmp_path: Path) -> None:
    model = read(tmp_path, FOLDED)
    manifest = split(model, without(model, "Cos", "Sin"), tmp_path / "split", share=0)
    assert [set(piece.nodes) for piece in manifest.pieces if piece.kind == "host"] == [{"make_b"}]
    demand_same(model, tmp_path / "split")


def test_what_was_compiled_with_its_makers_of_constants_keeps_them(tmp_path: Path) -> None:
    model = read(tmp_path, FOLDED)
    (rest,) = without(model, "Sin", "Exp")
    manifest = split(model, [rest], tmp_path / "split")
    (npu,) = [piece for piece in manifest.pieces if piece.kind == "npu"]
    assert npu.note.startswith("Exactly these nodes were seen to compile")
    assert of(model.unit_of_node[name] for name in npu.nodes) == rest
    demand_same(model, tmp_path / "split")


def test_shapes_that_depend_on_data_are_left_open_on_the_host(tmp_path: Path) -> None:
    model = read(tmp_path, DATA_DEPENDENT)
    manifest = split(model, without(model, "NonZero", "Transpose", "GatherND"), tmp_path / "split")
    assert kinds(manifest) == ["npu", "host"]
    assert manifest.proof.proven, manifest.proof.reason
    demand_same(model, tmp_path / "split")


def test_a_target_of_open_sizes_takes_what_comes_behind(tmp_path: Path) -> None:
    model = read(tmp_path, DATA_DEPENDENT)
    manifest = split(model, without(model, "NonZero"), tmp_path / "split", share=0)
    assert kinds(manifest) == ["npu", "host", "npu"]
    assert manifest.proof.proven, manifest.proof.reason


def test_other_bits_are_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read(tmp_path, MIDDLE)
    original = Cutter.cut

    def wrong(self: Cutter, *arguments: Any) -> Any:
        piece = original(self, *arguments)
        for node in piece.proto.graph.node:
            node.op_type = {"Sin": "Tan"}.get(node.op_type, node.op_type)
        return piece

    monkeypatch.setattr(Cutter, "cut", wrong)
    folder = tmp_path / "split"
    manifest = split(model, without(model, "Sin"), folder)
    assert not manifest.proof.proven
    assert manifest.proof.reason == "the pieces give another value of 'y'"
    assert json.loads((folder / "manifest.json").read_text())["proof"]["proven"] is False


def test_weights_beside_the_model_come_along_beside_the_pieces(tmp_path: Path) -> None:
    weights = [external(f"w{i}", [4, 4], 64 * i) for i in range(3)]
    (tmp_path / "source").mkdir()
    np.arange(48, dtype=np.float32).tofile(tmp_path / "source" / "weights.bin")
    model = read(tmp_path / "source", matmuls(weights, 4))
    folder = tmp_path / "split"
    manifest = split(model, [of([0, 2])], folder, share=0)
    assert [piece.data.file for piece in manifest.pieces if piece.data] == [
        f"0{i}_{k}.data" for i, k in enumerate(kinds(manifest))
    ]
    for piece in manifest.pieces:
        assert piece.data is not None
        content = (folder / piece.data.file).read_bytes()
        assert len(content) == 64
        assert piece.data.sha256 == hashlib.sha256(content).hexdigest()
    moved = folder.rename(tmp_path / "elsewhere")
    demand_same(model, moved)


def test_names_as_the_target_wants_them_and_the_models_beside(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(MIDDLE)
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"/net:{name}" if name in "abcd" else name for name in names]
    model = read(tmp_path, proto)
    probe_format = ProbeFormat(safe_names=True, covered=("Exp",), folds=False, explicit_defaults=True)
    manifest = split(model, without(model, "Sin"), tmp_path / "split", probe_format=probe_format)
    npu, host, _ = manifest.pieces
    assert [(it.name, it.tensor) for it in npu.outputs] == [("_net_a", "/net:a"), ("_net_b", "/net:b")]
    assert [(it.name, it.tensor) for it in host.inputs] == [("/net:b", "/net:b")]
    assert manifest.proof.proven
    demand_same(model, tmp_path / "split")


def test_the_npu_gets_no_dtypes_that_it_does_not_take(tmp_path: Path) -> None:
    model = read(tmp_path, MASK)
    floats = ProbeFormat(input_dtypes=frozenset({"float"}))
    for probe_format, host in ((ProbeFormat(), ["make_m"]), (floats, ["make_m", "make_n", "make_w"])):
        folder = tmp_path / f"{len(host)}"
        manifest = split(model, without(model, "Greater"), folder, share=0, probe_format=probe_format)
        assert [list(piece.nodes) for piece in manifest.pieces if piece.kind == "host"] == [host]
        demand_same(model, folder)


def test_branches_and_functions_come_along(tmp_path: Path) -> None:
    model = read(tmp_path, BRANCHES)
    manifest = split(model, without(model, "Greater"), tmp_path / "split", share=0)
    assert manifest.proof.proven
    demand_same(model, tmp_path / "split")


def test_a_model_that_compiles_as_a_whole_is_one_piece_with_its_idle_inputs(tmp_path: Path) -> None:
    model = read(tmp_path, MIDDLE.replace("float[2,3] x", "float[2,3] x, float[4] idle"))
    (piece,) = split(model, [model.universe.everything], tmp_path / "split").pieces
    assert [(it.name, it.source) for it in piece.inputs] == [("x", None), ("idle", None)]
    demand_same(model, tmp_path / "split")


def test_an_output_that_nothing_computes_is_refused(tmp_path: Path) -> None:
    model = read(tmp_path, STORED)
    with pytest.raises(CutError, match="'w'"):
        split(model, [1], tmp_path / "split")


def test_what_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    model = read(tmp_path, MIDDLE)
    folder = tmp_path / "split"
    folder.mkdir()
    split(model, without(model, "Sin"), folder)
    before = (folder / "run.py").stat()
    with pytest.raises(OptionError, match="is there already"):
        split(model, without(model, "Exp"), folder)
    assert (folder / "run.py").stat() == before


def test_nothing_is_left_of_a_split_that_did_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: Model, folder: Path, samples: Sequence[Sample]) -> SplitProof:
        raise OSError("disk full")

    model = read(tmp_path, MIDDLE)
    monkeypatch.setattr(writing, "prove", fails)
    out = tmp_path / "out"
    with pytest.raises(OSError, match="disk full"):
        split(model, without(model, "Sin"), out / "split")
    assert list(out.iterdir()) == []


def run_py(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BARE, folder / "run.py", *map(str, arguments)], cwd=folder.parent, capture_output=True, text=True
    )


@pytest.fixture
def branch(tmp_path: Path) -> Path:
    model = read(tmp_path, BRANCH)
    split(model, without(model, "Cos"), tmp_path / "split")
    return tmp_path / "split"


def test_run_py_makes_up_inputs_and_compares_with_the_whole(branch: Path) -> None:
    done = run_py(branch, "--compare", branch.parent / "model.onnx")
    assert done.returncode == 0, done.stderr
    assert "The whole model gives the same outputs, bit for bit." in done.stdout
    with np.load(branch.parent / "outputs.npz") as outputs:
        assert set(outputs) == {"y", "left"}


def test_run_py_takes_single_inputs(branch: Path) -> None:
    np.save(branch.parent / "w.npy", np.zeros(3, np.float32))
    assert run_py(branch, f"w={branch.parent / 'w.npy'}").returncode == 0
    done = run_py(branch, f"v={branch.parent / 'w.npy'}")
    assert done.returncode == 1
    assert done.stderr == "The model has no input 'v'; it has 'x', 'w'.\n"


def test_run_py_says_where_the_whole_differs(branch: Path, tmp_path: Path) -> None:
    other = onnx.load(tmp_path / "model.onnx")
    other.graph.node[-1].op_type = "Identity"
    onnx.save(other, tmp_path / "other.onnx")
    done = run_py(branch, "--compare", tmp_path / "other.onnx")
    assert done.returncode == 1
    assert done.stderr == "Outputs that differ from those of the whole model: 'y'.\n"


def test_the_function_for_the_npu_is_all_that_a_user_replaces(branch: Path) -> None:
    script = (branch / "run.py").read_text()
    ours = "    return run_on_host(file, inputs)\n"
    assert script.count(ours) == 1
    (branch / "run.py").write_text(script.replace(ours, "    print('on the NPU:', file.name)\n" + ours))
    done = run_py(branch)
    assert [line for line in done.stdout.splitlines() if line.startswith("on")] == [
        "on the NPU: 00_npu.onnx",
        "on the NPU: 02_npu.onnx",
    ]


@pytest.mark.parametrize("name", ["file", "allow_pickle", "../up", "/net/y:0", "a\u202eb\x1b[31m"])
def test_outputs_of_any_name(name: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(MIDDLE)
    proto.graph.node[-1].output[0] = name
    proto.graph.output[0].name = name
    model = read(tmp_path, proto)
    split(model, without(model, "Sin"), tmp_path / "split")
    done = run_py(tmp_path / "split")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    with np.load(tmp_path / "outputs.npz") as outputs:
        assert list(outputs) == [name]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_pieces_of_a_model_in_a_narrow_type_are_proven_rounded(tmp_path: Path, kind: str) -> None:
    """onnxruntime rounds only where a piece ends, so the whole model and its pieces gave other last bits."""
    text = f"""<ir_version: 10, opset_import: ["": 17]> g ({kind}[2,64] x) => ({kind}[2,64] y) <{kind}[1] k = {{3}}> {{
        a = Mul(x, k) b = Exp(a) c = Sin(b) d = Add(c, a) e = Sqrt(b) y = Div(d, e) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    model = load(tmp_path / "model.onnx")
    manifest = split(model, without(model, "Sin"), tmp_path / "split")
    assert kinds(manifest) == ["npu", "host", "npu"]
    assert manifest.proof.proven
    assert "rounded to its own type" in manifest.proof.runtime


def test_pieces_whose_boundary_has_another_form_are_joined(tmp_path: Path) -> None:
    """The NPU takes neither scalars nor bool at a boundary; the host's pieces do."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x, float s) => (float[2,3] y, float m) {
        a = Mul(x, s)  m = ReduceMax<keepdims = 0>(a)  f = Greater(a, x)  n = Sin(m)  g = Not(f)
        b = Mul(a, n)  y = Where(g, a, b)
    }"""
    model = read(tmp_path, text)
    floats = frozenset({"float"})
    strict = ProbeFormat(min_input_rank=1, min_output_rank=1, input_dtypes=floats, output_dtypes=floats)
    manifest = split(model, without(model, "Sin", "Not"), tmp_path / "split", probe_format=strict)
    assert manifest.proof.proven, manifest.proof
    npu = [piece for piece in manifest.pieces if piece.kind == "npu"]
    forms = [(it.dtype, it.shape) for piece in npu for it in piece.inputs]
    forms += [(it.dtype, it.shape) for piece in npu for it in piece.outputs]
    assert {dtype for dtype, _ in forms} == {"float32"}
    assert all(shape for _, shape in forms)
    feeds = feeds_of(model)
    found, expected = ran(tmp_path / "split", feeds), whole(model.path, feeds)
    assert {name: array.shape for name, array in found.items()} == {name: np.shape(it) for name, it in expected.items()}
    assert all(found[name].tobytes() == np.asarray(expected[name]).tobytes() for name in expected)


def test_pieces_whose_boundary_has_fewer_dimensions_are_joined(tmp_path: Path) -> None:
    """The NPU takes no rank of 5 at a boundary; the host's piece makes and takes it."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,1,3,2,2] x) => (float[2,1,3,2,2] y) {
        a = Abs(x)  b = Sin(a)  y = Neg(b)
    }"""
    model = read(tmp_path, text)
    strict = ProbeFormat(max_input_rank=4, max_output_rank=3)
    manifest = split(model, without(model, "Sin"), tmp_path / "split", probe_format=strict)
    assert manifest.proof.proven, manifest.proof
    npu = [piece for piece in manifest.pieces if piece.kind == "npu"]
    assert {len(it.shape or ()) for piece in npu for it in piece.inputs} == {4}
    assert {len(it.shape or ()) for piece in npu for it in piece.outputs} == {3}
    feeds = feeds_of(model)
    found, expected = ran(tmp_path / "split", feeds), whole(model.path, feeds)
    assert found["y"].shape == (2, 1, 3, 2, 2)
    assert found["y"].tobytes() == np.asarray(expected["y"]).tobytes()
