"""Whatever is dropped is picked up, and nothing is rung more often than it helps."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from onnxbisect_db import endpoints, gauges, leases, probes, workers
from onnxbisect_db.database import Database
from onnxbisect_db.reconcile import LEASE_SECONDS, Bells, SearchBell, leave, reconcile
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job, Search
from onnxbisect_db.workers import Presence
from support.db.scenes import LEASE, NPU, Clock, answer, asking, claimed, end, new_job, plan, prepare, read, take


def bells(database: Database) -> Bells:
    found = reconcile(database, "me")
    assert found is not None
    return found


def join(database: Database, *backends: str, slots: int = 1, name: str = "host") -> None:
    presence = Presence(id=name, backends=backends or (NPU,), slots=slots)
    database.run(lambda session: workers.joined(session, presence))


def test_one_process_at_a_time_reconciles(database: Database, clock: Clock) -> None:
    assert reconcile(database, "a") is not None
    assert reconcile(database, "b") is None
    assert reconcile(database, "a") is not None
    clock.forward(31)
    assert reconcile(database, "b") is not None
    assert reconcile(database, "a") is None


def test_where_nothing_was_dropped_nothing_is_rung(database: Database, clock: Clock) -> None:
    job = asking(database, [1])
    claimed(database)
    assert bells(database) == Bells()
    clock.forward(LEASE - 1)
    assert bells(database) == Bells()
    assert read(database, job).state == "running"


def test_a_job_whose_ring_was_lost_is_rung_again_and_less_and_less(database: Database, clock: Clock) -> None:
    search = new_job(database).searches[0].id
    assert bells(database).searches == ()  # who made it has rung
    for pause in (10, 20, 40, 80, 160, 320, 600, 600):
        clock.forward(pause - 1)
        assert bells(database).searches == ()
        clock.forward(1)
        assert bells(database).searches == (SearchBell(search_id=search, stage=Stage.PREPARE, backend=NPU),)


def test_a_worker_that_joins_is_rung_for_what_has_long_waited(database: Database, clock: Clock) -> None:
    preparing = new_job(database).searches[0].id
    asking(database, [1, 2, 3])
    for _ in range(10):
        clock.forward(700)
        bells(database)
    assert bells(database) == Bells()
    join(database, slots=2)
    found = bells(database)
    assert [bell.search_id for bell in found.searches] == [preparing]
    assert found.probes == {NPU: 2}


def test_where_hands_are_free_a_lost_ring_is_not_waited_for(database: Database, clock: Clock) -> None:
    waiting = [new_job(database).searches[0].id for _ in range(3)]
    for _ in range(6):
        clock.forward(700)
        bells(database)
    database.run(lambda session: workers.seen(session, Presence(id="host", backends=(NPU,), slots=2)))
    clock.forward(5)
    assert bells(database) == Bells()
    clock.forward(5)
    assert [bell.search_id for bell in bells(database).searches] == waiting[:2]
    assert bells(database) == Bells()
    take(database, waiting[0], Stage.PREPARE)
    clock.forward(10)
    assert [bell.search_id for bell in bells(database).searches] == waiting[1:2]


def test_probes_of_a_dead_worker_are_rung_again(database: Database, clock: Clock) -> None:
    asking(database, [1])
    lost = claimed(database)
    clock.forward(LEASE + 1)
    assert bells(database).probes == {NPU: 1}
    again = claimed(database)
    assert (again.probe_id, again.number) == (lost.probe_id, lost.number + 1)


def test_a_probe_that_is_to_wait_is_rung_for_when_it_is_due(database: Database, clock: Clock) -> None:
    asking(database, [1])
    for _ in range(6):
        mine = claimed(database)
        with database.transaction() as session:
            assert probes.lost(session, mine, "Its host was shot.")
        clock.forward(20)
    mine = claimed(database)
    with database.transaction() as session:
        assert probes.lost(session, mine, "Its host was shot.")
    clock.forward(31)
    assert bells(database).probes == {}
    clock.forward(1)
    assert bells(database).probes == {NPU: 1}


def test_nothing_stands_still_when_the_clock_is_set_back(database: Database, clock: Clock) -> None:
    """All was going on when everything was killed, and the clock was a day ahead."""
    clock.forward(24 * 3600)
    running = asking(database, [1])
    probe = claimed(database)
    held = asking(database, [2]).searches[0].id
    turn = take(database, held, Stage.SEARCH)
    join(database, slots=1, name="ghost")
    assert reconcile(database, "ghost") is not None
    clock.forward(-24 * 3600)
    join(database, slots=2, name="living")
    found = reconcile(database, "living")
    assert found is not None
    assert [bell.search_id for bell in found.searches] == [held]
    assert found.probes == {NPU: 2}
    again = {claimed(database, worker="living").probe_id for _ in range(2)}
    assert probe.probe_id in again
    assert take(database, held, Stage.SEARCH).number == turn.number + 1
    with database.session() as session:
        assert [worker.id for worker in workers.listed(session)] == ["living"]
    assert read(database, running).state == "running"


def test_only_free_hands_are_rung_for(database: Database, clock: Clock) -> None:
    asking(database, range(1, 10))
    join(database, slots=2, name="a")
    join(database, slots=1, name="b")
    assert bells(database).probes == {NPU: 3}
    clock.forward(5)
    assert bells(database).probes == {}  # they were rung a moment ago
    claimed(database)
    assert bells(database).probes == {NPU: 2}
    for _ in range(2):
        claimed(database)
    assert bells(database).probes == {}  # the rest only waits for its turn


def test_workers_that_were_not_seen_lately_have_no_hands(database: Database, clock: Clock) -> None:
    asking(database, range(1, 10))
    join(database, slots=5, name="dead")
    clock.forward(61)
    join(database, slots=2, name="living")
    assert bells(database).probes == {NPU: 2}


def test_a_lost_coordinator_is_replaced(database: Database, clock: Clock) -> None:
    search = asking(database, [1]).searches[0].id
    take(database, search, Stage.SEARCH)
    assert bells(database).searches == ()
    clock.forward(LEASE + 1)
    assert bells(database).searches == (SearchBell(search_id=search, stage=Stage.SEARCH, backend=NPU),)


def test_an_answer_whose_ring_was_lost_is_rung_again(database: Database, clock: Clock) -> None:
    search = asking(database, [1, 2]).searches[0].id
    answer(database, claimed(database))
    assert bells(database).searches == ()  # the worker has rung
    clock.forward(11)
    assert [bell.search_id for bell in bells(database).searches] == [search]


def test_a_search_that_nobody_will_ring_for_is_rung(database: Database, clock: Clock) -> None:
    """Its coordinator saved a plan without questions and was lost before it could go on."""
    search = new_job(database).searches[0].id
    prepare(database, search)
    plan(database, search, [])
    assert [bell.search_id for bell in bells(database).searches] == [search]


def test_a_job_that_was_not_closed_is_closed(database: Database) -> None:
    job = asking(database, [])
    end(database, job.searches[0].id)
    with database.transaction() as session:
        session.execute(update(Job).values(state=JobState.RUNNING, ended_at=None))
    bells(database)
    assert read(database, job).state == JobState.DONE


def test_what_is_over_is_left_in_peace(database: Database, clock: Clock) -> None:
    job = asking(database, [1])
    end(database, job.searches[0].id)
    with database.transaction() as session:
        session.execute(update(Search).values(ring_at=None))
    clock.forward(3600)
    assert bells(database) == Bells()


def test_deliveries_are_rung_when_they_are_due(database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        endpoints.add(session, tenant="", url="https://ci.example/hook")
    take(database, new_job(database).searches[0].id, Stage.PREPARE)
    assert len(bells(database).deliveries) == 1
    assert bells(database).deliveries == ()
    clock.forward(11)
    assert len(bells(database).deliveries) == 1


def test_reconciling_twice_is_reconciling_once(database: Database, clock: Clock) -> None:
    asking(database, [1])
    claimed(database)
    clock.forward(LEASE + 1)
    bells(database)
    assert bells(database) == Bells()
    assert claimed(database).number == 2


@pytest.mark.parametrize("holder", ["a", "b"])
def test_a_lease_is_free_when_it_ran_out(database: Database, clock: Clock, holder: str) -> None:
    def take_it(session: object, name: str = "a") -> bool:
        return leases.take(session, "x", name, seconds=10)  # type: ignore[arg-type]

    assert database.run(take_it)
    clock.forward(timedelta(seconds=10).total_seconds())
    assert database.run(lambda session: take_it(session, holder))


def test_who_leaves_is_followed_at_once_and_who_has_died_soon(database: Database, clock: Clock) -> None:
    assert reconcile(database, "a") is not None
    assert reconcile(database, "b") is None
    leave(database, "b")  # which it is not its to leave
    assert reconcile(database, "b") is None
    leave(database, "a")
    clock.forward(90)
    with database.session() as session:
        assert gauges.read(session).unreconciled == 90 + LEASE_SECONDS  # who watches this sees that nobody does it
    assert reconcile(database, "b") is not None
    clock.forward(LEASE_SECONDS)
    assert reconcile(database, "c") is not None
