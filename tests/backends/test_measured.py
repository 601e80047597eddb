"""From answers about single nodes to a profile: what is learnt, what is not, and how it is written down."""

import tomllib
from collections.abc import Set
from dataclasses import replace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Description
from onnxbisect_backends.measurement.measured import (
    MeasuredTest,
    MeasuredTests,
    RefusalBehaviour,
    disagreements,
    measured_profile,
)
from onnxbisect_backends.measurement.node_tests import NodeTestForm, node_tests
from onnxbisect_backends.simulator.constraints import enter, spelled
from onnxbisect_backends.simulator.profiles import Profile, profile_text
from onnxbisect_backends.simulator.refusals import Rules, refusals

pytestmark = pytest.mark.long

PASS = Verdict(status=Status.PASS)
HOSTILE = 'no "way"\n\x1b[31m\\ {op} \u202e'


def fail(message: str = "refused") -> Verdict:
    return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=message)


def node(op: str, *shapes: tuple[int, tuple[int, ...]], **attributes: Any) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(shapes))]
    infos = [
        helper.make_tensor_value_info(name, dtype, dims) for name, (dtype, dims) in zip(names, shapes, strict=True)
    ]
    output = helper.make_tensor_value_info("y", shapes[0][0], shapes[0][1])
    graph = helper.make_graph([helper.make_node(op, names, ["y"], name="n", **attributes)], "g", infos, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def profile_of(*answers: tuple[onnx.ModelProto, Verdict]) -> Profile:
    return concluded(measured(*answers))


def concluded(answers: list[MeasuredTest], unanswered: Set[str] = frozenset()) -> Profile:
    measurement = MeasuredTests(answers=answers, ops={*OPS}, unanswered={*unanswered})
    return measured_profile("mine", measurement, DESCRIPTION, RefusalBehaviour(), source="a test", tests=9)


def measured(*answers: tuple[onnx.ModelProto, Verdict]) -> list[MeasuredTest]:
    return [
        MeasuredTest(
            test=f"test_{number}", op=model.graph.node[0].op_type, form=NodeTestForm.USUAL, model=model, verdict=verdict
        )
        for number, (model, verdict) in enumerate(answers)
    ]


DESCRIPTION = Description(tool="cc", version="1")
OPS = frozenset({"Elu", "MaxPool", "Softmax", "Add", "Silent"})
F, D = TensorProto.FLOAT, TensorProto.DOUBLE


def test_a_difference_in_one_thing_is_a_limit() -> None:
    profile = profile_of((node("Elu", (F, (2,))), PASS), (node("Elu", (D, (2,))), fail("no double")))
    (limit,) = profile.ops["Elu"].constraints
    assert (limit.name, limit.rule, limit.value, limit.seen) == ("X", "dtype_not_in", ("DOUBLE",), "no double")
    assert not profile.ops["Elu"].refuses


def test_a_difference_in_two_things_is_no_limit_but_a_use() -> None:
    """Whether it is the axis or the rank, nobody knows: another axis or rank must not be refused for it."""
    refused = node("Softmax", (F, (2, 3, 4)), axis=1)
    profile = profile_of((node("Softmax", (F, (2, 3))), PASS), (refused, fail()))
    assert not profile.ops["Softmax"].constraints
    assert [it.variant for it in profile.ops["Softmax"].refuses] == ["axis=1 (FLOAT[?,?,?])"]
    rules = Rules(profile=profile)
    assert refusals(refused, rules)
    assert not refusals(node("Softmax", (F, (2, 3)), axis=1), rules)
    assert not refusals(node("Softmax", (F, (2, 3, 4))), rules)


def test_a_list_that_differs_too_spoils_the_experiment() -> None:
    padded = node("MaxPool", (F, (1, 1, 4, 4)), kernel_shape=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    profile = profile_of((node("MaxPool", (F, (1, 1, 4, 4)), kernel_shape=[2, 2]), PASS), (padded, fail()))
    assert not profile.ops["MaxPool"].constraints
    assert refusals(padded, Rules(profile=profile))


def test_what_also_compiled_is_never_a_limit() -> None:
    passing = [node("Softmax", (F, (2, 3)), axis=0), node("Softmax", (F, (2, 3, 4)))]
    answers = [*((model, PASS) for model in passing), (node("Softmax", (F, (2, 3, 4)), axis=0), fail())]
    profile = profile_of(*answers)
    assert not profile.ops["Softmax"].constraints
    assert not disagreements(profile, measured(*answers))


def test_where_only_the_shape_differs_exactly_this_shape_is_refused() -> None:
    profile = profile_of((node("Elu", (F, (2, 3))), PASS), (node("Elu", (F, (0, 3))), fail()))
    assert [it.variant for it in profile.ops["Elu"].refuses] == ["(FLOAT[0,3])"]
    assert not refusals(node("Elu", (F, (5, 3))), Rules(profile=profile))


def test_answers_that_contradict_each_other_are_said_to_be() -> None:
    same = node("Elu", (F, (2, 3)))
    profile = profile_of((same, PASS), (same, fail()))
    assert "answers otherwise than the tool: test_1." in profile.notes[-1]


def test_an_op_without_an_answer_is_not_refused() -> None:
    profile = profile_of((node("Elu", (F, (2,))), Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT)))
    assert not profile.refused
    (unknown,) = refusals(node("Elu", (F, (2,))), Rules(profile=profile))
    assert unknown.kind is Kind.UNKNOWN


def test_an_op_is_refused_where_one_of_its_tests_failed_in_every_form() -> None:
    """With the weights constant it might have compiled; that question was not reached, or got no answer."""
    answers = measured((node("Elu", (F, (2,))), fail()), (node("Elu", (F, (3,))), fail()))
    for unanswered, refused in (({"test_0", "test_1"}, False), ({"test_0"}, True)):
        profile = concluded(answers, unanswered)
        assert ("Elu" in profile.refused, "Elu" in profile.ops) == (refused, False)
        assert not [note for note in profile.notes if "otherwise" in note]


def test_a_test_that_some_form_of_is_unanswered_has_not_failed() -> None:
    answers = measured(
        (node("Elu", (F, (2,))), PASS), (node("Elu", (D, (3,))), fail()), (node("Elu", (D, (4,))), fail())
    )
    profile = concluded(answers, {"test_1"})
    assert (profile.ops["Elu"].node_tests, profile.ops["Elu"].failed_tests) == ("1/2", ("test_2",))


def test_a_refusal_is_quoted_without_what_this_op_and_node_are_called() -> None:
    refused = [(node(op, (F, (2,))), fail(f"No lowering for the_node, type {op}")) for op in ("Elu", "Selu")]
    assert profile_of(*refused).refusal == "No lowering for {node}, type {op}"


def test_a_profile_reads_back_as_it_was_written() -> None:
    profile = profile_of(
        (node("Elu", (F, (2,))), PASS),
        (node("Elu", (D, (2,))), fail(HOSTILE)),
        (node("Softmax", (F, (2, 3)), axis=1), fail(HOSTILE)),
        (node("MaxPool", (F, (1, 1, 4)), kernel_shape=[2]), fail()),
        (node("MaxPool", (F, (1, 1, 4, 4)), kernel_shape=[2, 2]), PASS),
    )
    text = profile_text(profile)
    assert Profile.model_validate(tomllib.loads(text)) == profile
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (node("Elu", (F, (2, 3)), alpha=1.0), "(FLOAT[?,?])"),
        (node("Elu", (F, (2, 3)), alpha=0.5), "alpha=0.5 (FLOAT[?,?])"),
        (node("MaxPool", (F, (1, 1, 4)), kernel_shape=[2]), "kernel_shape=2 (FLOAT[?,?,?])"),
        (node("Cast", (F, ()), to=D), "to=DOUBLE (FLOAT[])"),
    ],
)
def test_a_use_is_spelled_without_what_makes_no_difference(model: onnx.ModelProto, says: str) -> None:
    scope = enter(model.graph, opsets={"": 17}, outer=None)
    assert spelled(model.graph.node[0], scope, exact=False) == says


