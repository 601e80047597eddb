"""Changes of the whole file, tried before a search is paid for."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_bisect
from onnx_bisect import (
    Cancellation,
    CompilesAfter,
    Ending,
    Hints,
    Kind,
    Note,
    OptionError,
    Status,
    Verdict,
    report_schema,
)
from onnxbisect.exactness import Exactness
from onnxbisect.report.reading import next_steps
from onnxbisect_backends.commands.any_command import CommandBackend


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


def saved(tmp_path: Path, *ops: str, ir_version: int = 12) -> Path:
    """A chain of these ops, of an IR version that nothing in it needs."""
    nodes = [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", f"t{len(ops)}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


class Compiler:
    """Reads files up to IR version 9 and refuses some ops; names them where `names` is set."""

    def __init__(self, *refused: str, newest: int = 9, names: bool = False) -> None:
        self.refused, self.newest, self.names, self.calls = set(refused), newest, names, 0

    def __call__(self, path: Path) -> Verdict:
        self.calls += 1
        model = onnx.load(path)
        found = [node.op_type for node in model.graph.node if node.op_type in self.refused]
        if model.ir_version <= self.newest and not found:
            return Verdict(status=Status.PASS)
        hints = Hints(ops=tuple(found)) if self.names else Hints()
        return Verdict(status=Status.FAIL, kind=Kind.ERROR, message=f"cannot read it: {found}", hints=hints)


def test_a_lower_ir_version_is_found_in_two_calls(tmp_path: Path) -> None:
    compiler = Compiler()
    events: list[onnx_bisect.Event] = []
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs", "Neg"), backend=compiler, progress=events.append)

    assert result.compiles_after == CompilesAfter(
        sentence="ir_version 12 → 9", remedies=("lower-ir-version",), exactness=Exactness.EXACT, domain="", calls=1
    )
    assert result.headline.endswith("after: ir_version 12 → 9 (verified, 1 call)")
    assert (result.verdict, result.culprits, result.ending) == (Status.FAIL, (), Ending.COMPILES_AFTER)
    assert compiler.calls == result.stats.compiler_calls == 2
    assert not result.certificate.proven
    assert any(isinstance(event, Note) and "ir_version 12 → 9" in event.sentence for event in events)
    assert sum(isinstance(event, onnx_bisect.SearchStarted) for event in events) == 1
    jsonschema.validate(result.report, report_schema())
    for text in (result.to_markdown(), result.to_html()):
        assert "version 12 → 9" in text


def test_a_changed_file_whose_numbers_are_wrong_compiles(tmp_path: Path) -> None:
    """What fails as it is for the version, and then for its numbers, is no model with an unsupported op."""
    compiler = Compiler()

    def numeric(path: Path) -> Verdict:
        verdict = compiler(path)
        if verdict.passed:
            return Verdict(status=Status.FAIL, kind=Kind.NUMERIC, message="y differs by 3.83", seconds=2.0)
        return replace(verdict, seconds=1.0)

    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs", "Neg"), backend=numeric)

    assert result.compiles_after is not None
    assert result.compiles_after.sentence == "ir_version 12 → 9, and then computes other numbers"
    assert (compiler.calls, result.culprits) == (2, ())
    assert result.report["stats"]["compile_seconds"] == 3.0


@pytest.mark.parametrize("low", [float(np.finfo(np.float32).min), -9000.0])
def test_masks_are_bounded_where_a_compiler_computes_other_numbers(tmp_path: Path, low: float) -> None:
    """Scales for integers are lost on a mask of -3.4e38; a file that fails for another reason is not asked so."""
    nodes = [
        helper.make_node("Add", ["x", "mask"], ["masked"], name="add"),
        helper.make_node("Softmax", ["masked"], ["y"], name="softmax"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy"]
    mask = helper.make_tensor("mask", TensorProto.FLOAT, [2, 2], [0, low, 0, 0])
    path = tmp_path / "attention.onnx"
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [mask])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)

    def numeric(path: Path) -> Verdict:
        stored = onnx.load(path).graph.initializer
        if any(onnx.numpy_helper.to_array(it).min() < -20000 for it in stored) or low == -9000.0:
            return Verdict(status=Status.FAIL, kind=Kind.NUMERIC, message="y differs by 1.0")
        return Verdict(status=Status.PASS)

    result = onnx_bisect.diagnose(path, backend=numeric)

    if low == -9000.0:
        assert result.compiles_after is None
    else:
        assert result.compiles_after is not None
        assert result.compiles_after.sentence == "1 mask raised to -10000"
        assert (result.compiles_after.exactness, result.stats.compiler_calls) == (Exactness.DOMAIN, 2)


class Reading(Compiler):
    """Says only of what version a file is where that is too new, and else what it refuses."""

    def __call__(self, path: Path) -> Verdict:
        verdict = super().__call__(path)
        if verdict.passed or onnx.load(path).ir_version <= self.newest:
            return verdict
        return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="The file is of a version that is not read.")


def test_a_compiler_that_names_one_op_after_the_other_is_asked_about_the_file_itself(tmp_path: Path) -> None:
    """Without the Identity it names the Abs: that is no other reason, and both are culprits of the file."""
    path = saved(tmp_path, "Relu", "Identity", "Abs", "Neg", ir_version=8)
    options = {"deny": "Identity,Abs", "report": "first"}
    result = onnx_bisect.diagnose(path, backend="whitelist", options=options)

    assert "file_after" not in result.report
    assert {it.nodes for it in result.culprits} == {("n1",), ("n2",)}


def _with_an_if(graph: onnx.GraphProto) -> None:
    chosen = helper.make_node("If", ["yes"], ["t2"], name="n1")
    for branch, op in (("then_branch", "Neg"), ("else_branch", "Sqrt")):
        result = helper.make_tensor_value_info(f"{branch}_y", TensorProto.FLOAT, [2, 3])
        body = helper.make_graph([helper.make_node(op, ["t1"], [f"{branch}_y"])], branch, [], [result])
        chosen.attribute.append(helper.make_attribute(branch, body))
    graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [1]))
    graph.node[1].CopyFrom(chosen)


def _with_a_sum_of_axes(graph: onnx.GraphProto) -> None:
    graph.initializer.append(helper.make_tensor("axes", TensorProto.INT64, [1], [0]))
    graph.node[1].CopyFrom(helper.make_node("ReduceMean", ["t1", "axes"], ["t2"], name="n1"))


def _with_an_empty_output(graph: onnx.GraphProto) -> None:
    graph.node[1].CopyFrom(helper.make_node("Dropout", ["t1"], ["t2", ""], name="n1"))


def _with_an_empty_output_before_another(graph: onnx.GraphProto) -> None:
    graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1, 3, 3], [0.1] * 9))
    graph.initializer.append(helper.make_tensor("whole", TensorProto.INT64, [3], [2, 1, 3]))
    graph.initializer.append(helper.make_tensor("rows", TensorProto.INT64, [2], [2, 3]))
    graph.node[1].CopyFrom(helper.make_node("Reshape", ["last", "rows"], ["t2"], name="n1"))
    graph.node.insert(1, helper.make_node("RNN", ["sequence", "w", "w"], ["", "last"], name="rnn", hidden_size=3))
    graph.node.insert(1, helper.make_node("Reshape", ["t1", "whole"], ["sequence"], name="reshape"))


def _with_a_constant(graph: onnx.GraphProto) -> None:
    two = helper.make_node("Constant", [], ["two"], name="two", value_float=2.0)
    graph.node[1].CopyFrom(helper.make_node("Mul", ["t1", "two"], ["t2"], name="n1"))
    graph.node.insert(0, two)


def _with_an_op_of_constants(graph: onnx.GraphProto) -> None:
    graph.initializer.append(helper.make_tensor("angle", TensorProto.FLOAT, [1], [0.5]))
    graph.node[1].CopyFrom(helper.make_node("Mul", ["t1", "factor"], ["t2"], name="n1"))
    graph.node.insert(0, helper.make_node("Cos", ["angle"], ["factor"], name="cos"))


def _with_an_unread_output(graph: onnx.GraphProto) -> None:
    graph.node[1].CopyFrom(helper.make_node("Dropout", ["t1"], ["t2", "mask"], name="n1"))


def _with_a_newer_op(graph: onnx.GraphProto) -> None:
    graph.node[1].CopyFrom(helper.make_node("HardSwish", ["t1"], ["t2"], name="n1"))


def _with_doubles(graph: onnx.GraphProto) -> None:
    graph.node[1].CopyFrom(helper.make_node("Cast", ["double"], ["t2"], name="n1", to=TensorProto.FLOAT))
    graph.node.insert(1, helper.make_node("Cast", ["t1"], ["double"], name="cast", to=TensorProto.DOUBLE))


def _with_an_op_of_doubles(graph: onnx.GraphProto) -> None:
    _with_doubles(graph)
    graph.node[1].output[0] = "cast"
    graph.node.insert(2, helper.make_node("Exp", ["cast"], ["double"], name="exp"))


@pytest.mark.parametrize("words", ["Op not support: {}", "not supported"])
@pytest.mark.parametrize(
    ("change", "op", "opset"),
    [
        (_with_an_if, "If", 17),
        (_with_a_sum_of_axes, "ReduceMean", 18),
        (_with_an_empty_output, "Dropout", 17),
        (_with_an_empty_output_before_another, "RNN", 17),
        (_with_an_unread_output, "Dropout", 17),
        (_with_a_constant, "Constant", 17),
        (_with_an_op_of_constants, "Cos", 17),
        (_with_a_newer_op, "HardSwish", 13),
        (_with_doubles, "Cast", 17),
        (_with_an_op_of_doubles, "Exp", 17),
    ],
)
def test_an_op_that_a_change_answers_is_not_searched_for(
    tmp_path: Path, change: Callable[[onnx.GraphProto], None], op: str, opset: int, words: str
) -> None:
    """The compiler names this op, for its form, and after the change another one, be it in the same words."""
    path = saved(tmp_path, "Relu", "Relu", "Abs", "Neg", ir_version=8)
    model = onnx.load(path)
    model.opset_import[0].version = opset
    change(model.graph)
    onnx.save(model, path)

    def naming(probe: Path) -> Verdict:
        model = onnx.load(probe)
        nodes, version = model.graph.node, model.opset_import[0].version
        form = [it.op_type for it in nodes if it.op_type in ("If", "Constant", "Cos") or "" in it.output]
        form += [it.op_type for it in nodes if it.op_type == "Dropout" and len(it.output) > 1]
        form += [it.op_type for it in nodes if it.op_type == "ReduceMean" and len(it.input) > 1]
        form += [it.op_type for it in nodes if it.op_type == "HardSwish" and version < 14]
        doubles = {it.output[0] for it in nodes if it.op_type == "Cast" and it.attribute[0].i == TensorProto.DOUBLE}
        form += [it.op_type for it in nodes if it.op_type == "Exp" and it.input[0] in doubles]
        form += [it.op_type for it in nodes if it.output[0] in doubles and op == "Cast"]
        refused = form or [it.op_type for it in nodes if it.op_type == "Abs"]
        if not refused:
            return Verdict(status=Status.PASS)
        said, hints = words.format(refused[0]), Hints(ops=(refused[0],))
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=said, hints=hints)

    result = onnx_bisect.diagnose(path, backend=naming)

    assert not naming(path).passed
    assert naming(path).hints.ops == (op,)
    assert [it.ops for it in result.culprits] == [("Abs",)]
    assert result.certificate.proven
    assert result.report["file_after"]


def test_what_no_rule_replaces_exactly_in_a_changed_file_is_split_once_that_file_is_written(tmp_path: Path) -> None:
    """`split` takes no report of another file than the one it is given."""
    path = saved(tmp_path, "Relu", "Hardmax", "Neg")
    hidden = onnx_bisect.diagnose(path, backend=Reading("Hardmax"))
    with pytest.raises(OptionError, match="after: ir_version 12 → 9"):
        onnx_bisect.split(path, hidden, tmp_path / "split")
    plain = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Hardmax", "Neg", ir_version=9), backend=Reading("Hardmax"))

    assert hidden.report["file_after"]
    assert [step.command.split()[1] for step in next_steps(hidden.report)] == ["fix"]
    assert [step.command.split()[1] for step in next_steps(plain.report)] == ["fix", "split"]


def test_a_refusal_that_hides_another_is_gone_past(tmp_path: Path) -> None:
    """Of the file as it is every part fails for the version; the changed file fails for its own reason."""
    path = saved(tmp_path, "Relu", "Abs", "Neg", "Sqrt")
    compiler = Reading("Abs")
    events: list[onnx_bisect.Event] = []
    result = onnx_bisect.diagnose(path, backend=compiler, progress=events.append)

    assert (result.compiles_after, result.report["file_after"]) == (None, "ir_version 12 → 9")
    assert result.headline.endswith("; searched in the file after: ir_version 12 → 9")
    assert [it.nodes for it in result.culprits] == [("n1",)]
    assert result.certificate.proven
    alone = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs", "Neg", "Sqrt", ir_version=9), backend=Reading("Abs"))
    assert compiler.calls == result.stats.compiler_calls == alone.stats.compiler_calls + 1
    assert any(isinstance(event, Note) and "searching the file after" in event.sentence for event in events)
    jsonschema.validate(result.report, report_schema())
    for text in (result.to_markdown(), result.to_html()):
        assert "searched in the file after: ir" in text
    result.write(tmp_path / "report")
    path.unlink()
    own = next((tmp_path / "report" / "culprits").glob("*/model.onnx"))
    assert onnx.load(own).ir_version <= 9
    assert not compiler(own).passed
    assert result.report["model"]["name"] == path.name


def test_a_changed_file_that_fails_for_the_same_reason_is_not_gone_on_with(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs", "Neg"), backend=Compiler("Abs", newest=99))
    assert "file_after" not in result.report
    assert "searched in" not in result.headline


def test_a_file_searched_as_it_is_is_not_gone_past(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs"), backend=Reading("Abs"), as_is=True)
    assert "file_after" not in result.report


def test_the_file_as_it_is_is_searched_where_that_is_asked_for(tmp_path: Path) -> None:
    path = saved(tmp_path, "Relu", "Abs", "Neg")
    result = onnx_bisect.diagnose(path, backend=Compiler(), as_is=True)
    assert result.compiles_after is None
    assert result.culprits


def test_the_search_goes_on_where_no_change_helps_and_costs_no_more_than_the_tries(tmp_path: Path) -> None:
    path = saved(tmp_path, "Relu", "Abs", "Neg", "Sqrt")
    as_is = onnx_bisect.diagnose(path, backend=Compiler("Abs", newest=99), as_is=True)
    compiler = Compiler("Abs", newest=99)
    result = onnx_bisect.diagnose(path, backend=compiler)

    assert result.compiles_after is None
    assert [it.nodes for it in result.culprits] == [it.nodes for it in as_is.culprits] == [("n1",)]
    assert result.certificate.proven
    assert compiler.calls == result.stats.compiler_calls == as_is.stats.compiler_calls + 1
    assert result.report["probes"][0]["cached"] is False


def test_no_call_is_made_for_a_change_that_leaves_alone_what_the_compiler_names(tmp_path: Path) -> None:
    path = saved(tmp_path, "Relu", "Abs", "Neg", "Sqrt")
    calls = []
    for as_is in (True, False):
        compiler = Compiler("Abs", newest=99, names=True)
        assert onnx_bisect.diagnose(path, backend=compiler, as_is=as_is).certificate.proven
        calls.append(compiler.calls)
    assert calls[0] == calls[1]


def test_a_change_that_takes_away_what_the_compiler_names_is_tried(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(
        saved(tmp_path, "Relu", "Identity", "Neg", ir_version=8), backend=Compiler("Identity", names=True)
    )
    assert result.compiles_after is not None
    assert result.compiles_after.remedies == ("remove-copies",)


def test_a_budget_of_one_call_is_kept(tmp_path: Path) -> None:
    compiler = Compiler("Abs")
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs"), backend=compiler, budget_calls=1)
    assert compiler.calls == 1
    assert result.ending is Ending.CALLS
    assert result.compiles_after is None


def test_cancelling_while_a_changed_file_is_compiled_ends_it(tmp_path: Path) -> None:
    cancellation, compiler = Cancellation(), Compiler("Abs")

    def cancel(event: onnx_bisect.Event) -> None:
        if isinstance(event, Note):
            cancellation.cancel()

    result = onnx_bisect.diagnose(
        saved(tmp_path, "Relu", "Abs"), backend=compiler, progress=cancel, cancellation=cancellation
    )
    assert compiler.calls == 1
    assert result.ending is Ending.CANCELLED


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text("import sys, onnx\nsys.exit(onnx.load(sys.argv[1]).ir_version > 9)\n")
    backend = CommandBackend([sys.executable, str(tool), "{model}"])
    path = saved(tmp_path, "Relu", "Abs")

    first, second = (onnx_bisect.diagnose(path, backend=backend) for _ in range(2))
    assert (first.stats.compiler_calls, second.stats.compiler_calls) == (2, 0)
    assert second.headline.endswith("after: ir_version 12 → 9 (verified, known before)")
    fixed = onnx_bisect.fix(path, backend=backend)
    assert fixed.compiles
    assert onnx.load(fixed.save(tmp_path / "out.onnx")).ir_version == 9
    with pytest.raises(OptionError):
        onnx_bisect.diagnose(path, backend=backend, jobs=0)


def test_a_compiler_that_says_it_has_not_folded_is_given_the_constants(tmp_path: Path) -> None:
    shape = helper.make_node("Shape", ["t0"], ["s"], name="shape")
    last = helper.make_node("Reshape", ["t0", "s"], ["y"], name="reshape")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", "y")]
    made = helper.make_graph([shape, last], "g", ends[:1], ends[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(made, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)

    def compiles(probe: Path) -> Verdict:
        if any(node.op_type == "Shape" for node in onnx.load(probe).graph.node):
            hints = Hints(nodes=("elsewhere",), ops=("Gelu",), unfolded=("WARNING: folding failed.",))
            return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="KeyError", hints=hints)
        return Verdict(status=Status.PASS)

    events: list[onnx_bisect.Event] = []
    result = onnx_bisect.diagnose(path, backend=compiles, progress=events.append)
    assert result.compiles_after is not None
    assert "fold-constants" in result.compiles_after.remedies
    assert any(isinstance(event, Note) and "WARNING: folding failed." in event.sentence for event in events)


_BY_DEPTH = (("Relu", "x", "r"), ("Abs", "r", "a"), ("Neg", "r", "n"), ("Tanh", "a", "t"), ("Sqrt", "n", "s"))
_BY_BRANCH = tuple(_BY_DEPTH[place] for place in (0, 1, 3, 2, 4))


def _branches(tmp_path: Path, order: tuple[tuple[str, str, str], ...]) -> Path:
    nodes = [helper.make_node(op, [read], [made], name=op) for op, read, made in order]
    nodes.append(helper.make_node("Add", ["t", "s"], ["y"], name="Add"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    path = tmp_path / "branches.onnx"
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


class Ordering:
    """Dies where one of these pairs of nodes is next to each other in the file, whatever the nodes compute."""

    def __init__(self, *pairs: str, kind: Kind = Kind.CRASH, hints: Hints | None = None) -> None:
        self.pairs, self.kind, self.hints, self.calls = pairs, kind, hints or Hints(), 0

    def __call__(self, path: Path) -> Verdict:
        self.calls += 1
        order = " ".join(node.op_type for node in onnx.load(path).graph.node)
        if not any(pair in order for pair in self.pairs):
            return Verdict(status=Status.PASS)
        return Verdict(status=Status.FAIL, kind=self.kind, message="IndexError: list index", hints=self.hints)


@pytest.mark.parametrize("kind", [Kind.CRASH, Kind.ERROR])
@pytest.mark.parametrize(("order", "pair"), [(_BY_DEPTH, "Abs Neg"), (_BY_BRANCH, "Abs Tanh")])
def test_a_compiler_that_dies_of_an_order_takes_another_one(
    tmp_path: Path, order: tuple[tuple[str, str, str], ...], pair: str, kind: Kind
) -> None:
    path, compiler = _branches(tmp_path, order), Ordering(pair, kind=kind)
    result = onnx_bisect.diagnose(path, backend=compiler)

    assert result.compiles_after is not None
    assert result.compiles_after.sentence == "nodes in another order"
    assert (compiler.calls, result.culprits) == (2, ())
    fixed = onnx_bisect.fix(path, backend=compiler)
    assert fixed.compiles
    written = onnx.load(fixed.save(tmp_path / "fixed.onnx"))
    assert compiler(tmp_path / "fixed.onnx").passed
    onnx.checker.check_model(written)
    assert sorted(node.name for node in written.graph.node) == sorted(node.name for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    "compiler",
    [
        Ordering("Relu", kind=Kind.UNSUPPORTED),
        Ordering("Relu", hints=Hints(ops=("Relu",))),
        Ordering("Relu", hints=Hints(nodes=("Relu",))),
    ],
)
def test_no_other_order_is_tried_where_the_compiler_says_what_it_refuses(tmp_path: Path, compiler: Ordering) -> None:
    events: list[onnx_bisect.Event] = []
    result = onnx_bisect.diagnose(_branches(tmp_path, _BY_DEPTH), backend=compiler, progress=events.append)
    assert [it.ops for it in result.culprits] == [("Relu",)]
    assert not any(isinstance(event, Note) and "another order" in event.sentence for event in events)


def test_an_order_that_does_not_help_costs_one_call_and_is_not_gone_on_with(tmp_path: Path) -> None:
    path, compiler = _branches(tmp_path, _BY_DEPTH), Ordering("Relu")
    result = onnx_bisect.diagnose(path, backend=compiler)
    alone = Ordering("Relu")
    onnx_bisect.diagnose(path, backend=alone, as_is=True)

    assert [it.ops for it in result.culprits] == [("Relu",)]
    assert "file_after" not in result.report
    assert compiler.calls == result.stats.compiler_calls == alone.calls + 1


def test_an_order_that_hides_a_refusal_is_gone_on_with(tmp_path: Path) -> None:
    """Parts of the file keep the order of which the compiler dies, so pairs of good nodes would be to blame."""
    path, by_order = _branches(tmp_path, _BY_DEPTH), Ordering("Abs Neg", "Tanh Sqrt", kind=Kind.ERROR)

    def compiles(probe: Path) -> Verdict:
        if not (verdict := by_order(probe)).passed:
            return verdict
        if all(node.op_type != "Sqrt" for node in onnx.load(probe).graph.node):
            return verdict
        return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="compilation failed")

    result = onnx_bisect.diagnose(path, backend=compiles)
    assert [it.ops for it in result.culprits] == [("Sqrt",)]
    assert result.certificate.proven
    assert result.report["file_after"] == "nodes in another order"


def of_opset_11(tmp_path: Path) -> Path:
    """Softmax and Unsqueeze, which have another form from operator set 13 on, between ops that do not."""
    graph = "g (float[2,3] x) => (y) { a = Relu (x) b = Softmax <axis = 1> (a) y = Unsqueeze <axes = [0]> (b) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["" : 11]> {graph}'), tmp_path / "old.onnx")
    return tmp_path / "old.onnx"


def reads_from_13(path: Path) -> Verdict:
    """A compiler that has Softmax and Unsqueeze in their newer form alone, and says of others that it lacks the op."""
    model = onnx.load(path)
    old = model.opset_import[0].version < 13
    found = [node.op_type for node in model.graph.node if old and node.op_type in ("Softmax", "Unsqueeze")]
    if not found:
        return Verdict(status=Status.PASS)
    kind, hints = Kind.UNSUPPORTED, Hints(ops=(found[0],))
    return Verdict(status=Status.FAIL, kind=kind, message=f"failed to legalize {found[0]}", hints=hints)


def test_a_repair_raises_the_operator_set_where_every_culprit_has_a_newer_form(tmp_path: Path) -> None:
    fixed = onnx_bisect.fix(of_opset_11(tmp_path), backend=reads_from_13)
    assert fixed.compiles
    assert fixed.document.file_change is not None
    assert fixed.document.file_change.sentence == "operator set 11 → 17"
    assert not fixed.document.changes
    repaired = onnx.load(fixed.save(tmp_path / "repaired.onnx"))
    ops = [node.op_type for node in repaired.graph.node if node.op_type != "Constant"]
    assert ops == ["Relu", "Softmax", "Unsqueeze"]


def test_a_file_in_newer_forms_that_fails_alike_is_not_searched(tmp_path: Path) -> None:
    """Silent, and refuses Softmax in any form: the changed file costs a call, and another one for Softmax in it."""
    in_newer_forms: list[list[str]] = []

    def refuses_softmax(path: Path) -> Verdict:
        model = onnx.load(path)
        ops = [node.op_type for node in model.graph.node]
        if model.opset_import[0].version > 11:
            in_newer_forms.append(ops)
        if "Softmax" in ops:
            return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="failed")
        return Verdict(status=Status.PASS)

    path = tmp_path / "old.onnx"
    graph = "g (float[2,3] x) => (float[2,3] y) { a = Relu (x) y = Softmax <axis = 1> (a) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["" : 11]> {graph}'), path)
    assert onnx_bisect.fix(path, backend=refuses_softmax).compiles
    assert in_newer_forms == [["Relu", "Softmax"], ["Softmax"]]


def test_an_op_without_a_newer_form_is_no_question_of_the_operator_set(tmp_path: Path) -> None:
    asked: list[int] = []

    def lacks_elu(path: Path) -> Verdict:
        model = onnx.load(path)
        asked.append(model.opset_import[0].version)
        return (
            reads_from_13(path)
            if all(it.op_type != "Elu" for it in model.graph.node)
            else Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message="no Elu", hints=Hints(ops=("Elu",)))
        )

    graph = "g (float[2,3] x) => (y) { a = Elu (x) y = Softmax <axis = 1> (a) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["" : 11]> {graph}'), tmp_path / "m.onnx")
    onnx_bisect.fix(tmp_path / "m.onnx", backend=lacks_elu)
    assert set(asked) == {11}


def _arranged(tmp_path: Path) -> Path:
    """Two products that read one initializer, and a Constant node."""
    graph = """g (float[2,3] x) => (float[2,3] y) <float[3] w = {1.0, 2.0, 3.0}> {
        c = Constant <value = float[1] {4.0}> ()  a = Mul (x, w)  b = Mul (a, w)  y = Add (b, c)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    onnx.save(model, tmp_path / "arranged.onnx")
    return tmp_path / "arranged.onnx"


def _has_constant_node(model: onnx.ModelProto) -> bool:
    return any(node.op_type == "Constant" for node in model.graph.node)


def _has_shared_weight(model: onnx.ModelProto) -> bool:
    read = [name for node in model.graph.node for name in node.input]
    return any(read.count(tensor.name) > 1 for tensor in model.graph.initializer)


@pytest.mark.parametrize(
    ("refuses", "hints"),
    [
        (_has_constant_node, Hints()),
        (_has_constant_node, Hints(ops=("Constant",))),
        (_has_shared_weight, Hints()),
    ],
)
def test_a_compiler_that_dies_of_how_constants_are_stored_takes_them_otherwise(
    tmp_path: Path, refuses: Callable[[onnx.ModelProto], bool], hints: Hints
) -> None:
    path, calls = _arranged(tmp_path), []

    def compiles(probe: Path) -> Verdict:
        calls.append(probe)
        if refuses(onnx.load(probe)):
            return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="internal error", hints=hints)
        return Verdict(status=Status.PASS)

    result = onnx_bisect.diagnose(path, backend=compiles)
    assert result.compiles_after is not None
    assert "1 Constant node turned into initializers" in result.compiles_after.sentence
    assert (len(calls), result.culprits) == (2, ())
    fixed = onnx_bisect.fix(path, backend=compiles)
    assert fixed.compiles
    assert not refuses(onnx.load(fixed.save(tmp_path / "fixed.onnx")))


