"""From culprits to a model that compiles: against compilers whose every refusal is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import is_constant, qualified, walk
from onnxbisect.model.session import Session
from onnxbisect.proof import compare, random_feeds
from onnxbisect.remedies import OrtProver, Samples, SearchedModel, TriedFiles, proving, try_files
from onnxbisect.rewrites import Exactness, Rule, candidates, installed, pytorch, rule
from onnxbisect.rewrites.rule import Bound
from onnxbisect.rewrites.site import Site
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from support.examples import examples
from support.remedies.simulated import UNARY, Refuses, SimulatedCompiler, graph, is_refused, refusing, repaired

#: All ops of the graphs, and most of what rules put in their place.
OPS = [*UNARY, "Gather", "Add", "Mul", "Sub", "Max", "Min", "Clip", "Exp", "Where", "Slice", "Reshape", "Transpose"]
RULES = installed().rules
ORDER = list(Exactness)


def worlds() -> st.SearchStrategy[tuple[list[tuple[str, int, int]], frozenset[tuple[str, int]], Exactness]]:
    ops = st.sampled_from([*UNARY, "Gather", "Add", "Mul", "Sub", "Max"])
    steps = st.lists(st.tuples(ops, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6)
    refused = st.frozensets(st.tuples(st.sampled_from(OPS), st.sampled_from([3, 3, 3, 2])), min_size=8, max_size=24)
    return st.tuples(steps, refused, st.sampled_from([Exactness.EXACT, Exactness.ROUNDING]))


def can_be_repaired(
    node: onnx.NodeProto, facts: TensorFacts, refuses: Refuses, rules: Sequence[Rule], around: tuple[str, ...] = ()
) -> bool:
    """Truth: whether some rule, or rules inside of each other, give nothing that is refused; by trying them all."""
    within = (*around, qualified(node))
    for made in candidates(facts, node, rules):
        inside = made.inside()
        bad = [it for it in made.replacement.nodes if not is_constant(it) and is_refused(refuses, it, inside)]
        deeper = len(within) < 3 and not any(qualified(it) in within for it in bad)
        if not bad or (deeper and all(can_be_repaired(it, inside, refuses, rules, within) for it in bad)):
            return True
    return False


@settings(deadline=None, max_examples=examples(80))
@given(worlds())
def test_what_can_be_repaired_is_and_what_is_called_repaired_compiles(
    world: tuple[list[tuple[str, int, int]], frozenset[tuple[str, int]], Exactness],
) -> None:
    steps, refused, most = world
    model = graph(steps)

    def refuses(op: str, rank: int) -> bool:
        return (op, rank) in refused

    with TemporaryDirectory() as folder:
        compiler = SimulatedCompiler(folder=Path(folder), refuses=refuses)
        found = repaired(model, compiler, most=most)
        facts = TensorFacts.of(found.before.model)
        allowed = [it for it in RULES if ORDER.index(it.exactness) <= ORDER.index(most)]
        bad = {it.name: it for it in model.graph.node if is_refused(refuses, it, facts)}
        hopeless = {name for name, it in bad.items() if not can_be_repaired(it, facts, refuses, allowed)}
        unproven = {it.candidate.node for it in found.struck if it.reason.startswith("not proven")}
        left = {name for it in found.left for name in it.place.nodes}
        assert hopeless <= left <= hopeless | unproven
        assert found.compiles == (not left)
        if found.model is None:
            assert left == bad.keys()
            return
        after = TensorFacts.inferred(found.model)
        still = {it.name for it in found.model.graph.node if is_refused(refuses, it, after)}
        assert still == left
        agree = compare(model, found.model, random_feeds(model.graph.input, 2))
        assert agree.agrees
        used = {rule.exactness for it in found.places for rule in it.candidate.rules}
        assert used <= set(ORDER[: ORDER.index(most) + 1])
        if used == {Exactness.EXACT}:
            assert all(it.absolute == 0 for it in agree.differences)
        untouched = [it for it in model.graph.node if it.name not in bad or it.name in left]
        new = [it.SerializeToString() for it in found.model.graph.node]
        assert all(it.SerializeToString() in new for it in untouched)


def chain(*ops: str) -> onnx.ModelProto:
    return graph([(op, number, number) for number, op in enumerate(ops)])


def compiler(folder: Path, *ops: str) -> SimulatedCompiler:
    return SimulatedCompiler(folder=folder, refuses=refusing(*ops))


def test_a_repair_of_ops_that_were_seen_to_pass_adds_two_calls_at_most(tmp_path: Path) -> None:
    ops = ("Relu", "Add", "Mul", "Abs", "Gather", "Abs", "HardSwish", "Relu", "Abs", "Add", "Mul")
    model = chain(*ops)
    asked = compiler(tmp_path, "Abs", "HardSwish")
    asked.search(asked.read(model))
    diagnosis = asked.calls
    found = repaired(model, asked)
    assert found.compiles
    assert len(found.places) == 4
    assert asked.calls - diagnosis <= 2


def test_nothing_is_asked_twice_and_nothing_when_all_answers_are_on_record(tmp_path: Path) -> None:
    asked = compiler(tmp_path, "Abs", "Elu")
    model = chain("Abs", "Elu", "Relu")
    first = repaired(model, asked)
    calls = asked.calls
    again = repaired(model, asked)
    assert asked.calls == calls
    assert first.model == again.model


def test_nodes_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    model = chain("Abs", "Relu", "Abs")
    for node in model.graph.node:
        node.name = "same"
    found = repaired(model, compiler(tmp_path, "Abs"))
    assert found.compiles
    assert found.model is not None
    names = [it.name for it in found.model.graph.node]
    assert len(set(names)) == len(names)
    assert len(found.places) == 2


def test_a_model_that_compiles_is_left_alone(tmp_path: Path) -> None:
    found = repaired(chain("Abs", "Relu"), compiler(tmp_path))
    assert found.compiles
    assert found.model is None
    assert not found.places


def test_a_replacement_that_is_refused_is_struck_and_the_next_one_taken(tmp_path: Path) -> None:
    found = repaired(chain("Abs", "Add"), compiler(tmp_path, "Abs", "Relu"))
    (place,) = found.places
    assert found.compiles
    assert place.candidate.name == "abs-max"
    assert {it.candidate.name for it in found.struck} == {"abs-relu"}


def test_a_node_of_a_replacement_is_replaced_in_its_turn(tmp_path: Path) -> None:
    found = repaired(chain("Mish", "Add"), compiler(tmp_path, "Mish", "Softplus"))
    (place,) = found.places
    assert found.compiles
    assert place.candidate.name.startswith("mish-softplus + softplus")


def test_what_has_no_remedy_is_left_with_the_reasons_and_the_rest_is_repaired(tmp_path: Path) -> None:
    found = repaired(chain("Abs", "Softplus", "Add"), compiler(tmp_path, "Abs", "Softplus", "Exp", "Sigmoid", "Mish"))
    assert not found.compiles
    assert not found.after.brief  # what is left is reported
    assert [it.candidate.op for it in found.places] == ["Abs"]
    (left,) = found.left
    assert left.ops == ("Softplus",)
    assert any("the compiler refuses" in reason for reason in left.reasons), left.reasons
    assert found.model is not None
    assert "Abs" not in {it.op_type for it in found.model.graph.node}


def test_a_remedy_that_is_less_exact_than_is_allowed_is_named_and_not_used(tmp_path: Path) -> None:
    found = repaired(chain("Elu", "Add"), compiler(tmp_path, "Elu"), most=Exactness.EXACT)
    assert found.model is None
    (left,) = found.left
    assert any("--allow rounding" in reason for reason in left.reasons), left.reasons


def test_two_nodes_that_fail_only_together_are_told_apart_by_replacing_one(tmp_path: Path) -> None:
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing(), chains=[("Abs", "HardSwish")])
    found = repaired(chain("Relu", "Abs", "HardSwish", "Add"), asked)
    assert found.compiles
    assert len(found.places) == 1


def test_a_node_that_fails_beside_a_replacement_is_replaced_too(tmp_path: Path) -> None:
    """Seen with QNN: Erf by a polynomial, whose first Mul does not follow a Div."""
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSwish", "HardSigmoid"), chains=[("Abs", "Mul")])
    found = repaired(chain("Relu", "Abs", "HardSwish", "Add"), asked)
    assert found.compiles
    assert {it.candidate.name for it in found.places} == {"abs-relu", "hardswish-clip"}


def test_what_fails_beside_a_replacement_is_found_by_the_piece_for_all_places_at_once(tmp_path: Path) -> None:
    """Seen with QNN: each search of the whole model took minutes, and one of a piece seconds."""
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSwish", "HardSigmoid"), chains=[("Abs", "Mul")])
    found = repaired(chain("Relu", "Mul", *["Abs", "HardSwish", "Add"] * 3), asked)
    assert found.compiles
    assert len(found.places) == 6
    assert asked.diagnosed == 1


@pytest.mark.parametrize(
    ("ops", "chains"),
    [
        (("Relu", "Abs", "HardSwish", "Add"), [("Abs", "Mul")]),
        (("Relu", "Mul", *["Abs", "HardSwish", "Add"] * 3), [("Abs", "Mul")]),
        (("Relu", "Mul", "Abs", "HardSwish", "Neg", "Sigmoid", "Relu"), [("Abs", "Mul"), ("Add", "Mul")]),
    ],
)
def test_beside_which_neighbour_a_replacement_fails_takes_fewer_calls_than_the_diagnosis(
    tmp_path: Path, ops: Sequence[str], chains: Sequence[tuple[str, str]]
) -> None:
    """Seen with QNN: fifteen calls for the Div before an Erf, where the diagnosis of the model took six."""
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSwish", "HardSigmoid"), chains=chains)
    asked.search(asked.read(chain(*ops)))
    diagnosis = asked.calls
    assert repaired(chain(*ops), asked).compiles
    assert asked.calls - diagnosis <= min(11, diagnosis)


def test_a_replacement_is_not_to_blame_for_another_one_beside_it(tmp_path: Path) -> None:
    asked = compiler(tmp_path, "Neg", "HardSigmoid", "Add", "Clip")
    found = repaired(graph([("Neg", 0, 0), ("HardSigmoid", 1, 0)]), asked, most=Exactness.EXACT)
    assert [it.candidate.name for it in found.places] == ["neg-mul"]
    assert [it.place.nodes for it in found.left] == [("HardSigmoid_1",)]


def test_groups_that_one_rule_breaks_up_are_asked_about_together(tmp_path: Path) -> None:
    """Seen with TPU-MLIR: a call for each of five kinds of Conv whose DequantizeLinear is folded."""
    chains = [("Abs", other) for other in ("Elu", "Softplus", "Mish")]
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing(), chains=chains)
    model = chain("Relu", "Abs", "Elu", "Relu", "Abs", "Softplus", "Relu", "Abs", "Mish", "Add", "Mul")
    asked.search(asked.read(model))
    diagnosis = asked.calls
    rules = [it for it in RULES if it.id in ("abs-relu", "abs-max")]
    found = repaired(model, asked, rules=rules)
    assert found.compiles
    assert len(found.places) == 3
    assert asked.calls - diagnosis == 2  # the pieces, and the whole


def test_a_replacement_is_asked_about_beside_those_that_stand_next_to_it(tmp_path: Path) -> None:
    """Relu(x) + Relu(-x) ends with an Add, which the first Mul of the next replacement does not follow."""
    chains = [("Abs", "Mul"), ("Add", "Mul")]
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSwish", "HardSigmoid"), chains=chains)
    found = repaired(chain("Relu", "Mul", *["Abs", "HardSwish", "Neg"] * 2), asked)
    assert found.compiles
    assert {it.candidate.name for it in found.places} == {"abs-max", "hardswish-clip"}
    assert asked.diagnosed == 1
    # why a replacement of the Abs is refused, which only the other made necessary, is not searched for
    assert asked.calls <= 35


def test_what_gives_the_refused_op_again_is_asked_before_the_others_and_by_itself(tmp_path: Path) -> None:
    """Seen with QNN: a Gather with indices of 32 bits, asked with four others, each of which was asked again."""
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("Gather", "Abs"))
    table = numpy_helper.from_array(np.arange(40, dtype=np.float32).reshape(10, 4), "table")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="gather"),
        helper.make_node("Abs", ["rows"], ["sizes"], name="abs"),
        helper.make_node("Relu", ["sizes"], ["y"], name="relu"),
    ]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 4])]
    made = helper.make_graph(nodes, "g", inputs, outputs, [table])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = repaired(model, asked, samples=[{"ids": np.array([[0, 1, 2], [3, 4, 9]])}])
    assert found.compiles
    assert {it.candidate.name for it in found.places} == {"gather-one-hot-twice", "abs-relu"}
    together = {tuple(ops) for ops in asked.asked if "Gather" not in ops}
    assert len(together) == 1
    assert asked.calls <= 11


def test_of_new_nodes_that_fail_only_together_one_is_replaced_in_its_turn(tmp_path: Path) -> None:
    """Seen with QNN: Erf by exponentials, whose Sub is followed by a Mul."""
    asked = SimulatedCompiler(
        folder=tmp_path, refuses=refusing("HardSwish", "HardSigmoid"), chains=[("Clip", "Mul"), ("Clip", "Div")]
    )
    found = repaired(chain("Relu", "HardSwish", "Add"), asked)
    assert found.compiles
    (place,) = found.places
    assert place.candidate.name.startswith("hardswish-clip + clip-")


def test_where_nothing_can_stand_beside_a_replacement_the_next_one_is_taken(tmp_path: Path) -> None:
    """And the node beside the first one stays as it was."""
    chains = [(before, "HardSigmoid") for before in ("Abs", "Add", "Max")]
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSwish"), chains=chains)
    found = repaired(chain("Relu", "Abs", "HardSwish", "Add"), asked)
    assert found.compiles
    (place,) = found.places
    assert place.candidate.name == "hardswish-clip"
    assert {it.candidate.name for it in found.struck} >= {"hardswish-hardsigmoid", "abs-relu"}


@pytorch("x.relu()")
@rule("Abs -> Relu", Exactness.EXACT, rank=0, source="none")
def wrong(at: Site) -> str:
    """Relu(x), which is not Abs(x)."""
    return at.op("Relu", at.input(0))


@pytorch("x.abs() + 1e-5")
@rule("Abs -> Relu Mul Add", Exactness.ROUNDING, Bound(absolute=2e-5), rank=0, source="none")
def nearly(at: Site) -> str:
    """|x| + 1e-5, which keeps its promise."""
    made = at.op("Add", at.op("Relu", at.input(0)), at.op("Relu", at.op("Mul", at.input(0), at.scalar(-1))))
    return at.op("Add", made, at.scalar(1e-5))


def test_a_rule_that_is_wrong_is_not_used(tmp_path: Path) -> None:
    found = repaired(chain("Add", "Abs", "Relu"), compiler(tmp_path, "Abs"), rules=[wrong])
    assert found.model is None
    assert found.after is found.before
    (struck,) = found.struck
    assert "not proven" in struck.reason
    (left,) = found.left
    assert "not proven" in left.reasons[0]


def test_a_wrong_rule_gives_way_to_a_right_one(tmp_path: Path) -> None:
    right = next(it for it in RULES if it.id == "abs-relu")
    found = repaired(chain("Add", "Abs", "Relu"), compiler(tmp_path, "Abs"), rules=[wrong, right])
    assert found.compiles
    assert [it.candidate.name for it in found.places] == ["abs-relu"]


@rule("Neg -> Mul", Exactness.ROUNDING, Bound(epsilons=4), rank=0, source="none")
def large(at: Site) -> str:
    """-x by way of a million times x, which float16 does not hold."""
    larger = at.op("Mul", at.op("Mul", at.input(0), at.scalar(1e3)), at.scalar(1e3))
    return at.op("Mul", larger, at.scalar(-1e-6))


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(("low", "holds"), [(None, True), (TensorProto.BFLOAT16, True), (TensorProto.FLOAT16, False)])
def test_what_overflows_in_the_type_that_the_target_computes_in_is_not_used(
    tmp_path: Path, low: int | None, holds: bool, opset: int
) -> None:
    model = graph([("Add", 0, 0), ("Neg", 1, 1), ("Relu", 2, 2)], opset)
    found = repaired(model, compiler(tmp_path, "Neg"), rules=[large], low=low)
    assert found.compiles is holds
    if holds:
        (place,) = found.places
        assert [it.relative > 0 for it in place.low] == ([] if low is None else [True])
    else:
        (struck,) = found.struck
        assert "in float16, which the target computes in" in struck.reason


def masked() -> onnx.ModelProto:
    """What exporters write for attention: the lowest float32 number where the mask says no."""
    nodes = [helper.make_node("Where", ["mask", "lowest", "x"], ["y"], name="Where")]
    inputs = [helper.make_tensor_value_info("mask", TensorProto.BOOL, [4])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    stored = [onnx.numpy_helper.from_array(np.array(np.finfo(np.float32).min, np.float32), "lowest")]
    made = helper.make_graph(nodes, "g", [*inputs, x], [y], stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_stored_number_that_float16_does_not_hold_counts_as_its_largest(tmp_path: Path) -> None:
    arithmetic = [it for it in RULES if it.id == "where-arithmetic"]
    samples = [{"mask": np.array([True, False, True, False]), "x": np.array([1, 2, 3, 4], np.float32)}]
    asked = compiler(tmp_path, "Where")
    found = repaired(masked(), asked, rules=arithmetic, most=Exactness.DOMAIN, samples=samples, low=TensorProto.FLOAT16)
    assert found.compiles


def steep() -> onnx.ModelProto:
    """Abs of a small number, taken to the power of ten thousand and more: what differs there differs much behind."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="Abs"),
        helper.make_node("Mul", ["a", "large"], ["y"], name="Mul"),
        helper.make_node("Exp", ["y"], ["z"], name="Exp"),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "z")]
    stored = [onnx.numpy_helper.from_array(np.array(1e4, np.float32), "large")]
    made = helper.make_graph(nodes, "g", value[:1], value[1:], stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_rule_that_keeps_its_promise_is_not_used_where_the_models_outputs_differ(tmp_path: Path) -> None:
    samples = [{"x": np.array([1e-4, 2e-4, -1e-4, 3e-4], np.float32)}]
    found = repaired(steep(), compiler(tmp_path, "Abs"), rules=[nearly], samples=samples)
    assert found.model is None
    (struck,) = found.struck
    assert "the model's output" in struck.reason


def test_only_the_replacement_that_changes_the_outputs_is_given_up(tmp_path: Path) -> None:
    model = steep()
    model.graph.node.append(helper.make_node("HardSwish", ["x"], ["h"], name="HardSwish"))
    model.graph.output.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [4]))
    samples = [{"x": np.array([1e-4, 2e-4, -1e-4, 3e-4], np.float32)}]
    relu6 = next(it for it in RULES if it.id == "hardswish-relu6")
    found = repaired(model, compiler(tmp_path, "Abs", "HardSwish"), rules=[nearly, relu6], samples=samples)
    assert [it.candidate.name for it in found.places] == ["hardswish-relu6"]
    assert [it.place.nodes for it in found.left] == [("Abs",)]


