"""The outbox: who is told, when it is tried again, when it is given up."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select

from onnxbisect_db import deliveries, endpoints, jobs, lifecycle, retention
from onnxbisect_db.database import Database
from onnxbisect_db.deliveries import SCHEDULE, Sending, Try
from onnxbisect_db.files import Files
from onnxbisect_db.states import DeliveryState, EventType, JobState
from onnxbisect_db.tables import Delivery, Endpoint
from support.db.scenes import Clock, asking, end, new_job, prepare

OK = Try(status=204, milliseconds=20)
DOWN = Try(status=None, milliseconds=5, problem="connection refused")
ERROR = Try(status=500, milliseconds=20, answer="x" * 9000)


def hook(database: Database, *events: EventType, tenant: str = "", url: str = "https://ci.example/hook") -> Endpoint:
    with database.transaction() as session:
        return endpoints.add(session, tenant=tenant, url=url, events=events)


def pinged(database: Database, endpoint: Endpoint) -> str:
    with database.transaction() as session:
        return deliveries.ping(session, session.get_one(Endpoint, endpoint.id)).id


def send(database: Database, delivery_id: str) -> Sending | None:
    """What the next worker sends, which is to be this delivery if anything."""
    sending = database.run(lambda session: deliveries.claim(session, seconds=30))
    assert sending is None or sending.delivery.id == delivery_id
    return sending


def sent(database: Database, delivery_id: str, tried: Try, **how: Any) -> bool:
    sending = send(database, delivery_id)
    assert sending is not None
    return database.run(lambda session: deliveries.record(session, sending, tried, **how))


def row(database: Database, delivery_id: str) -> Delivery:
    with database.session() as session:
        return session.get_one(Delivery, delivery_id)


def types(database: Database, endpoint: Endpoint) -> list[str]:
    with database.session() as session:
        return [delivery.type for delivery in reversed(deliveries.list_page(session, endpoint.id).rows)]


def jobs_told(database: Database, endpoint: Endpoint) -> list[str]:
    with database.session() as session:
        return [delivery.payload["data"]["job"] for delivery in deliveries.list_page(session, endpoint.id).rows]


def test_endpoints_hear_what_they_want_of_their_tenant(database: Database) -> None:
    everything, ends, stranger = hook(database), hook(database, EventType.JOB_FINISHED), hook(database, tenant="x")
    job = asking(database, [])
    end(database, job.searches[0].id)
    assert types(database, everything) == ["job.started", "job.finished"]
    assert types(database, ends) == ["job.finished"]
    assert types(database, stranger) == []


def test_a_webhook_of_a_job_hears_of_that_job_only(database: Database) -> None:
    job = new_job(database, webhook="https://ci.example/one")
    other = new_job(database)
    for each in (job, other):
        prepare(database, each.searches[0].id)
    with database.session() as session:
        assert endpoints.list_all(session, "") == []
        [told] = session.scalars(select(Delivery)).all()
    assert told.job_id == job.id
    assert told.payload["data"]["job"] == job.id


def test_the_newest_are_those_of_all_of_a_tenants_endpoints(database: Database) -> None:
    mine, stranger = hook(database), hook(database, tenant="x")
    first = pinged(database, mine)
    pinged(database, stranger)
    job = new_job(database, webhook="https://ci.example/one")
    prepare(database, job.searches[0].id)
    with database.session() as session:
        newest = [(endpoint.url, told.type) for endpoint, told in deliveries.newest(session, "", limit=2)]
        everything = deliveries.newest(session, "", limit=50)
    assert sorted(newest) == [("https://ci.example/hook", "job.started"), ("https://ci.example/one", "job.started")]
    assert [told.id for _, told in everything][-1] == first


def test_a_webhook_of_a_job_hears_of_what_it_wants(database: Database) -> None:
    job = new_job(database, webhook="https://ci.test/hook", webhook_events=(EventType.JOB_FINISHED,))
    with database.session() as session:
        endpoint = endpoints.of_job(session, job.id)
        assert endpoint is not None
        assert (endpoint.url, endpoint.events, len(endpoint.secrets)) == ("https://ci.test/hook", ["job.finished"], 1)
        assert endpoints.of_job(session, new_job(database).id) is None


def test_what_is_undone_is_not_told(database: Database) -> None:
    endpoint = hook(database)
    job = new_job(database)

    def fall_over(session: Any) -> None:
        lifecycle.cancel(session, job.id, "")
        raise KeyError

    with pytest.raises(KeyError):
        database.run(fall_over)
    assert types(database, endpoint) == []


def test_a_message_is_sent_once_it_arrived(database: Database) -> None:
    endpoint = hook(database)
    message = pinged(database, endpoint)
    sending = send(database, message)
    assert sending is not None
    assert sending.delivery.payload == {
        "type": "webhook.ping",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "data": {"endpoint": endpoint.id},
    }
    assert sending.endpoint.secrets == endpoint.secrets
    assert send(database, message) is None  # somebody is sending it
    assert database.run(lambda session: deliveries.record(session, sending, OK))
    assert send(database, message) is None
    assert row(database, message).state == DeliveryState.DELIVERED


def test_it_is_tried_as_often_as_the_schedule_says_with_one_id(database: Database, clock: Clock) -> None:
    message = pinged(database, hook(database))
    for wait in SCHEDULE:
        clock.forward(max(wait.total_seconds() - 1, 0))
        assert wait == timedelta(0) or send(database, message) is None
        clock.forward(1)
        assert sent(database, message, DOWN)
    found = row(database, message)
    assert found.state == DeliveryState.FAILED
    assert len(found.tries) == 10
    assert found.tries[0]["problem"] == "connection refused"


def test_jitter_and_retry_after_make_it_later(database: Database, clock: Clock) -> None:
    message = pinged(database, hook(database))
    sent(database, message, DOWN, jitter=1.0)
    assert row(database, message).due_at == clock.at + timedelta(seconds=5.5)
    clock.forward(6)
    busy = Try(status=429, milliseconds=1, retry_after=timedelta(hours=1))
    sent(database, message, busy)
    assert row(database, message).due_at == clock.at + timedelta(hours=1)
    clock.forward(3600)
    sent(database, message, Try(status=503, milliseconds=1, retry_after=timedelta(days=999)))
    assert row(database, message).due_at == clock.at + timedelta(days=1)


def test_a_redirect_is_no_arrival_and_answers_are_cut(database: Database) -> None:
    message = pinged(database, hook(database))
    sent(database, message, Try(status=302, milliseconds=1, answer="a\0" * 2000))
    found = row(database, message)
    assert found.state == DeliveryState.PENDING
    assert len(found.tries[0]["answer"]) == 2000


def test_a_sender_that_was_given_up_for_dead_ends_nothing(database: Database, clock: Clock) -> None:
    message = pinged(database, hook(database))
    late = send(database, message)
    clock.forward(31)
    again = send(database, message)
    assert late is not None
    assert again is not None
    assert late.delivery.id == again.delivery.id
    assert not database.run(lambda session: deliveries.record(session, late, DOWN))
    assert database.run(lambda session: deliveries.record(session, again, OK))
    found = row(database, message)
    assert (found.state, [tried["status"] for tried in found.tries]) == (DeliveryState.DELIVERED, [None, 204])


def test_messages_of_one_millisecond_are_sent_in_their_order(database: Database) -> None:
    endpoint = hook(database)
    with database.transaction() as session:
        messages = [deliveries.ping(session, session.get_one(Endpoint, endpoint.id)).id for _ in range(20)]
    for message in messages:
        sent(database, message, OK)


def test_no_tenant_waits_for_the_receivers_of_another_one(database: Database, clock: Clock) -> None:
    first, second = hook(database), hook(database)
    slow = [pinged(database, endpoint) for endpoint in (first, second, first)]
    clock.forward(1)
    other = pinged(database, hook(database, tenant="other"))
    for message in (slow[0], other, *slow[1:]):
        assert send(database, message) is not None


def test_no_receiver_waits_for_another_one(database: Database, clock: Clock) -> None:
    """Many jobs may have come with the same silent one."""
    slow = [pinged(database, hook(database)) for _ in range(3)]
    clock.forward(1)
    other = pinged(database, hook(database, url="https://other.example"))
    for message in (slow[0], other, *slow[1:]):
        assert send(database, message) is not None


def test_gone_disables_the_endpoint_and_ends_what_waits(database: Database) -> None:
    endpoint = hook(database)
    first, second = pinged(database, endpoint), pinged(database, endpoint)
    sent(database, first, Try(status=410, milliseconds=1))
    with database.session() as session:
        found = endpoints.get(session, endpoint.id, "")
        assert found is not None
        assert "410" in found.disabled_because
    assert [row(database, message).state for message in (first, second)] == [DeliveryState.FAILED] * 2
    assert send(database, second) is None
    end(database, asking(database, []).searches[0].id)
    assert types(database, endpoint) == ["webhook.ping"] * 2
    with database.transaction() as session:
        endpoints.enable(session, endpoint.id, "")
    end(database, asking(database, []).searches[0].id)
    assert types(database, endpoint)[-1] == "job.finished"


def test_what_is_on_its_way_when_the_endpoint_is_disabled_is_on_record(database: Database) -> None:
    endpoint = hook(database)
    messages = sorted(pinged(database, endpoint) for _ in range(5))
    under_way = [sending for message in messages[:4] if (sending := send(database, message)) is not None]
    gone = Try(status=410, milliseconds=1)
    for sending, tried in zip(under_way, (gone, gone, OK, ERROR), strict=True):
        with database.transaction() as session:
            assert deliveries.record(session, sending, tried)
    found = [row(database, message) for message in messages]
    assert [[tried["status"] for tried in each.tries] for each in found] == [[410], [410], [204], [500], []]
    failed, delivered = DeliveryState.FAILED, DeliveryState.DELIVERED
    assert [each.state for each in found] == [failed, failed, delivered, failed, failed]
    assert [send(database, message) for message in messages] == [None] * 5
    with database.session() as session:
        assert session.get_one(Endpoint, endpoint.id).disabled_because == "Disabled: it answered 410 Gone."


def test_a_try_that_ends_after_a_redelivery_is_on_record_and_ends_nothing(database: Database) -> None:
    message = pinged(database, hook(database))
    sending = send(database, message)
    assert sending is not None
    with database.transaction() as session:
        deliveries.redeliver(session, message, "")
    assert not database.run(lambda session: deliveries.record(session, sending, OK))
    found = row(database, message)
    assert (found.state, len(found.tries)) == (DeliveryState.PENDING, 1)


def give_up(database: Database, clock: Clock, message: str) -> None:
    for wait in SCHEDULE:
        clock.forward(wait.total_seconds())
        sent(database, message, DOWN)


def test_an_endpoint_that_is_down_for_long_is_disabled(database: Database, clock: Clock) -> None:
    endpoint = hook(database)
    give_up(database, clock, pinged(database, endpoint))  # takes a little over three days
    with database.session() as session:
        assert endpoints.get(session, endpoint.id, "").disabled_at is None  # type: ignore[union-attr]
    give_up(database, clock, pinged(database, endpoint))
    with database.session() as session:
        assert "since 2026-01-01" in endpoints.get(session, endpoint.id, "").disabled_because  # type: ignore[union-attr]


def test_one_arrival_makes_up_for_all_failures(database: Database, clock: Clock) -> None:
    endpoint = hook(database)
    give_up(database, clock, pinged(database, endpoint))
    sent(database, pinged(database, endpoint), OK)
    give_up(database, clock, pinged(database, endpoint))
    with database.session() as session:
        assert endpoints.get(session, endpoint.id, "").disabled_at is None  # type: ignore[union-attr]


def test_a_receiver_that_was_down_gets_it_again_by_hand(database: Database, clock: Clock) -> None:
    message = pinged(database, hook(database))
    give_up(database, clock, message)
    with database.transaction() as session:
        assert deliveries.redeliver(session, message, "stranger") is None
        assert deliveries.redeliver(session, message, "") is not None
    sent(database, message, DOWN)
    clock.forward(5)
    sent(database, message, OK)
    found = row(database, message)
    assert (found.state, len(found.tries)) == (DeliveryState.DELIVERED, 12)


def test_while_a_secret_is_rotated_both_sign(database: Database) -> None:
    endpoint = hook(database)
    with database.transaction() as session:
        assert endpoints.rotate(session, endpoint.id, "stranger") is None
        endpoints.rotate(session, endpoint.id, "")
    sending = send(database, pinged(database, endpoint))
    assert sending is not None
    assert len(set(sending.endpoint.secrets)) == 2
    assert sending.endpoint.secrets[1] == endpoint.secrets[0]
    with database.transaction() as session:
        assert endpoints.retire(session, endpoint.id, "").secrets == [sending.endpoint.secrets[0]]  # type: ignore[union-attr]


def test_the_log_of_an_endpoint_is_read_page_by_page(database: Database) -> None:
    endpoint, other = hook(database), hook(database, tenant="x")
    pinged(database, other)
    made = sorted((pinged(database, endpoint) for _ in range(5)), reverse=True)
    seen: list[str] = []
    with database.session() as session:
        while page := deliveries.list_page(session, endpoint.id, after=seen[-1] if seen else None, limit=2).rows:
            seen += [delivery.id for delivery in page]
        assert seen == made
        found = deliveries.get(session, made[0], "")
        assert found is not None
        assert found.endpoint_id == endpoint.id
        assert deliveries.get(session, made[0], "x") is None
        assert deliveries.get(session, "unknown", "") is None


def test_removing_an_endpoint_undoes_no_change_that_it_is_told_of(database: Database) -> None:
    """Between finding the endpoints of an event and writing to them, somebody removes one."""
    endpoint = hook(database)
    job = new_job(database)
    remove = threading.Thread(target=database.run, args=[lambda each: endpoints.remove(each, endpoint.id, "")])

    def meanwhile(session: Any, *rest: object) -> None:
        if remove.ident is None and any(isinstance(row, Delivery) for row in session.new):
            remove.start()
            remove.join(0.5)  # where it has to wait, it waits for this very transaction

    with database.transaction() as session:
        event.listen(session, "before_flush", meanwhile)
        lifecycle.cancel(session, job.id, "")
    remove.join()
    with database.session() as session:
        assert jobs.get(session, job.id, "").state == JobState.CANCELLED  # type: ignore[union-attr]
        assert endpoints.get(session, endpoint.id, "") is None
        assert session.scalars(select(Delivery)).all() == []


def test_what_was_told_of_a_job_goes_with_it(database: Database, clock: Clock, tmp_path: Path) -> None:
    """Labels and compilers' words are in it."""
    endpoint = hook(database)
    deleted, aged, other = (asking(database, [], labels={"commit": each}) for each in "abc")
    end(database, aged.searches[0].id)
    clock.forward(1000)
    database.run(lambda session: retention.forget(session, deleted.id, ""))
    assert sorted(jobs_told(database, endpoint)) == sorted([aged.id, aged.id, other.id])
    retention.sweep(database, Files(tmp_path), retention.Retention(jobs=timedelta(seconds=900)))
    assert jobs_told(database, endpoint) == [other.id]


def test_an_endpoint_is_forgotten_with_its_messages(database: Database) -> None:
    endpoint = hook(database)
    message = pinged(database, endpoint)
    with database.transaction() as session:
        assert not endpoints.remove(session, endpoint.id, "stranger")
        assert endpoints.remove(session, endpoint.id, "")
    assert send(database, message) is None
