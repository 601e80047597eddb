"""The search for modules that do not export, on random trees whose failing modules are known."""

from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from onnxbisect.export.plan import (
    ROOT,
    ExportAnswer,
    ExportOutcome,
    Module,
    Question,
    Tree,
    inside,
    joined,
    plan,
    relative,
)
from support.examples import examples


@dataclass(frozen=True)
class World:
    """A tree, the modules whose own code fails, and those that fail only inside of the model."""

    tree: Tree
    bad: frozenset[str]
    seed: int
    helpful: bool

    def answer(self, question: Question) -> ExportAnswer:
        """What an exporter says; its complaint names a failing module, or any, or none."""
        path = question.module
        hidden = [joined(path, it) for it in question.stand_ins]
        failing = [
            it
            for it in self.tree.modules
            if it in self.bad and inside(it, path) and not any(inside(it, one) for one in hidden)
        ]
        if not failing:
            return ExportAnswer(exports=True)
        chance = Random(f"{self.seed} {question.module} {sorted(question.stand_ins)}")
        below = [it for it in self.tree.modules if inside(it, path)]
        named = failing[0] if self.helpful else chance.choice([*failing, *below])
        known = self.helpful or chance.random() < 0.8
        return ExportAnswer(exports=False, suspect=relative(named, path) if known else None)


def world(seed: int, *, helpful: bool = False) -> World:
    """Modules of at most six kinds: a kind has the same modules inside wherever it stands."""
    chance = Random(seed)
    kinds: list[list[int]] = []
    for number in range(chance.randint(1, 6)):
        kinds.append([chance.randrange(number) for _ in range(chance.randint(0, 3))] if number else [])
    failing = {kind for kind in range(len(kinds)) if chance.random() < 0.3}
    modules: list[tuple[str, int]] = []

    def place(path: str, kind: int) -> None:
        modules.append((path, kind))
        for number, child in enumerate(kinds[kind]):
            place(joined(path, f"m{number}"), child)

    place(ROOT, len(kinds) - 1)
    tree = Tree([Module(path=path, cls=f"K{kind}", key=str(kind), signatures=("x",)) for path, kind in modules])
    bad = frozenset(path for path, kind in modules if kind in failing)
    return World(tree=tree, bad=bad, seed=seed, helpful=helpful)


def searched(one: World) -> tuple[ExportOutcome, dict[Question, ExportAnswer]]:
    """The outcome, and everything that was asked for it."""
    answers: dict[Question, ExportAnswer] = {}
    while isinstance(step := plan(one.tree, answers), Question):
        assert step not in answers
        answers[step] = one.answer(step)
        assert len(answers) < 500
    return step, answers


@settings(max_examples=examples(300))
@given(st.integers(0, 10**9), st.booleans())
def test_every_failing_module_is_found_once_and_nothing_else_is_blamed(seed: int, helpful: bool) -> None:
    one = world(seed, helpful=helpful)
    outcome, _ = searched(one)
    assert {place for it in outcome.culprits for place in it.places} == one.bad
    kinds = [one.tree.modules[it.path].key for it in outcome.culprits]
    assert len(kinds) == len(set(kinds)), "modules of one kind are one culprit"


@settings(max_examples=examples(300))
@given(st.integers(0, 10**9))
def test_what_is_not_to_blame_is_in_a_part_that_was_seen_to_pass(seed: int) -> None:
    one = world(seed)
    outcome, answers = searched(one)
    for part in outcome.parts:
        assert all(answers[it].exports for it in part.asked)
    covered = {
        other
        for part in outcome.parts
        for path in one.tree.modules
        if inside(path, part.path) and not any(inside(path, it) for it in part.without)
        for other in one.tree.alike(path)
    }
    assert covered | one.bad >= set(one.tree.modules)
    assert (outcome.whole is None) == (ROOT in one.bad)


@settings(max_examples=examples(300))
@given(st.integers(0, 10**9))
def test_a_complaint_that_names_the_module_saves_exports(seed: int) -> None:
    one = world(seed, helpful=True)
    _, answers = searched(one)
    kinds_in_bad = {one.tree.modules[it].key for bad in one.bad for it in one.tree.below(bad)}
    bad_kinds = {one.tree.modules[it].key for it in one.bad}
    # the whole before and after each culprit, each alone and with stand-ins, and once each kind inside of culprits
    assert len(answers) <= 1 + 3 * len(bad_kinds) + 2 * len(kinds_in_bad)


def test_a_module_that_fails_only_where_it_stands_is_no_culprit_but_what_holds_it() -> None:
    modules = [Module(path=it, cls=it or "M", key=it or "M", signatures=("x",)) for it in ("", "a", "a.b", "c")]
    tree = Tree(modules)
    answers: dict[Question, ExportAnswer] = {}
    while isinstance(step := plan(tree, answers), Question):
        fails = step.module in ("", "a") and "b" not in step.stand_ins and not step.stand_ins & {"a", "a.b"}
        suspect = {"": "a.b", "a": "b"}.get(step.module)
        answers[step] = ExportAnswer(exports=not fails, suspect=suspect if fails else None)
    assert [it.path for it in step.culprits] == ["a"]
    assert step.whole is not None
    assert step.whole.without == {"a"}


def test_every_signature_of_a_module_is_asked_where_the_first_one_passes() -> None:
    tree = Tree(
        [
            Module(path="", cls="M", key="M", signatures=("x",)),
            Module(path="a", cls="A", key="A", signatures=("2x3", "4x3")),
        ]
    )
    answers: dict[Question, ExportAnswer] = {}
    while isinstance(step := plan(tree, answers), Question):
        fails = (step.module == "" and not step.stand_ins) or step.signature == 1
        answers[step] = ExportAnswer(exports=not fails, suspect="a" if step.module == "" and fails else None)
    assert [(it.path, it.asked.signature) for it in step.culprits] == [("a", 1)]


def test_an_export_that_a_stand_in_broke_blames_nothing() -> None:
    tree = Tree([Module(path=it, cls=it or "M", key=it or "M", signatures=("x",)) for it in ("", "a")])
    answers = {
        Question(module=""): ExportAnswer(exports=False, suspect="a"),
        Question(module="a"): ExportAnswer(exports=False),
        Question(module="", stand_ins=frozenset({"a"})): ExportAnswer(exports=False, undecided=True),
    }
    outcome = plan(tree, answers)
    assert isinstance(outcome, ExportOutcome)
    assert [it.path for it in outcome.culprits] == ["a"]
    assert [it.module for it in outcome.undecided] == [""]
    assert outcome.whole is None
