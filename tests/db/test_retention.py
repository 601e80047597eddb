"""What goes and what stays when a job is deleted, and when things get old."""

import os
import time
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import func, select

from onnxbisect_db import jobs, leases, lifecycle, models, probes, retention, searches, uploads
from onnxbisect_db.database import Database
from onnxbisect_db.errors import FilesUnreachableError
from onnxbisect_db.files import Files
from onnxbisect_db.retention import Retention
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Base, CompilerVersion, Job, Queue, UnneededFile
from support.db.scenes import (
    FAIL,
    MODEL,
    Clock,
    answer,
    asking,
    claim,
    claimed,
    end,
    kept,
    new_job,
    prepare,
    read,
    take,
)

KEY = "1" * 64


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files", floor=0)


def old(files: Files, content: bytes) -> str:
    """A file that was stored two hours ago."""
    stored = files.put([content])
    os.utime(files.path(stored.sha256), (time.time() - 7200,) * 2)
    return stored.sha256


def delete(database: Database, files: Files, job: Job, tenant: str = "") -> bool:
    unneeded = database.run(lambda session: retention.forget(session, job.id, tenant))
    retention.discard(files, unneeded or [])
    return unneeded is not None


def finished(database: Database, files: Files, content: bytes, model: str) -> tuple[Job, str]:
    """A job with a report of its own."""
    job = asking(database, [1], model_sha256=model)
    report = old(files, content)
    search = job.searches[0].id
    answer(database, claimed(database), FAIL, key=KEY)
    taken = take(database, search, Stage.SEARCH)
    with database.transaction() as session:
        searches.end_search(session, taken)
    taken = take(database, search, Stage.REPORT)
    with database.transaction() as session:
        searches.finish(session, taken, verdict=FAIL.verdict.status, report=report, files={"culprits/1": report})
    return job, report


def test_a_deleted_job_leaves_nothing(database: Database, files: Files, clock: Clock) -> None:
    model = old(files, b"model")
    job, report = finished(database, files, b"report", model)
    assert not delete(database, files, job, "stranger")
    assert delete(database, files, job)
    assert not delete(database, files, job)
    assert files.size(model) is files.size(report) is None
    clock.forward(61)
    assert retention.clear(database, files) == 0
    with database.session() as session:
        left = {
            table.name: session.scalars(select(func.count()).select_from(table)).one()
            for table in Base.metadata.sorted_tables
        }
    assert {name for name, rows in left.items() if rows} == {Queue.__tablename__, CompilerVersion.__tablename__}


def test_a_job_can_be_deleted_while_the_file_store_is_away(
    database: Database, files: Files, clock: Clock, tmp_path: Path
) -> None:
    class Away(Files):
        def discard(self, sha256: str, *, older_than: float) -> bool:
            raise FilesUnreachableError("The file store cannot be used at the moment.")

    job, report = finished(database, files, b"report", old(files, b"model"))
    assert delete(database, Away(tmp_path / "files", floor=0), job)
    clock.forward(61)
    assert retention.clear(database, files) == 0
    assert files.size(report) is None


def test_what_another_job_needs_stays(database: Database, files: Files) -> None:
    model = old(files, b"model")
    first, report = finished(database, files, b"report", model)
    second = asking(database, [1], model_sha256=model)
    mine = claimed(database)
    with database.transaction() as session:
        assert probes.dedupe_by_key(session, mine, KEY).known == FAIL
    delete(database, files, first)
    assert files.size(report) is None
    assert files.size(model) is not None
    with database.session() as session:
        assert kept(session, mine.question(KEY)) == FAIL
    delete(database, files, second)
    assert files.size(model) is None
    with database.session() as session:
        assert kept(session, mine.question(KEY)) is None


def test_a_file_that_another_tenant_uploaded_too_stays(database: Database, files: Files) -> None:
    model = old(files, b"model")
    mine = new_job(database, model_sha256=model)
    new_job(database, model_sha256=model, tenant="other")
    delete(database, files, mine)
    assert files.size(model) is not None
    with database.session() as session:
        assert models.get(session, model, "") is None
        assert models.get(session, model, "other") is not None


def test_the_picture_of_a_model_goes_with_the_last_search_that_has_it(database: Database, files: Files) -> None:
    graph = old(files, b"graph")
    first, second = new_job(database), new_job(database)
    for job in (first, second):
        prepare(database, job.searches[0].id, graph=graph)
    delete(database, files, first)
    assert set(files.names()) == {graph}
    delete(database, files, second)
    assert list(files.names()) == []


def test_a_running_job_can_be_deleted(database: Database, files: Files) -> None:
    job = asking(database, [1])
    mine = claimed(database)
    assert delete(database, files, job)
    assert not answer(database, mine)
    with database.transaction() as session:
        assert not leases.renew(session, mine.lease, seconds=30)
    assert claim(database) is None


def test_an_upload_under_way_survives_a_deletion_of_the_same_file(database: Database, files: Files) -> None:
    model = old(files, b"model")
    job = new_job(database, model_sha256=model)
    files.put([b"model"])  # somebody else's, not in the database yet
    delete(database, files, job)
    assert files.size(model) is not None


