"""The search for nodes that must stay precise, on random worlds whose truth is planted."""

from dataclasses import dataclass, replace
from math import log2
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from onnxbisect.precision.plan import KeptSet, MinimalSet, PrecisionEnding, Space, Why, next_asks, plan, so_far
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, union
from support.examples import examples


@dataclass(frozen=True)
class World:
    """Units of which some have to be kept: of each clause one of its sets, all of that set.

    Decoys change the score and never decide. A world that is not `monotone` has sets that suffice no more when certain
    others are kept, too.
    """

    space: Space
    clauses: tuple[tuple[UnitSet, ...], ...]
    decoys: UnitSet
    spoilt: tuple[tuple[UnitSet, UnitSet], ...] = ()

    def score(self, keep: UnitSet) -> float:
        met = sum(any(is_subset(one, keep) for one in clause) for clause in self.clauses)
        small = size(keep & self.decoys) / (1 + size(self.decoys)) / 2
        if any(is_subset(having, keep) and not keep & lacking for having, lacking in self.spoilt):
            return met - 1 + small
        return met + small

    @property
    def at_least(self) -> float:
        return float(len(self.clauses))


def world(seed: int, *, alternatives: int = 1, spoil: bool = False) -> World:
    """Singles, pairs and triples among up to 60 units, in a misleading order."""
    chance = Random(seed)
    count = chance.randint(4, 60)
    order = list(range(count))
    chance.shuffle(order)

    def some() -> UnitSet:
        return of(chance.sample(range(count), chance.randint(1, 3)))

    clauses = tuple(tuple(some() for _ in range(alternatives)) for _ in range(chance.randint(1, 3)))
    decoys = of(chance.sample(range(count), count // 3))
    groups: dict[int, list[int]] = {}
    for unit in range(count):
        groups.setdefault(chance.randrange(1 + count // 3), []).append(unit)
    partition = tuple(of(group) for group in groups.values())
    spoilt = []
    if spoil:
        for _ in range(3):
            having = of(chance.sample(range(count), 2))
            spoilt.append((having, of(chance.sample(range(count), 2)) & ~having))
    space = Space(order=tuple(order), groups=(partition,) if chance.random() < 0.5 else ())
    return World(space=space, clauses=clauses, decoys=decoys, spoilt=tuple((a, b) for a, b in spoilt if b))


def searched(it: World, scores: dict[UnitSet, float] | None = None) -> tuple[MinimalSet, list[KeptSet]]:
    scores = {} if scores is None else scores
    asked = []
    while isinstance(step := plan(it.space, scores, it.at_least), KeptSet):
        assert step.keep not in scores
        asked.append(step)
        scores[step.keep] = it.score(step.keep)
        assert len(asked) < 2000
    return step, asked


def is_minimal(it: World, keep: UnitSet) -> bool:
    enough = it.score(keep) >= it.at_least
    return enough and all(it.score(keep & ~(1 << unit)) < it.at_least for unit in members(keep))


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 10**9))
def test_what_is_planted_is_found_whole_and_nothing_else(seed: int) -> None:
    it = world(seed)
    found, asked = searched(it)
    truth = union(one for (one,) in it.clauses)
    assert (found.ending, found.keep) == (PrecisionEnding.MINIMAL, truth)
    assert set(found.without) == set(members(truth))
    assert max(found.without.values()) < it.at_least
    # the two ends, the groups, and each member with its place and its necessity; of a large set all that twice
    once = 3 + (3 * log2(len(it.space.order)) + 2) * (size(truth) + 1)
    assert len(asked) <= (once if size(truth) <= 6 else 2 * once + len(it.space.order))


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 3))
def test_of_several_sets_that_suffice_a_minimal_one_is_found(seed: int, alternatives: int) -> None:
    it = world(seed, alternatives=alternatives)
    found, _ = searched(it)
    assert found.ending is PrecisionEnding.MINIMAL
    assert is_minimal(it, found.keep)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**9))
