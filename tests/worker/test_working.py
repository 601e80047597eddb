"""Workers that are processes of their own, over a real redis: what they have in hand survives what happens to them."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis import ConnectionError as RedisAwayError
from sqlalchemy import select

from onnxbisect.errors import OnnxBisectError
from onnxbisect_db import notices
from onnxbisect_db.database import Database
from onnxbisect_db.states import JobState, ProbeState
from onnxbisect_db.tables import Event, Job, Probe
from onnxbisect_service.notifying import CeleryNotifier, make_app
from onnxbisect_service.settings import Settings
from onnxbisect_worker.working import work
from support.worker import redis_server
from support.worker.installation import Installation
from support.worker.process_tree import children, within
from support.worker.redis_server import RedisServer

MODEL = Path(__file__).parent.parent / "cases" / "c2_chain100_3bad.onnx"
SLOW = {"deny": "Asinh,Cosh,Atan", "report": "none", "delay": "0.2"}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server.running() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def it(request: pytest.FixtureRequest, redis: RedisServer, tmp_path: Path) -> Iterator[Installation]:
    redis.client().flushall()
    more = {} if request.param == "sqlite" else {"database_url": request.getfixturevalue("new_postgres_url")}
    with closing(Installation.at(tmp_path, redis_url=redis.url, **more)) as made:
        yield made


@pytest.mark.long
def test_a_job_is_done_however_often_and_seldom_workers_are_notified(it: Installation, redis: RedisServer) -> None:
    notifier = CeleryNotifier(make_app(it.settings))
    times = 0

    def disturb() -> None:
        nonlocal times
        times += 1
        if times % 10 == 0:
            redis.client().flushall()
        notifier({notices.CONTROL, notices.WEBHOOKS, notices.backend("whitelist"), "nothing"})

    with it.worker(control=False), it.worker([], control=True):
        job = it.submit(MODEL, SLOW)
        ended = it.ended(job, meanwhile=disturb)
    assert (ended.state, ended.verdict) == (JobState.DONE, "fail")
    assert times > 10
    assert sorted(culprit["ops"] for culprit in it.report(job)["culprits"]) == [["Asinh"], ["Atan"], ["Cosh"]]
    answered = events(it, job, "probe.answered")
    assert len(answered) == len(set(answered)) == len(it.report(job)["probes"])
    assert it.gone(0)


@pytest.mark.long
def test_a_job_is_done_without_a_queue(it: Installation, tmp_path: Path) -> None:
    """Workers look by themselves, also those that never had a queue."""
    nowhere = Installation.at(tmp_path, **{**it.given, "redis_url": "redis://127.0.0.1:1/0"})
    with closing(nowhere), nowhere.worker():
        ended = nowhere.ended(nowhere.submit(MODEL, {**SLOW, "delay": "0"}))
    assert (ended.state, ended.verdict) == (JobState.DONE, "fail")


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
def test_processes_of_a_worker_that_are_killed_cost_a_pause(it: Installation) -> None:
    with it.worker() as worker:
        job = it.submit(MODEL, {**SLOW, "delay": "0.5"})
        it.until_asked(job, 1)
        for child in children(worker.pid):
            os.kill(child, signal.SIGKILL)
        assert it.ended(job).state == JobState.DONE
    assert len(it.report(job)["culprits"]) == 3
    assert it.gone(0)


def test_a_queue_that_is_away_costs_a_notifier_a_second_at_most(redis: RedisServer, tmp_path: Path) -> None:
    notifier = CeleryNotifier(make_app(Settings(data=tmp_path, redis_url=SecretStr(redis.url))))
    notifier({"something"})
    paused = redis.process
    assert paused is not None
    paused.send_signal(signal.SIGSTOP)
    try:
        assert seconds_to_notify(notifier) < 3
    finally:
        paused.send_signal(signal.SIGCONT)
    nowhere = Settings(data=tmp_path, redis_url=SecretStr("redis://127.0.0.1:1/0"))
    assert seconds_to_notify(CeleryNotifier(make_app(nowhere))) < 3
    time.sleep(2.1)
    client: Any = redis.client()  # redis-py's types leave this out
    with client.pubsub(ignore_subscribe_messages=True) as hearing:
        hearing.psubscribe("*")
        hearing.get_message(timeout=1)
        notifier({"something"})
        assert within(30, lambda: hearing.get_message(timeout=1) is not None)
    assert not [key for key in client.scan_iter() if client.type(key) == b"list"], "what nobody hears piles up"


@pytest.mark.long
def test_a_worker_hears_again_when_the_queue_is_back(tmp_path: Path) -> None:
    with redis_server.running() as redis, closing(Installation.at(tmp_path, redis_url=redis.url, slots="1")) as it:

        def hears() -> bool:
            with suppress(RedisAwayError):
                return bool(redis.client().pubsub_numpat())
            return False

        with it.worker([], control=True) as worker:
            for _ in range(2):
                assert within(60, hears)
                redis.stop()
                time.sleep(0.5)
                redis.start()
            assert within(60, hears)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(20) == 0


def test_a_worker_without_tables_or_work_says_so(tmp_path: Path, redis: RedisServer) -> None:
    settings = Settings(data=tmp_path, redis_url=SecretStr(redis.url))
    with pytest.raises(OnnxBisectError, match="needs something to do"):
        work(settings)
    with pytest.raises(OnnxBisectError, match="no-such"):
        work(settings, backends=["no-such"])
    with pytest.raises(OnnxBisectError, match="migrate"):
        work(settings, control=True)


def seconds_to_notify(notifier: CeleryNotifier) -> float:
    began = time.monotonic()
    for _ in range(100):
        notifier({"something"})
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
