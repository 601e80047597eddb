"""The driver against a scripted planner and questions that are answered from a table, under real threads."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from onnx_bisect.driver import Budget, Driver, Ended
from onnx_bisect.events import Event
from onnx_bisect.verdict_base import InMemoryVerdictBase, VerdictBase
from onnxbisect.answer import Answer, Ask, Verdicts
from onnxbisect.diagnosis import (
    Certainty,
    CertificateStatus,
    CulpritKind,
    DiagnosedCulprit,
    Diagnosis,
    DiagnosisProof,
    Evidence,
)
from onnxbisect.errors import BackendUnusableError
from onnxbisect.search.planner import Plan
from onnxbisect.session import OWN_FILE, Ending
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_backends.sandbox.process import CompileGroup

PASS = Verdict(status=Status.PASS, seconds=1.0)
FAIL = Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message="no", seconds=1.0)
UNRESOLVED = Verdict(status=Status.UNRESOLVED, kind=Kind.ERROR)


def chain(count: int) -> Universe:
    """Units in a row, every one of its own kind."""
    return Universe(
        variant=tuple(range(count)),
        solo=tuple(range(count)),
        op=tuple(f"Op{index}" for index in range(count)),
        names=tuple((f"n{index}",) for index in range(count)),
        tensors=tuple((f"t{index}",) for index in range(count)),
        successors=tuple(1 << index + 1 if index + 1 < count else 0 for index in range(count)),
    )


def diagnosis(universe: Universe, verdicts: Verdicts) -> Diagnosis:
    whole = verdicts.get(universe.everything)
    return Diagnosis(
        verdict=whole[-1].status if whole else Status.UNRESOLVED,
        culprits=(),
        needs_context=(),
        certificate=DiagnosisProof(status=CertificateStatus.BOUNDED, unknown=(f"{len(verdicts)} verdicts",)),
        remainder=universe.everything,
    )


def each_unit(universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
    """Asks the whole, then every unit alone; the whole is all that is worth waiting for."""
    whole = universe.everything
    singles = [1 << unit for unit in range(len(universe))]
    wanted = [Ask(units=whole, attempt=0, why="the whole model")]
    wanted += [Ask(units=units, attempt=0, why="alone", speculative=whole not in verdicts) for units in singles]
    asks = [ask for ask in wanted if ask.units not in verdicts]
    if whole not in verdicts:
        asks = asks[:width]
    return Plan(asks=tuple(asks[:width]), diagnosis=diagnosis(universe, verdicts), expected=len(asks))


@dataclass
class Table:
    """Answers from a function of (units, how many times they were asked before), and says who worked when."""

    verdict: Callable[[UnitSet, int], Verdict] = lambda units, before: PASS
    seconds: float = 0.0
    asked: list[UnitSet] = field(default_factory=list)
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0

    def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
        with self._lock:
            before = self.asked.count(units)
            self.asked.append(units)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        limit = self.seconds if seconds_left is None else min(self.seconds, seconds_left)
        time.sleep(limit)
        with self._lock:
            self._now -= 1
        answer = Answer(verdict=self.verdict(units, before), log=f"log of {units}")
        return ProbeResult(answer=answer if limit == self.seconds else None, compiled=True, engine_seconds=0.0)


def silent(event: Event) -> None: ...


class Killed(CompileGroup):
    """Ends nothing, and says that it was to."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def kill(self) -> None:
        self.event.set()


def drive(
    table: Table,
    *,
    count: int = 4,
    planner: Callable[..., Plan] = each_unit,
    base: VerdictBase | None = None,
    key: Callable[[UnitSet], str] = str,
    **options: Any,
) -> Ended:
    driver = Driver(
        universe=chain(count),
        planner=planner,
        probes=table,
        base=base or InMemoryVerdictBase(),
        key=key,
        progress=silent,
        **options,
    )
    return driver.run()


