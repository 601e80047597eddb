"""Jobs are made once, found again, and end with everything that belongs to that."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onnxbisect.verdict import Status
from onnxbisect_db import deliveries, endpoints, events, jobs, leases, lifecycle, searches
from onnxbisect_db.database import Database
from onnxbisect_db.errors import IdempotencyError, JobStateError, LostClaimError, UnknownModelError
from onnxbisect_db.events import JobProgress
from onnxbisect_db.jobs import JobFilter, NewJob, NewTarget
from onnxbisect_db.states import Fault, JobState, Stage
from onnxbisect_db.tables import Job, Label
from support.db.scenes import (
    FAIL,
    MODEL,
    NPU,
    REPORT,
    Clock,
    answer,
    asking,
    claim,
    claimed,
    end,
    new_job,
    plan,
    prepare,
    read,
    take,
)


def told(database: Database, job: Job) -> list[str]:
    with database.session() as session:
        found = events.after(session, job.id, 0)
    assert [event.number for event in found] == list(range(1, len(found) + 1))
    return [event.type for event in found]


def webhooks(database: Database, job: Job) -> list[tuple[str, Any]]:
    """What endpoints of this tenant are told, in order."""
    with database.session() as session:
        [endpoint] = endpoints.list_all(session, job.tenant)
        found = deliveries.list_page(session, endpoint.id).rows
    return [(delivery.type, delivery.payload["data"]["state"]) for delivery in reversed(found)]


def test_a_job_needs_a_model_of_its_own_tenant(database: Database) -> None:
    new_job(database, tenant="a")
    wanted = NewJob(model_sha256=MODEL, targets=(NewTarget(backend=NPU),))
    with pytest.raises(UnknownModelError, match="upload it first"), database.transaction() as session:
        jobs.create(session, wanted, tenant="b")


def test_the_same_request_under_one_key_is_one_job(database: Database) -> None:
    first = new_job(database, key="k", labels={"branch": "main"})
    again = new_job(database, key="k", labels={"branch": "main"})
    assert again.id == first.id
    assert [search.backend for search in again.searches] == [NPU]
    with pytest.raises(IdempotencyError, match=first.id):
        new_job(database, key="k", labels={"branch": "other"})
    assert new_job(database, key="k", labels={"branch": "main"}, tenant="other").id != first.id
    assert new_job(database, labels={"branch": "main"}).id != first.id


def test_a_key_is_free_again_after_a_day(database: Database, clock: Clock) -> None:
    first = new_job(database, key="k")
    clock.forward(timedelta(hours=25).total_seconds())
    assert new_job(database, key="k", priority=1).id != first.id


def test_a_job_is_nobody_elses(database: Database) -> None:
    job = new_job(database, tenant="a")
    with database.session() as session:
        assert jobs.get(session, job.id, "b") is None
        assert jobs.list_page(session, "b").rows == ()
    for change in (lifecycle.cancel, lifecycle.retry):
        with database.transaction() as session:
            assert change(session, job.id, "b") is None
    assert read(database, job).state == JobState.QUEUED


def test_pages_go_on_where_the_last_one_ended(database: Database) -> None:
    made = [new_job(database).id for _ in range(7)]
    seen: list[str] = []
    after = None
    while True:
        with database.session() as session:
            page = jobs.list_page(session, "", after=after, limit=3)
        seen += [job.id for job in page.rows]
        after = page.after
        if after is None:
            break
        made.append(new_job(database).id)  # what is new does not shift the pages
    assert seen == sorted(made[:7], reverse=True)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (JobFilter(labels={"branch": "main"}), "ab"),
        (JobFilter(labels={"branch": "main", "commit": "1"}), "a"),
        (JobFilter(labels={"commit": "main"}), ""),
        (JobFilter(model_sha256="9" * 64), "b"),
        (JobFilter(backend="other"), "c"),
        (JobFilter(state=JobState.CANCELLED), "c"),
        (JobFilter(backend=NPU, labels={"branch": "main"}), "ab"),
    ],
    ids=str,
)
def test_jobs_are_found_by_what_they_are_about(database: Database, wanted: JobFilter, found: str) -> None:
    made = {
        new_job(database, labels={"branch": "main", "commit": "1"}).id: "a",
        new_job(database, labels={"branch": "main"}, model_sha256="9" * 64).id: "b",
    }
    other = new_job(database, NPU, "other", labels={"branch": "dev"})
    made[other.id] = "c"
    with database.transaction() as session:
        lifecycle.cancel(session, other.id, "")
        if wanted.backend == NPU:
            session.get_one(Label, (other.id, "branch")).value = "elsewhere"
    with database.session() as session:
        assert {made[job.id] for job in jobs.list_page(session, "", wanted).rows} == set(found)


def test_a_job_tells_its_way_once(database: Database) -> None:
    with database.transaction() as session:
        endpoints.add(session, tenant="", url="https://ci.example/hook")
    job = new_job(database, labels={"branch": "main"})
    [search] = job.searches
    prepare(database, search.id)
    plan(database, search.id, [], sin={"ops": ["Sin"]})
    plan(database, search.id, [], sin={"ops": ["Sin"]})
    end(database, search.id, Status.FAIL)
    ended = read(database, job)
    assert (ended.state, ended.verdict, ended.searches[0].verdict) == (JobState.DONE, "fail", "fail")
    assert told(database, job) == [
        "job.queued",
        "job.started",
        "search.prepared",
        "culprit.found",
        "search.ended",
        "job.finished",
    ]
    assert webhooks(database, job) == [
        ("job.started", "running"),
        ("culprit.found", "running"),
        ("job.finished", "done"),
    ]


@pytest.mark.parametrize(
    ("ends", "state", "verdict"),
    [
        ((Status.PASS, Status.PASS), JobState.DONE, "pass"),
        ((Status.PASS, Status.FAIL), JobState.DONE, "fail"),
        ((Status.FAIL, Status.UNRESOLVED), JobState.DONE, "fail"),
        ((Status.PASS, Status.UNRESOLVED), JobState.DONE, "unresolved"),
        ((Status.PASS, None), JobState.DONE, "unresolved"),
        ((Status.FAIL, None), JobState.DONE, "fail"),
        ((None, None), JobState.FAILED, None),
    ],
)
def test_a_job_ends_with_its_last_target(
    database: Database, ends: tuple[Status | None, ...], state: JobState, verdict: str | None
) -> None:
    """None: the compiler cannot be used."""
    job = new_job(database, "x", "y")
    for search, ending in zip(job.searches, ends, strict=True):
        assert read(database, job).state in (JobState.QUEUED, JobState.RUNNING)
        if ending is not None:
            prepare(database, search.id)
            end(database, search.id, ending)
        else:
            claimed = take(database, search.id, Stage.PREPARE)
            with database.transaction() as session:
                searches.fail(session, claimed, f"{search.backend} is not installed")
    found = read(database, job)
    assert (found.state, found.verdict) == (state, verdict)
    assert found.problem == ("x is not installed; y is not installed" if state == JobState.FAILED else "")


def test_cancelling_takes_everything_from_everybody(database: Database) -> None:
    job = asking(database)
    mine = claimed(database)
    taken = take(database, job.searches[0].id, Stage.SEARCH)
    with database.transaction() as session:
        assert lifecycle.cancel(session, job.id, "") is not None
        assert lifecycle.cancel(session, job.id, "") is not None
    assert told(database, job)[-1] == "job.failed"
    assert told(database, job).count("job.failed") == 1
    with database.transaction() as session:
        assert not leases.wanted(session, mine.lease)
        assert not leases.renew(session, mine.lease, seconds=30)
        assert not leases.renew(session, taken.lease, seconds=30)
    assert not answer(database, mine, FAIL)
    with pytest.raises(LostClaimError), database.transaction() as session:
        searches.end_search(session, taken)
    assert claim(database) is None
    found = read(database, job)
    assert (found.state, found.searches[0].state, found.searches[0].stage) == ("cancelled", "cancelled", "over")


def _done(database: Database, job: Job) -> None:
    end(database, job.searches[0].id)


def _nothing(database: Database, job: Job) -> None:
    return


@pytest.mark.parametrize(
    ("before", "change", "says"),
    [
        (_done, lifecycle.cancel, "cannot be cancelled: it is done"),
        (_done, lifecycle.retry, "every target of the job has a verdict"),
        (_nothing, lifecycle.retry, "this one is running"),
    ],
)
def test_what_a_state_does_not_allow_is_said(
    database: Database, before: Callable[[Database, Job], None], change: Callable[..., Any], says: str
) -> None:
    job = asking(database)
    before(database, job)
    with pytest.raises(JobStateError, match=says), database.transaction() as session:
        change(session, job.id, "")


def test_a_failed_search_remembers_whose_it_is_until_it_is_retried(database: Database) -> None:
    job = new_job(database, "x", "y")
    for search, fault in zip(job.searches, (Fault.REQUEST, Fault.SERVICE), strict=True):
        claimed = take(database, search.id, Stage.PREPARE)
        with database.transaction() as session:
            searches.fail(session, claimed, "it was not to be", fault)
    assert [search.fault for search in read(database, job).searches] == ["request", "service"]
    with database.transaction() as session:
        lifecycle.retry(session, job.id, "")
    assert [search.fault for search in read(database, job).searches] == [None, None]


def test_a_retried_job_begins_anew_and_owes_nothing_to_its_past(database: Database) -> None:
    job = asking(database)
    [search] = job.searches
    mine = claimed(database)
    taken = take(database, search.id, Stage.SEARCH)
    with database.transaction() as session:
        lifecycle.cancel(session, job.id, "")
        lifecycle.retry(session, job.id, "")
    found = read(database, job)
    assert (found.state, found.problem, found.ended_at) == (JobState.QUEUED, "", None)
    assert found.searches[0].identity is None
    assert not answer(database, mine)
    with pytest.raises(LostClaimError), database.transaction() as session:
        searches.end_search(session, taken)
    assert found.searches[0].id != search.id
    prepare(database, found.searches[0].id)
    assert plan(database, found.searches[0].id, []) == 0
    end(database, found.searches[0].id)
    assert read(database, job).state == JobState.DONE
    assert told(database, job).count("job.queued") == 2


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_retry_begins_what_has_no_verdict_and_keeps_the_rest(database: Database, cancelled: bool) -> None:
    job = asking(database, (1,), "x", "y")
    good, bad = job.searches
    end(database, good.id, Status.FAIL)
    claimed = take(database, bad.id, Stage.SEARCH)
    with database.transaction() as session:
        if cancelled:
            lifecycle.cancel(session, job.id, "")
        else:
            searches.fail(session, claimed, "the compiler is away")
    with database.transaction() as session:
        lifecycle.retry(session, job.id, "")
    found = read(database, job)
    assert (found.state, found.verdict, found.ended_at) == (JobState.QUEUED, None, None)
    kept, begun = found.searches
    assert (kept.state, kept.stage, kept.verdict, kept.report) == (JobState.DONE, Stage.OVER, Status.FAIL, REPORT)
    assert (begun.state, begun.stage, begun.problem, begun.fault) == (JobState.QUEUED, Stage.PREPARE, "", None)
    prepare(database, begun.id)
    assert read(database, job).state == JobState.RUNNING
    end(database, begun.id)
    ended = read(database, job)
    assert (ended.state, ended.verdict) == (JobState.DONE, Status.FAIL)


def test_a_target_that_ended_unresolved_can_be_retried(database: Database) -> None:
    """The disk was full, or the budget spent: what kept the compiler from an answer may be gone."""
    job = asking(database, (1,), "x", "y")
    good, unsure = job.searches
    end(database, good.id, Status.FAIL)
    end(database, unsure.id, Status.UNRESOLVED)
    assert read(database, job).state == JobState.DONE
    with database.transaction() as session:
        lifecycle.retry(session, job.id, "")
    kept, begun = read(database, job).searches
    assert (kept.verdict, kept.report) == (Status.FAIL, REPORT)
    assert (begun.state, begun.stage, begun.verdict, begun.report) == (JobState.QUEUED, Stage.PREPARE, None, None)


def test_jobs_that_are_going_are_counted_by_tenant(database: Database) -> None:
    asking(database)
    done = asking(database)
    _done(database, done)
    new_job(database, tenant="other")
    with database.session() as session:
        assert (jobs.going(session, ""), jobs.going(session, "other"), jobs.going(session, "third")) == (1, 1, 0)


def test_a_watcher_sees_that_something_happened(database: Database) -> None:
    job, other = asking(database), new_job(database)
    with database.session() as session:
        before = {job_id: it.events for job_id, it in events.progress(session, [job.id, other.id, "gone"]).items()}
    assert before == {job.id: len(told(database, job)), other.id: 1}
    claimed(database)
    with database.session() as session:
        assert events.progress(session, [job.id]) == {job.id: JobProgress(events=before[job.id] + 1, ended=False)}
