"""Every rule keeps its promise wherever its condition holds, and leaves alone what lies outside of it."""

import importlib
import os

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from onnxbisect.model.facts import TensorFacts
from onnxbisect.rewrites import ANY_OP, Bound, Exactness, NotApplicable, Rule, apply, installed, rewrite
from onnxbisect.rewrites.site import Site
from support import TESTS
from support.examples import examples
from support.rewrites.instances import CASES, Instance, in_halves, in_type, node
from support.rewrites.measured import allowed, bits_differ, outputs_of

for path in sorted((TESTS / "support" / "rewrites").glob("cases_*.py")):
    importlib.import_module(f"support.rewrites.{path.stem}")

RULES = {rule.id: rule for rule in installed().rules}
#: Beyond this, float16 has infinity next.
_LARGE = 60_000
#: The machine epsilon and the smallest number of each narrow type.
NARROW: dict[int, tuple[float, float]] = {
    onnx.TensorProto.FLOAT16: (2.0**-10, 2.0**-24),
    onnx.TensorProto.BFLOAT16: (2.0**-7, 1e-40),
}
#: Data come from a drawn seed, which does not shrink to anything simpler.
EXAMPLES = settings(
    max_examples=int(os.environ.get("RULE_EXAMPLES", examples(25))),
    deadline=None,
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
#: Of the rule in another type, and of what it does not match: both have fewer ways to differ.
FEWER = settings(EXAMPLES, max_examples=int(os.environ.get("RULE_EXAMPLES", examples(12))))


def test_every_rule_has_its_instances_and_no_instances_lack_a_rule() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_promise_holds(name: str) -> None:
    rule = RULES[name]

    @EXAMPLES
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        with np.errstate(all="ignore"):  # edge values are there to overflow
            instance = CASES[name].inside(data.draw)
        demand_promise(rule, instance)

    holds()


@pytest.mark.parametrize("name", sorted(name for name in CASES if RULES[name].pattern is None))
def test_the_promise_holds_in_float16(name: str) -> None:
    """Where the rule applies there: its difference in float32, and one rounding of the output."""
    rule = RULES[name]

    @FEWER
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        with np.errstate(all="ignore"):
            instance = CASES[name].inside(data.draw)
            try:
                halves = in_halves(instance)
            except Exception:  # the op has no such form; onnxruntime's exceptions share no base class but this
                return
            if within_domain(rule, halves):  # what float16 made infinite may lie outside
                demand_promise_in_halves(rule, halves)

    holds()


@pytest.mark.parametrize("name", sorted(name for name in CASES if RULES[name].pattern is not None))
@pytest.mark.parametrize("dtype", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_the_promise_of_a_pattern_holds_in_narrow_types(name: str, dtype: int) -> None:
    """Where the rule applies there: its bound in that type, whose smallest number may be lost."""
    rule = RULES[name]

    @FEWER
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        with np.errstate(all="ignore"):
            instance = in_type(CASES[name].inside(data.draw), dtype)
            if within_domain(rule, instance):
                demand_promise_in_type(rule, instance, dtype)

    holds()


@np.errstate(all="ignore")
def demand_promise_in_type(rule: Rule, instance: Instance, dtype: int) -> None:
    facts = TensorFacts.inferred(instance.model)
    try:
        rewrite(rule, instance.model.graph.node[0], facts)
    except NotApplicable:
        return
    result = apply(instance.model, {instance.model.graph.node[0].name: rule}, facts)
    onnx.checker.check_model(result, full_check=True)
    (before,), (after,) = outputs_of(instance.model, instance.feeds), outputs_of(result, instance.feeds)
    if rule.exactness is Exactness.EXACT:
        wrong = bits_differ(before, after)
    else:
        epsilon, smallest = NARROW[dtype]
        bound = Bound(
            epsilons=rule.bound.epsilons * epsilon / float(np.finfo(before.dtype).eps),
            absolute=rule.bound.absolute + smallest,
        )
        wrong = ~allowed(before, after, bound, instance.scale)
    assert not wrong.any(), _told(before, after, wrong)


@np.errstate(all="ignore")  # edge values are there to overflow
def demand_promise_in_halves(rule: Rule, instance: Instance) -> None:
    facts = TensorFacts.inferred(instance.model, known=instance.known)
    try:
        rewrite(rule, instance.model.graph.node[0], facts)
    except NotApplicable:
        return
    result = apply(instance.model, {"n": rule}, facts)
    before, after = outputs_of(instance.model, instance.feeds), outputs_of(result, instance.feeds)
    for old, new in zip(before, after, strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        if rule.exactness is Exactness.EXACT:
            wrong = bits_differ(old, new)
        elif old.dtype != np.float16 or not is_widened(result):
            wrong = ~allowed(old, new, rule.bound, instance.scale)
        else:
            # neighbours in float16; one of them is infinity where the number is rounded to the largest or beyond
            near = np.abs(old.astype(np.float64) - new) <= 2 * np.spacing(np.abs(old)) + _room(rule, instance, old)
            large = (np.abs(old) > _LARGE) & (np.abs(new) > _LARGE) & (np.sign(old) == np.sign(new))
            wrong = ~(near | large | (old == new) | (np.isnan(old) & np.isnan(new)))
        assert not wrong.any(), _told(old, new, wrong)


def apply_as_it_is(rule: Rule, instance: Instance) -> None:
    """Apply the rule, but to a node in float16 not between Casts, where it may hold."""
    node, facts = instance.model.graph.node[0], TensorFacts.inferred(instance.model)
    if has_halves(instance) and rule.pattern is None:
        site = Site(node, facts, "n/")
        site.replacement(rule.build(site))
    else:
        rewrite(rule, node, facts)


def has_halves(instance: Instance) -> bool:
    """Whether the node takes float16."""
    graph = instance.model.graph
    dtypes = [value.type.tensor_type.elem_type for value in graph.input] + [it.data_type for it in graph.initializer]
    return onnx.TensorProto.FLOAT16 in dtypes


def is_widened(model: onnx.ModelProto) -> bool:
    """Whether the replacement computes in float32, between Casts; else in the node's own type, with its rounding."""
    return any("/float32/" in name for node in model.graph.node for name in (*node.input, *node.output))


def _room(rule: Rule, instance: Instance, old: np.ndarray) -> np.ndarray:
    """The rule's bound in float32, for inputs that float16 moved by a little."""
    magnitude = np.abs(old.astype(np.float64)) if instance.scale is None else np.asarray(instance.scale, np.float64)
    return 2 * (rule.bound.epsilons * np.finfo(np.float32).eps * magnitude + rule.bound.absolute)


@pytest.mark.parametrize("name", sorted(CASES))
def test_outside_of_its_condition_the_rule_does_not_match(name: str) -> None:
    @FEWER
    @given(st.data())
    def refuses(data: st.DataObject) -> None:
        with np.errstate(all="ignore"):
            instance = CASES[name].outside(data.draw)
        with pytest.raises(NotApplicable):
            apply_as_it_is(RULES[name], instance)

    refuses()


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.domain], ids=lambda rule: rule.id)
def test_a_domain_leaves_something_out(rule: Rule) -> None:
    assert rule.exactness is Exactness.DOMAIN
    assert rule.domain is not None
    hard = [[np.array([value], np.float32)] * 3 for value in (np.nan, -np.inf, 0.0)]
    assert not all(rule.domain.holds(values) for values in hard)
    assert not rule.domain.holds([None, None, None])


def test_what_is_exact_states_no_bound_and_what_is_not_states_one() -> None:
    for rule in RULES.values():
        assert bool(rule.bound.text) or rule.exactness in (Exactness.EXACT, Exactness.DOMAIN), rule.id
        assert not rule.bound.text or rule.exactness is not Exactness.EXACT, rule.id


def test_every_rule_says_what_it_does_and_what_to_write_in_pytorch() -> None:
    assert [rule.id for rule in RULES.values() if not (rule.summary and rule.pytorch and rule.source)] == []


def test_the_error_function_by_exponentials_is_within_its_bound_where_it_is_furthest_off() -> None:
    """Of all float32 numbers between 2^-24 and 6, tried one by one."""
    demand_promise(RULES["erf-exp"], node("Erf", np.array([0.037966974, -0.037966974], np.float32)))


def demand_promise(rule: Rule, instance: Instance) -> None:
    """The rewritten model is valid, has the ops that the rule names, and numbers within its bound."""
    result = apply(instance.model, {"n": rule}, TensorFacts.inferred(instance.model, known=instance.known))
    onnx.checker.check_model(result, full_check=True)
    assert ANY_OP in rule.gives or {node.op_type for node in result.graph.node} <= {*rule.gives, "Identity"}
    assert within_domain(rule, instance)
    before, after = outputs_of(instance.model, instance.feeds), outputs_of(result, instance.feeds)
    for old, new in zip(before, after, strict=True):
        assert old.dtype == new.dtype
        assert old.shape == new.shape
        if rule.exactness is Exactness.EXACT:
            wrong = bits_differ(old, new)
        else:
            wrong = ~allowed(old, new, rule.bound, instance.scale)
        assert not wrong.any(), _told(old, new, wrong)


def within_domain(rule: Rule, instance: Instance) -> bool:
    """Whether the rule is for the instance's values."""
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in instance.model.graph.initializer}
    values = [instance.feeds.get(name, stored.get(name)) for name in instance.model.graph.node[0].input]
    return rule.domain is None or rule.domain.holds(values)


def _told(old: np.ndarray, new: np.ndarray, wrong: np.ndarray) -> str:
    pairs = list(zip(old[wrong].ravel()[:5].tolist(), new[wrong].ravel()[:5].tolist(), strict=True))
    return f"{int(wrong.sum())} of {wrong.size} differ: {pairs}"
