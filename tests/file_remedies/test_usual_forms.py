"""A tool that dies of old forms of ops, and names nothing, takes the file in the forms that it knows."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_bisect
from onnx_bisect import Exactness, Kind, Status, Verdict
from onnxbisect_backends.commands.any_command import CommandBackend
from support.halves import in_float16

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


DIED = Verdict(status=Status.FAIL, kind=Kind.CRASH, message="the compiler died by SIGSEGV")


class Dies:
    """Dies of these ops wherever they stand, where `divides` also of a Div by what is stored, and names others."""

    def __init__(self, *ops: str, divides: bool = True, names: tuple[str, ...] = ()) -> None:
        self._ops, self._divides, self._names = set(ops), divides, names
        self.asked: list[list[str]] = []

    @property
    def calls(self) -> int:
        return len(self.asked)

    def __call__(self, path: Path) -> Verdict:
        graph = onnx.load(path).graph
        self.asked.append([node.op_type for node in graph.node])
        stored = {tensor.name for tensor in graph.initializer}
        divided = any(node.op_type == "Div" and node.input[1] in stored for node in graph.node)
        if (divided and self._divides) or self._ops.intersection(self.asked[-1]):
            return DIED
        found = tuple(op for op in self._names if op in self.asked[-1])
        if found:
            return Verdict(status=Status.FAIL, message=f"no {found[0]}", hints=onnx_bisect.Hints(ops=found))
        return Verdict(status=Status.PASS)


def saved(folder: Path, end: str, *, narrow: bool = False) -> Path:
    path = folder / "model.onnx"
    model = onnx.parser.parse_model(OLD_FORMS.replace("END", end))
    onnx.save(in_float16(model) if narrow else model, path)
    return path


def test_a_file_of_old_forms_compiles_after_four_calls_and_no_search(tmp_path: Path) -> None:
    """The file as it is, in both forms, and without each of the two."""
    compiler = Dies("Pow", "Sqrt")
    result = onnx_bisect.fix(saved(tmp_path, PLAIN), backend=compiler)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == (
        "operator set 11 → 17; 1 normalisation written as LayerNormalization; 1 division by a constant written as Mul"
    )
    assert result.document.file_change.exactness is Exactness.ROUNDING
    assert compiler.calls == 4
    after = onnx.load(result.save(tmp_path / "repaired.onnx")).graph.node
    assert [node.op_type for node in after] == ["LayerNormalization", "Mul", "Softmax", "Mul", "Relu"]


def test_a_norm_with_a_reciprocal_compiles_with_a_division_after_two_calls(tmp_path: Path) -> None:
    """QNN dies so of each RMSNorm with `torch.rsqrt`, as Llama and T5 have it, exported with `dynamo=True`."""
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,8] x) => (float[1,4,8] y) <float two = {2}, float small = {0.00001}> {
            [square] squared = Pow(x, two)
            [mean] mean = ReduceMean <axes = [-1]> (squared)
            [more] more = Add(mean, small)
            [root] root = Sqrt(more)
            [one] one = Reciprocal(root)
            [y] y = Mul(x, one)
        }"""),
        path,
    )
    compiler = Dies("Reciprocal")
    result = onnx_bisect.fix(path, backend=compiler, allow=Exactness.EXACT)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == "1 Reciprocal node written as Div"
    assert compiler.calls == 2


def test_what_the_tool_takes_as_it_is_stays(tmp_path: Path) -> None:
    compiler = Dies("Pow", "Sqrt", divides=False)
    result = onnx_bisect.fix(saved(tmp_path, PLAIN), backend=compiler)
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == "operator set 11 → 17; 1 normalisation written as LayerNormalization"
    assert compiler.calls == 3

    result = onnx_bisect.fix(saved(tmp_path, PLAIN), backend=Dies())
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == "1 division by a constant written as Mul"


def test_of_forms_that_are_added_alone_only_the_others_are_doubted(tmp_path: Path) -> None:
    compiler = Dies("Erf", divides=False)
    result = onnx_bisect.fix(saved(tmp_path, GELU), backend=compiler, allow=Exactness.APPROXIMATE)
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == "1 Erf node written as Tanh of a polynomial"
    assert compiler.calls == 5


def test_once_the_tool_names_something_no_further_form_is_asked_and_the_repair_goes_on(tmp_path: Path) -> None:
    compiler = Dies("Pow", "Sqrt", names=("Softmax", "Erf"))
    result = onnx_bisect.fix(saved(tmp_path, GELU), backend=compiler, allow=Exactness.APPROXIMATE)
    assert result.compiles
    assert result.document.file_change is not None
    assert "Erf" not in result.document.file_change.sentence
    assert {change.op for change in result.document.changes} == {"Erf", "Softmax"}
    assert all("Erf" in ops for ops in compiler.asked[:4])  # as it is, in both forms, without each of the two


@pytest.mark.parametrize("answer", [DIED, Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT, message="stopped")])
def test_the_file_as_it_is_is_compiled_once(tmp_path: Path, answer: Verdict) -> None:
    """Verdicts of functions and time-outs are kept for no other run, but within this one."""
    path = saved(tmp_path, PLAIN)
    asked: list[bytes] = []

    def dies(piece: Path) -> Verdict:
        asked.append(piece.read_bytes())
        softmax = any(node.op_type == "Softmax" for node in onnx.load(piece).graph.node)
        return answer if softmax else Verdict(status=Status.PASS)

    onnx_bisect.fix(path, backend=dies, budget_calls=20)
    assert len(asked) == len(set(asked))


