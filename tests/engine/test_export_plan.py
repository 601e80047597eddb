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
    plan,
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
        failing = [it for it in self.running(path, question.stand_ins) if it in self.bad]
        if not failing:
            return ExportAnswer(exports=True)
        chance = Random(f"{self.seed} {question.module} {sorted(question.stand_ins)}")
        below = self.running(path, frozenset())
        named = failing[0] if self.helpful else chance.choice([*failing, *below])
        known = self.helpful or chance.random() < 0.8
        return ExportAnswer(exports=False, suspect=named if known else None)

    def running(self, path: str, hidden: frozenset[str]) -> list[str]:
        """The modules whose code runs where these have stand-ins."""
        if path in hidden:
            return []
        below = (one for child in self.tree.children(path) for one in self.running(child, hidden))
        return list(dict.fromkeys([path, *below]))


def world(seed: int, *, helpful: bool = False) -> World:
    """Modules of at most six kinds: a kind has the same modules inside wherever it stands; some call a shared one."""
    chance = Random(seed)
    kinds: list[list[int]] = []
    for number in range(chance.randint(1, 6)):
        kinds.append([chance.randrange(number) for _ in range(chance.randint(0, 3))] if number else [])
    failing = {kind for kind in range(len(kinds)) if chance.random() < 0.3}
    sharing = {kind for kind in range(len(kinds)) if chance.random() < 0.3}
    methods = {kind for kind in range(len(kinds) - 1) if chance.random() < 0.2}
    modules: list[tuple[str, str, int, str]] = []

    def place(home: str, kind: int, caller: str) -> None:
        path = f"{home}.encode" if kind in methods else home
        modules.append((path, home, kind, caller))
        for number, child in enumerate(kinds[kind]):
            place(f"{home}.m{number}" if home else f"m{number}", child, path)

    place(ROOT, len(kinds) - 1, "")
    callers = tuple(path for path, _, kind, _ in modules if kind in sharing)
    tree = [
        Module(path=path, home=home, cls="K", key=str(kind), signatures=("x",), callers=(caller,) if path else ())
        for path, home, kind, caller in modules
    ]
    if callers:
        tree.append(Module(path="shared", home="shared", cls="S", key="shared", signatures=("x",), callers=callers))
    bad = {path for path, _, kind, _ in modules if kind in failing}
    shared = {"shared"} if callers and chance.random() < 0.5 else set()
    return World(tree=Tree(tree), bad=frozenset(bad | shared), seed=seed, helpful=helpful)


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
        if path in one.running(part.path, part.without)
        for other in one.tree.alike(path)
    }
    assert covered | one.bad >= set(one.tree.modules)
    assert (outcome.whole is None) == (ROOT in one.bad)


@settings(max_examples=examples(300))
@given(st.integers(0, 10**9))
def test_a_complaint_that_names_the_module_saves_exports(seed: int) -> None:
    one = world(seed, helpful=True)
    _, answers = searched(one)
    kinds_in_bad = {one.tree.modules[it].key for bad in one.bad for it in one.running(bad, frozenset()) if it != bad}
    bad_kinds = {one.tree.modules[it].key for it in one.bad}
    # the whole before and after each culprit, each alone and with stand-ins, and once each kind inside of culprits
    assert len(answers) <= 1 + 3 * len(bad_kinds) + 2 * len(kinds_in_bad)


def module(path: str, signatures: tuple[str, ...] = ("x",), callers: tuple[str, ...] = ("",)) -> Module:
    return Module(
        path=path, home=path, cls="M", key=path or "M", signatures=signatures, callers=callers if path else ()
    )


def test_a_module_that_fails_only_where_it_stands_is_no_culprit_but_what_holds_it() -> None:
    tree = Tree([module(""), module("a"), module("a.b", callers=("a",)), module("c")])
    answers: dict[Question, ExportAnswer] = {}
    while isinstance(step := plan(tree, answers), Question):
        fails = step.module in ("", "a") and not step.stand_ins & {"a", "a.b"}
        suspect = {"": "a.b", "a": "a.b"}.get(step.module)
        answers[step] = ExportAnswer(exports=not fails, suspect=suspect if fails else None)
    assert [it.path for it in step.culprits] == ["a"]
    assert step.whole is not None
    assert step.whole.without == {"a"}


def test_every_signature_of_a_module_is_asked_where_the_first_one_passes() -> None:
    tree = Tree([module(""), module("a", signatures=("2x3", "4x3"))])
    answers: dict[Question, ExportAnswer] = {}
    while isinstance(step := plan(tree, answers), Question):
        fails = (step.module == "" and not step.stand_ins) or step.signature == 1
        answers[step] = ExportAnswer(exports=not fails, suspect="a" if step.module == "" and fails else None)
    assert [(it.path, it.asked.signature) for it in step.culprits] == [("a", 1)]


def test_an_export_that_a_stand_in_broke_blames_nothing() -> None:
    tree = Tree([module(""), module("a")])
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


def test_a_module_that_another_one_keeps_is_blamed_where_a_third_one_calls_it() -> None:
    tree = Tree([module(""), module("a"), module("a.gate", callers=("a", "b")), module("b")])
    answers: dict[Question, ExportAnswer] = {}
    while isinstance(step := plan(tree, answers), Question):
        fails = "a.gate" not in step.stand_ins
        answers[step] = ExportAnswer(exports=not fails, suspect="b" if fails and step.module == "" else None)
    assert [it.path for it in step.culprits] == ["a.gate"]
    assert step.whole is not None
    assert step.whole.without == {"a.gate"}
