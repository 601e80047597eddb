"""Which search is next: fair to tenants and to jobs, and never all slots of a worker for one of several tenants."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from onnxbisect_db import queues, repairs, search_queue, searches, tokens, workers
from onnxbisect_db.database import Database
from onnxbisect_db.repairs import ChangedModel
from onnxbisect_db.search_queue import ClaimFilter
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import AT_BACKEND, COMPILING, Scope, Stage
from onnxbisect_db.tables import Job, Search
from onnxbisect_db.workers import Presence
from support.db.scenes import LEASE, NPU, Clock, answer, asking, claim, claimed, new_job, prepare, read

FOUR = ClaimFilter(worker="w", seconds=LEASE, stages=(Stage.PREPARE,), backends=(NPU,), slots=4)
ONE = replace(FOUR, slots=1)
CONTROL = replace(ONE, stages=(Stage.SEARCH, Stage.REPORT), backends=None)


def able_to_compile(database: Database, slots: int, *backends: str) -> None:
    presence = Presence(id="w", backends=backends or (NPU, "other"), slots=slots)
    database.run(lambda session: workers.record_heartbeat(session, presence))


@pytest.fixture(autouse=True)
def _many_slots(database: Database) -> None:
    """So that tenants may have as many jobs in progress as a test has."""
    able_to_compile(database, 20)


def many(database: Database, count: int, tenant: str, *backends: str) -> list[Job]:
    return [new_job(database, *backends, tenant=tenant) for _ in range(count)]


def tenants(database: Database, *names: str) -> None:
    with database.transaction() as session:
        for name in names:
            tokens.issue(session, tenant=name, name="t", scopes=[Scope.SUBMIT])


def taken(database: Database, taker: ClaimFilter = FOUR) -> ClaimedSearch | None:
    return database.run(lambda session: search_queue.take(session, taker))


def done(database: Database, claimed: ClaimedSearch | None) -> None:
    assert claimed is not None
    database.run(lambda session: searches.fail(session, claimed, "over"))


def test_a_tenant_with_many_jobs_is_served_in_turn_with_one_that_has_two(database: Database, clock: Clock) -> None:
    """With one slot, where nothing is held when it is free."""
    tenants(database, "many", "few")
    waiting = [*many(database, 6, "many"), *many(database, 2, "few")]
    served = []
    for _ in waiting:
        claimed = taken(database, ONE)
        assert claimed is not None
        served.append(claimed.job.tenant)
        clock.forward(20)
        done(database, claimed)
    assert served == ["many", "few", "many", "few", *["many"] * 4]


def test_the_tenant_that_holds_the_fewest_is_next(database: Database, clock: Clock) -> None:
    many(database, 5, "many")
    for _ in range(3):
        clock.forward(1)
        assert taken(database) is not None
    clock.forward(1)
    other, *_ = many(database, 3, "other")
    served = [taken(database) for _ in range(4)]
    assert [claimed.job.tenant for claimed in served if claimed] == ["other", "other", "other", "many"]
    assert served[0] is not None
    assert served[0].job.id == other.id


def test_the_oldest_job_of_a_tenant_begins_first_with_all_its_targets(database: Database, clock: Clock) -> None:
    large = new_job(database, *[NPU] * 3)
    small = new_job(database)
    served = []
    for _ in range(4):
        clock.forward(1)
        claimed = taken(database)
        assert claimed is not None
        served.append((claimed.job.id, claimed.search.ordinal))
    assert served == [(large.id, 0), (large.id, 1), (large.id, 2), (small.id, 0)]


def test_a_tenant_has_few_jobs_in_progress_and_begins_the_oldest_that_waits(database: Database, clock: Clock) -> None:
    """As many as are compiled, and one more."""
    able_to_compile(database, 2)
    waiting = many(database, 9, "")
    held: list[ClaimedSearch] = []
    begun: list[str] = []
    while len(begun) < len(waiting):
        held += [claimed for _ in range(4) if (claimed := taken(database)) is not None]
        begun += [claimed.job.id for claimed in held if claimed.job.id not in begun]
        assert len(held) == min(3, len(waiting) - len(begun) + len(held))
        clock.forward(1)
        done(database, held.pop(len(begun) % 2))
    assert begun == [job.id for job in waiting]


def test_what_is_in_progress_goes_on_before_another_job_begins(database: Database, clock: Clock) -> None:
    waiting = many(database, 3, "")
    first = taken(database)
    assert first is not None
    clock.forward(1)
    with database.transaction() as session:
        searches.give_back(session, first)
    again = taken(database)
    assert again is not None
    assert again.job.id == waiting[0].id


def test_a_worker_that_may_begin_none_goes_on_with_what_is_in_progress(database: Database, clock: Clock) -> None:
    many(database, 2, "")
    first = taken(database)
    assert first is not None
    going_on = replace(FOUR, begin=False)
    assert taken(database, going_on) is None
    with database.session() as session:
        assert search_queue.waits(session, FOUR)
        assert not search_queue.waits(session, going_on)
    with database.transaction() as session:
        searches.give_back(session, first)
    again = taken(database, going_on)
    assert again is not None
    assert again.job.id == first.job.id


def test_each_tenant_and_each_backend_has_its_own_few(database: Database, clock: Clock) -> None:
    able_to_compile(database, 1)
    both = replace(FOUR, backends=(NPU, "other"))
    for tenant in ("a", "b"):
        many(database, 4, tenant)
        many(database, 4, tenant, "other")
    begun = [claimed for _ in range(16) if (claimed := taken(database, both)) is not None]
    each = [(claimed.job.tenant, claimed.search.backend) for claimed in begun]
    assert sorted(each) == sorted((tenant, name) for tenant in "ab" for name in (NPU, "other") for _ in range(2))


def test_seats_count_where_there_are_fewer_than_slots(database: Database) -> None:
    database.run(lambda session: queues.limit(session, NPU, 2))
    many(database, 9, "")
    assert [taken(database) is not None for _ in range(5)] == [True, True, True, False, False]


@pytest.mark.parametrize("stage", COMPILING)
def test_what_compiles_without_probes_takes_a_seat_and_waits_for_one(database: Database, stage: Stage) -> None:
    here = replace(FOUR, stages=AT_BACKEND)
    compiling = [asking(database, [1], priority=1).searches[0].id for _ in range(2)]
    with database.transaction() as session:
        for one in compiling:
            search = session.get_one(Search, one)
            search.stage, search.dirty = stage, True
    asking(database, [2, 4])
    database.run(lambda session: queues.limit(session, NPU, 1))
    first = taken(database, here)
    assert first is not None
    assert first.search.id in compiling
    assert taken(database, here) is None
    assert claim(database) is None
    done(database, first)
    probe = claimed(database)
    assert taken(database, here) is None
    answer(database, probe)
    second = taken(database, here)
    assert second is not None
    database.run(lambda session: queues.limit(session, NPU, 2))
    claimed(database)
    assert claim(database) is None


def test_what_is_in_progress_with_less_priority_keeps_no_job_from_beginning(database: Database) -> None:
    able_to_compile(database, 1)
    many(database, 3, "")
    low = [taken(database) for _ in range(2)]
    assert all(low)
    urgent = [new_job(database, priority=1) for _ in range(3)]
    new_job(database, priority=-1)
    begun = [claimed.job.id for _ in range(4) if (claimed := taken(database)) is not None]
    assert begun == [job.id for job in urgent[:2]]
    for claimed in low:
        done(database, claimed)
    assert taken(database) is None


def test_what_waits_for_a_retry_keeps_no_job_from_beginning(database: Database, clock: Clock) -> None:
    able_to_compile(database, 1)
    waiting = many(database, 4, "")
    lost = []
    for _ in range(4):  # two jobs twice, because the first retry is at once
        claimed = taken(database)
        assert claimed is not None
        lost.append(claimed.job.id)
        database.run(partial(searches.record_loss, claimed=claimed, what="The machine was gone."))
    assert lost == [job.id for job in (waiting[0], waiting[0], waiting[1], waiting[1])]
    begun = [claimed.job.id for _ in range(3) if (claimed := taken(database)) is not None]
    assert begun == [job.id for job in waiting[2:]]


def test_a_changed_model_is_read_however_much_is_in_progress(database: Database) -> None:
    able_to_compile(database, 1)
    many(database, 4, "")
    first, second = taken(database), taken(database)
    assert first is not None
    assert second is not None
    assert taken(database) is None
    changed = ChangedModel(question="q", onnx="e" * 64, data={}, request={})
    database.run(lambda session: repairs.ask(session, first, changed))
    claimed = taken(database)
    assert claimed is not None
    assert claimed.search.asked_for == first.search.id


def test_searches_that_ask_are_coordinated_in_turn(database: Database, clock: Clock) -> None:
    """The one that was coordinated longest ago is next, and the other tenant's before it."""
    made = [asking(database, [1], tenant=tenant) for tenant in ("many", "many", "many", "few")]
    for job in made:
        with database.transaction() as session:
            search = session.get_one(Search, job.searches[0].id)
            searches.mark_dirty(session, search)
    served = []
    for _ in range(4):
        clock.forward(1)
        claimed = taken(database, CONTROL)
        assert claimed is not None
        served.append(claimed.job.id)
        with database.transaction() as session:
            searches.release(session, claimed)
    assert sorted(served) == sorted(job.id for job in made)
    assert served.index(made[3].id) < 2
    assert taken(database, CONTROL) is None  # nothing has changed since