def test_old_jobs_go_and_what_they_taught_stays(database: Database, files: Files, clock: Clock) -> None:
    model = old(files, b"model")
    gone, report = finished(database, files, b"report", model)
    question = probes.VerdictKey(tenant="", identity="c" * 64, key=KEY, attempt=0)
    clock.forward(86400 * 2)
    running = asking(database, [1], model_sha256=model)
    clock.forward(86400 * 2)
    assert retention.sweep(database, files, Retention(jobs=timedelta(days=3))) == 1
    with database.session() as session:
        assert jobs.get(session, gone.id, "") is None
        assert kept(session, question) == FAIL
    assert files.size(report) is None
    assert files.size(model) is not None
    clock.forward(86400 * 20)
    retention.sweep(database, files, Retention(jobs=timedelta(days=3)))
    assert read(database, running).state == "running"


def test_a_clock_that_jumps_takes_nothing_from_an_open_job(database: Database, files: Files, clock: Clock) -> None:
    model = old(files, b"model")
    open_job = asking(database, [1], model_sha256=model)
    keep = Retention(jobs=timedelta(days=3), models=timedelta(days=3))
    for days in (3650, -3660, 10):
        clock.forward(86400 * days)
        assert retention.sweep(database, files, keep) == 0
    assert read(database, open_job).state == "running"
    assert files.size(model) is not None
    with database.session() as session:
        assert models.get(session, model, "") is not None


def test_an_old_job_that_is_retried_at_that_moment_stays(database: Database, files: Files, clock: Clock) -> None:
    job = new_job(database)
    with database.transaction() as session:
        lifecycle.cancel(session, job.id, "")
    clock.forward(86400 * 4)
    sweep = Thread(target=retention.sweep, args=(database, files, Retention(jobs=timedelta(days=3))))
    with database.transaction() as session:
        lifecycle.retry(session, job.id, "")
        session.flush()
        sweep.start()
        sweep.join(1)  # it may have to wait for this transaction
    sweep.join()
    assert read(database, job).state == "queued"


def test_old_models_go_unless_a_job_has_them(database: Database, files: Files, clock: Clock) -> None:
    used, unused, fresh = (old(files, content) for content in (b"used", b"unused", b"fresh"))
    new_job(database, model_sha256=used)
    with database.transaction() as session:
        models.keep(session, tenant="", sha256=unused, name="m", size=6)
    clock.forward(86400 * 2)
    with database.transaction() as session:
        models.keep(session, tenant="", sha256=fresh, name="m", size=5, files={"w": used})
    assert retention.sweep(database, files, Retention(models=timedelta(days=1))) == 1
    assert set(files.names()) == {used, fresh}


def test_what_is_deleted_young_goes_soon_unless_somebody_needs_it_again(
    database: Database, files: Files, clock: Clock
) -> None:
    [model, again] = [files.put([content]).sha256 for content in (b"model", b"again")]
    with database.transaction() as session:
        for sha256 in (model, again):
            models.keep(session, tenant="", sha256=sha256, name="m", size=5)
    for sha256 in (model, again):
        with database.transaction() as session:
            gone = models.remove(session, sha256, "")
            released = retention.release(session, gone or ())
        retention.discard(files, released)
    assert set(files.names()) == {model, again}  # they are young: somebody may store them again this very moment
    clock.forward(61)
    assert retention.clear(database, files) == 2  # and they may have been touched since
    for sha256 in (model, again):
        os.utime(files.path(sha256), (time.time() - 61,) * 2)
    with database.transaction() as session:
        models.keep(session, tenant="", sha256=again, name="m", size=5)
    assert retention.clear(database, files) == 0
    assert set(files.names()) == {again}
    with database.session() as session:
        assert session.scalars(select(UnneededFile)).all() == []


def test_without_a_limit_only_orphans_go(database: Database, files: Files, clock: Clock) -> None:
    weights, universe, graph, calibration = (
        old(files, content) for content in (b"weights", b"universe", b"graph", b"calibration")
    )
    orphan, young = old(files, b"orphan"), files.put([b"young"]).sha256
    with database.transaction() as session:
        models.keep(session, tenant="", sha256=MODEL, name="m", size=6, files={"w.bin": weights})
        uploads.keep(session, tenant="", sha256=calibration, size=11)
    job = asking(database, [], files=(calibration,))
    with database.transaction() as session:
        search = session.get_one(type(job.searches[0]), job.searches[0].id)
        search.universe, search.graph = universe, graph
    end(database, job.searches[0].id)
    clock.forward(86400 * 9999)
    assert retention.sweep(database, files, Retention()) == 1
    assert orphan not in set(files.names())
    assert set(files.names()) == {weights, universe, graph, calibration, young}


def test_samples_go_with_the_last_job_that_speaks_of_them(database: Database, files: Files) -> None:
    model, shared, mine = (old(files, content) for content in (b"model", b"shared", b"mine"))
    with database.transaction() as session:
        for sha256 in (shared, mine):
            uploads.keep(session, tenant="", sha256=sha256, size=6)
    first = new_job(database, model_sha256=model, files=(shared, mine))
    second = new_job(database, model_sha256=model, files=(shared,))
    delete(database, files, first)
    assert set(files.names()) == {model, shared}
    with database.session() as session:
        assert uploads.get(session, mine, "") is None
    delete(database, files, second)
    assert list(files.names()) == []


def test_old_samples_go_unless_a_job_has_them(database: Database, files: Files, clock: Clock) -> None:
    model, used, unused = (old(files, content) for content in (b"model", b"used", b"unused"))
    with database.transaction() as session:
        for sha256 in (used, unused):
            uploads.keep(session, tenant="", sha256=sha256, size=6)
    new_job(database, model_sha256=model, files=(used,))
    clock.forward(86400 * 2)
    assert retention.sweep(database, files, Retention(models=timedelta(days=1))) == 1
    assert set(files.names()) == {model, used}