def test_values_outside_of_a_rules_domain_are_seen_in_the_samples(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sin", ["x"], ["y"], name="Sin")]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    made = helper.make_graph(nodes, "g", value[:1], value[1:])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    half_turn = [it for it in RULES if it.id == "sin-half-turn"]
    near, far = ([{"x": np.array([0, 1, -1, top], np.float32)}] for top in (2, 20))
    asked = compiler(tmp_path, "Sin")
    assert repaired(model, asked, rules=half_turn, most=Exactness.DOMAIN, samples=near).compiles
    found = repaired(model, asked, rules=half_turn, most=Exactness.DOMAIN, samples=far)
    assert found.model is None
    assert "domain" in found.struck[0].reason
    # made-up edge values that are outside take no part: which values occur, the usual samples say
    found = repaired(model, asked, rules=half_turn, most=Exactness.DOMAIN, samples=near, edge=far)
    assert found.compiles
    assert found.proof is not None
    assert found.proof.samples == 1
    # where no sample is in the domain, nothing is proven
    facts = TensorFacts.of(found.before.model)
    prover = OrtProver(model, facts, lambda: Samples(usual=[], edge=far), folder=tmp_path)
    (place,) = prover.prove([it.candidate for it in found.places]).places
    assert "domain" in place.problem


@dataclass(frozen=True)
class Changed:
    proto: onnx.ModelProto
    sentence: str
    exactness: Exactness = Exactness.EXACT
    needed: bool = True


def random_samples(model: onnx.ModelProto) -> Samples:
    return Samples(usual=list(random_feeds(model.graph.input, 2)))


def test_a_change_of_the_file_is_proven_and_compiled_in_one_call(tmp_path: Path) -> None:
    model = chain("Relu", "Abs")
    better, worse = chain("Relu", "Relu"), chain("Relu", "Neg")
    asked = compiler(tmp_path, "Abs")
    before = asked.whole(model)
    prover = OrtProver(model, TensorFacts.of(before.model), lambda: random_samples(model), folder=tmp_path)
    for it in (better, worse):
        it.graph.output[0].name = it.graph.node[1].output[0] = model.graph.output[0].name
    files = [Changed(worse, "worse"), Changed(better, "better")]
    calls = asked.calls
    found = try_files(before, files, asked, prover).repair
    assert found is not None
    assert found.changed_file is files[1]
    assert found.compiles
    assert asked.calls == calls + 1
    assert try_files(before, files[:1], asked, prover) == TriedFiles()


@pytest.mark.parametrize(
    ("said", "base"),
    [
        (("rank", "rank"), 0),  # nothing more came of the larger change, and `run` searched in the smaller one
        (("rank", "size"), 1),
        (("refused: Abs", "refused: LeakyRelu"), 1),  # in the same words, and of another op
        (("opset", "opset"), 1),  # as the file itself: what most compilers refuse is changed all the same
    ],
)
def test_the_smallest_change_that_brings_another_reason_is_gone_on_with(
    tmp_path: Path, said: tuple[str, str], base: int
) -> None:
    @dataclass
    class Compiler(SimulatedCompiler):
        said: Iterator[str] = field(default_factory=lambda: iter(said))

        def whole(self, model: onnx.ModelProto) -> SearchedModel:
            words, _, op = next(self.said).partition(": ")
            hints = Hints(ops=(op,) if op else ())
            failed = Verdict(status=Status.FAIL, kind=Kind.ERROR, message="", fingerprint=words, hints=hints)
            found = super().whole(model)
            probes = tuple(replace(it, verdict=failed) for it in found.job.probes)
            return replace(found, job=replace(found.job, probes=probes))

    model = chain("Relu", "Abs")
    before = compiler(tmp_path, "Abs").whole(model)
    prover = OrtProver(model, TensorFacts.of(before.model), lambda: random_samples(model), folder=tmp_path)
    files = [Changed(model, "small"), Changed(chain("Relu", "LeakyRelu"), "large")]
    asked = Compiler(folder=tmp_path, refuses=refusing("Abs", "LeakyRelu"))
    tried = try_files(before, files, asked, prover, goes_on=lambda changed, after: after.failure != "opset")
    assert tried.base is files[base]


#: Gelu of 3 x, as exporters write it out; what `{also}` says is an output beside it.
GELU = """<ir_version: 10, opset_import: ["": 20]>
g (float[2,3] x) => (float[2,3] y{also}) {{
    three = Constant<value = float {{3}}>() root = Constant<value = float {{1.4142135}}>()
    one = Constant<value = float {{1}}>() half = Constant<value = float {{0.5}}>()
    [n0] t = Mul(x, three) [n1] d = Div(t, root) [n2] e = Erf(d) [n3] a = Add(e, one) [n4] m = Mul(t, a)
    [n5] y = Mul(m, half)
}}"""


def written_out(also: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(GELU.format(also=also))


@pytest.mark.parametrize("ops", [("Erf",), ("Div", "Erf"), ("Add", "Div", "Erf")])
def test_the_parts_of_an_op_give_way_to_the_op(tmp_path: Path, ops: tuple[str, ...]) -> None:
    """Whichever of them are refused, and though some have a replacement of their own."""
    found = repaired(written_out(), compiler(tmp_path, *ops))
    assert found.compiles
    (place,) = found.places
    assert place.candidate.name == "gelu-fuse"
    assert place.candidate.op == "Div + Erf + Add + Mul + Mul"
    assert found.model is not None
    assert [it.op_type for it in found.model.graph.node if not is_constant(it)] == ["Mul", "Gelu"]


def test_parts_stay_where_the_op_is_refused_or_something_else_reads_them(tmp_path: Path) -> None:
    refused = repaired(written_out(), compiler(tmp_path, "Erf", "Gelu"))
    assert (refused.model, refused.compiles) == (None, False)
    assert {it.candidate.name for it in refused.struck} == {"gelu-fuse"}
    read = repaired(written_out(", float[2,3] e"), compiler(tmp_path, "Erf"))
    assert (read.model, read.struck) == (None, ())


#: A Loop that nobody can unroll, around an If, with a constant and a computed tensor from outside.
LOOP = """<ir_version: 10, opset_import: ["": 18]>
g (int64 n, bool c, float[2,3] x) => (float[2,3] y) {
    [neg] outer = Neg(x) two = Constant<value = float {2}>() [go] go = Identity(c)
    [loop] s = Loop <body = b (int64 i, bool ci, float[2,3] v) => (bool co, float[2,3] w) {
        [co] co = Identity(ci) [abs] a = Abs(v) [mul] m = Mul(a, two) [add] d = Add(m, outer)
        [if] w = If <
            then_branch = t () => (float[2,3] p) { [celu] p = Celu(d) },
            else_branch = e () => (float[2,3] q) { [exp] q = Exp(outer) }
        >(ci)
    }>(n, go, x)
    [relu] y = Relu(s)
}"""


def test_what_is_refused_in_bodies_is_replaced_there(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(LOOP)
    given = {"n": np.array(2), "c": np.array(True), "x": np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)}
    found = repaired(model, compiler(tmp_path, "Abs", "Celu"), samples=[given])
    assert found.compiles
    (place,) = found.places
    assert place.candidate.node == "loop"
    assert {it.id for it in place.candidate.rules} == {"abs-relu", "if-where", "celu-exp"}
    assert found.model is not None
    before, after = (list(walk(it.graph)) for it in (model, found.model))
    assert {"Abs", "Celu"}.isdisjoint(it.op_type for it in after)
    assert all(any(new == old for new in after) for old in before if old.op_type in ("Identity", "Neg", "Mul", "Add"))
    assert compare(model, found.model, [given]).agrees


#: A layer of a language model as onnxruntime-genai writes it, with a cache of four steps.
LANGUAGE_MODEL = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (int64[1,1] ids, int64[1,5] mask, int64[1,1] places, float[1,2,4,16] pk, float[1,2,4,16] pv)
=> (float[1,1,64] y, float[1,2,5,16] k2, float[1,2,5,16] v2)
<int64[1] one = {1}, int64 first = {1}> {
  sums = ReduceSum (mask, one)
  less = Sub (sums, one)
  lengths = Cast <to = 6> (less)
  dims = Shape (mask)
  count = Gather (dims, first)
  total = Cast <to = 6> (count)
  x = Gather (words, ids)
  h = SimplifiedLayerNormalization <axis = -1, epsilon = 1e-05> (x, g1)
  q = MatMul (h, wq)
  k = MatMul (h, wk)
  v = MatMul (h, wv)
  qr = com.microsoft.RotaryEmbedding (q, places, cosines, sines)
  kr = com.microsoft.RotaryEmbedding (k, places, cosines, sines)
  a, k2, v2 = com.microsoft.GroupQueryAttention <kv_num_heads = 2, num_heads = 4> (qr, kr, v, pk, pv, lengths, total)
  o = MatMul (a, wo)
  n, "", "", res = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-05> (o, x, g1)
  f = com.microsoft.QuickGelu (n)
  y = Add (f, res)
}"""


def language_model() -> onnx.ModelProto:
    model, random = onnx.parser.parse_model(LANGUAGE_MODEL), np.random.default_rng(0)
    sizes = {"words": (9, 64), "g1": (64,), "wq": (64, 64), "wk": (64, 32), "wv": (64, 32), "wo": (64, 64)}
    for name, dims in {**sizes, "cosines": (16, 8), "sines": (16, 8)}.items():
        weights = (random.normal(size=dims) / 4).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    return model


def test_a_layer_of_a_language_model_is_known_and_its_fused_ops_are_taken_apart(tmp_path: Path) -> None:
    model = language_model()
    known = compiler(tmp_path).read(model)
    assert not any(word in note for note in known.notes for word in ("assumed", "inference", "No type", "one run"))
    made = {name for node in known.proto.graph.node for name in node.output if name}
    assert made <= known.types.keys()
    fused = {qualified(node) for node in model.graph.node if node.domain}
    assert len(fused) == 4
    ran = {"ids": np.array([[3]]), "mask": np.array([[0, 1, 1, 1, 1]]), "places": np.array([[3]])}
    caches = {name: np.random.default_rng(1).normal(size=(1, 2, 4, 16)).astype(np.float32) for name in ("pk", "pv")}
    shorter, full = {**ran, **caches}, {**ran, **caches, "mask": np.ones((1, 5), np.int64)}
    found = repaired(model, compiler(tmp_path, *fused), samples=[shorter, full])
    assert found.compiles
    assert len(found.places) == 5


def test_an_if_within_a_refused_one_is_replaced_before_anything_is_asked(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
    g (bool c, bool d, float[2,3] x) => (float[2,3] y) {
        [before] a = Neg(x)
        [if] y = If <
            then_branch = t () => (float[2,3] p) {
                [inner] p = If <
                    then_branch = tt () => (float[2,3] r) { [relu] r = Relu(a) },
                    else_branch = te () => (float[2,3] s) { [abs] s = Abs(a) }
                >(d)
            },
            else_branch = e () => (float[2,3] q) { [exp] q = Exp(a) }
        >(c)
    }""")
    asked = compiler(tmp_path, "If")
    found = repaired(model, asked)
    assert found.compiles
    assert len(asked.asked) == 1
    assert "If" not in asked.asked[0]


def test_a_branch_without_nodes_does_not_hinder_the_other(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
    g (bool c, float[2,3] x) => (float[N,3] y) {
        [if] y = If <
            then_branch = t () => (float[2,3] p) { [celu] p = Celu(x) },
            else_branch = e () => (float[1,3] q) <float[1,3] q = {0, 1, 2}> { }
        >(c)
    }""")
    found = repaired(model, compiler(tmp_path, "Celu"))
    assert found.compiles
    assert [it.id for place in found.places for it in place.candidate.rules] == ["celu-exp"]


def test_a_loop_that_is_refused_itself_stays(tmp_path: Path) -> None:
    found = repaired(onnx.parser.parse_model(LOOP), compiler(tmp_path, "Loop"))
    assert (found.model, found.compiles) == (None, False)


def test_a_model_that_onnxruntime_does_not_run_cannot_be_proven() -> None:
    model = chain("Relu")
    model.graph.node[0].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    prover = OrtProver(model, TensorFacts.inferred(model), lambda: random_samples(model), folder=Path())
    for proof in (prover.compared(model), prover.prove([])):
        assert not proof.holds
        assert "nothing can be proven" in proof.problem


def test_a_model_without_samples_cannot_be_proven() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (seq(float[2]) x) => (float[N] y) '
        "{ y = ConcatFromSequence<axis=0>(x) }"
    )
    prover = OrtProver(model, TensorFacts.inferred(model), lambda: random_samples(model), folder=Path())
    for _ in range(2):
        assert "Input 'x' is no tensor" in prover.compared(model).problem


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was loaded into onnxruntime for proofs."""
    ran: list[str] = []
    load = proving._session

    def loaded(model: onnx.ModelProto, folder: Path, what: str) -> Session:
        ran.append(what)
        return load(model, folder, what)

    monkeypatch.setattr(proving, "_session", loaded)
    return ran


def test_the_original_does_not_run_again_for_the_next_proof(sessions: list[str]) -> None:
    """How far its outputs may be off is asked of it once for each sample, however many models are compared with it."""
    model, wrong = chain("Abs"), chain("Elu")
    prover = OrtProver(model, TensorFacts.inferred(model), lambda: random_samples(model), folder=Path())
    first, second = prover.compared(wrong), prover.compared(wrong)
    assert not first.holds
    assert first == second
    assert sessions == ["the model", "the repaired model", "the model", "the repaired model"]


def test_a_place_is_measured_once_whatever_is_proven_with_it(tmp_path: Path, sessions: list[str]) -> None:
    model = chain("Elu", "Softplus")
    elu, softplus = (it.candidate for it in repaired(model, compiler(tmp_path, "Elu", "Softplus")).places)
    one, other = (
        OrtProver(model, TensorFacts.inferred(model), lambda: random_samples(model), folder=tmp_path) for _ in range(2)
    )
    one.prove([elu])
    sessions.clear()
    both = one.prove([softplus, elu])
    assert sessions.count("the repaired model") == 2, "the place of Softplus, and the whole model"
    assert both == other.prove([softplus, elu])
    assert [it.candidate for it in both.places] == [softplus, elu]
    sessions.clear()
    assert one.prove([softplus, elu]) == both
    assert sessions == ["the repaired model"]


def test_a_model_of_constants_alone_is_no_repair(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (int64[2] y) { [n] y = Shape(x) }'
    )
    found = repaired(model, compiler(tmp_path, "Shape"))
    assert found.model is None
    assert "no node would be left" in found.struck[0].reason
    assert [it.place.nodes for it in found.left] == [("n",)]


def test_a_repaired_model_with_culprits_left_costs_fewer_calls_than_the_diagnosis(tmp_path: Path) -> None:
    ops = [*UNARY, "Add", "Mul", "Sub", "Max"] * 4
    model = chain(*ops)
    asked = compiler(tmp_path, "Abs", "Elu", "Celu")
    before = asked.search(asked.read(model))
    diagnosis = asked.calls
    (rule,) = [it for it in RULES if it.id == "abs-relu"]
    found = repaired(model, asked, rules=[rule])
    assert {name for it in found.left for name in it.ops} == {"Elu", "Celu"}
    assert len(before.culprits) == 3
    assert asked.calls - diagnosis <= 8 < diagnosis


def test_a_replacement_in_a_group_that_fails_with_it_is_given_up_in_a_piece(tmp_path: Path) -> None:
    asked = SimulatedCompiler(
        folder=tmp_path, refuses=refusing(), chains=[("Abs", "Elu"), ("Add", "Elu"), ("Max", "Elu"), ("Abs", "Exp")]
    )
    model = chain("Relu", "Add", "Mul", "Max", "Abs", "Elu", "Relu", "Add", "Mul")
    rules = [it for it in RULES if it.id in ("abs-relu", "abs-max", "elu-exp")]
    found = repaired(model, asked, rules=rules, most=Exactness.ROUNDING)
    assert found.compiles
    assert asked.diagnosed == 1  # whole models that were asked
    assert [it.candidate.name for it in found.places] == ["elu-exp"]


#: A Slice of a Conv, of whose result a Shape is taken, too.
SLICED = """<ir_version: 8, opset_import: ["": 18]>
g (float[1,2,4,4] x) => (float[1,2,4,4] y) <
    float[6,2,1,1] w = {1, -2, 3, 4, -5, 6, 7, 8, -9, 10, 11, -12}, int64[1] one = {1}, int64[1] two = {2}
> {
    [conv] c = Conv<kernel_shape = [1, 1]>(x, w)
    [shape] s = Shape<start = 1, end = 2>(c)
    [half] e = Div(s, two)
    [slice] y = Slice(c, one, e, one)
}"""


def test_a_pattern_that_shows_once_something_else_is_replaced_is_replaced_in_the_same_repair(tmp_path: Path) -> None:
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("Shape"), chains=[("Conv", "Slice")])
    model = onnx.parser.parse_model(SLICED)
    asked.search(asked.read(model))
    diagnosis = asked.calls
    found = repaired(model, asked)
    assert found.compiles
    assert [it.candidate.name for it in found.places] == ["fold", "slice-conv"]
    assert [len(it.places) for it in found.rounds] == [1, 2]
    assert asked.calls - diagnosis <= 6  # as many as a repair that ends after the first round
    assert found.model is not None
    assert not {it.op_type for it in found.model.graph.node} & {"Shape", "Slice"}
    assert compare(model, found.model, random_feeds(model.graph.input, 2)).agrees
