"""The choice of causes against brute force, on features that no model was made for."""

from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.causes.condition import Condition
from onnxbisect.causes.explain import cheapest_cover
from onnxbisect.causes.features import TENSOR, FeatureSubject, Row
from onnxbisect.causes.table import Explanation, completed, entries, explanations
from onnxbisect.causes.terms import Aspect, Relation

OPS = ("A", "B", "C")


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """A unit's features: an op, the ranks of its tensors of which some are unknown, dtypes, and an attribute."""
    op = draw(st.sampled_from(OPS))
    ranks: st.SearchStrategy[int | str | None] = st.sampled_from([1, 4, 4, 6, 7, None])
    found: dict[FeatureSubject, frozenset[int | str | None]] = {
        FeatureSubject(Aspect.OP, op=op): frozenset({op}),
        FeatureSubject(Aspect.RANK, TENSOR): draw(st.frozensets(ranks, min_size=1, max_size=2)),
        FeatureSubject(Aspect.DTYPE, TENSOR): draw(
            st.frozensets(st.sampled_from(["float", "int64"]), min_size=1, max_size=2)
        ),
        FeatureSubject(Aspect.VALUE, "indices", op): draw(st.frozensets(st.sampled_from(["0", "1", "2"]), max_size=1)),
    }
    if draw(st.booleans()):
        found[FeatureSubject(Aspect.ATTRIBUTE, "axis", op)] = frozenset({draw(st.sampled_from(["0", "1"]))})
    return {subject: values for subject, values in found.items() if values}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[list[Row]], list[Row]]:
    """The rows of some culprits' places, all of one op each, and those of what passed."""
    made = draw(st.lists(rows(), min_size=1, max_size=10))
    whole = completed(made)
    cut = draw(st.integers(1, min(6, len(made))))
    culprits = [[whole[number]] for number in range(cut)]
    if draw(st.booleans()) and len(culprits) > 1 and op_of(culprits[0]) == op_of(culprits[1]):
        culprits = [[*culprits[0], *culprits[1]], *culprits[2:]]
    return culprits, [whole[number] for number in range(cut, len(made))]


def op_of(places: list[Row]) -> str:
    return next(subject.op for subject in places[0] if subject.aspect is Aspect.OP)


def meets(row: Row, condition: Condition) -> bool:
    """Whether one of the row's known values is as the condition says, written out once more."""
    for value in row.get(condition.subject, frozenset()):
        if value is None:
            continue
        match condition.relation:
            case Relation.IS:
                held = value == condition.value
            case Relation.OTHER:
                held = value != condition.value
            case Relation.AT_LEAST:
                held = int(value) >= int(condition.value)
            case Relation.AT_MOST:
                held = int(value) <= int(condition.value)
        if held:
            return True
    return False


def may_meet(row: Row, condition: Condition) -> bool:
    return meets(row, condition) or None in row.get(condition.subject, frozenset())


def found_in(culprits: list[list[Row]], passing: list[Row]) -> list[Explanation]:
    passed_ops = frozenset(op_of([row]) for row in passing)
    return explanations(entries(culprits, passing), [op_of(places) for places in culprits], passed_ops)


def sound(culprits: list[list[Row]], passing: list[Row], conditions: tuple[Condition, ...]) -> int:
    """The culprits that these conditions explain, as a bit set, by the rule as docs/report.md states it."""
    holds = [all(meets(row, it) for row in places for it in conditions) for places in culprits]
    if not any(holds) or any(all(may_meet(row, it) for it in conditions) for row in passing):
        return 0
    if not any(it.subject.op for it in conditions):
        ops = {op_of(places) for places, held in zip(culprits, holds, strict=True) if held}
        deep = all(it.subject.aspect is Aspect.RANK and int(it.value or 0) >= 5 for it in conditions)
        if len(ops) < 2 or not (ops & {op_of([row]) for row in passing} or (deep and len(ops) >= 3)):
            return 0
    return sum(1 << number for number, held in enumerate(holds) if held)


def every(culprits: list[list[Row]], passing: list[Row]) -> dict[int, int]:
    """The cheapest cost for each set of culprits that one or two conditions explain, all of them tried."""
    known = [entry.condition for entry in entries(culprits, passing)]
    cheapest: dict[int, int] = {}
    for conditions in [*((one,) for one in known), *combinations(known, 2)]:
        if mask := sound(culprits, passing, conditions):
            cost = Explanation(conditions, mask).cost
            cheapest[mask] = min(cost, cheapest.get(mask, cost))
    return cheapest


@given(worlds())
def test_every_explanation_holds_for_its_culprits_and_for_nothing_that_passed(
    world: tuple[list[list[Row]], list[Row]],
) -> None:
    for one in found_in(*world):
        assert sound(*world, one.conditions) == one.refused
        assert all(not sound(*world, (it,)) for it in one.conditions if len(one.conditions) > 1)


@given(worlds())
def test_the_choice_explains_all_that_can_be_explained_in_the_fewest_words(
    world: tuple[list[list[Row]], list[Row]],
) -> None:
    chosen = cheapest_cover(found_in(*world))
    possible = every(*world)
    covered = 0
    for one in chosen:
        covered |= one.refused
    best = {0: 0}
    for mask, cost in possible.items():
        for before, spent in list(best.items()):
            best[before | mask] = min(best.get(before | mask, spent + cost), spent + cost)
    everything = max(best, key=int.bit_count)
    assert covered == everything
    assert sum(one.cost for one in chosen) == best[everything]


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_culprits_and_of_what_passed_changes_nothing(
    world: tuple[list[list[Row]], list[Row]], random: Random
) -> None:
    culprits, passing = world
    order = list(range(len(culprits)))
    random.shuffle(order)
    shuffled = [culprits[number] for number in order]
    others = random.sample(passing, len(passing))

    def told(chosen: list[Explanation], numbers: list[int]) -> list[tuple[tuple[Condition, ...], set[int]]]:
        return [(one.conditions, {numbers[n] for n in range(len(numbers)) if one.refused >> n & 1}) for one in chosen]

    before = told(cheapest_cover(found_in(culprits, passing)), list(range(len(culprits))))
    assert told(cheapest_cover(found_in(shuffled, others)), order) == before