def test_every_op_comes_once_before_any_comes_twice() -> None:
    places = [test.place for test in node_tests()]
    assert places == sorted(places)
    assert len({test.op for test in node_tests() if test.place == 0}) == places.count(0) > 150


def test_shapes_are_constant_as_in_real_models_and_each_form_comes_once() -> None:
    tests = {test.name: test for test in node_tests()}
    reshape = tests["test_reshape_negative_dim"]
    usual = reshape.question(NodeTestForm.USUAL, opset=20)
    assert usual is not None
    assert [tensor.name for tensor in usual.graph.initializer] == ["shape"]
    assert reshape.question(NodeTestForm.WEIGHTS, opset=20) is None
    computed = reshape.question(NodeTestForm.COMPUTED, opset=20)
    assert computed is not None
    assert not computed.graph.initializer


def test_optional_outputs_can_be_left_out() -> None:
    tests = {test.name: test for test in node_tests()}
    layer_norm = tests["test_layer_normalization_2d_axis0"]
    counts = []
    for form in (NodeTestForm.WEIGHTS, NodeTestForm.ONE_OUTPUT):
        model = layer_norm.question(form, opset=20)
        assert model is not None
        assert len(model.graph.initializer) == 2
        counts.append((len(model.graph.output), len(model.graph.node[0].output)))
    assert counts == [(3, 3), (1, 1)]
    assert tests["test_relu"].question(NodeTestForm.ONE_OUTPUT, opset=20) is None
    assert tests["test_top_k"].question(NodeTestForm.ONE_OUTPUT, opset=20) is None


def test_the_first_output_can_be_asked_for_where_a_test_leaves_it_out() -> None:
    test = next(test for test in node_tests() if test.name == "test_gru_defaults")
    assert list(test.model.graph.node[0].output) == ["", "Y_h"]
    model = test.question(NodeTestForm.ONE_OUTPUT, opset=20)
    assert model is not None
    (output,) = model.graph.output
    assert list(model.graph.node[0].output) == [output.name]
    assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == [1, 1, 3, 5]


