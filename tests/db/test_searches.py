"""Claims of a search, and what a coordinator writes in them."""

import pytest

from onnxbisect.answer import Ask
from onnxbisect_db import leases, notices, plans, probe_queries, searches
from onnxbisect_db.database import Database
from onnxbisect_db.errors import LostClaimError
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import Stage
from support.db.scenes import (
    FAIL,
    IDENTITY,
    LEASE,
    NPU,
    PASS,
    UNIVERSE,
    UNSURE,
    Clock,
    answer,
    asking,
    asks,
    claim,
    claimed,
    end,
    new_job,
    plan,
    prepare,
    read,
    take,
)


def try_to_claim(database: Database, search_id: str, stage: Stage) -> ClaimedSearch | None:
    return database.run(lambda session: searches.claim(session, search_id, stage, seconds=LEASE))


def recall(database: Database, search_id: str) -> int:
    claimed = take(database, search_id, Stage.SEARCH)
    universe, identity = claimed.search.universe, claimed.search.identity
    assert universe is not None
    assert identity is not None
    with database.transaction() as session:
        taken = plans.recall(session, claimed, universe=universe, identity=identity, whole="", without="")
        searches.release(session, claimed)
    return taken


def verdicts_of(database: Database, search_id: str) -> dict[tuple[int, int], str]:
    with database.session() as session:
        return {
            (found.units, found.attempt): found.verdict.status for found in probe_queries.answered(session, search_id)
        }


def test_one_task_at_a_time_has_a_search(database: Database, clock: Clock) -> None:
    search = new_job(database).searches[0].id
    assert try_to_claim(database, search, Stage.SEARCH) is None  # it is not that far
    first = take(database, search, Stage.PREPARE)
    assert try_to_claim(database, search, Stage.PREPARE) is None
    clock.forward(LEASE + 1)
    second = take(database, search, Stage.PREPARE)
    assert second.lease.epoch > first.lease.epoch


def test_what_a_lost_task_writes_changes_nothing(database: Database, clock: Clock) -> None:
    job = asking(database, [1])
    search = job.searches[0].id
    lost = take(database, search, Stage.SEARCH)
    clock.forward(LEASE + 1)
    take(database, search, Stage.SEARCH)
    with pytest.raises(LostClaimError), database.transaction() as session:
        plans.save(session, lost, asks([7, 8]), expected=1, culprits={"x": {}})
    with pytest.raises(LostClaimError), database.transaction() as session:
        searches.fail(session, lost, "gone wrong")
    with database.transaction() as session:
        assert not leases.renew(session, lost.lease, seconds=LEASE)
        assert not leases.wanted(session, lost.lease)
    assert claimed(database).units == 1
    assert claim(database) is None
    assert read(database, job).searches[0].found == {}


def test_a_slow_task_that_nobody_replaced_may_still_write(database: Database, clock: Clock) -> None:
    search = asking(database, []).searches[0].id
    slow = take(database, search, Stage.SEARCH)
    clock.forward(LEASE + 1)
    with database.transaction() as session:
        assert plans.save(session, slow, asks([1]), expected=1, culprits={}) == 1


def test_renewing_keeps_the_search(database: Database, clock: Clock) -> None:
    search = new_job(database).searches[0].id
    claimed = take(database, search, Stage.PREPARE)
    for _ in range(3):
        clock.forward(LEASE - 1)
        with database.transaction() as session:
            assert leases.wanted(session, claimed.lease)
            assert leases.renew(session, claimed.lease, seconds=LEASE)
    assert try_to_claim(database, search, Stage.PREPARE) is None


def test_an_answer_during_a_turn_asks_for_another_one(database: Database) -> None:
    search = asking(database, [1, 2]).searches[0].id
    mine = claimed(database)
    taken = take(database, search, Stage.SEARCH)
    answer(database, mine)
    with database.transaction() as session:
        searches.release(session, taken)
        assert notices.topics(session) == {notices.CONTROL}
    taken = take(database, search, Stage.SEARCH)
    with database.transaction() as session:
        searches.release(session, taken)
        assert notices.topics(session) == frozenset()


def test_tasks_that_vanish_say_nothing_however_many_they_are(database: Database, clock: Clock) -> None:
    job = new_job(database)
    search = job.searches[0].id
    for _ in range(20):
        while try_to_claim(database, search, Stage.PREPARE) is None:
            clock.forward(60)
        clock.forward(LEASE + 1)
    assert read(database, job).state == "running"
    assert read(database, job).searches[0].trouble


def test_a_search_that_is_lost_again_and_again_waits_longer_and_longer(database: Database, clock: Clock) -> None:
    search = new_job(database).searches[0].id
    for pause in (0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300):
        if pause:
            clock.forward(pause - 0.5)
            assert try_to_claim(database, search, Stage.PREPARE) is None
            clock.forward(0.5)
        claimed = try_to_claim(database, search, Stage.PREPARE)
        assert claimed is not None
        with database.transaction() as session:
            searches.record_loss(session, claimed, "Its host was shot.")


def test_a_model_whose_process_crashes_twice_fails_the_search(database: Database) -> None:
    job = new_job(database)
    search = job.searches[0].id
    for crashes in range(2):
        claimed = take(database, search, Stage.PREPARE)
        assert claimed.alone == (crashes == 1)
        with database.transaction() as session:
            searches.record_crash(session, claimed, "It was killed by SIGSEGV.")
    found = read(database, job)
    assert (found.state, found.problem, found.searches[0].fault) == ("failed", "It was killed by SIGSEGV.", "service")


