"""Which search is next at a stage: fair to tenants and to jobs, and never all hands of a worker for one of them."""

from datetime import timedelta

from sqlalchemy import func, select

from onnxbisect_db import searches, tokens, turns
from onnxbisect_db.database import Database
from onnxbisect_db.reconcile import SearchBell, reconcile
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import Scope, Stage
from onnxbisect_db.tables import Job, Search
from onnxbisect_db.turns import Taken, Taker
from support.db.scenes import LEASE, NPU, Clock, asking, at_once, new_job, prepare, read

ONE = Taker(worker="w", seconds=LEASE, hands=1)
FOUR = Taker(worker="w", seconds=LEASE, hands=4)


def many(database: Database, count: int, tenant: str, *backends: str) -> list[Job]:
    return [new_job(database, *backends, tenant=tenant) for _ in range(count)]


def tenants(database: Database, *names: str) -> None:
    with database.transaction() as session:
        for name in names:
            tokens.issue(session, tenant=name, name="t", scopes=[Scope.SUBMIT])


def heard(database: Database, bell: SearchBell, taker: Taker = FOUR) -> Taken | None:
    return database.run(lambda session: turns.take(session, bell.search_id, bell.stage, taker))


def rung(database: Database, job: Job, taker: Taker = FOUR, stage: Stage = Stage.PREPARE) -> Turn | None:
    taken = heard(database, SearchBell(search_id=job.searches[0].id, stage=stage, backend=NPU), taker)
    return None if taken is None else taken.turn


def done(database: Database, turn: Turn | None) -> None:
    assert turn is not None
    database.run(lambda session: searches.fail(session, turn, "over"))


def ended(database: Database, turn: Turn, taker: Taker = FOUR) -> SearchBell | None:
    """What is rung for when the turn has ended."""
    done(database, turn)
    return database.run(lambda session: turns.room(session, turn, taker))


def test_a_tenant_with_many_jobs_is_served_in_turn_with_one_that_has_two(database: Database, clock: Clock) -> None:
    """With one hand, where nobody has anything in hand when it is free."""
    tenants(database, "many", "few")
    waiting = [*many(database, 6, "many"), *many(database, 2, "few")]
    served = []
    for job in waiting:
        turn = rung(database, job, ONE)
        assert turn is not None
        served.append(turn.tenant)
        clock.forward(20)
        done(database, turn)
    assert served == ["many", "few", "many", "few", *["many"] * 4]


def test_the_tenant_with_the_fewest_in_hand_is_next(database: Database, clock: Clock) -> None:
    first, *more = many(database, 5, "many")
    for job in (first, *more[:2]):
        clock.forward(1)
        assert rung(database, job) is not None
    clock.forward(1)
    other, *_ = many(database, 3, "other")
    taken = [rung(database, first) for _ in range(4)]
    assert [turn.tenant for turn in taken if turn] == ["other", "other", "other", "many"]
    assert taken[0] is not None
    assert taken[0].job_id == other.id


def test_jobs_of_a_tenant_are_served_in_turn_whatever_targets_they_have(database: Database, clock: Clock) -> None:
    large = new_job(database, *[NPU] * 3)
    small = new_job(database)
    served = []
    for _ in range(4):
        clock.forward(1)
        turn = rung(database, large)
        assert turn is not None
        served.append(turn.job_id)
    assert served == [large.id, small.id, large.id, large.id]


def test_searches_that_ask_are_coordinated_in_turn(database: Database, clock: Clock) -> None:
    """The one that was coordinated longest ago is next, and the other tenant's before it."""
    made = [asking(database, [1], tenant=tenant) for tenant in ("many", "many", "many", "few")]
    for job in made:
        with database.transaction() as session:
            search = session.get_one(Search, job.searches[0].id)
            searches.mark_stale(search, clock.at)
    served = []
    for _ in range(4):
        clock.forward(1)
        turn = rung(database, made[0], ONE, Stage.SEARCH)
        assert turn is not None
        served.append(turn.job_id)
        with database.transaction() as session:
            searches.release(session, turn)
    assert sorted(served) == sorted(job.id for job in made)
    assert served.index(made[3].id) < 2
    assert rung(database, made[0], ONE, Stage.SEARCH) is None  # nothing has changed since


def test_priority_comes_first(database: Database) -> None:
    tenants(database, "a", "b")
    low = new_job(database, tenant="a", priority=-1)
    normal = many(database, 2, "b")
    served = [rung(database, low) for _ in range(3)]
    assert [turn.job_id for turn in served if turn] == [*(job.id for job in normal), low.id]


def test_a_ring_for_one_backend_prepares_for_no_other(database: Database) -> None:
    other = new_job(database, "other")
    mine = new_job(database)
    assert rung(database, mine) is not None
    assert rung(database, mine) is None
    assert rung(database, other) is not None


def test_one_of_several_tenants_holds_half_of_the_hands(database: Database, clock: Clock) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 6, "many")
    got = [rung(database, job) for job in waiting]
    assert [turn is not None for turn in got] == [True, True, False, False, False, False]
    elsewhere = Taker(worker="another", seconds=LEASE, hands=2)
    assert rung(database, waiting[0], elsewhere) is not None
    assert rung(database, waiting[0], elsewhere) is None
    [job] = many(database, 1, "few")
    turn = rung(database, job)
    assert turn is not None
    assert turn.tenant == "few"


