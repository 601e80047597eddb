"""Workers that are processes of their own, over a real redis: what they have in hand survives what happens to them."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event as Told
from threading import Thread
from typing import Any

import pytest
from pydantic import SecretStr
from redis import ConnectionError as RedisAwayError
from sqlalchemy import select

from onnxbisect.errors import OnnxBisectError
from onnxbisect_db.database import Database
from onnxbisect_db.reconcile import SearchBell
from onnxbisect_db.states import JobState, ProbeState, Stage
from onnxbisect_db.tables import Event, Job, Probe
from onnxbisect_worker.app import make_app
from onnxbisect_worker.celery_bell import CeleryBell
from onnxbisect_worker.settings import Settings
from onnxbisect_worker.working import work
from support.worker import redis_server
from support.worker.installation import Installation
from support.worker.process_tree import children, servers_of, within
from support.worker.redis_server import RedisServer

MODEL = Path(__file__).parent.parent / "cases" / "c2_chain100_3bad.onnx"
SLOW = {"deny": "Asinh,Cosh,Atan", "report": "none", "delay": "0.2"}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def it(request: pytest.FixtureRequest, redis: RedisServer, tmp_path: Path) -> Iterator[Installation]:
    redis.client().flushall()
    more = {} if request.param == "sqlite" else {"database_url": request.getfixturevalue("new_postgres_url")}
    with closing(Installation.at(tmp_path, redis_url=redis.url, **more)) as made:
        yield made


@pytest.mark.long
def test_a_job_is_done_however_often_and_seldom_it_is_rung_for(it: Installation, redis: RedisServer) -> None:
    rings = 0

    def disturb() -> None:
        nonlocal rings
        rings += 1
        if rings % 10 == 0:
            redis.client().flushall()
        for search in it.read(job).searches:
            for stage in Stage:
                it.service.bell.search(SearchBell(search_id=search.id, stage=stage, backend=search.backend))
            it.service.bell.probes(search.backend, 2)

    with it.worker(control=False), it.worker([], control=True):
        job = it.submit(MODEL, SLOW)
        ended = it.ended(job, meanwhile=disturb)
    assert (ended.state, ended.verdict) == (JobState.DONE, "fail")
    assert rings > 10
    assert sorted(culprit["ops"] for culprit in it.report(job)["culprits"]) == [["Asinh"], ["Atan"], ["Cosh"]]
    answered = events(it, job, "probe.answered")
    assert len(answered) == len(set(answered)) == len(it.report(job)["probes"])
    assert it.gone(0)


def test_a_worker_that_is_told_to_stop_gives_back_what_it_has(it: Installation) -> None:
    with it.worker() as worker:
        job = it.submit(MODEL, {**SLOW, "delay": "600"})
        until_running(it)
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        assert time.monotonic() - began < 10
        assert it.gone(0)
    assert {(probe.state, probe.losses) for probe in probes(it)} == {(ProbeState.QUEUED, 0)}
    assert it.read(job).state == JobState.RUNNING


@pytest.mark.long
def test_a_worker_that_is_killed_leaves_nobody_behind(it: Installation) -> None:
    with it.worker() as worker:
        job = it.submit(MODEL, SLOW)
        it.until_asked(job, 2)
        worker.kill()
        assert it.gone(15)
    with it.worker():
        assert it.ended(job).state == JobState.DONE
    assert len(it.report(job)["culprits"]) == 3


@pytest.mark.long
def test_a_process_of_a_worker_that_is_killed_costs_one_probe_a_lease(it: Installation) -> None:
    with it.worker() as worker:
        job = it.submit(MODEL, {**SLOW, "delay": "0.5"})
        it.until_asked(job, 1)
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        assert it.ended(job).state == JobState.DONE
    assert len(it.report(job)["culprits"]) == 3
    assert it.gone(0)


def test_a_queue_that_is_away_costs_a_ringer_a_second_at_most(it: Installation, redis: RedisServer) -> None:
    bell = it.service.bell
    bell.probes("whitelist", 1)
    paused = redis.process
    assert paused is not None
    paused.send_signal(signal.SIGSTOP)
    try:
        assert seconds_to_ring(bell) < 3
    finally:
        paused.send_signal(signal.SIGCONT)
    nowhere = Settings(data=it.settings.data, redis_url=SecretStr("redis://127.0.0.1:1/0"))
    assert seconds_to_ring(CeleryBell(make_app(nowhere))) < 3
    time.sleep(2.1)
    before = redis.client().llen("onnxbisect:probe.whitelist")
    bell.probes("whitelist", 1)
    assert redis.client().llen("onnxbisect:probe.whitelist") == before + 1


def test_a_worker_hears_on_whatever_was_away_while_it_took_rings(tmp_path: Path) -> None:
    """Celery has counted rings as in hand that nobody had any more, until the worker took no other one."""
    with redis_server.running() as redis, closing(Installation.at(tmp_path, redis_url=redis.url, slots="1")) as it:

        def next_ring() -> Any:
            with suppress(RedisAwayError):
                return redis.client().lindex("onnxbisect:control", -1)

        def ring(enough: Told) -> None:
            while not enough.wait(0.005):
                it.service.bell.delivery("none")

        def hears() -> bool:
            waiting = next_ring()
            return waiting is not None and within(0.2, lambda: next_ring() not in (waiting, None))

        def pool() -> set[int]:
            return {*children(worker.pid)} - {*servers_of(worker.pid)}

        with it.worker([], control=True) as worker, meanwhile(ring):
            for _ in range(3):
                # it hears a ring or two also while celery has yet to replace its process
                assert within(60, lambda: len(pool()) == 1 and hears())
                [process] = pool()
                redis.stop()
                time.sleep(0.5)
                os.kill(process, signal.SIGKILL)
                redis.start()
            assert within(60, hears)


def test_a_worker_without_tables_or_work_says_so(tmp_path: Path, redis: RedisServer) -> None:
    settings = Settings(data=tmp_path, redis_url=SecretStr(redis.url))
    with pytest.raises(OnnxBisectError, match="needs something to do"):
        work(settings)
    with pytest.raises(OnnxBisectError, match="no-such"):
        work(settings, backends=["no-such"])
    with pytest.raises(OnnxBisectError, match="migrate"):
        work(settings, control=True)


@contextmanager
def meanwhile(do: Callable[[Told], None]) -> Iterator[None]:
    enough = Told()
    thread = Thread(target=do, args=(enough,))
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def seconds_to_ring(bell: object) -> float:
    assert isinstance(bell, CeleryBell)
    began = time.monotonic()
    bell.probes("whitelist", 100)
    return time.monotonic() - began


def until_running(it: Installation) -> None:
    give_up = time.monotonic() + 200
    while not any(probe.state == ProbeState.RUNNING for probe in probes(it)):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def probes(it: Installation) -> list[Probe]:
    database: Database = it.service.database
    with database.session() as session:
        return list(session.scalars(select(Probe).where(Probe.state != ProbeState.DROPPED)))


def events(it: Installation, job: Job, kind: str) -> list[str]:
    with it.service.database.session() as session:
        mine = select(Event.data).where(Event.job_id == job.id, Event.type == kind)
        return [data["probe"] for data in session.scalars(mine)]
