"""Whatever is dropped is picked up."""

import pytest
from sqlalchemy import update

from onnxbisect_db import gauges, leases, probes, search_queue, workers
from onnxbisect_db.database import Database
from onnxbisect_db.reconcile import LEASE_SECONDS, leave, reconcile
from onnxbisect_db.search_queue import ClaimFilter
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job
from onnxbisect_db.workers import Presence
from support.db.scenes import LEASE, NPU, Clock, asking, claim, claimed, end, read, take


def test_one_process_at_a_time_reconciles(database: Database, clock: Clock) -> None:
    assert reconcile(database, "a")
    assert not reconcile(database, "b")
    assert reconcile(database, "a")
    clock.forward(31)
    assert reconcile(database, "b")
    assert not reconcile(database, "a")


def test_a_search_that_waits_for_nothing_is_coordinated(database: Database) -> None:
    """Whatever the mishap was that nothing is asked, and nobody was told."""
    asking(database, [])
    asking(database, [1])
    control = ClaimFilter(worker="w", seconds=LEASE, stages=(Stage.SEARCH,))
    assert database.run(lambda session: search_queue.take(session, control)) is None
    assert reconcile(database, "me")
    assert database.run(lambda session: search_queue.take(session, control)) is not None
    assert database.run(lambda session: search_queue.take(session, control)) is None


def test_what_is_held_is_left_to_its_holder(database: Database, clock: Clock) -> None:
    asking(database, [1])
    mine = claimed(database)
    clock.forward(LEASE - 1)
    assert reconcile(database, "me")
    assert claim(database) is None
    with database.session() as session:
        assert leases.wanted(session, mine.lease)


def test_a_probe_of_a_dead_worker_is_asked_again(database: Database, clock: Clock) -> None:
    asking(database, [1])
    lost = claimed(database)
    clock.forward(LEASE + 1)
    assert reconcile(database, "me")
    again = claimed(database)
    assert (again.probe.id, again.lease.epoch) == (lost.probe.id, lost.lease.epoch + 1)


def test_a_probe_that_is_to_wait_waits_until_it_is_due(database: Database, clock: Clock) -> None:
    asking(database, [1])
    for _ in range(6):
        mine = claimed(database)
        with database.transaction() as session:
            probes.record_loss(session, mine, "Its host was shot.")
        clock.forward(20)
    mine = claimed(database)
    with database.transaction() as session:
        probes.record_loss(session, mine, "Its host was shot.")
    clock.forward(31)
    assert claim(database) is None
    clock.forward(1)
    assert claim(database) is not None


def test_nothing_stands_still_when_the_clock_is_set_back(database: Database, clock: Clock) -> None:
    """All was going on when everything was killed, and the clock was a day ahead."""
    clock.forward(24 * 3600)
    running = asking(database, [1])
    probe = claimed(database)
    held = asking(database, [2]).searches[0].id
    taken = take(database, held, Stage.SEARCH)
    seen(database, "ghost")
    assert reconcile(database, "ghost")
    clock.forward(-24 * 3600)
    seen(database, "living")
    assert reconcile(database, "living")
    again = {claimed(database, worker="living").probe.id for _ in range(2)}
    assert probe.probe.id in again
    control = ClaimFilter(worker="living", seconds=LEASE, stages=(Stage.SEARCH,))
    found = database.run(lambda session: search_queue.take(session, control))
    assert found is not None
    assert (found.search.id, found.lease.epoch) == (held, taken.lease.epoch + 1)
    with database.session() as session:
        assert [worker.id for worker in workers.list_all(session)] == ["living"]
    assert read(database, running).state == "running"


def seen(database: Database, name: str) -> None:
    database.run(lambda session: workers.record_heartbeat(session, Presence(id=name, backends=(NPU,), slots=1)))


def test_a_job_that_was_not_closed_is_closed(database: Database) -> None:
    job = asking(database, [])
    end(database, job.searches[0].id)
    with database.transaction() as session:
        session.execute(update(Job).values(state=JobState.RUNNING, ended_at=None))
    assert reconcile(database, "me")
    assert read(database, job).state == JobState.DONE


@pytest.mark.parametrize("holder", ["a", "b"])
def test_a_lease_is_free_when_it_ran_out(database: Database, clock: Clock, holder: str) -> None:
    assert reconcile(database, "a")
    clock.forward(LEASE_SECONDS)
    assert reconcile(database, holder)


def test_who_leaves_is_followed_at_once_and_who_has_died_soon(database: Database, clock: Clock) -> None:
    assert reconcile(database, "a")
    assert not reconcile(database, "b")
    leave(database, "b")  # which it is not its to leave
    assert not reconcile(database, "b")
    leave(database, "a")
    clock.forward(90)
    with database.session() as session:
        assert gauges.read(session).unreconciled == 90 + LEASE_SECONDS  # who watches this sees that nobody does it
    assert reconcile(database, "b")
    clock.forward(LEASE_SECONDS)
    assert reconcile(database, "c")
