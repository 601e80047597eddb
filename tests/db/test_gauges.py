"""Numbers that say when nothing moves."""

from onnxbisect_db import deliveries, endpoints, gauges, reconcile
from onnxbisect_db.database import Database
from onnxbisect_db.deliveries import Try
from onnxbisect_db.gauges import Gauges
from support.db.scenes import Clock, answer, asking, claimed


def read(database: Database) -> Gauges:
    with database.session() as session:
        return gauges.read(session)


def test_an_empty_service_has_nothing_to_tell(database: Database) -> None:
    found = read(database)
    assert set(found.jobs.values()) == {0}
    assert (found.searches, found.probes, found.oldest, found.overdue, found.unreconciled) == ({}, {}, {}, 0.0, None)


def test_what_waits_is_told_by_backend_with_its_age(database: Database, clock: Clock) -> None:
    asking(database, [1, 2], "npu")
    clock.forward(100)
    asking(database, [4], "dsp")
    clock.forward(5)
    answer(database, claimed(database, "npu"))
    claimed(database, "npu")
    found = read(database)
    assert found.jobs["running"] == 2
    assert found.searches == {("dsp", "search"): 1, ("npu", "search"): 1}
    assert (found.probes["npu"].queued, found.probes["npu"].running, found.probes["dsp"].queued) == (0, 1, 1)
    assert found.oldest == {"dsp": 5.0}


def test_a_lease_that_nobody_takes_away_gets_older(database: Database, clock: Clock) -> None:
    asking(database, [1])
    claimed(database)
    assert read(database).overdue == 0
    clock.forward(100)
    assert read(database).overdue == 70
    reconcile.reconcile(database, "me")
    assert read(database).overdue == 0


def test_a_reconciler_that_stopped_is_seen(database: Database, clock: Clock) -> None:
    reconcile.reconcile(database, "me")
    assert read(database).unreconciled == 0
    clock.forward(300)
    assert read(database).unreconciled == 300


def test_webhooks_that_take_nothing_are_counted(database: Database) -> None:
    with database.transaction() as session:
        for name in "abc":
            deliveries.ping(session, endpoints.add(session, tenant="", url=f"https://{name}.example"))
        for status in (410, 500):
            sending = deliveries.claim(session, seconds=30)
            assert sending is not None
            deliveries.record(session, sending, Try(status=status, milliseconds=1))
    found = read(database)
    assert (found.deliveries["failed"], found.deliveries["pending"]) == (1, 2)
    assert (found.failing, found.disabled) == (2, 1)
