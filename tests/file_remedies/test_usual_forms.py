"""A tool that dies of old forms of ops, and names nothing, takes the file in the forms that it knows."""

from pathlib import Path

import onnx
import pytest

import onnx_bisect
from onnx_bisect import Exactness, Kind, Status, Verdict

#: As an exporter writes a normalisation, the scores of attention and GELU at operator set 11.
OLD_FORMS = """<ir_version: 7, opset_import: ["": 11]>
g (float[1,4,8] x) => (float[1,4,8] y) <
  float two = {2}, float small = {0.00001}, float[8] gamma = {1, 2, 3, 4, 5, 6, 7, 8},
  float[8] beta = {1, 2, 3, 4, 5, 6, 7, 8}, float eight = {8}, float root = {1.4142135}, float one = {1},
  float half = {0.5}
> {
    [mean] mean = ReduceMean <axes = [-1]> (x)
    [centre] centred = Sub(x, mean)
    [square] squared = Pow(centred, two)
    [spread] spread = ReduceMean <axes = [-1]> (squared)
    [more] more = Add(spread, small)
    [root] deviation = Sqrt(more)
    [standard] standard = Div(centred, deviation)
    [scale] scaled = Mul(standard, gamma)
    [shift] normal = Add(scaled, beta)
    [scores] scores = Div(normal, eight)
    [weights] weights = Softmax <axis = 2> (scores)
    [mix] mixed = Mul(weights, x)
    END
}"""
PLAIN = "[end] y = Relu(mixed)"
GELU = """[thin] thin = Div(mixed, root) [erf] erf = Erf(thin) [grow] grown = Add(erf, one)
    [gate] gate = Mul(mixed, grown) [end] y = Mul(gate, half)"""


class Dies:
    """Dies of these ops wherever they stand, and of a Div by what is stored."""

    def __init__(self, *ops: str) -> None:
        self._ops, self.calls = set(ops), 0

    def __call__(self, path: Path) -> Verdict:
        self.calls += 1
        graph = onnx.load(path).graph
        stored = {tensor.name for tensor in graph.initializer}
        divides = any(node.op_type == "Div" and node.input[1] in stored for node in graph.node)
        if divides or self._ops & {node.op_type for node in graph.node}:
            return Verdict(status=Status.FAIL, kind=Kind.CRASH, message="the compiler died by SIGSEGV")
        return Verdict(status=Status.PASS)


def saved(folder: Path, end: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(OLD_FORMS.replace("END", end)), path)
    return path


def test_a_file_of_old_forms_compiles_after_one_call_and_no_search(tmp_path: Path) -> None:
    compiler = Dies("Pow", "Sqrt")
    result = onnx_bisect.fix(saved(tmp_path, PLAIN), backend=compiler)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == (
        "operator set 11 → 17; 1 normalisation written as LayerNormalization; 1 division by a constant written as Mul"
    )
    assert result.document.file_change.exactness is Exactness.ROUNDING
    assert compiler.calls <= 3
    after = onnx.load(result.save(tmp_path / "repaired.onnx")).graph.node
    assert [node.op_type for node in after] == ["LayerNormalization", "Mul", "Softmax", "Mul", "Relu"]


@pytest.mark.parametrize("allow", [Exactness.ROUNDING, Exactness.APPROXIMATE])
def test_erf_is_approximated_only_where_that_is_allowed(tmp_path: Path, allow: Exactness) -> None:
    result = onnx_bisect.fix(saved(tmp_path, GELU), backend=Dies("Pow", "Sqrt", "Erf"), allow=allow, budget_calls=5)
    assert result.compiles is (allow is Exactness.APPROXIMATE)
    if result.compiles:
        assert result.document.file_change is not None
        assert result.document.file_change.sentence.endswith("1 Erf node written as Tanh of a polynomial")


def test_a_tool_that_names_an_op_is_searched_and_what_it_takes_stays(tmp_path: Path) -> None:
    def refuses_pow(path: Path) -> Verdict:
        named = [node.op_type for node in onnx.load(path).graph.node if node.op_type == "Pow"]
        hints = onnx_bisect.Hints(ops=tuple(named))
        return Verdict(status=Status.FAIL if named else Status.PASS, message="unsupported op Pow", hints=hints)

    result = onnx_bisect.fix(saved(tmp_path, PLAIN), backend=refuses_pow)
    assert result.compiles
    assert [change.op for change in result.document.changes] == ["Pow"]
    assert result.document.file_change is None