def test_every_question_is_asked_once_and_recorded() -> None:
    table = Table(verdict=lambda units, before: FAIL if units & 2 else PASS)
    ended = drive(table)
    assert table.asked == [15, 1, 2, 4, 8]
    assert [record.verdict.status for record in ended.records] == ["fail", "pass", "fail", "pass", "pass"]
    assert ended.diagnosis.verdict is Status.FAIL
    assert ended.stats.compiler_calls == ended.stats.rounds == 5
    assert ended.stats.compile_seconds == 5.0
    assert ended.answers[2].log == "log of 2"
    assert ended.ending is Ending.FINISHED


@pytest.mark.parametrize("jobs", [2, 4, 16])
def test_the_pool_is_filled_and_never_overfilled(jobs: int) -> None:
    table = Table(seconds=0.4)  # long enough for sixteen threads to start on a busy machine
    ended = drive(table, count=20, jobs=jobs)
    assert table.most_at_once == jobs
    assert sorted(table.asked) == sorted([2**20 - 1, *(1 << unit for unit in range(20))])
    assert ended.stats.rounds <= 1 + 21 // jobs + 2
    assert ended.stats.wall_seconds < 21 * table.seconds


def test_a_new_plan_is_made_as_soon_as_one_verdict_arrives() -> None:
    release = threading.Event()
    plans: list[int] = []

    def planner(universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        plans.append(len(verdicts))
        if 2 in verdicts and 8 in verdicts:
            release.set()
        asks = [Ask(units=units, attempt=0, why="") for units in (1, 2, 4, 8) if units not in verdicts]
        # what follows unit 2 depends on its answer alone, and must not wait for unit 1
        asks = [ask for ask in asks if ask.units in (1, 2) or 2 in verdicts]
        return Plan(asks=tuple(asks), diagnosis=diagnosis(universe, verdicts), expected=0)

    class Slow(Table):
        def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
            if units == 1:
                assert release.wait(5), "the driver waited for a slow compile while it had other questions"
            return super().ask(units, seconds_left)

    ended = drive(Slow(), planner=planner, jobs=2)
    assert [record.units for record in ended.records][-1] == 1
    assert ended.stats.compiler_calls == 4


def test_speculative_questions_wait_for_an_idle_worker() -> None:
    def planner(universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        asks = [
            Ask(units=4, attempt=0, why="maybe", speculative=True),
            Ask(units=1, attempt=0, why="sure"),
            Ask(units=2, attempt=0, why="sure"),
        ]
        open_asks = [ask for ask in asks if ask.units not in verdicts]
        return Plan(asks=tuple(open_asks), diagnosis=diagnosis(universe, verdicts), expected=0)

    table = Table(seconds=0.05)
    drive(table, planner=planner, jobs=2)
    assert set(table.asked[:2]) == {1, 2}


def test_equal_pieces_are_compiled_once() -> None:
    for jobs in (1, 4):
        table = Table(seconds=0.01)
        ended = drive(table, jobs=jobs, key=lambda units: str(units.bit_count()))
        assert ended.stats.compiler_calls == 2
        assert ended.stats.cached == 3
        assert len(ended.records) == 5
        assert {record.units for record in ended.records} == {15, 1, 2, 4, 8}


def test_a_kept_answer_names_only_nodes_that_are_there() -> None:
    base = InMemoryVerdictBase()
    hints = Hints(ops=("Op",), nodes=("n1", "elsewhere"), tensors=("t9",))
    base.put("2", 0, Answer(verdict=Verdict(status=Status.FAIL, hints=hints)))
    ended = drive(Table(), base=base)
    (record,) = [record for record in ended.records if record.units == 2]
    assert record.verdict.hints == Hints(ops=("Op",), nodes=("n1",))
    assert record.cached


def asked_three_times(universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
    attempt = len(verdicts.get(1, ()))
    asks = (Ask(units=1, attempt=attempt, why="again"),) if attempt < 3 else ()
    return Plan(asks=asks, diagnosis=diagnosis(universe, verdicts), expected=0)


def test_asking_again_compiles_again_and_a_second_run_reads_the_same_sequence() -> None:
    base = InMemoryVerdictBase()
    table = Table(verdict=lambda units, before: FAIL if before == 1 else PASS)
    first = drive(table, planner=asked_three_times, base=base)
    assert table.asked == [1, 1, 1]
    assert [record.verdict.status for record in first.records] == ["pass", "fail", "pass"]
    second = drive(table, planner=asked_three_times, base=base)
    assert table.asked == [1, 1, 1]
    assert second.stats.compiler_calls == 0
    assert [record.verdict for record in second.records] == [record.verdict for record in first.records]


def test_a_second_run_asks_nothing_whatever_the_workers() -> None:
    base = InMemoryVerdictBase()
    drive(Table(seconds=0.01), base=base, jobs=4, count=12)
    for jobs in (1, 3, 16):
        table = Table()
        ended = drive(table, base=base, jobs=jobs, count=12)
        assert table.asked == []
        assert ended.stats.compiler_calls == ended.stats.rounds == 0
        assert ended.stats.cached == 13


def test_unresolved_answers_are_asked_again_by_the_next_run() -> None:
    base = InMemoryVerdictBase()
    drive(Table(verdict=lambda units, before: UNRESOLVED if units == 4 else PASS), base=base)
    table = Table()
    drive(table, base=base)
    assert table.asked == [4]


def test_a_budget_of_calls_ends_the_search_with_what_is_known() -> None:
    base = InMemoryVerdictBase()
    table = Table(seconds=0.01)
    ended = drive(table, jobs=2, budget=Budget(calls=3), base=base)
    assert len(table.asked) == ended.stats.compiler_calls == 3
    assert ended.diagnosis.certificate.unknown == ("3 verdicts",)
    assert ended.ending is Ending.CALLS
    rest = Table()
    drive(rest, base=base)
    assert sorted([*table.asked, *rest.asked]) == [1, 2, 4, 8, 15]


def test_a_budget_of_seconds_ends_a_compile_and_its_outcome_is_forgotten() -> None:
    class Slow(Table):
        def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
            self.seconds = 0.0 if units == 15 else 60.0
            return super().ask(units, seconds_left)

    table = Slow()
    ended = drive(table, budget=Budget(seconds=2))
    assert table.asked == [15, 1]
    assert [record.units for record in ended.records] == [15]
    assert ended.ending is Ending.SECONDS
    assert ended.stats.wall_seconds < table.seconds


def test_stop_keeps_verdicts_and_forgets_killed_compiles() -> None:
    base = InMemoryVerdictBase()
    killed = Killed()

    class Deaf(Table):
        def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
            if units == 2:
                driver.stop()
                assert killed.event.wait(5)
                return ProbeResult(answer=Answer(verdict=FAIL), compiled=True, engine_seconds=0.0)
            return super().ask(units, seconds_left)

    driver = Driver(
        universe=chain(4),
        planner=each_unit,
        probes=Deaf(),
        base=base,
        key=str,
        progress=silent,
        compiles=killed,
    )
    ended = driver.run()
    assert ended.ending is Ending.CANCELLED
    assert {record.units for record in ended.records} == {15, 1}
    assert base.get("2", 0) is None
    assert ended.diagnosis.certificate.unknown == ("2 verdicts",)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("probe ")]


def test_a_backend_that_cannot_be_used_ends_the_run_and_kills_the_other_compiles() -> None:
    killed = Killed()

    class Gone(Table):
        def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
            if units == 1:
                raise BackendUnusableError("The compiler is gone.")
            if units == 2:
                assert killed.event.wait(5)
            return super().ask(units, seconds_left)

    with pytest.raises(BackendUnusableError, match="gone"):
        drive(Gone(), jobs=3, compiles=killed)
    assert killed.event.is_set()


def test_a_piece_that_was_not_compiled_is_no_call() -> None:
    class Uncut(Table):
        def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
            asked = super().ask(units, seconds_left)
            return ProbeResult(answer=asked.answer, compiled=units != 4, engine_seconds=0.0)

    assert drive(Uncut()).stats.compiler_calls == 4


def blaming(*own: UnitSet) -> Callable[..., Plan]:
    """`each_unit`, which in the end blames these sets of units."""

    def planner(universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        found = each_unit(universe, verdicts, width)
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
            for units in own
        )
        return replace(found, diagnosis=replace(found.diagnosis, culprits=culprits))

    return planner


class Files(Table):
    """Of each piece a file, which `name` tells from those of other models."""

    name: str = ""

    def file(self, units: UnitSet) -> str:
        return f"file of {units}{self.name}"

    def digests(self, pieces: Sequence[UnitSet]) -> dict[UnitSet, str]:
        return {units: self.file(units) for units in pieces}

    def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
        asked = super().ask(units, seconds_left)
        assert asked.answer is not None
        return replace(asked, answer=replace(asked.answer, file_sha256=self.file(units), log=self.file(units)))


def test_a_confirmation_that_contradicts_goes_back_to_the_planner() -> None:
    """A culprit whose own file compiles must not be reported as before."""

    def planner(universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        statuses = [verdict.status for verdict in verdicts.get(1, ())]
        found = blaming(1)(universe, verdicts, width)
        asks: Sequence[Ask] = ()
        if not statuses or (Status.PASS in statuses and len(statuses) < 3):
            asks = (Ask(units=1, attempt=len(statuses), why=""),)
        return replace(found, asks=tuple(asks))

    base = InMemoryVerdictBase()
    base.put("1", 0, Answer(verdict=FAIL, file_sha256="of another place"))
    table = Files(verdict=lambda units, before: PASS)
    ended = drive(table, planner=planner, digests=table.digests, base=base)
    assert [record.verdict.status for record in ended.records] == ["fail", "pass", "pass"]
    assert [record.why for record in ended.records] == ["", OWN_FILE, ""]


def test_every_culprit_gets_a_compile_of_its_own_file_whatever_is_known_of_its_like() -> None:
    """Units 0 and 2 are of one structure, and one answer stands for both; with one job they wait for each other."""
    base = InMemoryVerdictBase()
    base.put("alike", 0, Answer(verdict=FAIL, file_sha256="of another place"))
    table = Files(verdict=lambda units, before: FAIL)
    ended = drive(
        table,
        base=base,
        planner=blaming(1, 4),
        key=lambda units: "alike" if units in (1, 4) else str(units),
        digests=table.digests,
    )
    assert sorted(table.asked) == [1, 2, 4, 8, 15]
    assert [ended.answers[units].log for units in (1, 4)] == ["file of 1", "file of 4"]


def test_a_culprit_s_own_file_takes_one_question_whatever_is_on_record() -> None:
    """Each run has another file of the same structure, and all of them share the user's verdict base."""
    base = InMemoryVerdictBase()
    counted = []
    for run in range(6):
        base._journal.clear()  # another model's
        table = Files(verdict=lambda units, before: FAIL)
        table.name = f" in run {run}"
        ended = drive(table, base=base, planner=blaming(1), key=lambda units: f"key of {units}", digests=table.digests)
        counted.append(sum(record.units == 1 for record in ended.records))
    assert counted == [1, 2, 2, 2, 2, 2]


def test_a_culprit_whose_file_gives_no_answer_is_asked_about_once() -> None:
    table = Files(verdict=lambda units, before: UNRESOLVED)
    nothing_to_ask = Plan(asks=(), diagnosis=blaming(1)(chain(4), {}).diagnosis, expected=0)
    drive(table, planner=lambda *_, **__: nothing_to_ask, digests=table.digests)
    assert table.asked == [1]


def test_no_file_is_compiled_for_nobody() -> None:
    table = Files(verdict=lambda units, before: UNRESOLVED)
    nothing_to_ask = Plan(asks=(), diagnosis=blaming(1)(chain(4), {}).diagnosis, expected=0)
    drive(table, planner=lambda *_, **__: nothing_to_ask)
    assert table.asked == []


def test_an_answer_about_another_file_is_not_taken_from_the_journal() -> None:
    """An earlier release cut these units otherwise, so that their key was another one."""
    base = InMemoryVerdictBase()
    drive(Table(), base=base, key=lambda units: f"old {units}" if units == 2 else str(units))
    later = Table()
    drive(later, base=base)
    assert later.asked == [2]
