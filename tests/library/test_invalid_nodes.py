"""A model with a node that ONNX does not allow: some compilers take it, others name it."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import onnx_bisect
from onnx_bisect import Hints, Kind, Note, Result, Status, Verdict

PAD = "'n2', an invalid node"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A Pad with two numbers for two dimensions, where ONNX asks for four."""
    graph = """g (float[2,3] x) => (float[2,3] y) <int64[2] pads = {1,1}> {
        a = Relu (x)  b = Tanh (a)  c = Pad (b, pads)  d = Neg (c)  e = Abs (d)  y = Sigmoid (e)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    for number, node in enumerate(model.graph.node):
        node.name = f"n{number}"
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def refusing(op: str, *, names: bool = True) -> Callable[[Path], Verdict]:
    def compiles(probe: Path) -> Verdict:
        refused = [node.name for node in onnx.load(probe).graph.node if node.op_type == op]
        if not refused:
            return Verdict(status=Status.PASS)
        hints = Hints(nodes=tuple(refused), ops=(op,)) if names else Hints()
        return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="refused", hints=hints)

    return compiles


def unknown(result: Result) -> str:
    return " ".join(result.certificate.unknown)


def test_a_compiler_that_names_it_is_asked_about_no_part(path: Path) -> None:
    events: list[onnx_bisect.Event] = []
    result = onnx_bisect.diagnose(path, backend=refusing("Pad"), progress=events.append)

    assert result.stats.compiler_calls == 1 + 1  # as it is, and as its parts are written
    assert (result.verdict, result.culprits) == (Status.FAIL, ())
    assert not result.certificate.proven
    assert PAD in unknown(result)
    said = next(event.sentence for event in events if isinstance(event, Note))
    assert said.startswith("(op_type:Pad, node name: n2): ")
    (finding,) = [it for it in result.report["preflight"] if it["id"] == "invalid-node"]
    assert finding["nodes"] == ["n2"]


def test_its_parts_are_searched_where_the_user_insists(path: Path) -> None:
    result = onnx_bisect.diagnose(path, backend=refusing("Pad"), as_is=True)
    assert result.stats.compiler_calls > 2
    assert PAD not in unknown(result)


def test_a_compiler_that_takes_it_compiles_the_file(path: Path) -> None:
    result = onnx_bisect.diagnose(path, backend=refusing("Det"))
    assert (result.verdict, result.stats.compiler_calls, result.certificate.unknown) == (Status.PASS, 1, ())


@pytest.mark.parametrize("names", [True, False])
def test_another_op_is_found_as_in_any_model(path: Path, names: bool) -> None:
    result = onnx_bisect.diagnose(path, backend=refusing("Tanh", names=names))
    assert [it.ops for it in result.culprits] == [("Tanh",)]
    assert PAD not in unknown(result)


def test_a_compiler_that_names_nothing_is_asked_about_parts(path: Path) -> None:
    """That the node is invalid is no evidence that it is refused for that."""
    result = onnx_bisect.diagnose(path, backend=refusing("Pad", names=False))
    assert result.stats.compiler_calls > 2
    assert PAD not in unknown(result)