def test_where_keeping_more_may_be_worse_the_set_was_still_measured_to_be_minimal(seed: int) -> None:
    it = world(seed, spoil=True)
    found, asked = searched(it)
    if found.ending is PrecisionEnding.MINIMAL:
        assert is_minimal(it, found.keep)
        measured = {ask.keep for ask in asked}
        assert {found.keep, *(found.keep & ~(1 << unit) for unit in members(found.keep))} <= measured


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**9), st.data())
def test_a_search_goes_on_from_any_record(seed: int, data: st.DataObject) -> None:
    it = world(seed)
    found, asked = searched(it)
    kept = data.draw(st.sets(st.sampled_from(range(len(asked)))))
    scores = {asked[place].keep: it.score(asked[place].keep) for place in kept}
    again, more = searched(it, scores)
    assert again == found
    assert len(more) == len(asked) - len(kept)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 6))
def test_what_is_measured_ahead_changes_nothing_but_the_rounds(seed: int, width: int) -> None:
    it = world(seed)
    found, asked = searched(it)
    scores: dict[UnitSet, float] = {}
    rounds = 0
    while isinstance(steps := next_asks(it.space, scores, it.at_least, width), list):
        assert steps[0] == plan(it.space, scores, it.at_least)
        assert 1 <= len({step.keep for step in steps}) == len(steps) <= width
        assert not {step.keep for step in steps} & scores.keys()
        scores |= {step.keep: it.score(step.keep) for step in steps}
        rounds += 1
    assert steps == found
    assert rounds == len(asked) if width == 1 else rounds <= len(asked)


def test_workers_that_would_idle_shorten_a_search() -> None:
    it = World(space=Space(order=tuple(range(60))), clauses=((of([7, 20, 41]),),), decoys=0)
    rounds = {}
    for width in (1, 4):
        scores: dict[UnitSet, float] = {}
        rounds[width] = 0
        while isinstance(steps := next_asks(it.space, scores, 1.0, width), list):
            scores |= {step.keep: it.score(step.keep) for step in steps}
            rounds[width] += 1
    assert rounds[4] <= 0.6 * rounds[1]


def test_of_a_set_with_more_than_it_takes_the_dear_node_is_left_out() -> None:
    for dear in (0, 1):
        space = Space(order=(0, 1, 2), work={0: 0.1, 1: 0.1, 2: 0.1} | {dear: 0.7}, guess=0b111)
        # 2 has to stay, and one of the others
        it = World(space=space, clauses=((0b100,), (0b01, 0b10)), decoys=0)
        found, _ = searched(it)
        assert found.keep == 0b100 | 1 << (1 - dear)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**9))
def test_of_two_minimal_sets_the_one_with_less_work_is_found(seed: int) -> None:
    """Of a dear unit and a few cheap ones either do; others have to stay, and all else has any cost."""
    chance = Random(seed)
    count = chance.randint(6, 40)
    order = chance.sample(range(count), count)
    dear, *cheap = chance.sample(order, chance.randint(2, 4))
    stay = of(
        [unit for unit in order if unit != dear and unit not in cheap and chance.random() < 0.1][: 6 - len(cheap)]
    )
    work = {unit: chance.choice((0.0, 0.001, 0.2)) for unit in order} | dict.fromkeys(cheap, 0.001) | {dear: 0.1}
    it = World(space=Space(order=tuple(order), work=work), clauses=((1 << dear, of(cheap)), (stay,)), decoys=0)

    found, _ = searched(it)

    assert (found.ending, found.keep) == (PrecisionEnding.MINIMAL, stay | of(cheap))


def test_where_nothing_cheaper_does_a_dear_node_costs_one_ask() -> None:
    work = {unit: 0.2 if unit == 3 else 0.001 for unit in range(20)}
    dear = World(space=Space(order=tuple(range(20)), work=work), clauses=((0b1000,),), decoys=0)
    alike = replace(dear, space=replace(dear.space, work={}))

    assert len(searched(dear)[1]) == len(searched(alike)[1]) + 1