def test_what_a_compiler_refuses_besides_constant_nodes_is_found_in_the_file_without_them(tmp_path: Path) -> None:
    def compiles(probe: Path) -> Verdict:
        ops = [node.op_type for node in onnx.load(probe).graph.node]
        refused = next((op for op in ("Constant", "Add") if op in ops), None)
        if refused is None:
            return Verdict(status=Status.PASS)
        message = f"{refused} is not supported"
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=message, hints=Hints(ops=(refused,)))

    result = onnx_bisect.diagnose(_arranged(tmp_path), backend=compiles)
    assert "1 Constant node turned into initializers" in result.report["file_after"]
    assert [it.ops for it in result.culprits] == [("Add",)]


@pytest.mark.long
def test_a_changed_file_that_compiles_for_long_leaves_time_for_the_search(tmp_path: Path) -> None:
    """As a form of a detector whose compile by RKNN takes longer than the whole budget."""
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time, onnx\n"
        "model = onnx.load(sys.argv[1])\n"
        "ops = {node.op_type for node in model.graph.node}\n"
        "if model.ir_version < 10:\n    time.sleep(120)\n"
        "if 'Tanh' in ops:\n    sys.exit('The file is of a version that is not read.')\n"
    )
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2,3] x) => (float[2,3] y) '
        "{ a = Relu (x) b = Tanh (a) y = Abs (b) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    found = onnx_bisect.diagnose(
        tmp_path / "model.onnx",
        backend=CommandBackend([sys.executable, str(script), "{model}"]),
        budget_seconds=30,
    )
    assert [it.ops for it in found.culprits] == [("Tanh",)]
    assert found.report["certificate"]["status"] == "proven"
