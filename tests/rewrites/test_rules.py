"""Every rule keeps its promise wherever its condition holds, and leaves alone what lies outside of it."""

import importlib
import os

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from onnxbisect.rewrites import ANY_OP, Exactness, Facts, NotApplicable, Rule, apply, installed, rewrite
from support import TESTS
from support.examples import examples
from support.rewrites.instances import CASES, Instance, node
from support.rewrites.measured import allowed, bits_differ, outputs_of

for path in sorted((TESTS / "support" / "rewrites").glob("cases_*.py")):
    importlib.import_module(f"support.rewrites.{path.stem}")

RULES = {rule.id: rule for rule in installed().rules}
#: Data come from a drawn seed, which does not shrink to anything simpler.
EXAMPLES = settings(
    max_examples=int(os.environ.get("RULE_EXAMPLES", examples(25))),
    deadline=None,
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


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


@pytest.mark.parametrize("name", sorted(CASES))
def test_outside_of_its_condition_the_rule_does_not_match(name: str) -> None:
    @EXAMPLES
    @given(st.data())
    def refuses(data: st.DataObject) -> None:
        with np.errstate(all="ignore"):
            instance = CASES[name].outside(data.draw)
        with pytest.raises(NotApplicable):
            rewrite(RULES[name], instance.model.graph.node[0], Facts.inferred(instance.model))

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


def test_the_error_function_by_exponentials_is_within_its_bound_where_it_is_furthest_off() -> None:
    """Of all float32 numbers between 2^-24 and 6, tried one by one."""
    demand_promise(RULES["erf-exp"], node("Erf", np.array([0.037966974, -0.037966974], np.float32)))


def demand_promise(rule: Rule, instance: Instance) -> None:
    """The rewritten model is valid, has the ops that the rule names, and numbers within its bound."""
    result = apply(instance.model, {"n": rule}, Facts.inferred(instance.model, known=instance.known))
    onnx.checker.check_model(result, full_check=True)
    assert ANY_OP in rule.gives or {node.op_type for node in result.graph.node} <= {*rule.gives, "Identity"}
    if rule.domain is not None:
        stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in instance.model.graph.initializer}
        node = instance.model.graph.node[0]
        assert rule.domain.holds([instance.feeds.get(name, stored.get(name)) for name in node.input])
    before, after = outputs_of(instance.model, instance.feeds), outputs_of(result, instance.feeds)
    for old, new in zip(before, after, strict=True):
        assert old.dtype == new.dtype
        assert old.shape == new.shape
        if rule.exactness is Exactness.EXACT:
            wrong = bits_differ(old, new)
        else:
            wrong = ~allowed(old, new, rule.bound, instance.scale)
        assert not wrong.any(), _told(old, new, wrong)


def _told(old: np.ndarray, new: np.ndarray, wrong: np.ndarray) -> str:
    pairs = list(zip(old[wrong].ravel()[:5].tolist(), new[wrong].ravel()[:5].tolist(), strict=True))
    return f"{int(wrong.sum())} of {wrong.size} differ: {pairs}"
