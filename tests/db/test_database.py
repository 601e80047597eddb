"""Transactions, time, and what text survives."""

import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.orm import Session

from onnxbisect.answer import Answer
from onnxbisect.errors import OptionError
from onnxbisect_db import models, probe_queries
from onnxbisect_db.database import Database, now
from onnxbisect_db.tables import Job, Probe, StoredModel
from support.db.scenes import MODEL, PASS, Clock, answer, asking, claimed, new_job, read


def test_an_exception_undoes_the_transaction(database: Database) -> None:
    def work(session: Session) -> None:
        models.keep(session, tenant="", sha256=MODEL, name="net.onnx", size=10)
        raise KeyError

    with pytest.raises(KeyError):
        database.run(work)
    with database.session() as session:
        assert models.get(session, MODEL, "") is None


def test_a_reader_cannot_write(database: Database) -> None:
    job = new_job(database)
    with pytest.raises(DBAPIError, match=r"(?i)read.?only"), database.session() as session:
        session.execute(update(Job).values(priority=9))
    assert read(database, job).priority == 0
    with database.transaction() as session:  # the connection goes on as one that writes
        session.execute(update(Job).values(priority=9))
    assert read(database, job).priority == 9


def test_a_reader_sees_one_moment(database: Database) -> None:
    with database.session() as session:
        assert models.get(session, MODEL, "") is None
        new_job(database)
        session.expire_all()
        assert models.get(session, MODEL, "") is None


def test_what_was_not_loaded_is_not_loaded_by_surprise(database: Database) -> None:
    job = asking(database)
    with database.session() as session:
        bare = session.get_one(Job, job.id)
        with pytest.raises(InvalidRequestError, match="lazy"):
            bare.searches  # noqa: B018 - reading is what raises


def test_a_new_file_is_its_owner_s_alone_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    """Secrets of webhooks are in it. A folder that several share is theirs."""
    new, shared = tmp_path / "new", tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    (shared / "db.sqlite").touch()
    (shared / "db.sqlite").chmod(0o660)

    def modes(folder: Path) -> set[str]:
        database = Database(f"sqlite:///{folder / 'db.sqlite'}")
        database.upgrade()
        with database.transaction():
            found = {stat.filemode(path.stat().st_mode) for path in folder.iterdir()}
        database.close()
        return found

    assert modes(new) == {"-rw-------"}
    assert stat.filemode(new.stat().st_mode) == "drwx------"
    assert modes(shared) == {"-rw-rw----"}
    assert stat.filemode(shared.stat().st_mode) == "drwxrws---"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="must be a file"):
        Database(url)


@pytest.mark.parametrize("kind", ["postgresql+what", "mysql+pymysql", "nothing", "post gres"])
def test_a_wrong_url_is_explained_without_repeating_its_password(kind: str) -> None:
    with pytest.raises(OptionError, match=r"postgresql://user:") as caught:
        Database(f"{kind}://me:secret5@h/db")
    assert "secret5" not in str(caught.value)


def test_the_databases_own_clock_tells_the_time(url: str) -> None:
    database = Database(url)
    with database.transaction() as session:
        first, second = now(session), now(session)
    assert first.tzinfo is UTC
    assert first < second
    assert abs(datetime.now(UTC) - first) < timedelta(minutes=1)
    database.close()


def test_instants_come_back_as_they_were(database: Database, clock: Clock) -> None:
    clock.at = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    assert read(database, new_job(database)).created_at == clock.at


def test_hostile_text_is_kept_without_what_no_database_takes(database: Database) -> None:
    nasty = "a\0b\ud800c\x1b[31m\u202e☃\U0001d518'; DROP TABLE job; --"
    job = asking(database, labels={"branch": "☃'\""})
    claim = claimed(database)
    verdict = PASS.verdict.__class__(status=PASS.verdict.status, message=nasty)
    assert answer(database, claim, Answer(verdict=verdict, log=nasty))
    with database.session() as session:
        assert probe_queries.log(session, claim.probe.id, "") == nasty.replace("\0", "\ufffd").replace(
            "\ud800", "\ufffd"
        )
        kept = session.get_one(Probe, claim.probe.id).verdict
    assert kept is not None
    assert kept["message"] == nasty  # JSON escapes what text cannot hold
    assert read(database, job).labels == {"branch": "☃'\""}


def test_a_model_may_be_larger_than_four_gigabytes(database: Database) -> None:
    with database.transaction() as session:
        models.keep(session, tenant="", sha256=MODEL, name="llm.onnx", size=1 << 40, files={"w.bin": "e" * 64})
    with database.session() as session:
        assert session.get_one(StoredModel, ("", MODEL)).size == 1 << 40


def test_writers_that_meet_both_write(database: Database) -> None:
    """Each reads, then writes what it read plus one: neither may be lost."""
    job = new_job(database)
    meet = threading.Barrier(4)

    def bump(session: Session) -> None:
        found = session.get_one(Job, job.id, with_for_update=True)
        found.priority += 1

    def work() -> None:
        meet.wait()
        for _ in range(5):
            database.run(bump)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(database, job).priority == 20


def test_of_two_that_wait_for_each_other_one_begins_again(database: Database) -> None:
    """A deadlock in PostgreSQL, where rows are locked; SQLite's writers come one after the other anyway."""
    first, second = new_job(database), new_job(database)
    meet = threading.Barrier(2)
    tries: list[str] = []

    def cross(session: Session, ids: tuple[str, str]) -> None:
        tries.append(ids[0])
        for position, job_id in enumerate(ids):
            session.get_one(Job, job_id, with_for_update=True, populate_existing=True).priority += 1
            session.flush()
            if position == 0 and len(tries) <= 2 and session.get_bind().dialect.name == "postgresql":
                meet.wait(10)

    def work(*ids: str) -> None:
        database.run(lambda session: cross(session, (ids[0], ids[1])))

    threads = [threading.Thread(target=work, args=ids) for ids in ((first.id, second.id), (second.id, first.id))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [read(database, job).priority for job in (first, second)] == [2, 2]


def test_a_server_that_was_started_again_is_reached_again(url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("has no server")
    here, other = Database(url), Database(url)
    new_job(here)
    with other.session() as session:
        session.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "  # and wait until they have ended
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        )
    assert new_job(here).events == 1
    for database in (here, other):
        database.close()
