"""Who is there, and how many hands there are."""

from onnxbisect_db import workers
from onnxbisect_db.database import Database
from onnxbisect_db.workers import Presence
from support.db.scenes import Clock

A = Presence(
    id="a",
    backends=("qnn", "rknn"),
    slots=2,
    tools={"qnn": "qairt 2.31", "rknn": "not installed"},
    unusable=frozenset({"rknn"}),
)
B = Presence(id="b", backends=("qnn",), slots=1)


def test_workers_are_alive_while_they_say_so(database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        workers.record_heartbeat(session, A)
        workers.record_heartbeat(session, B)
    clock.forward(59)
    with database.transaction() as session:
        workers.record_heartbeat(session, A)
        assert workers.slots(session) == {"qnn": 3, "rknn": 2}
    clock.forward(1)
    with database.session() as session:
        assert workers.slots(session) == {"qnn": 2, "rknn": 2}
        assert [worker.seen_at > workers.alive_since(session) for worker in workers.list_all(session)] == [True, False]


def test_a_worker_that_leaves_is_gone_at_once_and_one_that_died_after_a_day(database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        workers.record_heartbeat(session, A)
        workers.record_heartbeat(session, B)
        workers.record_stop(session, "a")
    with database.session() as session:
        assert [worker.id for worker in workers.list_all(session)] == ["b"]
    clock.forward(86400)
    with database.transaction() as session:
        assert workers.list_all(session) == []
        workers.forget(session)


def test_what_a_worker_says_last_counts(database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        workers.record_heartbeat(session, A)
    clock.forward(5)
    with database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="a", backends=("rknn",), slots=4))
    with database.session() as session:
        [worker] = workers.list_all(session)
        assert (worker.backends, worker.slots, worker.tools, worker.unusable) == (["rknn"], 4, {}, [])
        assert (worker.seen_at - worker.started_at).total_seconds() == 5


def test_a_tool_that_fails_is_doubted_until_the_worker_has_asked_it_again(database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        workers.record_heartbeat(session, A)
        workers.record_heartbeat(session, B)
        assert workers.renew(session, "a") == A.unusable
        assert workers.record_broken_tool(session, "a", "qnn", "no licence")
        assert workers.renew(session, "a") == A.unusable | {"qnn"}
        assert workers.usable_backends(session, "a", ["qnn"]) == []
        assert workers.usable_backends(session, "b", ["qnn"]) == ["qnn"]
        assert workers.slots(session) == {"qnn": 1, "rknn": 2}
        assert not workers.record_broken_tool(session, "b", "qnn", "no licence"), "somebody must say so"
        workers.record_heartbeat(session, A)
        assert workers.renew(session, "a") == A.unusable
        assert workers.usable_backends(session, "b", ["qnn"]) == []


def test_nobody_steps_aside_for_the_dead_or_for_what_has_no_such_tool(database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        workers.record_heartbeat(session, A)
        workers.record_heartbeat(session, B)
        assert workers.usable_backends(session, "a", ["rknn"]) == ["rknn"], "nobody else has it"
        assert not workers.record_broken_tool(session, "unknown", "qnn", "no licence")
        assert not workers.record_broken_tool(session, "b", "rknn", "no licence")
    clock.forward(59)
    with database.transaction() as session:
        workers.record_heartbeat(session, B)
        workers.record_broken_tool(session, "b", "qnn", "no licence")
        assert workers.usable_backends(session, "b", ["qnn"]) == []
    clock.forward(1)
    with database.session() as session:
        assert workers.usable_backends(session, "b", ["qnn"]) == ["qnn"]