def test_a_float16_file_is_written_in_the_same_forms_where_its_squares_are_finite(tmp_path: Path) -> None:
    """A Tanh bounds what is normalised; without it a sample may have numbers that are outside of the domain."""
    model = onnx.load(saved(tmp_path, PLAIN, narrow=True))
    path = tmp_path / "bounded.onnx"
    bounded = onnx.ModelProto()
    bounded.CopyFrom(model)
    bounded.graph.node[0].input[0] = bounded.graph.node[1].input[0] = "low"
    bounded.graph.node.insert(0, onnx.helper.make_node("Tanh", ["x"], ["low"], name="bound"))
    onnx.save(bounded, path)
    result = onnx_bisect.fix(path, backend=Dies("Pow", "Sqrt"), allow=Exactness.DOMAIN, budget_calls=6)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.exactness is Exactness.DOMAIN
    assert result.document.file_change.sentence == (
        "operator set 11 → 17; 1 normalisation written as LayerNormalization, for numbers within 255 of each other, "
        "whose squares float16 has; 1 division by a constant written as Mul"
    )
    after = onnx.load(result.save(tmp_path / "repaired.onnx")).graph.node
    assert [node.op_type for node in after] == ["Tanh", "LayerNormalization", "Mul", "Softmax", "Mul", "Relu"]

    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    large = np.random.default_rng(0).normal(size=shape) * 1000
    (tmp_path / "samples").mkdir()
    np.savez(tmp_path / "samples" / "large.npz", x=large.astype(np.float16))
    result = onnx_bisect.fix(
        tmp_path / "model.onnx",
        backend=Dies("Pow", "Sqrt"),
        allow=Exactness.DOMAIN,
        budget_calls=6,
        samples=tmp_path / "samples",
    )
    assert not result.compiles


@pytest.mark.parametrize("allow", [Exactness.ROUNDING, Exactness.APPROXIMATE])
def test_erf_is_approximated_only_where_that_is_allowed(tmp_path: Path, allow: Exactness) -> None:
    result = onnx_bisect.fix(saved(tmp_path, GELU), backend=Dies("Pow", "Sqrt", "Erf"), allow=allow, budget_calls=7)
    assert result.compiles is (allow is Exactness.APPROXIMATE)
    if result.compiles:
        assert result.document.file_change is not None
        assert result.document.file_change.sentence.endswith("1 Erf node written as Tanh of a polynomial")


def test_where_only_a_less_exact_form_is_lacking_its_nodes_are_what_is_left(tmp_path: Path) -> None:
    """Seen with QNN: the decoder of SAM was searched in vain for 100 calls, where its two Erf were all that is left."""
    dies = Dies("Pow", "Sqrt", "Erf")
    result = onnx_bisect.fix(saved(tmp_path, GELU), backend=dies, allow=Exactness.ROUNDING)
    assert not result.compiles
    assert [left.ops for left in result.document.left] == [("Erf",)]
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == (
        "operator set 11 → 17; 1 normalisation written as LayerNormalization; 2 divisions by a constant written as Mul"
    )
    assert dies.calls <= 24


def test_a_tool_that_names_an_op_is_searched_and_what_it_takes_stays(tmp_path: Path) -> None:
    def refuses_pow(path: Path) -> Verdict:
        named = [node.op_type for node in onnx.load(path).graph.node if node.op_type == "Pow"]
        hints = onnx_bisect.Hints(ops=tuple(named))
        return Verdict(status=Status.FAIL if named else Status.PASS, message="unsupported op Pow", hints=hints)

    result = onnx_bisect.fix(saved(tmp_path, PLAIN), backend=refuses_pow)
    assert result.compiles
    assert [change.op for change in result.document.changes] == ["Pow"]
    assert result.document.file_change is None


DIES_OF = """
import sys, onnx
graph = onnx.load(sys.argv[1]).graph
stored = {tensor.name for tensor in graph.initializer}
old = any(node.op_type == "Erf" or node.op_type == "Div" and node.input[1] in stored for node in graph.node)
open(sys.argv[0] + ".calls", "a").write(f"{len(graph.node)}\\n")
sys.exit(old)
"""


def test_what_a_search_on_record_found_is_changed_in_every_file_that_is_asked(tmp_path: Path) -> None:
    """No call for another order, for copies left out, nor for the normalisation, which the search saw to compile."""
    tool = tmp_path / "tool.py"
    tool.write_text(DIES_OF)
    backend = CommandBackend([sys.executable, str(tool), "{model}"])
    apart = OLD_FORMS.replace('["": 11]', '["": 17]').replace(
        "scores = Div(normal,", "positive = Relu(normal) [copy] copied = Identity(positive) [div] scores = Div(copied,"
    )
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(apart.replace("END", GELU)), path)
    found = onnx_bisect.diagnose(path, backend=backend, as_is=True)
    assert found.certificate.proven
    assert {culprit.ops for culprit in found.culprits} == {("Div",), ("Erf",)}

    result = onnx_bisect.fix(path, backend=backend, allow=Exactness.APPROXIMATE)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == (
        "2 divisions by a constant written as Mul; 1 Erf node written as Tanh of a polynomial"
    )
    assert len(Path(f"{tool}.calls").read_text().split()) == found.stats.compiler_calls + 1
