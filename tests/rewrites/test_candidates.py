"""Which rules are offered for a node, and what a replacement is made of."""

from pathlib import Path

import numpy as np
import onnx

from onnxbisect.exactness import Exactness
from onnxbisect.model import load
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.variants import Variants
from onnxbisect.rewrites import Rewrite, RuleRefusal, apply, candidates, installed, judged, rule
from onnxbisect.rewrites.site import Site
from support.rewrites.instances import Constant, node

MODELS = Path(__file__).parents[1] / "models"
RULES = {rule.id: rule for rule in installed().rules}


def test_candidates_come_in_order_of_rank_with_their_exactness() -> None:
    instance = node("Gather", np.zeros((2, 3), np.float32), Constant(np.array(1)), axis=1)
    found = candidates(TensorFacts.inferred(instance.model), instance.model.graph.node[0], RULES.values())
    assert [it.rule.id for it in found] == ["gather-slice", "gather-vector", "gather-matmul", "index-int32"]
    assert [it.rule.exactness for it in found] == ["exact", "exact", "domain", "exact"]


def test_what_does_not_apply_is_said_with_a_reason() -> None:
    instance = node("Gather", np.zeros((2, 3), np.float32), np.array(1), axis=1)
    found = judged(TensorFacts.inferred(instance.model), instance.model.graph.node[0], [RULES["gather-slice"]])
    assert [it.reason for it in found if isinstance(it, RuleRefusal)] == ["input 1 is not a constant"]


def test_a_rule_with_a_bug_does_not_hide_the_others() -> None:
    @rule("Abs ->", Exactness.EXACT, rank=0, source="")
    def broken(at: Site) -> str:
        """Fails."""
        return at.node.input[7]

    instance = node("Abs", np.zeros(3, np.float32))
    first, second = judged(
        TensorFacts.inferred(instance.model), instance.model.graph.node[0], [broken, RULES["abs-relu"]]
    )
    assert isinstance(first, RuleRefusal)
    assert first.reason.startswith("the rule failed: IndexError")
    assert isinstance(second, Rewrite)


def test_what_a_pattern_removes_is_in_the_order_of_the_graph() -> None:
    """A value that is read twice within stands before both of its readers, or nothing is known of what they make."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x) => (float[2,4] y) <float eps = {0.00001}, float two = {2}> {
            [mean] m = ReduceMean <axes = [-1]> (x) [centre] d = Sub(x, m) [square] s = Pow(d, two)
            [spread] v = ReduceMean <axes = [-1]> (s) [more] w = Add(v, eps) [root] r = Sqrt(w) [end] y = Div(d, r)
        }"""
    )
    (found,) = candidates(TensorFacts.inferred(model), model.graph.node[-1], [RULES["layernorm-fuse"]])
    assert [it.name for it in found.replacement.removes] == ["mean", "centre", "square", "spread", "more", "root"]


def test_variants_are_those_that_intake_counts_in_the_rewritten_model(tmp_path: Path) -> None:
    """What passed in a model is known to pass in a replacement, at no call."""
    instance = node("LayerNormalization", np.zeros((2, 3), np.float32), Constant(np.ones(3, np.float32)), opset=17)
    (found,) = candidates(
        TensorFacts.inferred(instance.model), instance.model.graph.node[0], [RULES["layernorm-parts"]]
    )
    after = apply(instance.model, {"n": RULES["layernorm-parts"]})
    onnx.save(after, tmp_path / "after.onnx")
    model = load(tmp_path / "after.onnx")
    told = Variants(model.proto, model.types, model.known, tmp_path)
    there = {told.variant(it) for it in model.proto.graph.node}
    assert set(found.variants) == there


def test_real_models_have_candidates_for_what_compilers_refused() -> None:
    model = load(MODELS / "sam_part1_prompt__ts11.onnx")
    facts = TensorFacts.of(model)
    without = {
        it.op_type
        for it in model.proto.graph.node
        if it.op_type in ("Sin", "Cos", "Abs", "Div", "Sub", "MatMul", "Clip")
        and not candidates(facts, it, RULES.values())
    }
    assert not without


def test_a_function_of_another_operator_set_is_not_inlined() -> None:
    """Its body would mean something else under the model's own set."""
    from onnx import helper

    body = [helper.make_node("ReduceSum", ["a"], ["b"], axes=[0], keepdims=1)]
    old = helper.make_function("own", "Old", ["a"], ["b"], body, [helper.make_opsetid("", 11)])
    graph = helper.make_graph(
        [helper.make_node("Old", ["x"], ["y"], name="n", domain="own")],
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 3])],
        [helper.make_tensor_value_info("y", 1, [1, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[old])
    (found,) = judged(TensorFacts.inferred(model), model.graph.node[0], [RULES["inline-function"]])
    assert isinstance(found, RuleRefusal)
    assert not found.reason.startswith("the rule failed")


def test_constants_of_a_function_become_initializers_in_whichever_form_they_are_written() -> None:
    """RKNN-Toolkit2 stumbles over a Constant with `value_float`."""
    from onnx import helper, numpy_helper

    body = [
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Mul", ["a", "half"], ["b"]),
    ]
    half = helper.make_function("own", "Half", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    value = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Half", ["x"], ["y"], name="n", domain="own")], "g", value[:1], value[1:]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[half])
    (found,) = candidates(TensorFacts.inferred(model), model.graph.node[0], [RULES["inline-function"]])
    assert [it.op_type for it in found.replacement.nodes] == ["Mul"]
    (stored,) = found.replacement.initializers
    assert numpy_helper.to_array(stored) == 0.5
