"""What to ask next and when a search is over, from what is known and what the budget leaves."""

from collections.abc import Callable, Sequence

import pytest

from onnxbisect.answer import Ask, Verdicts
from onnxbisect.diagnosis import (
    Certainty,
    CertificateStatus,
    CulpritKind,
    DiagnosedCulprit,
    Diagnosis,
    DiagnosisProof,
    Evidence,
    ProbeRecord,
)
from onnxbisect.search.planner import Plan
from onnxbisect.session import OWN_FILE, Ending, SearchRecord, Step, next_step
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status, Verdict
from support.engine.worlds import chain

UNIVERSE = chain(range(4))
SURE, ALSO, MAYBE = (
    Ask(units=1, attempt=0, why="sure"),
    Ask(units=2, attempt=0, why="sure, too"),
    Ask(units=4, attempt=0, why="perhaps", speculative=True),
)


def planner(*asks: Ask, blamed: Sequence[UnitSet] = ()) -> Callable[..., Plan]:
    def found(universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        culprits = tuple(
            DiagnosedCulprit(
                units=units,
                occurrences=(units,),
                kind=CulpritKind.SINGLE,
                certainty=Certainty.CONFIRMED,
                failure=Kind.UNSUPPORTED,
                fingerprint="",
                message="",
                evidence=Evidence(fails=units, own=units),
            )
            for units in blamed
        )
        diagnosis = Diagnosis(
            verdict=Status.FAIL,
            culprits=culprits,
            needs_context=(),
            certificate=DiagnosisProof(status=CertificateStatus.PROVEN),
            remainder=0,
        )
        return Plan(asks=asks, diagnosis=diagnosis, expected=0.0)

    return found


def failed(units: UnitSet, *, attempt: int = 0, cached: bool = False, file: str = "", why: str = "") -> ProbeRecord:
    verdict = Verdict(status=Status.FAIL)
    return ProbeRecord(
        key="k", units=units, verdict=verdict, why=why, round=1, attempt=attempt, cached=cached, file_sha256=file
    )


def step(*asks: Ask, **known: object) -> Step:
    return next_step(UNIVERSE, SearchRecord(**{"records": (), **known}), planner(*asks))  # type: ignore[arg-type]


def test_without_a_budget_all_is_asked() -> None:
    found = step(MAYBE, SURE, ALSO)
    assert found.asks == found.wanted == (MAYBE, SURE, ALSO)
    assert found.ending is None


def test_a_budget_of_calls_goes_to_what_is_sure_first() -> None:
    found = step(MAYBE, SURE, ALSO, calls_left=2)
    assert found.asks == (SURE, ALSO)
    assert found.wanted == (MAYBE, SURE, ALSO)


def test_what_is_in_flight_is_paid_for() -> None:
    found = step(MAYBE, SURE, ALSO, calls_left=1, in_flight=frozenset({(4, 0)}))
    assert found.asks == (MAYBE, SURE)


@pytest.mark.parametrize(
    ("budget", "ending"), [({"calls_left": 0}, Ending.CALLS), ({"out_of_time": True}, Ending.SECONDS)]
)
def test_a_spent_budget_ends_the_search_once_nothing_is_in_flight(budget: dict[str, object], ending: Ending) -> None:
    assert step(SURE, **budget, in_flight=frozenset({(8, 0)})).ending is None
    found = step(SURE, **budget)
    assert (found.asks, found.ending) == ((), ending)


def test_nothing_to_ask_is_the_end_whatever_speculation_is_in_flight() -> None:
    assert step(in_flight=frozenset({(4, 0)})).ending is Ending.FINISHED


def own_files(*records: ProbeRecord, digests: dict[UnitSet, str] | None = None, **known: object) -> Step:
    wanted: list[UnitSet] = []

    def asked_for(pieces: Sequence[UnitSet]) -> dict[UnitSet, str]:
        wanted.extend(pieces)
        return {units: digest for units, digest in (digests or {}).items() if units in pieces}

    found = next_step(
        UNIVERSE,
        SearchRecord(records=records, **known),  # type: ignore[arg-type]
        planner(blamed=[1, 4]),
        digests=asked_for,
    )
    assert set(wanted) == {record.units for record in records if record.cached}
    return found


def test_a_file_that_was_compiled_is_not_compiled_again() -> None:
    found = own_files(failed(1, file="a"), failed(4, file="b"))
    assert (found.asks, found.ending) == ((), Ending.FINISHED)


def test_a_file_of_which_only_its_like_was_compiled_is_compiled() -> None:
    found = own_files(failed(1, file="a", cached=True), failed(4, file="b", cached=True), digests={1: "a", 4: "own"})
    assert found.asks == (Ask(units=4, attempt=1, why=OWN_FILE),)
    assert found.ending is None


def test_a_file_is_compiled_once_whatever_comes_of_it() -> None:
    found = own_files(failed(1, file="a"), failed(4, attempt=0), failed(4, attempt=1, why=OWN_FILE))
    assert found.ending is Ending.FINISHED


def test_a_file_that_cannot_be_looked_at_is_not_asked_about() -> None:
    assert own_files(failed(1, file="a", cached=True), failed(4, file="b")).ending is Ending.FINISHED


def test_files_are_within_the_budget() -> None:
    found = own_files(failed(1, file="a"), calls_left=0)
    assert (found.asks, found.ending) == ((), Ending.CALLS)
    assert [ask.units for ask in found.wanted] == [4]


def test_attempts_are_in_their_order_whatever_order_answers_come_in() -> None:
    first, second = Verdict(status=Status.FAIL), Verdict(status=Status.PASS)
    records = [
        ProbeRecord(key="k", units=1, verdict=verdict, why="", round=1, attempt=attempt)
        for attempt, verdict in ((1, second), (0, first))
    ]
    assert SearchRecord(records=records).verdicts == {1: [first, second]}
