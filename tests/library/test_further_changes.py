"""A changed file that the compiler refuses for another reason is changed once more, whatever that reason is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import onnx_bisect
from onnx_bisect import Exactness, Hints, Kind, Status, Verdict
from onnx_bisect.backend_choice import CallableBackend
from onnxbisect_backends.contract import Description


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


#: What a compiler says of a file that it refuses for one reason; None where that reason is not there.
Layer = Callable[[onnx.ModelProto], Verdict | None]


def _refusal(message: str, kind: Kind = Kind.ERROR, **hints: tuple[str, ...]) -> Verdict:
    return Verdict(status=Status.FAIL, kind=kind, message=message, hints=Hints(**hints))


def version(model: onnx.ModelProto) -> Verdict | None:
    return _refusal("The file is of a version that is not read.") if model.ir_version > 9 else None


def opset(model: onnx.ModelProto) -> Verdict | None:
    return _refusal("Unsupported opset.") if model.opset_import[0].version > 19 else None


def rank(model: onnx.ModelProto) -> Verdict | None:
    known = onnx.shape_inference.infer_shapes(model).graph
    ranks = {it.name: len(it.type.tensor_type.shape.dim) for it in (*known.value_info, *known.output)}
    high = next((node for node in known.node if any(ranks.get(name, 0) > 5 for name in node.output)), None)
    return None if high is None else _refusal(f"{high.op_type}: 6 dimensions, at most 5 are taken", ops=(high.op_type,))


def copies(model: onnx.ModelProto) -> Verdict | None:
    found = [node.name for node in model.graph.node if node.op_type == "Identity"]
    return _refusal("Op not support", Kind.UNSUPPORTED, nodes=tuple(found), ops=("Identity",)) if found else None


def order(model: onnx.ModelProto) -> Verdict | None:
    ops = " ".join(node.op_type for node in model.graph.node)
    return _refusal("IndexError: list index", Kind.CRASH) if "Abs Neg" in ops else None


def masks(model: onnx.ModelProto) -> Verdict | None:
    stored = (onnx.numpy_helper.to_array(it) for it in model.graph.initializer)
    return _refusal("y differs by 1.0", Kind.NUMERIC) if any(it.min(initial=0) < -20000 for it in stored) else None


def norms(model: onnx.ModelProto) -> Verdict | None:
    ops = {node.op_type for node in model.graph.node}
    return _refusal("KeyError: 'eps'", Kind.CRASH) if {"Sqrt", "ReduceMean"} <= ops else None


def guards(model: onnx.ModelProto) -> Verdict | None:
    found = tuple(node.name for node in model.graph.node if node.op_type == "IsNaN")
    return _refusal("No lowering found", Kind.UNSUPPORTED, nodes=found, ops=("IsNaN",)) if found else None


class Layered:
    """A compiler that refuses a file for the first of these reasons, and says nothing of the others."""

    def __init__(self, *layers: Layer) -> None:
        self.layers, self.calls = layers, 0

    def __call__(self, path: Path) -> Verdict:
        self.calls += 1
        model = onnx.load(path)
        said = (layer(model) for layer in self.layers)
        return next((it for it in said if it is not None), Verdict(status=Status.PASS))


GRAPHS: dict[Layer, str] = {
    rank: (
        "g (float[4,6] x) => (float[4,6] y) <int64[6] high = {2,2,1,2,3,1}, int64[2] low = {4,6}> "
        "{ r = Reshape (x, high) n = Neg (r) a = Abs (n) y = Reshape (a, low) }"
    ),
    copies: "g (float[2,3] x) => (float[2,3] y) { a = Relu (x) b = Identity (a) y = Neg (b) }",
    opset: "g (float[2,3] x) => (float[2,3] y) { a = Relu (x) y = Neg (a) }",
    order: (
        "g (float[2,3] x) => (float[2,3] y) "
        "{ r = Relu (x) a = Abs (r) n = Neg (r) t = Tanh (a) s = Sqrt (n) y = Add (t, s) }"
    ),
    guards: (
        "g (float[2,3] x) => (float[2,3] y) <float zero = {0}> { s = Softmax (x) i = IsNaN (s) y = Where (i, zero, s) }"
    ),
    masks: (
        f"g (float[1,2] x) => (float[1,2] y) <float[1,2] mask = {{0, {np.finfo(np.float32).min}}}> "
        "{ m = Add (x, mask) y = Softmax (m) }"
    ),
    norms: (
        "g (float[2,8] x) => (float[2,8] y) <float two = {2}, float eps = {0.00001}, float[8] w = "
        "{1,1,1,1,1,1,1,1}, float[8] b = {0,0,0,0,0,0,0,0}> "
        "{ m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) p = Pow (d, two) v = ReduceMean <axes = [-1]> (p) "
        "e = Add (v, eps) q = Sqrt (e) n = Div (d, q) s = Mul (n, w) y = Add (s, b) }"
    ),
}


def saved(tmp_path: Path, second: Layer) -> Path:
    newest = 20 if second in (opset, guards) else 17
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {newest}]> {GRAPHS[second]}')
    for number, node in enumerate(model.graph.node):
        node.name = f"n{number}"
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("second", [copies, opset, order, masks])
def test_a_diagnosis_ends_with_both_changes(tmp_path: Path, second: Layer) -> None:
    compiler = Layered(version, second)
    result = onnx_bisect.diagnose(saved(tmp_path, second), backend=compiler)

    assert result.compiles_after is not None
    assert "numbers" not in result.compiles_after.sentence
    assert result.culprits == ()
    assert compiler.calls == result.stats.compiler_calls


@pytest.mark.parametrize(
    "layers",
    [
        *((version, second) for second in (copies, opset, order, masks, rank, norms)),
        *((first, version) for first in (copies, opset, masks, rank)),
    ],
)
def test_a_repair_changes_the_changed_file(tmp_path: Path, layers: tuple[Layer, ...]) -> None:
    compiler = Layered(*layers)
    path = saved(tmp_path, next(it for it in layers if it is not version))
    fixed = onnx_bisect.fix(path, backend=compiler, allow=Exactness.DOMAIN)

    assert fixed.compiles
    assert Layered(*compiler.layers)(fixed.save(tmp_path / "fixed.onnx")).passed
    assert not fixed.document.changes
    assert compiler.calls <= (12 if rank in layers else 4)  # ranks at a boundary are measured


class ReadsTo19(CallableBackend):
    """A tool that reads operator set 19, and takes an input of any rank."""

    def describe(self) -> Description:
        return replace(super().describe(), newest_opset=19, boundary_known=True)


def test_no_changed_file_is_compiled_that_has_what_was_named_in_the_one_before(tmp_path: Path) -> None:
    """Once the operator set is read, an IsNaN is named; with a lower IR version it would be the same."""
    compiler = Layered(opset, guards)
    result = onnx_bisect.diagnose(saved(tmp_path, guards), backend=ReadsTo19(compiler))
    assert result.compiles_after is not None
    assert "against NaN" in result.compiles_after.sentence
    assert compiler.calls == 3

    compiler = Layered(opset, guards)
    fixed = onnx_bisect.fix(saved(tmp_path, guards), backend=ReadsTo19(compiler), allow=Exactness.DOMAIN, cache=False)
    assert fixed.compiles
    assert compiler.calls == 3
