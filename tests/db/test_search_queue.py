"""Which search is next: fair to tenants and to jobs, and never all slots of a worker for one of several tenants."""

from dataclasses import replace
from datetime import timedelta

from onnxbisect_db import search_queue, searches, tokens
from onnxbisect_db.database import Database
from onnxbisect_db.search_queue import Taker
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import Scope, Stage
from onnxbisect_db.tables import Job, Search
from support.db.scenes import LEASE, NPU, Clock, asking, new_job, prepare, read

FOUR = Taker(worker="w", seconds=LEASE, stages=(Stage.PREPARE,), backends=(NPU,), slots=4)
ONE = replace(FOUR, slots=1)
CONTROL = replace(ONE, stages=(Stage.SEARCH, Stage.REPORT), backends=None)


def many(database: Database, count: int, tenant: str, *backends: str) -> list[Job]:
    return [new_job(database, *backends, tenant=tenant) for _ in range(count)]


def tenants(database: Database, *names: str) -> None:
    with database.transaction() as session:
        for name in names:
            tokens.issue(session, tenant=name, name="t", scopes=[Scope.SUBMIT])


def taken(database: Database, taker: Taker = FOUR) -> ClaimedSearch | None:
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


def test_jobs_of_a_tenant_are_served_in_turn_whatever_targets_they_have(database: Database, clock: Clock) -> None:
    large = new_job(database, *[NPU] * 3)
    small = new_job(database)
    served = []
    for _ in range(4):
        clock.forward(1)
        claimed = taken(database)
        assert claimed is not None
        served.append(claimed.job.id)
    assert served == [large.id, small.id, large.id, large.id]


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
        searches.searched(session, claimed)
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
        [revoked] = tokens.listed(session, "few")
        tokens.revoke(session, revoked.id, "few")
        until = clock.at + timedelta(days=1)
        tokens.issue(session, tenant="few", name="t", scopes=[Scope.READ], expires_at=until)
    clock.forward(25 * 3600)
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
