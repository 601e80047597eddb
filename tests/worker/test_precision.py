"""Nodes that must stay precise, as a stage of a job: measurements that are kept one by one, and the real thing."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from onnxbisect.errors import ModelError
from onnxbisect.precision.wanted import Low
from onnxbisect.terms import PrecisionTerms
from onnxbisect_db import lifecycle
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_db.database import Database
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Event, Job, Measurement
from onnxbisect_service.search_spec import RepairSpec, SearchSpec
from onnxbisect_worker.model_requests.protocol import ProcessLostError
from onnxbisect_worker.running import embedded
from support.db.scenes import Clock
from support.engine.worlds import chain, monotone
from support.precision import planted_pair
from support.worker import redis_server
from support.worker.crank import Crank
from support.worker.hidden_rule import Compiler
from support.worker.installation import Installation

ASKED = SearchSpec(precision=PrecisionTerms())
MEASURED = [
    MeasuredSet(arithmetic="npu", keep=keep, work=0.1, value=value, shown=str(value), why="the most suspect nodes")
    for keep, value in [(("a", "b"), 40.0), ((), 10.0), (("a",), None)]
]
NewCrank = Callable[..., Crank]


@pytest.fixture
def crank(database: Database, clock: Clock, tmp_path: Path) -> NewCrank:
    def made(**more: Any) -> Crank:
        compiler = Compiler(universe=chain(range(8)), rule=monotone([0b100]), measured=MEASURED, **more)
        return Crank(database=database, clock=clock, folder=tmp_path, compiler=compiler)

    return made


def rows(database: Database, job: Job) -> list[Measurement]:
    with database.session() as session:
        mine = select(Measurement).where(Measurement.job_id == job.id)
        return list(session.scalars(mine.order_by(Measurement.target, Measurement.number)))


def told(it: Crank, job: Job) -> list[str]:
    with it.database.session() as session:
        return list(session.scalars(select(Event.type).where(Event.job_id == job.id).order_by(Event.number)))


def test_a_job_that_asks_for_none_has_none(crank: NewCrank) -> None:
    it = crank()
    job = it.job()
    it.run(job)
    assert it.read(job).searches[0].precision is None
    assert not rows(it.database, job)


def test_each_measurement_is_kept_and_told_and_the_end_before_that_of_the_job(crank: NewCrank) -> None:
    it = crank()
    job = it.job(spec=ASKED)
    it.run(job)
    (search,) = it.read(job).searches
    assert search.precision == {
        "ending": "minimal",
        "headline": "1 node has to stay.",
        "keep": 1,
        "asks": 3,
        "problem": "",
    }
    assert (search.verdict, "precision/precision.json" in search.files) == ("fail", True)
    assert [(row.number, tuple(row.keep), row.value) for row in rows(it.database, job)] == [
        (number, measured.keep, measured.value) for number, measured in enumerate(MEASURED, 1)
    ]
    events = [kind for kind in told(it, job) if kind.startswith(("precision", "job.m", "job.f", "search.e"))]
    assert events == [*["precision.asked"] * 3, "job.measured", "search.ended", "job.finished"]


@pytest.mark.parametrize("seed", range(4))
def test_it_ends_however_often_workers_die_and_measures_nothing_twice(crank: NewCrank, seed: int) -> None:
    it = crank(paused=True, hosts_shot=0)
    job = it.job(spec=ASKED)
    it.until(Stage.PRECISION, job, it.place())
    it.compiler.hosts_shot = seed
    it.run(job, places=[it.place("one"), it.place("two")], chance=random.Random(seed), dies=0.3)
    assert it.read(job).searches[0].precision is not None
    assert it.compiler.measurements == len(rows(it.database, job)) == 3


def test_a_later_job_with_the_same_question_takes_the_answers(crank: NewCrank) -> None:
    it = crank()
    it.run(it.job(spec=ASKED))
    other = it.job(spec=SearchSpec(precision=PrecisionTerms(at_least=20.0)))
    it.run(other)
    assert (it.compiler.measurements, rows(it.database, other)) == (3, [])
    elsewhere = it.job(spec=SearchSpec(precision=PrecisionTerms(low=Low.FLOAT16)))
    it.run(elsewhere)
    assert it.compiler.measurements == 6


def test_the_budget_is_of_its_own_measurements(crank: NewCrank) -> None:
    it = crank(paused=True)
    job = it.job(spec=SearchSpec(precision=PrecisionTerms(calls=2)))
    it.run(job)
    assert len(rows(it.database, job)) == 2


@pytest.mark.parametrize("problem", [ModelError("It does not run."), ProcessLostError("It was killed.")])
def test_one_that_fails_leaves_the_report_and_is_retried(crank: NewCrank, problem: Any) -> None:
    it = crank(no_repair=problem)
    job = it.job(spec=SearchSpec(precision=PrecisionTerms()))
    it.run(job)
    (search,) = it.read(job).searches
    assert (it.read(job).verdict, search.state, search.verdict) == ("fail", JobState.DONE, "fail")
    assert search.precision is not None
    assert search.precision["problem"] == str(problem)

    it.compiler.no_repair = None
    it.database.run(lambda session: lifecycle.retry(session, job.id, ""))
    assert it.read(job).searches[0].stage == Stage.PRECISION
    it.run(job)
    assert (it.read(job).searches[0].precision or {})["problem"] == ""


def test_it_follows_the_repair_and_each_is_retried_alone(crank: NewCrank) -> None:
    it = crank(no_repair=ModelError("It does not run."))
    job = it.job(spec=SearchSpec(repair=RepairSpec(), precision=PrecisionTerms()))
    it.run(job)
    it.compiler.no_repair = None
    it.database.run(lambda session: lifecycle.retry(session, job.id, ""))
    assert it.read(job).searches[0].stage == Stage.REPAIR
    it.run(job)
    (search,) = it.read(job).searches
    assert ((search.repair or {})["verdict"], (search.precision or {})["ending"]) == ("pass", "minimal")


def test_cancelled_it_goes_on_where_it_was(crank: NewCrank) -> None:
    it = crank(paused=True)
    job = it.job(spec=ASKED)
    place = it.place()
    while not rows(it.database, job):
        assert it.step(place)
    it.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
    it.database.run(lambda session: lifecycle.retry(session, job.id, ""))
    it.run(job)
    assert it.compiler.measurements == 3


@pytest.fixture(params=["serve", "workers"])
def installed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """An installation on SQLite: one process, or a worker that compiles and one that coordinates."""
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    with ExitStack() as stack:
        more = {}
        if request.param == "workers":
            more["redis_url"] = stack.enter_context(redis_server.running()).url
        made = stack.enter_context(closing(Installation.at(tmp_path, **more)))
        if request.param == "workers":
            stack.enter_context(made.worker(["onnxruntime"], control=False))
            stack.enter_context(made.worker([], control=True))
        else:
            running = embedded(made.service)
            running.start()
            stack.callback(running.stop)
        yield made


def spec_with(it: Installation, samples: Path, **terms: Any) -> SearchSpec:
    files = {path.name: it.service.files.put([path.read_bytes()]).sha256 for path in sorted(samples.iterdir())}
    return SearchSpec(calibration=files, precision=PrecisionTerms(**terms))


def content(it: Installation, job: Job, name: str) -> bytes:
    return it.service.files.path(it.read(job).searches[0].files[f"precision/{name}"]).read_bytes()


def test_a_planted_pair_is_found_and_its_files_are_kept(installed: Installation, tmp_path: Path) -> None:
    model = planted_pair(tmp_path)
    job = installed.submit(
        model, {}, backend="onnxruntime", spec=spec_with(installed, tmp_path / "samples", at_least=25.0)
    )
    (search,) = installed.ended(job).searches
    assert (search.verdict, (search.precision or {})["problem"]) == ("pass", "")
    report = json.loads(content(installed, job, "precision.json"))
    assert [it["node"] for it in report["members"]] == ["Mul_3", "Mul_5"]
    assert (report["model"], report["resumed"]) == ("net.onnx", 0)
    assert b'"Mul_3"' in content(installed, job, "pulsar2.json")
    assert content(installed, job, "mixed.onnx")
    kept = rows(installed.service.database, job)
    assert [(row.number, row.shown) for row in kept] == [(it["number"], it["shown"]) for it in report["asks"]]


@pytest.mark.long
def test_killed_it_goes_on_with_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    model = planted_pair(tmp_path)
    with redis_server.running() as redis, closing(Installation.at(tmp_path, redis_url=redis.url)) as it:
        job = it.submit(model, {}, backend="onnxruntime", spec=spec_with(it, tmp_path / "samples", at_least=25.0))
        with it.worker(["onnxruntime"]) as process:
            give_up = time.monotonic() + 100
            while len(rows(it.service.database, job)) < 2:
                assert time.monotonic() < give_up
                time.sleep(0.02)
            process.kill()
        before = len(rows(it.service.database, job))
        with it.worker(["onnxruntime"]):
            it.ended(job)
        report = json.loads(content(it, job, "precision.json"))
        assert [each["node"] for each in report["members"]] == ["Mul_3", "Mul_5"]
        assert report["resumed"] >= before
        assert len(rows(it.service.database, job)) == len(report["asks"])


def test_a_target_without_arithmetic_gets_that_of_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    model = planted_pair(tmp_path)
    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            job = it.submit(model, {"deny": "Sin"}, spec=spec_with(it, tmp_path / "samples", at_least=500.0))
            (search,) = it.ended(job).searches
        finally:
            running.stop()
    assert search.precision is not None
    assert search.precision["problem"] == (
        "Full precision itself has sqnr 200.0 dB on onnxruntime, and sqnr of at least 500.0 dB is wanted; give another "
        "threshold."
    )