def test_a_turn_whose_lease_ends_further_ahead_than_any_can_is_over(database: Database, clock: Clock) -> None:
    search = new_job(database).searches[0].id
    clock.forward(24 * 3600)
    claimed = take(database, search, Stage.PREPARE)
    clock.forward(-24 * 3600)
    assert take(database, search, Stage.PREPARE).lease.epoch == claimed.lease.epoch + 1
    with pytest.raises(LostClaimError), database.transaction() as session:
        searches.release(session, claimed)


def test_tasks_that_let_go_are_no_losses(database: Database, clock: Clock) -> None:
    search = asking(database, []).searches[0].id
    for _ in range(6):
        take(database, search, Stage.SEARCH)
        clock.forward(LEASE + 1)
        plan(database, search, [])
    assert try_to_claim(database, search, Stage.SEARCH) is not None


def test_the_queue_is_what_the_plan_says(database: Database) -> None:
    search = asking(database, [1, 2, 3]).searches[0].id
    running = claimed(database)
    assert running.units == 1
    assert plan(database, search, asks([3, 5])) == 1  # 3 is kept and comes first now, 2 goes, 5 is new
    assert [claimed(database).units, claimed(database).units] == [3, 5]
    assert claim(database) is None
    assert answer(database, running)  # what was running is not lost, though the plan does not want it any more
    assert plan(database, search, asks([2])) == 1
    assert claimed(database).units == 2


def test_saving_the_same_plan_again_changes_nothing(database: Database) -> None:
    search = asking(database, [1, 2]).searches[0].id
    assert plan(database, search, asks([1, 2])) == 0
    answer(database, claimed(database))
    assert plan(database, search, asks([1, 2])) == 0
    assert claimed(database).units == 2
    assert claim(database) is None


def test_asking_again_is_a_question_of_its_own(database: Database) -> None:
    search = asking(database, [1]).searches[0].id
    answer(database, claimed(database), FAIL, key="1" * 64)
    assert plan(database, search, [Ask(units=1, attempt=1, why="once more")]) == 1
    again = claimed(database)
    assert (again.units, again.probe.attempt) == (1, 1)
    answer(database, again, PASS, key="1" * 64)
    assert verdicts_of(database, search) == {(1, 0): "fail", (1, 1): "pass"}


def test_large_sets_of_units_come_back_whole(database: Database) -> None:
    everything = (1 << 28_000) - 1
    asking(database, [everything, everything ^ 1])
    assert claimed(database).units == everything
    assert claimed(database).units == everything ^ 1


def test_answers_come_back_as_records_of_a_report(database: Database, clock: Clock) -> None:
    job = asking(database, [2, 1])
    search = job.searches[0].id
    first, second = claimed(database), claimed(database)
    clock.forward(1)
    answer(database, second, FAIL, key="2" * 64)
    clock.forward(1)
    answer(database, first, PASS, key="1" * 64)
    plan(database, search, asks([3]))
    third = claimed(database)
    answer(database, third, UNSURE)
    with database.session() as session:
        found = probe_queries.answered(session, search)
    assert [record.units for record in found] == [1, 2, 3]  # as they came, not as they were asked
    assert [record.round for record in found] == [1, 1, 2]
    assert found[0].verdict == FAIL.verdict
    assert (found[0].key, found[0].file_sha256, found[0].cached) == ("2" * 64, FAIL.file_sha256, False)
    assert read(database, job).searches[0].calls == 3


def test_a_like_search_begins_with_what_was_learnt(database: Database) -> None:
    first = asking(database, [1, 2, 3, 4]).searches[0].id
    for given, key in ((PASS, "1"), (FAIL, "2"), (UNSURE, "3")):
        answer(database, claimed(database), given, key=key * 64)
    plan(database, first, [Ask(units=3, attempt=1, why="again"), Ask(units=2, attempt=1, why="again")])
    for _ in range(2):
        answer(database, claimed(database), PASS)
    job = new_job(database)
    second = job.searches[0].id
    prepare(database, second)
    assert recall(database, second) == 3
    # the unresolved one is asked anew, and then what was asked after it
    assert verdicts_of(database, second) == {(1, 0): "pass", (2, 0): "fail", (2, 1): "pass"}
    assert recall(database, second) == 0
    found = read(database, job).searches[0]
    assert (found.calls, found.round) == (0, 0)
    with database.session() as session:
        [record] = [
            record for record in probe_queries.answered(session, second) if record.units == 2 and not record.attempt
        ]
        assert record.cached
        assert probe_queries.log(session, record.probe_id, "") == FAIL.log


@pytest.mark.parametrize(
    ("tenant", "universe", "identity"),
    [("other", UNIVERSE, IDENTITY), ("", "9" * 64, IDENTITY), ("", UNIVERSE, "9" * 64)],
    ids=["another tenant", "another model", "another compiler"],
)
def test_an_unlike_search_begins_with_nothing(database: Database, tenant: str, universe: str, identity: str) -> None:
    asking(database, [1])
    answer(database, claimed(database))
    search = new_job(database, tenant=tenant).searches[0].id
    prepare(database, search, universe, identity)
    assert recall(database, search) == 0


def test_after_the_search_nobody_compiles_on(database: Database) -> None:
    job = asking(database, [1, 2])
    running = claimed(database)
    end(database, job.searches[0].id)
    assert claim(database, NPU) is None
    with database.session() as session:
        assert not leases.wanted(session, running.lease)
    assert not answer(database, running)
