"""Compilers that die now and then of files that they take when asked again."""

import random
from dataclasses import replace
from statistics import median

import pytest

from onnxbisect.diagnosis import CertificateStatus
from onnxbisect.unitset import UnitSet, of, size
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from support.engine.worlds import World, all_found, chain, monotone, universe

#: A chain with two refused ops.
OPS = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 8, 5, 6, 9]
REFUSED = {of([12]), of([15])}


class Dying(World):
    """Dies of large files by one signal, in some words, as often as `chance` says."""

    def __init__(self, chance: float, seed: int, signal: str = "SIGFPE", words: int = 2) -> None:
        super().__init__(chain(OPS), monotone(REFUSED))
        self._chance, self._random, self._signal, self._words = chance, random.Random(seed), signal, words

    def compile(self, units: UnitSet) -> Verdict:
        verdict = super().compile(units)
        if size(units) < 6 or self._random.random() >= self._chance:
            return verdict
        words = f"{self._signal}: words {'ab'[self._random.randrange(self._words)]}"
        return Verdict(status=Status.FAIL, kind=Kind.CRASH, fingerprint=words, message=words)


def test_what_passes_when_it_is_asked_again_was_not_refused() -> None:
    """RKNN-Toolkit2 divides by zero in one of three compiles of the same file of 195 nodes."""
    sane = World(chain(OPS), monotone(REFUSED))
    sane.diagnose()
    calls = []
    for seed in range(12):
        one = Dying(0.3, seed)
        step = one.diagnose()
        assert all_found(step) == REFUSED
        assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
        assert not step.diagnosis.flaky
        calls.append(one.calls)
    assert median(calls) <= sane.calls + 8
    assert max(calls) <= 4 * sane.calls


@pytest.mark.parametrize("signal", ["SIGSEGV", "SIGABRT"])
def test_a_crash_that_comes_again_is_believed_for_two_calls(signal: str) -> None:
    """A compiler that dies of each refused op; one that aborts has decided to, and is asked nothing again."""

    class Crashing(World):
        def compile(self, units: UnitSet) -> Verdict:
            verdict = super().compile(units)
            words = f"{signal}: no words"
            failed = Verdict(status=Status.FAIL, kind=Kind.CRASH, fingerprint=words, message=words)
            return failed if verdict.failed else verdict

    plain, crashing = World(chain(OPS), monotone(REFUSED)), Crashing(chain(OPS), monotone(REFUSED))
    assert all_found(plain.diagnose()) == all_found(crashing.diagnose()) == REFUSED
    assert crashing.calls - plain.calls == (2 if signal == "SIGSEGV" else 0)


def test_a_crash_that_names_an_op_is_no_chance() -> None:
    words, named = "SIGSEGV: Einsum", Hints(ops=("Einsum",))
    verdict = Verdict(status=Status.FAIL, kind=Kind.CRASH, fingerprint=words, hints=named)
    assert not verdict.by_chance


def test_other_variants_of_a_refused_op_are_asked_alone_until_one_passes() -> None:
    """Six forms of one op, all refused, cost a call each; of ten forms of which one is refused, two are asked alone."""
    graph = replace(universe(range(36), []), op=("Einsum",) * 6 + tuple(f"V{it}" for it in range(30)))
    one = World(graph, monotone({of([unit]) for unit in range(6)}))
    assert len(all_found(one.diagnose())) == 6
    assert one.calls <= 16

    graph = replace(universe(range(40), []), op=("Conv",) * 10 + tuple(f"V{it}" for it in range(30)))
    one = World(graph, monotone({of([4])}))
    assert all_found(one.diagnose()) == {of([4])}
    conv_alone = [units for units in one.verdicts if size(units) == 1 and units < of([10])]
    assert len(conv_alone) <= 4
