"""The steps of a job, called in any order, twice or never: it ends, with what the local driver finds."""

import errno
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from onnx_bisect.driver import Driver
from onnx_bisect.verdict_base import InMemoryVerdictBase
from onnxbisect.errors import BackendUnusableError, ModelError, OnnxBisectError, OptionError
from onnxbisect.search import plan
from onnxbisect.session import OWN_FILE
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db import lifecycle, probe_queries, probes, reconcile, searches, workers
from onnxbisect_db.database import Database
from onnxbisect_db.files import StoredFile
from onnxbisect_db.states import EventType, Fault, JobState, ProbeState, Stage
from onnxbisect_db.tables import Event, Job, Probe, Search
from onnxbisect_db.trouble import MOST_CRASHES
from onnxbisect_db.workers import Presence
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.settings import Settings
from onnxbisect_worker.claiming import WorkClaimer
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.model_processes.pool import clear_process_folders, processes_folder
from onnxbisect_worker.model_requests import protocol
from onnxbisect_worker.model_requests.layout import temporary
from onnxbisect_worker.model_requests.protocol import Case, OtherVersionError, ProcessLostError, ToolBrokenError
from support.db.scenes import LEASE, Clock
from support.engine.worlds import chain, monotone, universe
from support.worker.crank import NPU, Crank
from support.worker.hidden_rule import Compiler, HiddenRulePool, HiddenRuleProcess, culprits_of

NewCrank = Callable[[Compiler], Crank]


@pytest.fixture
def crank(database: Database, clock: Clock, tmp_path: Path) -> NewCrank:
    return lambda compiler: Crank(database=database, clock=clock, folder=tmp_path, compiler=compiler)


def fails_on(*minimal: UnitSet, count: int = 8) -> Compiler:
    return Compiler(universe=chain(range(count)), rule=monotone(minimal))


def world(seed: int) -> Compiler:
    """A graph with branches and repeated ops, some of which fail wherever they stand, and perhaps a pair that does."""
    chance = random.Random(seed)
    count = chance.randint(6, 24)
    variants = [chance.randint(0, 5) for _ in range(count)]
    edges = [(chance.randint(max(0, unit - 3), unit - 1), unit) for unit in range(1, count)]
    bad = set(chance.sample(range(6), chance.randint(0, 2)))
    minimal = [1 << unit for unit in range(count) if variants[unit] in bad]
    innocent = [(a, b) for a, b in edges if variants[a] not in bad and variants[b] not in bad]
    if innocent and chance.random() < 0.3:
        pair = chance.choice(innocent)
        minimal += [1 << a | 1 << b for a, b in edges if (variants[a], variants[b]) == tuple(variants[u] for u in pair)]
    return Compiler(universe=universe(variants, edges), rule=monotone(minimal))


def found_locally(compiler: Compiler) -> list[list[str]]:
    """What `onnx-bisect run` comes to."""

    class Probes:
        def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
            return ProbeResult(answer=compiler.answer(units), compiled=True, engine_seconds=0.0)

    driver = Driver(
        universe=compiler.universe,
        planner=plan,
        probes=Probes(),
        base=InMemoryVerdictBase(),
        key=compiler.key,
        progress=lambda event: None,
        digests=lambda pieces: {units: compiler.file(units) for units in pieces},
    )
    return culprits_of(driver.run().diagnosis)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_culprits_are_those_of_the_local_driver(crank: NewCrank, seed: int) -> None:
    compiler = world(seed)
    it = crank(compiler)
    job = it.job()
    it.run(job, places=[it.place("one"), it.place("two")], chance=random.Random(seed), dies=0.15)
    assert it.read(job).state == JobState.DONE
    assert it.report(job)["diagnosis"] == found_locally(compiler)