def test_priority_comes_first(database: Database) -> None:
    tenants(database, "a", "b")
    low = new_job(database, tenant="a", priority=-1)
    normal = many(database, 2, "b")
    served = [taken(database) for _ in range(3)]
    assert [claimed.job.id for claimed in served if claimed] == [*(job.id for job in normal), low.id]


def test_a_worker_prepares_for_its_own_backends(database: Database) -> None:
    new_job(database, "other")
    new_job(database)
    mine = taken(database)
    assert mine is not None
    assert mine.search.backend == NPU
    assert taken(database) is None
    assert taken(database, replace(FOUR, backends=("other", "third"))) is not None


def test_reports_are_written_and_searches_coordinated_in_turn(database: Database, clock: Clock) -> None:
    reporting, dirty = asking(database, [], tenant="a"), asking(database, [1], tenant="b")
    with database.transaction() as session:
        searches.mark_dirty(session, session.get_one(Search, reporting.searches[0].id))
    clock.forward(1)
    claimed = taken(database, CONTROL)
    assert claimed is not None
    assert claimed.job.id == reporting.id
    with database.transaction() as session:
        searches.end_search(session, claimed)
        searches.mark_dirty(session, session.get_one(Search, dirty.searches[0].id))
    found = []
    for _ in range(2):
        clock.forward(1)
        claimed = taken(database, CONTROL)
        assert claimed is not None
        found.append((claimed.job.id, claimed.stage))
    assert found == [(dirty.id, Stage.SEARCH), (reporting.id, Stage.REPORT)]


