"""Repairs that jobs ask for: steps in any order, twice or never, and the real thing in every kind of installation."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from sqlalchemy import select

import onnx_bisect
from onnxbisect.errors import ModelError
from onnxbisect.proof import Tolerance
from onnxbisect.remedies.document import RepairDocument
from onnxbisect.remedies.summary import headline, outcome
from onnxbisect.rewrites import Exactness
from onnxbisect.unitset import UnitSet
from onnxbisect_db import lifecycle, retention
from onnxbisect_db.database import Database
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Event, Job, Search
from onnxbisect_service.search_spec import RepairSpec, SearchSpec
from onnxbisect_worker import repairing
from onnxbisect_worker.model_requests.protocol import ProcessLostError
from onnxbisect_worker.running import embedded
from support.db.scenes import Clock
from support.engine.worlds import chain, monotone
from support.worker import redis_server
from support.worker.crank import Crank
from support.worker.hidden_rule import Compiler
from support.worker.installation import Installation

ASKED = SearchSpec(repair=RepairSpec())
NewCrank = Callable[[Compiler], Crank]


@pytest.fixture
def crank(database: Database, clock: Clock, tmp_path: Path) -> NewCrank:
    return lambda compiler: Crank(database=database, clock=clock, folder=tmp_path, compiler=compiler)


def fails_on(*minimal: UnitSet, **more: Any) -> Compiler:
    return Compiler(universe=chain(range(8)), rule=monotone(minimal), **more)


def changed(it: Crank, job: Job) -> list[Search]:
    """The searches that the repairs of a job have asked for."""
    with it.database.session() as session:
        mine = select(Search).where(Search.job_id == job.id, Search.asked_for.is_not(None))
        return list(session.scalars(mine.order_by(Search.ordinal)))


def told(it: Crank, job: Job) -> list[str]:
    with it.database.session() as session:
        return list(session.scalars(select(Event.type).where(Event.job_id == job.id).order_by(Event.number)))


def test_a_job_that_asks_for_no_repair_has_none(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job()
    it.run(job)
    assert it.read(job).searches[0].repair is None
    assert it.compiler.repairs == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_repair_ends_however_often_workers_die(crank: NewCrank, seed: int) -> None:
    it = crank(fails_on(0b100))
    job = it.job(spec=ASKED)
    it.run(job, places=[it.place("one"), it.place("two")], chance=random.Random(seed), dies=0.15)

    [search] = it.read(job).searches
    assert (search.state, search.stage, search.verdict) == (JobState.DONE, Stage.OVER, "fail")
    assert search.repair is not None
    assert (search.repair["verdict"], search.repair["problem"]) == ("pass", "")
    assert "repair/repair.json" in search.files
    assert [it.state for it in changed(it, job)] == [JobState.DONE] * 2
    assert it.report(job)["diagnosis"]


def test_of_a_changed_file_only_the_whole_is_asked(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job(spec=SearchSpec(whole=True))
    it.run(job)
    assert dict(it.compiler.asked) == {0b11111111: 1}
    it.run(it.job(spec=SearchSpec(whole=True)))
    assert it.compiler.asked.total() == 1


def test_its_end_is_told_once_and_before_that_of_the_job(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job(spec=ASKED)
    it.run(job)
    events = told(it, job)
    assert [kind for kind in events if kind in ("search.prepared", "job.repaired", "search.ended", "job.finished")] == [
        "search.prepared",
        "job.repaired",
        "search.ended",
        "job.finished",
    ]
    assert events.count("culprit.found") == 1


def test_the_second_job_asks_nothing_of_its_repair_either(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    it.run(it.job(spec=ASKED))
    asked = it.compiler.asked.total()
    second = it.job(spec=ASKED)
    it.run(second)
    assert it.compiler.asked.total() == asked
    assert it.read(second).searches[0].repair == {
        "verdict": "pass",
        "changes": 1,
        "left": 0,
        "calls": 0,
        "problem": "",
    }


@pytest.mark.parametrize("problem", [ModelError("It does not run."), ProcessLostError("It was killed.")])
def test_a_repair_that_fails_leaves_the_report_and_is_retried(crank: NewCrank, problem: Any) -> None:
    it = crank(fails_on(0b100, no_repair=problem))
    job = it.job(spec=ASKED)
    it.run(job)
    [search] = it.read(job).searches
    assert (it.read(job).verdict, search.state, search.verdict) == ("fail", JobState.DONE, "fail")
    assert search.repair is not None
    assert search.repair["problem"] == str(problem)
    assert it.report(job)["diagnosis"]

    it.compiler.no_repair = None
    asked = it.compiler.asked.total()
    it.database.run(lambda session: lifecycle.retry(session, job.id, ""))
    begun = it.read(job).searches[0]
    assert (begun.stage, begun.verdict, begun.report) == (Stage.REPAIR, "fail", search.report)
    it.run(job)
    repair = it.read(job).searches[0].repair
    assert repair is not None
    assert (repair["verdict"], repair["problem"]) == ("pass", "")
    assert it.compiler.asked.total() == asked  # the changed models are like the model here


@pytest.mark.parametrize("alternatives", [None, {"deny": ["Abs"]}])
def test_a_process_that_was_taken_over_asks_with_no_options_of_its_own(
    crank: NewCrank, alternatives: dict[str, list[str]] | None
) -> None:
    it = crank(fails_on(0b100, options={"profile": "/etc/passwd"}))
    job = it.job(spec=SearchSpec(repair=RepairSpec(alternatives=alternatives)))
    it.run(job)
    repair = it.read(job).searches[0].repair
    assert repair is not None
    assert repair["problem"] == "Options were asked for that the job does not speak of."
    assert not changed(it, job)


def until(it: Crank, job: Job, done: Callable[[], bool]) -> None:
    place = it.place()
    for _ in range(100):
        if done():
            return
        assert it.step(place)
    raise AssertionError("it never came to that")


def test_a_cancelled_repair_asks_nothing_more_and_goes_on_where_it_was(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job(spec=ASKED)
    until(it, job, lambda: len(changed(it, job)) == 2)
    it.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
    assert [search.state for search in changed(it, job)] == [JobState.DONE, JobState.CANCELLED]
    assert it.read(job).searches[0].report is not None

    it.database.run(lambda session: lifecycle.retry(session, job.id, ""))
    assert [search.state for search in changed(it, job)] == [JobState.DONE]
    it.run(job)
    assert (it.read(job).state, it.read(job).verdict) == (JobState.DONE, "fail")
    assert [search.state for search in changed(it, job)] == [JobState.DONE] * 2


def test_a_repair_that_waits_for_an_answer_is_not_claimed(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job(spec=ASKED)
    until(it, job, lambda: len(changed(it, job)) == 1)
    repairs = it.compiler.repairs
    it.clock.forward(100)
    while changed(it, job)[0].stage != Stage.OVER:
        assert it.compiler.repairs == repairs
        assert it.step(it.place())


def test_the_budget_is_for_the_search_and_its_repair(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    whole = it.job()
    it.run(whole)
    calls = it.report(whole)["stats"]["compiler_calls"]
    it.database.run(lambda session: retention.forget(session, whole.id, ""))

    job = it.job(spec=SearchSpec(repair=RepairSpec(), budget_calls=calls))
    it.run(job)
    assert it.read(job).searches[0].calls == calls
    assert changed(it, job) == []


def test_a_repair_that_asks_for_ever_is_given_up(crank: NewCrank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "MOST_QUESTIONS", 2)
    it = crank(fails_on(0b100, changed_models=[b"1", b"2", b"3"]))
    job = it.job(spec=ASKED)
    it.run(job)
    repair = it.read(job).searches[0].repair
    assert repair is not None
    assert repair["problem"] == "It was given up after 2 changed models."


def test_files_of_a_repair_are_kept_with_the_job_and_go_with_it(crank: NewCrank) -> None:
    it = crank(fails_on(0b100))
    job = it.job(spec=ASKED)
    it.run(job)
    own = {search.onnx for search in changed(it, job)} | {it.read(job).searches[0].files["repair/repair.json"]}
    with it.database.session() as session:
        assert own <= retention.needed(session)
    unneeded = it.database.run(lambda session: retention.forget(session, job.id, ""))
    assert unneeded is not None
    assert own <= set(unneeded)
    assert changed(it, job) == []


def saved(folder: Path, *ops: str) -> Path:
    """A chain of these ops."""
    nodes = [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", f"t{len(ops)}")]
    opsets = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    return path


@pytest.fixture(params=["serve", "workers on PostgreSQL"])
def installed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """An installation that works, in one process or as a worker that compiles and one that coordinates."""
    # without vendors' compilers, of which each would be tried when it starts
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    kind, _, database = request.param.partition(" on ")
    more = {"database_url": request.getfixturevalue("new_postgres_url")} if database else {}
    with ExitStack() as stack:
        if kind == "workers":
            more["redis_url"] = stack.enter_context(redis_server.running()).url
        made = stack.enter_context(closing(Installation.at(tmp_path, **more)))
        if kind == "workers":
            stack.enter_context(made.worker(control=False))
            stack.enter_context(made.worker([], control=True))
        else:
            running = embedded(made.service)
            running.start()
            stack.callback(running.stop)
        yield made


def content(it: Installation, job: Job, name: str) -> bytes:
    return it.service.files.path(it.read(job).searches[0].files[f"repair/{name}"]).read_bytes()


@pytest.mark.long
def test_a_job_is_repaired_as_fix_repairs_it(
    installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    model, options = saved(tmp_path, "Neg", "Abs", "Relu", "Erf", "HardSigmoid"), {"deny": "Abs,Erf", "report": "none"}
    others = {"deny": ["Abs", "Neg,Relu", "Sin"]}
    spec = SearchSpec(
        repair=RepairSpec(allow=Exactness.APPROXIMATE, tolerance=Tolerance(relative=0.01), alternatives=others)
    )
    job = installed.submit(model, options, spec=spec)
    ended = installed.ended(job)
    local = onnx_bisect.fix(
        model,
        backend="whitelist",
        options=options,
        allow=Exactness.APPROXIMATE,
        tolerance=Tolerance(relative=0.01),
        alternatives=others,
    )

    assert (ended.state, ended.verdict) == (JobState.DONE, "fail")
    assert local.repair.model is not None
    assert content(installed, job, "repaired.onnx") == local.repair.model.SerializeToString(deterministic=True)
    told_here, told_there = local.document.to_json(), json.loads(content(installed, job, "repair.json"))
    calls = ("diagnosis_calls", "repair_calls")
    assert told_there["repair_calls"] <= told_here["repair_calls"] <= 2
    assert told_there == json.loads(json.dumps(told_here)) | {name: told_there[name] for name in calls}
    assert [outcome(it) for it in RepairDocument.of_json(told_there).alternatives] == [
        "takes 1 of 2 culprits: Erf",
        "takes every culprit, and not the whole model: Killed by SIGSEGV, without a word.",
        "the whole model compiles",
    ]
    assert ended.searches[0].repair == {
        "verdict": "pass",
        "changes": 2,
        "left": 0,
        "calls": told_there["repair_calls"],
        "problem": "",
    }


def test_what_no_rule_repairs_is_left_as_fix_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    model, options = (
        saved(tmp_path, "Neg", "Abs", "Relu", "Hardmax", "Sigmoid"),
        {"deny": "Abs,Hardmax", "report": "none"},
    )
    local = onnx_bisect.fix(model, backend="whitelist", options=options).document
    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            job = it.submit(model, options, spec=ASKED)
            it.ended(job)
        finally:
            running.stop()
        told_there = RepairDocument.of_json(json.loads(content(it, job, "repair.json")))
    assert [row.ops for row in local.left] == [row.ops for row in told_there.left] == [("Hardmax",)]
    assert headline(told_there) == headline(local)
    assert told_there.repair_calls == local.repair_calls


@pytest.mark.long
def test_the_report_on_a_model_that_has_no_remedy_calls_it_by_its_name(tmp_path: Path) -> None:
    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            model = saved(tmp_path, "Neg", "Hardmax").rename(tmp_path / "net.onnx")
            job = it.submit(model, {"deny": "Hardmax"}, spec=ASKED)
            it.ended(job)
        finally:
            running.stop()
        assert json.loads(content(it, job, "report.json"))["headline"].startswith("net.onnx does not compile")


@pytest.mark.long
def test_a_repair_goes_on_in_another_process(tmp_path: Path) -> None:
    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        model = saved(tmp_path, "Neg", "Abs", "Relu")
        job = it.submit(model, {"deny": "Abs", "report": "none", "delay": "1"}, spec=ASKED)
        try:
            while it.read(job).searches[0].stage != Stage.REPAIR:
                time.sleep(0.02)
        finally:
            running.stop()
        with closing(Installation.at(tmp_path)) as again:
            running = embedded(again.service)
            running.start()
            try:
                ended = again.ended(job)
            finally:
                running.stop()
        assert ended.searches[0].repair is not None
        assert ended.searches[0].repair["verdict"] == "pass"


@pytest.mark.long
def test_an_op_is_replaced_beside_one_that_onnxruntime_does_not_know(installed: Installation, tmp_path: Path) -> None:
    """The proof goes around the unknown op."""
    path = saved(tmp_path, "Neg", "Abs")
    proto = onnx.load(path)
    proto.graph.node[0].domain = "no.such.domain"
    proto.opset_import.append(helper.make_opsetid("no.such.domain", 1))
    proto.graph.value_info.append(helper.make_tensor_value_info("t1", TensorProto.FLOAT, [2, 3]))
    onnx.save(proto, path)
    job = installed.submit(path, {"deny": "Abs", "report": "none"}, spec=ASKED)
    ended = installed.ended(job)
    assert ended.searches[0].report is not None
    assert ended.searches[0].repair is not None
    assert (ended.searches[0].repair["changes"], ended.searches[0].repair["left"]) == (1, 0)