def test_a_job_on_two_targets_ends_when_both_have(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job([NPU, "other"])
    it.run(job)
    ended = it.read(job)
    assert (ended.state, ended.verdict) == (JobState.DONE, "fail")
    assert [search.stage for search in ended.searches] == [Stage.OVER, Stage.OVER]
    assert it.report(job, 0)["diagnosis"] == it.report(job, 1)["diagnosis"]


def test_two_jobs_at_a_time_compile_nothing_twice(crank: NewCrank) -> None:
    it = crank(fails_on(0b100, 0b1000000))
    both = [it.job(), it.job()]
    it.run(*both, places=[it.place("one"), it.place("two")], chance=random.Random(1))
    assert set(it.compiler.asked.values()) == {1}
    assert it.report(both[0])["diagnosis"] == it.report(both[1])["diagnosis"]


def test_the_second_job_of_a_model_asks_nothing(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    first = it.job()
    it.run(first)
    asked = it.compiler.asked.total()
    second = it.job()
    it.run(second)
    assert it.compiler.asked.total() == asked
    assert it.report(second)["diagnosis"] == it.report(first)["diagnosis"]
    assert it.report(second)["stats"]["compiler_calls"] == 0


def test_a_culprit_that_was_known_from_elsewhere_is_compiled_from_its_own_file(crank: NewCrank) -> None:
    """The other place of equal structure has other bytes, and only what failed itself is handed out."""
    alike = Compiler(universe=chain([0, 1, 2, 3], solos=[0, 1, 2, 3]), rule=monotone([0b10]))
    it = crank(alike)
    it.run(it.job(model="first"))
    # the same ops in another order, so that the same piece is another file
    alike.universe = chain([3, 2, 1, 0], solos=[3, 2, 1, 0])
    alike.rule = monotone([0b100])
    job = it.job(model="second")
    it.run(job)
    with it.database.session() as session:
        answers = probe_queries.answered(session, it.read(job).searches[0].id)
    own = [answer for answer in answers if answer.why == OWN_FILE]
    assert [(answer.units, answer.attempt, answer.cached) for answer in own] == [(0b100, 1, False)]
    known = next(answer for answer in answers if answer.units == 0b100 and answer.cached)
    assert known.verdict.hints.nodes == ()  # "n1" is another node here
    assert list(it.read(job).searches[0].files) == ["culprits/4/model.onnx"]


def test_a_culprit_s_own_file_takes_one_probe_whatever_is_on_record(crank: NewCrank) -> None:
    """Models that share a refused op, each with its own weights: the last one's job is no longer than the second's."""
    alike = Compiler(universe=chain([0, 1, 2, 3], solos=[0, 1, 2, 3]), rule=monotone([0b10]))
    it = crank(alike)
    probes, compiled = [], []
    for number in range(6):
        alike.weights = str(number)
        before = alike.asked.total()
        job = it.job(model=f"model {number}")
        it.run(job)
        with it.database.session() as session:
            answers = probe_queries.answered(session, it.read(job).searches[0].id)
        probes.append(len(answers))
        compiled.append(alike.asked.total() - before)
        assert list(it.read(job).searches[0].files) == ["culprits/2/model.onnx"]
    assert len(set(probes[1:])) == 1
    assert set(compiled[1:]) == {1}


def test_what_is_claimed_as_the_worker_stops_is_given_back(crank: NewCrank) -> None:
    it, _, place = asking(crank)
    work = it.next(place)
    assert work is not None
    place.stopping.set()
    work()
    assert it.compiler.asked.total() == 0
    with it.database.session() as session:
        assert {(row.state, row.losses) for row in session.scalars(select(Probe))} == {(ProbeState.QUEUED, 0)}


def test_a_new_model_is_read_while_probes_wait(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    place, compiling = it.place(), replace(it.place("compiles"))
    for name in ("first", "second"):
        it.job(model=name)
        it.step(place)
        it.step(place)
    new = it.job(model="third")
    with it.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id=compiling.worker, backends=(NPU,), slots=9))
    claiming = WorkClaimer(compiling, control=False, probes=9)
    for _ in range(2):
        work = claiming()
        assert work is not None
        work()
    assert it.read(new).searches[0].stage == Stage.SEARCH
    assert it.compiler.asked.total() == 1


def test_a_budget_of_calls_is_kept(crank: NewCrank) -> None:
    it = crank(fails_on(0b100, 0b1000000))
    job = it.job(spec=SearchSpec(budget_calls=3))
    it.run(job)
    ended = it.read(job)
    assert ended.state == JobState.DONE
    assert ended.searches[0].calls == it.compiler.asked.total() == 3


def test_a_budget_of_time_ends_the_search_with_what_is_known(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job(spec=SearchSpec(budget_seconds=60))
    place = it.place()
    it.step(place)
    it.step(place)
    assert it.step(place)
    it.clock.forward(61)
    it.run(job)
    assert (it.read(job).state, it.read(job).verdict) == (JobState.DONE, "fail")
    assert it.compiler.asked.total() == 1


def test_a_compile_that_the_budget_ended_says_nothing(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    it.compiler.too_slow = True
    job = it.job(spec=SearchSpec(budget_seconds=60))
    place = it.place()
    it.step(place)
    it.step(place)
    it.clock.forward(59)
    assert it.step(place)
    it.clock.forward(1)
    it.run(job)
    assert (it.read(job).state, it.read(job).verdict) == (JobState.DONE, "unresolved")


def test_what_kills_its_host_is_unresolved_and_the_job_goes_on(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    it.compiler.deadly = lambda units: units == 0b100
    job = it.job()
    it.run(job)
    assert it.read(job).state == JobState.DONE
    assert it.compiler.asked[0b100] % MOST_CRASHES == 0
    with it.database.session() as session:
        [poison, *_] = [it for it in probe_queries.answered(session, job.searches[0].id) if it.units == 0b100]
    assert "killed by signal 9" in poison.verdict.message


@pytest.mark.parametrize("stage", [Stage.PREPARE, Stage.SEARCH, Stage.REPORT])
def test_a_host_that_is_killed_from_outside_is_started_again(crank: NewCrank, stage: Stage) -> None:
    it = crank(fails_on(0b100))
    job = it.job()
    it.until(stage, job, it.place())
    it.compiler.hosts_shot = MOST_CRASHES + 2
    it.run(job)
    assert it.compiler.hosts_shot < 0
    assert it.read(job).state == JobState.DONE
    assert it.report(job)["diagnosis"] == found_locally(fails_on(0b100))


def test_a_model_that_kills_every_host_is_given_up(crank: NewCrank) -> None:
    """As the kernel tells it; then it is tried once more, in a new process."""
    it = crank(fails_on(0b100))
    it.compiler.refusal = ProcessLostError("The process that had the model was killed by SIGSEGV.")
    asked_for: list[bool] = []

    class Watched(HiddenRulePool):
        @contextmanager
        def acquire(self, case: Case, *, new: bool = False) -> Iterator[HiddenRuleProcess]:
            asked_for.append(new)
            with super().acquire(case) as host:
                yield host

    job = it.job()
    it.run(job, places=[replace(it.place(), pool=Watched(it.compiler))])
    assert it.read(job).state == JobState.FAILED
    assert "killed by SIGSEGV" in it.read(job).problem
    assert asked_for == [False, True]


def test_a_fault_of_ours_does_not_go_round_for_ever(crank: NewCrank, monkeypatch: pytest.MonkeyPatch) -> None:
    it = crank(fails_on(0b100))

    def faulty(*_: object, **__: object) -> NoReturn:
        raise KeyError("nothing")

    monkeypatch.setattr("onnxbisect_worker.coordinating.plan", faulty)
    job = it.job()
    it.run(job)
    assert it.read(job).state == JobState.FAILED
    assert "has a fault" in it.read(job).problem


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_what_a_machine_is_short_of_is_no_answer(crank: NewCrank, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It goes on when there is enough again, and says until then what it waits for."""
    it = crank(fails_on(0b100))
    job, store, left = it.job(), it.service.files, Counter({"put": MOST_CRASHES + 2})
    put = store.put

    def full(*given: Any) -> StoredFile:
        left["put"] -= 1
        if left["put"] >= 0:
            raise OSError(number, os.strerror(number))
        return put(*given)

    monkeypatch.setattr(store, "put", full)
    it.step(it.place())
    assert "A worker has no room to go on" in it.read(job).searches[0].trouble
    it.run(job)
    assert it.report(job)["diagnosis"] == found_locally(fails_on(0b100))


def test_a_compile_that_is_refused_memory_is_tried_once_more_alone(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    it.compiler.starved = 1
    job = it.job()
    it.run(job)
    assert it.report(job)["diagnosis"] == found_locally(fails_on(0b100))


def test_a_compile_that_is_refused_memory_alone_too_is_unresolved(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    it.compiler.starved = 2
    job = it.job()
    it.run(job)
    with it.database.session() as session:
        answered = probe_queries.answered(session, job.searches[0].id)
    assert ["Was refused memory" in it.verdict.message for it in answered].count(True) == 1


def test_a_compiler_that_is_killed_from_outside_is_started_again(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    it.compiler.shot = MOST_CRASHES + 2
    job = it.job()
    it.run(job)
    assert it.report(job)["diagnosis"] == found_locally(fails_on(0b100))
    with it.database.session() as session:
        answered = probe_queries.answered(session, job.searches[0].id)
    assert Status.UNRESOLVED not in {record.verdict.status for record in answered}


@pytest.mark.parametrize(
    ("refusal", "fault"),
    [
        (ModelError("The file is no ONNX model."), Fault.REQUEST),
        (OptionError("The model has no input 'x'."), Fault.REQUEST),
        (BackendUnusableError("The licence has run out."), Fault.SERVICE),
        (ProcessLostError("It was given up after 9 seconds."), Fault.SERVICE),
    ],
)
def test_a_model_that_cannot_be_read_fails_the_job_with_a_sentence(
    crank: NewCrank, refusal: OnnxBisectError, fault: Fault
) -> None:
    it = crank(fails_on(0b100))
    it.compiler.refusal = refusal
    job = it.job()
    it.run(job)
    assert (it.read(job).state, it.read(job).problem) == (JobState.FAILED, str(refusal))
    assert it.read(job).searches[0].fault == fault


class NoLicence(HiddenRulePool):
    """Of a worker whose compiler works until it is asked about the model, or not even that long."""

    def __init__(self, compiler: Compiler, *, at: Iterable[str]) -> None:
        super().__init__(compiler)
        self._at = at

    @contextmanager
    def acquire(self, case: Case, *, new: bool = False) -> Iterator[HiddenRuleProcess]:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise ToolBrokenError("The licence has run out.")

        with super().acquire(case) as host:
            for what in self._at:
                setattr(host, what, refuse)
            yield host


@pytest.mark.long
@pytest.mark.parametrize("at", [["ask"], ["prepare", "ask"]], ids=len)
@pytest.mark.parametrize("seed", range(3))
def test_a_worker_whose_compiler_does_not_work_leaves_all_to_the_others(
    crank: NewCrank, clock: Clock, monkeypatch: pytest.MonkeyPatch, seed: int, at: list[str]
) -> None:
    """It is quick to fail: it would take question after question, and lose them all."""
    monkeypatch.setattr(workers, "ALIVE", timedelta(hours=1))
    it = crank(fails_on(0b100, 0b1000000))
    places = [it.place("works"), replace(it.place("broken"), pool=NoLicence(it.compiler, at=at))]
    with it.database.transaction() as session:
        for place in places:
            workers.record_heartbeat(session, Presence(id=place.worker, backends=(NPU,), slots=1))
    job = it.job()
    it.run(job, places=places, chance=random.Random(seed))
    assert it.read(job).state == JobState.DONE
    assert it.report(job)["diagnosis"] == found_locally(fails_on(0b100, 0b1000000))
    with it.database.session() as session:
        assert session.scalars(select(func.sum(Probe.losses))).one() == 0
        assert {worker.id: worker.unusable for worker in workers.list_all(session)} == {"works": [], "broken": [NPU]}
        assert set(session.scalars(select(Probe.worker).where(Probe.state == ProbeState.DONE))) == {"works"}


def test_where_the_compiler_works_nowhere_the_job_says_so(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    places = [replace(it.place(name), pool=NoLicence(it.compiler, at=["prepare"])) for name in ("a", "b")]
    with it.database.transaction() as session:
        for place in places:
            workers.record_heartbeat(session, Presence(id=place.worker, backends=(NPU,), slots=1))
    job = it.job()
    for place in (*places, *places):
        it.step(place)
    assert (it.read(job).state, it.read(job).problem) == (JobState.FAILED, "The licence has run out.")
    with it.database.session() as session:
        assert [worker.unusable for worker in workers.list_all(session)] == [[NPU], [NPU]]


def test_an_answer_outlives_a_database_that_is_away(crank: NewCrank, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be one of hours."""
    it, _, place = asking(crank)
    answer, away = probes.answer, [True, True]

    def answered(*given: Any, **more: Any) -> None:
        if away:
            away.pop()
            raise OperationalError("UPDATE", {}, ConnectionError())
        answer(*given, **more)

    monkeypatch.setattr(probes, "answer", answered)
    it.step(place)
    with it.database.session() as session:
        assert ProbeState.DONE in set(session.scalars(select(Probe.state)))
    assert it.compiler.asked.total() == 1


def test_a_picture_of_the_model_is_stored(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job()
    it.run(job)
    graph = it.read(job).searches[0].graph
    assert graph is not None
    with it.service.files.open(graph) as file:
        assert file.read() == b"a picture"


@pytest.mark.parametrize("why", [OnnxBisectError("It goes in circles."), ProcessLostError("It took 9 seconds.")])
def test_a_search_goes_on_without_a_picture(crank: NewCrank, why: OnnxBisectError) -> None:
    it = crank(fails_on(0b100))
    it.compiler.no_picture = why
    job = it.job()
    it.run(job)
    assert (it.read(job).state, it.read(job).searches[0].graph) == (JobState.DONE, None)


def test_culprits_are_told_once_each(crank: NewCrank) -> None:
    it = crank(fails_on(0b100, 0b1000000))
    job = it.job()
    it.run(job)
    with it.database.session() as session:
        mine = select(Event.data).where(Event.job_id == job.id, Event.type == "culprit.found")
        told = [data["culprit"]["nodes"] for data in session.scalars(mine)]
    assert sorted(told) == [["n2"], ["n6"]]


def test_a_cancelled_job_kills_its_compiler_at_once(crank: NewCrank) -> None:
    it, job, place = asking(crank)
    with Compiling(it, lambda: it.step(place)) as compiling:
        began = time.monotonic()
        it.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
        compiling.ends()
        assert time.monotonic() - began < 2
    assert it.compiler.killed == 1
    with it.database.session() as session:
        assert not probe_queries.answered(session, job.searches[0].id)


def test_a_cancelled_job_is_not_read_any_further(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job, place = it.job(), it.place()
    with Compiling(it, lambda: it.step(place)) as compiling:
        it.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
        compiling.ends()
    assert (it.compiler.killed, it.read(job).state) == (1, JobState.CANCELLED)


def test_a_worker_that_stops_gives_its_probe_back(crank: NewCrank) -> None:
    it, job, place = asking(crank)
    with Compiling(it, lambda: it.step(place)) as compiling:
        place.stopping.set()
        compiling.ends()
    with it.database.session() as session:
        states = {(row.state, row.losses) for row in session.scalars(select(Probe))}
    assert states == {(ProbeState.QUEUED, 0)}
    assert not it.step(place)
    it.run(job)
    assert it.report(job)["diagnosis"] == found_locally(it.compiler)


def test_a_worker_that_stops_leaves_the_model_to_others(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job, place = it.job(), it.place()
    with Compiling(it, lambda: it.step(place)) as compiling:
        place.stopping.set()
        compiling.ends()
    search = it.read(job).searches[0]
    assert (search.stage, search.lease_until, search.losses) == (Stage.PREPARE, None, 0)
    it.run(job)
    assert it.read(job).state == JobState.DONE


def test_a_worker_given_up_for_dead_is_stopped_when_it_wakes(crank: NewCrank) -> None:
    it, job, place = asking(crank)
    with Compiling(it, lambda: it.step(place)) as compiling:
        it.clock.forward(LEASE + 1)
        assert reconcile.reconcile(it.database, "crank")
        compiling.ends()
    assert it.compiler.killed == 1
    it.run(job)
    assert it.report(job)["diagnosis"] == found_locally(it.compiler)


def test_a_worker_takes_no_more_probes_than_it_has_slots(crank: NewCrank) -> None:
    it, _, place = asking(crank)
    it.job(model="other")
    it.step(it.place())
    it.step(it.place())
    claiming = WorkClaimer(place, control=False, probes=1)
    work = claiming()
    assert work is not None
    assert claiming() is None
    work()
    assert claiming() is not None


@pytest.mark.parametrize("steps", range(2, 12))
def test_an_upgrade_begins_what_is_in_flight_again(
    crank: NewCrank, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """At any step: answers of two versions are no evidence together."""
    it = crank(fails_on(0b100, 0b1000000))
    job, before = it.job(), it.place()
    for _ in range(steps):
        it.step(before)
    first = it.read(job).searches[0]
    assert first.universe is not None
    was_over = first.stage == Stage.OVER
    monkeypatch.setattr(protocol, "REVISION", "next")
    it.run(job, places=[it.place("upgraded")])
    last = it.read(job).searches[0]
    assert it.read(job).state == JobState.DONE
    assert it.report(job)["diagnosis"] == found_locally(it.compiler)
    assert (last.id == first.id) == was_over
    with it.database.session() as session:
        made = session.scalars(select(Probe).join(Search)).all()
        answered = probe_queries.answered(session, last.id)
        assert {probe.search_id for probe in made} == {last.id}
    assert Status.UNRESOLVED not in {record.verdict.status for record in answered}


def test_what_an_old_worker_has_in_hand_when_its_target_begins_again_counts_for_nothing(
    crank: NewCrank, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, job, place = asking(crank)
    old = it.next(place)
    assert old is not None
    monkeypatch.setattr(protocol, "REVISION", "next")
    upgraded = it.place("upgraded")
    with it.database.transaction() as session:
        searches.mark_dirty(session, session.get_one(Search, job.searches[0].id))
    assert it.step(upgraded)
    assert it.read(job).searches[0].id != job.searches[0].id
    old()
    it.run(job, places=[upgraded])
    assert it.report(job)["diagnosis"] == found_locally(it.compiler)


def test_workers_that_differ_for_ever_fail_the_job_with_a_sentence(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))

    class Differs(HiddenRulePool):
        @contextmanager
        def acquire(self, case: Case, *, new: bool = False) -> Iterator[HiddenRuleProcess]:
            def refuse(*_: object, **__: object) -> NoReturn:
                raise OtherVersionError("This worker has tool 2, and the search began with tool 1.")

            with super().acquire(case) as host:
                setattr(host, "ask", refuse)  # noqa: B010 - a method
                yield host

    job = it.job()
    it.run(job, places=[replace(it.place(), pool=Differs(it.compiler))])
    assert (it.read(job).state, it.read(job).searches[0].fault) == (JobState.FAILED, Fault.SERVICE)
    assert "began with tool 1" in it.read(job).problem
    with it.database.session() as session:
        begun = select(func.count()).select_from(Event).where(Event.type == EventType.SEARCH_PREPARED)
        assert session.scalars(begun).one() == 3


def test_a_search_speculates_only_for_slots_that_nobody_else_wants(crank: NewCrank) -> None:
    it = with_slots(crank, seconds=1.0)
    assert questions(it, it.job()) > 1
    with it.database.session() as session:
        wanted = select(Probe).where(Probe.state == ProbeState.QUEUED, Probe.speculative.is_(False))
        waiting = len(session.scalars(wanted).all())
    with it.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="w", backends=(NPU,), slots=waiting))
    assert questions(it, it.job(model="other")) == 1


def test_a_search_does_not_speculate_about_a_quick_compiler(crank: NewCrank) -> None:
    it = with_slots(crank, seconds=0.01)
    assert questions(it, it.job()) == 1


def with_slots(crank: NewCrank, *, seconds: float) -> Crank:
    """Four slots of a compiler that takes so long."""
    it = crank(replace(fails_on(0b1000_0000, 0b10, count=12), seconds=seconds))
    with it.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="w", backends=(NPU,), slots=4))
    return it


def questions(it: Crank, job: Job) -> int:
    """As many as are queued after the job's first answer."""
    [search] = job.searches
    place = it.place()
    for _ in range(4):
        it.step(place)
    with it.database.session() as session:
        queued = select(Probe).where(Probe.search_id == search.id, Probe.state == ProbeState.QUEUED)
        return len(session.scalars(queued).all())


def asking(crank: NewCrank) -> tuple[Crank, Job, WorkerContext]:
    """A job that has asked its first questions."""
    it = crank(fails_on(0b100))
    job, place = it.job(), it.place()
    it.step(place)
    it.step(place)
    return it, job, place


class Compiling:
    """A step whose host takes for ever, in a thread, while the context lasts."""

    def __init__(self, it: Crank, step: Callable[[], object]) -> None:
        self._it = it
        self._thread = Thread(target=step)

    def __enter__(self) -> "Compiling":
        self._it.compiler.running.clear()
        self._it.compiler.go.clear()
        self._thread.start()
        assert self._it.compiler.running.wait(10)
        return self

    def ends(self) -> None:
        """By itself, without what it waits for."""
        self._thread.join(10)
        assert not self._thread.is_alive()

    def __exit__(self, *_: object) -> None:
        self._it.compiler.go.set()
        self._thread.join(10)


def test_what_a_killed_process_left_of_a_report_goes_at_the_next_start(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    program = """
import sys, time
from pathlib import Path
from onnxbisect_worker.model_requests.layout import temporary
with temporary(Path(sys.argv[1])) as folder:
    (folder / "report.json").write_text("half")
    print("there", flush=True)
    time.sleep(600)
"""
    left = processes_folder(settings) / "left"
    command = [sys.executable, "-c", program, str(left)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        clear_process_folders(settings)
        assert (left / "report.json").exists()  # it is being written
        process.kill()
        process.wait()
    clear_process_folders(settings)
    assert not left.exists()
    with temporary(processes_folder(settings) / "whole") as whole:
        assert whole.is_dir()
    assert list(processes_folder(settings).iterdir()) == []