def test_the_half_is_of_all_stages_together(database: Database, clock: Clock) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 3, "many")
    prepare(database, waiting[2].searches[0].id)
    assert rung(database, waiting[0]) is not None
    assert rung(database, waiting[1]) is not None
    assert rung(database, waiting[2], FOUR, Stage.SEARCH) is None


def test_a_tenant_without_others_has_all_hands(database: Database) -> None:
    tenants(database, "many", "many")
    assert all(rung(database, job) is not None for job in many(database, 6, "many"))


def test_tokens_that_are_no_longer_good_are_no_tenants(database: Database, clock: Clock) -> None:
    tenants(database, "many")
    tenants(database, "few")
    with database.transaction() as session:
        [revoked] = tokens.listed(session, "few")
        tokens.revoke(session, revoked.id, "few")
        until = clock.at + timedelta(days=1)
        tokens.issue(session, tenant="few", name="t", scopes=[Scope.READ], expires_at=until)
    clock.forward(25 * 3600)
    assert all(rung(database, job) is not None for job in many(database, 3, "many"))


def test_with_one_hand_a_tenant_may_have_it(database: Database) -> None:
    tenants(database, "many", "few")
    first, second = many(database, 2, "many")
    assert rung(database, first, ONE) is not None
    assert rung(database, second, ONE) is None


def test_who_lets_go_rings_for_what_was_held_back(database: Database, clock: Clock) -> None:
    """As many rings as there were: none is lost, and none is made up."""
    tenants(database, "many", "few")
    waiting = many(database, 5, "many")
    held = [turn for job in waiting if (turn := rung(database, job)) is not None]
    served = len(held)
    while held:
        clock.forward(1)
        bell = ended(database, held.pop(0))
        assert (bell is None) == (served == 5)
        if bell is not None:
            assert (bell.stage, bell.backend) == (Stage.PREPARE, NPU)
            taken = heard(database, bell)
            assert taken is not None
            assert not taken.again
            held.append(taken.turn)
            served += 1
    assert served == 5
    assert {read(database, job).state for job in waiting} == {"failed"}


def test_what_is_held_back_is_rung_for_now_and_then_where_its_holders_are_lost(
    database: Database, clock: Clock
) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 4, "many")
    got = [rung(database, job) for job in waiting]
    parked = {job.searches[0].id for job, turn in zip(waiting, got, strict=True) if turn is None}
    assert len(parked) == 2
    heard = set()
    for _ in range(7):
        clock.forward(11)
        bells = reconcile(database, "r")
        assert bells is not None
        heard |= {bell.search_id for bell in bells.searches}
    assert heard == {job.searches[0].id for job in waiting}


def test_no_more_than_half_even_for_a_moment(database: Database) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 8, "many")
    got: list[Turn | None] = []
    at_once(8, lambda number: got.append(rung(database, waiting[number])))
    assert sum(turn is not None for turn in got) == 2
    with database.session() as session:
        parked = select(func.count()).select_from(Search).where(Search.rings == 0, Search.ring_at.is_not(None))
        assert session.scalars(parked).one() == 6


def test_hands_that_come_and_go_leave_nothing_waiting(database: Database) -> None:
    """Rings are made by jobs and by who lets go, and by nothing else: the reconciler is not there."""
    tenants(database, "many", "few")
    waiting = [*many(database, 12, "many"), *many(database, 4, "few")]
    rings = [SearchBell(search_id=job.searches[0].id, stage=Stage.PREPARE, backend=NPU) for job in waiting]

    def work(number: int) -> None:
        while rings:
            try:
                bell = rings.pop(0)
            except IndexError:
                return
            taken = heard(database, bell)
            if taken is not None:
                if taken.again:
                    rings.append(bell)
                more = ended(database, taken.turn)
                if more is not None:
                    rings.append(more)

    at_once(4, work)
    assert {read(database, job).state for job in waiting} == {"failed"}


def test_a_search_that_was_parked_is_taken_on_any_ring_which_is_then_rung_again(database: Database) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 4, "many")
    first, *_ = [rung(database, job) for job in waiting[:3]]
    done(database, first)
    taken = heard(database, SearchBell(search_id=waiting[3].searches[0].id, stage=Stage.PREPARE, backend=NPU))
    assert taken is not None
    assert (taken.turn.job_id, taken.again) == (waiting[2].id, True)


def test_what_is_parked_at_one_worker_is_rung_for_by_another_one(database: Database) -> None:
    tenants(database, "many", "few")
    waiting = many(database, 4, "many")
    elsewhere = Taker(worker="another", seconds=LEASE, hands=2)
    mine = rung(database, waiting[0], elsewhere)
    assert [rung(database, job) is not None for job in waiting[1:]] == [True, True, False]
    assert mine is not None
    bell = ended(database, mine, elsewhere)
    assert bell is not None
    assert bell.search_id == waiting[3].searches[0].id
    assert heard(database, bell, elsewhere) is not None


def test_a_turn_tells_who_has_it_and_since_when(database: Database, clock: Clock) -> None:
    job = new_job(database)
    assert rung(database, job) is not None
    [search] = read(database, job).searches
    assert (search.worker, search.claimed_at) == ("w", clock.at)