def test_where_most_nodes_have_to_stay_each_costs_about_one_ask() -> None:
    it = World(space=Space(order=tuple(range(60))), clauses=((of(range(60)) & ~of([5, 17, 40]),),), decoys=0)
    found, asked = searched(it)
    assert size(found.keep) == 57
    assert len(asked) < 4 * 60  # each alone, and the search in two orders


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 40))
def test_a_search_that_ends_early_has_the_smallest_set_that_was_measured_to_suffice(seed: int, most: int) -> None:
    it = world(seed)
    scores: dict[UnitSet, float] = {}
    while len(scores) < most and isinstance(step := plan(it.space, scores, it.at_least), KeptSet):
        scores[step.keep] = it.score(step.keep)
    best = so_far(it.space, scores, it.at_least)
    shown = all(scores.get(best.keep & ~(1 << unit), 9) < it.at_least for unit in members(best.keep))
    assert best.ending is (PrecisionEnding.MINIMAL if shown else PrecisionEnding.BUDGET)
    assert scores[best.keep] >= it.at_least
    assert size(best.keep) == min(size(keep) for keep, score in scores.items() if score >= it.at_least)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**9), st.data())
def test_a_set_that_suffices_elsewhere_is_proven_or_the_search_goes_on(seed: int, data: st.DataObject) -> None:
    it = world(seed)
    truth = union(one for (one,) in it.clauses)
    guess = truth | of(data.draw(st.sets(st.sampled_from(it.space.order), max_size=3)))
    if data.draw(st.booleans()):
        guess &= ~(1 << data.draw(st.sampled_from(sorted(members(truth)))))
    guessed = replace(it, space=replace(it.space, guess=guess))
    found, asked = searched(guessed)
    assert (found.ending, found.keep) == (PrecisionEnding.MINIMAL, truth)
    if guess == truth:
        assert len({ask.keep for ask in asked} - {0, it.space.everything}) <= size(truth) + 1


def test_the_two_ends_are_asked_first_and_may_be_all() -> None:
    space = Space(order=(1, 0))
    assert plan(space, {}, 1.0) == KeptSet(keep=0b11, why=Why.FULL)
    assert plan(space, {0b11: 0.5}, 1.0) == MinimalSet(ending=PrecisionEnding.MISSED, keep=0b11, without={})
    assert plan(space, {0b11: 2.0}, 1.0) == KeptSet(keep=0, why=Why.LOW)
    assert plan(space, {0b11: 2.0, 0: 1.0}, 1.0) == MinimalSet(ending=PrecisionEnding.NOTHING, keep=0, without={})


def test_a_model_without_anything_to_be_low_needs_nothing() -> None:
    assert plan(Space(order=()), {0: 5.0}, 1.0).ending is PrecisionEnding.NOTHING  # type: ignore[union-attr]


def test_a_set_that_is_not_small_is_looked_for_again_in_the_order_of_measured_errors() -> None:
    """Eight weak units do what two strong ones do, and the order of suspicion has the weak ones first."""
    order, strong = tuple(range(30)), of([28, 29])
    everything = of(order)

    def score(keep: UnitSet) -> float:
        low = everything & ~keep
        return 20.0 - 5 * size(low & strong) - size(low & of(range(8))) - size(low & of(range(8, 28))) / 100

    scores: dict[UnitSet, float] = {}
    while isinstance(step := plan(Space(order=order), scores, 10.0), KeptSet):
        scores[step.keep] = score(step.keep)
    assert step.ending is PrecisionEnding.MINIMAL
    assert is_subset(strong, step.keep)
    assert size(step.keep) <= 3
    assert score(step.keep) >= 10.0 > max(step.without.values())


def test_a_good_order_makes_a_short_search() -> None:
    it = World(space=Space(order=tuple(range(400))), clauses=((0b11,),), decoys=0)
    found, asked = searched(it)
    assert found.keep == 0b11
    assert len(asked) == 5  # the ends, one, two, and the second alone