@pytest.mark.parametrize(("opset", "mode"), [(20, b"linear"), (19, b"bilinear")])
def test_a_value_has_the_name_that_it_has_in_the_opset(opset: int, mode: bytes) -> None:
    test = next(test for test in node_tests() if test.name == "test_gridsample")
    model = test.question(NodeTestForm.USUAL, opset=opset)
    assert model is not None
    assert {it.name: it.s for it in model.graph.node[0].attribute}["mode"] == mode


def test_a_test_is_asked_in_the_oldest_opset_that_takes_it_and_never_in_a_newer_one_than_the_tool_reads() -> None:
    tests = {test.name: test for test in node_tests()}
    for name, opset in (("test_relu", 14), ("test_gelu_default_1", 20), ("test_cast_FLOAT_to_UINT4", 21)):
        model = tests[name].question(NodeTestForm.USUAL, opset=19)
        assert model is not None
        assert max(entry.version for entry in model.opset_import) == opset
    assert tests["test_gelu_default_1"].question(NodeTestForm.USUAL, opset=19, newest_opset=19) is None


@pytest.mark.parametrize(
    ("name", "opset", "attributes"),
    [
        ("test_reduce_mean_keepdims_example", 17, {"axes": [1], "keepdims": 1}),
        ("test_reduce_sum_keepdims_random", 12, {"axes": [1], "keepdims": 1}),
        ("test_squeeze", 12, {"axes": [0]}),
    ],
)
def test_what_was_an_attribute_is_one_in_the_older_form(name: str, opset: int, attributes: dict[str, object]) -> None:
    test = next(test for test in node_tests() if test.name == name)
    model = test.question(NodeTestForm.OLDER, opset=20)
    assert model is not None
    assert [entry.version for entry in model.opset_import] == [opset]
    (found,) = model.graph.node
    assert {it.name: helper.get_attribute_value(it) for it in found.attribute} == attributes
    assert len(found.input) == len(model.graph.input) == 1
    assert not model.graph.initializer
    onnx.checker.check_model(model, full_check=True)


def test_an_op_whose_inputs_and_attributes_never_changed_has_no_older_form() -> None:
    tests = {test.name: test for test in node_tests()}
    assert tests["test_relu"].question(NodeTestForm.OLDER, opset=20) is None
    assert tests["test_gelu_default_1"].question(NodeTestForm.OLDER, opset=20) is None


def test_an_op_that_compiles_as_it_was_is_supported_up_to_what_changed() -> None:
    test = next(test for test in node_tests() if test.name == "test_reduce_mean_keepdims_example")
    newer, older = (test.question(form, opset=20) for form in (NodeTestForm.USUAL, NodeTestForm.OLDER))
    assert newer is not None
    assert older is not None
    profile = profile_of((newer, fail("Unsupport opset")), (older, PASS))
    (limit,) = profile.ops["ReduceMean"].constraints
    assert (limit.name, limit.rule, limit.seen) == ("axes", "absent", "Unsupport opset")
    rules = Rules(profile=profile)
    assert refusals(newer, rules)
    assert not refusals(older, rules)
    without = onnx.ModelProto()
    without.CopyFrom(newer)
    without.graph.initializer[0].CopyFrom(helper.make_tensor("axes", TensorProto.INT64, [0], []))
    assert not refusals(without, rules)
    again = profile_of((newer, fail("Unsupport opset")), (older, PASS), (without, PASS))
    assert again.ops["ReduceMean"].constraints == (limit,)


def test_what_only_the_use_that_compiles_has_spoils_the_experiment() -> None:
    """The axis may be why the other one compiles: that it is of another dtype says nothing then."""
    passing, refused = node("Softmax", (F, (2, 3)), axis=0), node("Softmax", (D, (2, 3)))
    profile = profile_of((passing, PASS), (refused, fail()))
    assert not profile.ops["Softmax"].constraints
    assert refusals(refused, Rules(profile=profile))
    assert not refusals(node("Softmax", (D, (2, 3)), axis=0), Rules(profile=profile))


@pytest.mark.parametrize(("named", "says"), [(("Softmax",), "weights"), ((), "usual")])
def test_a_refused_op_is_quoted_by_words_that_name_it(named: tuple[str, ...], says: str) -> None:
    """The same test twice: with its weights constant, what the compiler says may be about a weight."""
    model, ops = node("Softmax", (F, (2, 3))), {NodeTestForm.USUAL: ("Softmax",), NodeTestForm.WEIGHTS: named}
    answers = [
        MeasuredTest(
            test="test",
            op="Softmax",
            form=form,
            model=model,
            verdict=replace(fail(form.name.lower()), hints=Hints(ops=ops[form])),
        )
        for form in ops
    ]
    profile = concluded(answers)
    assert profile.refused["Softmax"] == says


def test_ops_of_other_domains_are_asked_about_in_models_that_have_an_opset_as_all_do() -> None:
    test = next(test for test in node_tests() if test.op == "ai.onnx.ml::Binarizer")
    model = test.question(NodeTestForm.USUAL, opset=19)
    assert model is not None
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == 19