def test_one_of_several_tenants_holds_half_of_the_slots(database: Database, clock: Clock) -> None:
    tenants(database, "many", "few")
    many(database, 6, "many")
    assert [taken(database) is not None for _ in range(4)] == [True, True, False, False]
    elsewhere = replace(FOUR, worker="another", slots=2)
    assert taken(database, elsewhere) is not None
    assert taken(database, elsewhere) is None
    many(database, 1, "few")
    claimed = taken(database)
    assert claimed is not None
    assert claimed.job.tenant == "few"


def test_a_slot_that_is_free_again_takes_what_had_to_wait(database: Database, clock: Clock) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 5, "many")
    held = [claimed for _ in waiting if (claimed := taken(database)) is not None]
    assert len(held) == 2
    while held:
        clock.forward(1)
        done(database, held.pop(0))
        if (claimed := taken(database)) is not None:
            held.append(claimed)
    assert {read(database, job).state for job in waiting} == {"failed"}


def test_the_half_is_of_all_stages_together(database: Database, clock: Clock) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 3, "many")
    prepare(database, waiting[2].searches[0].id)
    assert taken(database) is not None
    assert taken(database) is not None
    assert taken(database, replace(CONTROL, slots=4)) is None


def test_a_tenant_without_others_has_all_slots(database: Database) -> None:
    tenants(database, "many", "many")
    assert all(taken(database) is not None for _ in many(database, 6, "many"))


def test_tokens_that_are_no_longer_good_are_no_tenants(database: Database, clock: Clock) -> None:
    tenants(database, "many")
    tenants(database, "few")
    with database.transaction() as session:
        [revoked] = tokens.list_all(session, "few")
        tokens.revoke(session, revoked.id, "few")
        until = clock.at + timedelta(days=1)
        tokens.issue(session, tenant="few", name="t", scopes=[Scope.READ], expires_at=until)
    clock.forward(25 * 3600)
    able_to_compile(database, 20)
    assert all(taken(database) is not None for _ in many(database, 3, "many"))


def test_with_one_slot_a_tenant_may_have_it(database: Database) -> None:
    tenants(database, "many", "few")
    many(database, 2, "many")
    assert taken(database, ONE) is not None
    assert taken(database, ONE) is None


def test_a_search_whose_holder_died_is_claimed_again(database: Database, clock: Clock) -> None:
    [job] = many(database, 1, "")
    lost = taken(database)
    assert lost is not None
    clock.forward(LEASE - 1)
    assert taken(database) is None
    clock.forward(1)
    again = taken(database)
    assert again is not None
    assert (again.job.id, again.lease.epoch) == (job.id, lost.lease.epoch + 1)


def test_a_search_that_is_given_back_is_claimed_again(database: Database, clock: Clock) -> None:
    new_job(database)
    claimed = taken(database)
    assert claimed is not None
    with database.transaction() as session:
        searches.give_back(session, claimed)
    assert taken(database) is not None


def test_a_turn_tells_who_has_it_and_since_when(database: Database, clock: Clock) -> None:
    job = new_job(database)
    assert taken(database) is not None
    [search] = read(database, job).searches
    assert (search.worker, search.claimed_at) == ("w", clock.at)
