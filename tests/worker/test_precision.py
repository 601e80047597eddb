"""Nodes that must stay precise, as a stage of a job: measurements that are kept one by one, and the real thing."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from onnx_bisect.models import load_model
from onnx_bisect.precision_subject import PrecisionQuestion
from onnxbisect.errors import ModelError
from onnxbisect.precision.wanted import Low, wanted
from onnxbisect.terms import PrecisionTerms
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Limits
from onnxbisect_backends.precision.arithmetic import OrtArithmetic, Ran
from onnxbisect_db import lifecycle
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_db.database import Database
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Event, Job, Measurement
from onnxbisect_service.search_spec import RepairSpec, SearchSpec
from onnxbisect_worker import measuring, model_requests
from onnxbisect_worker.model_requests import protocol
from onnxbisect_worker.model_requests.precision import PausedError, ToldRecord, search
from onnxbisect_worker.model_requests.protocol import ProcessLostError
from onnxbisect_worker.running import embedded
from support.db.scenes import Clock
from support.engine.worlds import chain, monotone
from support.precision import CHANNELS, SIZE, planted_pair
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


@pytest.mark.parametrize("of", ["onnxruntime", "onnx-bisect"])
def test_answers_of_another_version_do_not_count(crank: NewCrank, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    it = crank()
    it.run(it.job(spec=ASKED))
    for module in (measuring, protocol):
        monkeypatch.setattr(module, "version", lambda name: "99" if name == of else "1")
    it.run(it.job(spec=ASKED))
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


def test_crashes_count_only_while_nothing_new_is_measured(crank: NewCrank) -> None:
    it = crank(crashes_measuring=2)
    job = it.job(spec=ASKED)
    it.run(job)
    assert (it.read(job).searches[0].precision or {})["problem"] == ""
    assert it.compiler.measurements == len(rows(it.database, job)) == 3


def test_an_outcome_without_its_document_is_none(crank: NewCrank) -> None:
    it = crank(precision_files=["pulsar2.json"])
    job = it.job(spec=ASKED)
    it.run(job)
    assert (it.read(job).searches[0].precision or {})["problem"] == (
        "The process that had the model wrote no precision.json."
    )


def told_by_the_taken_over(number: int, **wrong: Any) -> MeasuredSet:
    return MeasuredSet(**{**vars(MEASURED[0]), "keep": (f"n{number}",), **wrong})


def test_texts_of_a_process_that_was_taken_over_are_stored_as_lines(crank: NewCrank) -> None:
    it = crank()
    wrong = {"shown": "\0\ud800 1 dB" * 99, "why": "\n\0" * 99, "arithmetic": "\0" * 999, "work": float("nan")}
    it.compiler.measured = [told_by_the_taken_over(0, **wrong)]
    job = it.job(spec=ASKED)
    it.run(job)
    assert (it.read(job).searches[0].precision or {})["problem"] == ""
    (row,) = rows(it.database, job)
    assert row.shown.startswith(r"\x00\ud800 1 dB")
    assert (row.why[:6], row.work) == (r"\n\x00", 0.0)


@pytest.mark.parametrize(
    ("measured", "sentence"),
    [
        (
            [told_by_the_taken_over(number) for number in range(60)],
            "It was given up after 50 measurements.",
        ),
        (
            [told_by_the_taken_over(0, keep=("n" * 2000,))],
            "A measurement keeps nodes whose names have more than 1000 characters.",
        ),
    ],
)
def test_a_process_that_was_taken_over_does_not_fill_the_database(
    crank: NewCrank, monkeypatch: pytest.MonkeyPatch, measured: list[MeasuredSet], sentence: str
) -> None:
    monkeypatch.setattr(measuring, "MOST_MEASUREMENTS", 50)
    monkeypatch.setattr(measuring, "MOST_CHARACTERS", 1000)
    it = crank()
    it.compiler.measured = measured
    job = it.job(spec=ASKED)
    it.run(job)
    assert (it.read(job).searches[0].precision or {})["problem"] == sentence
    assert len(rows(it.database, job)) <= 50


def test_a_turn_is_longer_where_much_has_to_be_done_again_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for before, ends in ((10.0, 300.0), (1000.0, 4000.0)):
        at = [0.0]
        monkeypatch.setattr(time, "monotonic", lambda at=at: at[0])
        record = ToldRecord([], wanted("sqnr", None, None), {}, lambda measured: None)
        for at[0] in (before, ends - 1, ends):
            record.add("npu", frozenset(), 1.0, work=0.0, shown="", why="")
        at[0] = ends + 1
        with pytest.raises(PausedError):
            record.add("npu", frozenset(), 1.0, work=0.0, shown="", why="")


def test_what_gave_no_numbers_is_asked_once_however_often_it_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_requests.precision, "_SLICE", -1.0)
    monkeypatch.setattr(model_requests.precision, "_TIMES", -2.0)
    run, made = OrtArithmetic.run, Counter[frozenset[str]]()

    def refusing(self: OrtArithmetic, keep: Iterable[str]) -> tuple[Ran, Path]:
        kept = frozenset(keep)
        made[kept] += 1
        ran, place = run(self, kept)
        return (Ran(problem="refused") if kept and len(kept) < 4 and "Mul_3" not in kept else ran), place

    monkeypatch.setattr(OrtArithmetic, "run", refusing)
    want = wanted("sqnr", 25.0, None)
    question = PrecisionQuestion(
        model=load_model(planted_pair(tmp_path), None, None).model,
        name="net.onnx",
        backend=registry.make("onnxruntime", {}),
        samples=tmp_path / "samples",
        low=Low.INT8,
        want=want,
        limits=Limits(),
    )
    (tmp_path / "out").mkdir()
    told, silent = list[MeasuredSet](), dict[tuple[str, frozenset[str]], str]()
    for _ in range(40):
        record = ToldRecord(tuple(told), want, silent, told.append)
        found = search(question, tmp_path / "out", record, calls=None, seconds=None)
        if found is not None:
            break
    assert found is not None
    assert [it.node for it in found.members] == ["Mul_3", "Mul_5"]
    assert silent
    assert any(it.shown == "no numbers" for it in found.asks)
    again = {kept for kept, count in made.items() if count > 1}
    assert again <= {frozenset(), frozenset(["Mul_3", "Mul_5"])}  # the rewritten model with all low, the file to write


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


def test_samples_that_cannot_be_used_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    model = planted_pair(tmp_path)
    shape = (1, CHANNELS, SIZE, SIZE)
    wrong = {
        "shape": {"x": np.zeros((1, CHANNELS, SIZE, SIZE + 1), np.float32)},
        "dtype": {"x": np.full(shape, "a")},
        "name": {"z": np.zeros(shape, np.float32)},
        "nan": {"x": np.full(shape, np.nan, np.float32)},
    }
    problems = {}
    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            for name, arrays in wrong.items():
                folder = tmp_path / name
                folder.mkdir()
                np.savez(folder / "0.npz", **arrays)  # type: ignore[arg-type] # numpy's stubs miss keywords of arrays
                (search,) = it.ended(it.submit(model, {"deny": "Sin"}, spec=spec_with(it, folder))).searches
                problems[name] = search.problem or (search.precision or {})["problem"]
        finally:
            running.stop()
    assert problems == {
        "shape": "The sample file 0.npz has the shape [1, 4, 8, 9] for the input 'x', which is [1, 4, 8, 8], the "
        "batch included.",
        "dtype": "The sample file 0.npz has <U1 for the input 'x', which is float32: convert it.",
        "name": "The sample file 0.npz is wrong: 'z' is no input of the model; valid: x.",
        "nan": "The sample file 0.npz has values for the input 'x' that are not finite.",
    }
