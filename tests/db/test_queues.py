"""Which probe is next: what is wanted first, then priority, then fairness between jobs, and never more than allowed."""

from itertools import pairwise

from onnxbisect_db import probes, queues
from onnxbisect_db.database import Database
from onnxbisect_db.queues import ClaimRequest
from support.db.scenes import NPU, Clock, answer, asking, asks, claim, claimed, new_job, plan, prepare

#: Has a model in memory.
KNOWING = ClaimRequest(backend=NPU, worker="w", seconds=30, warm=["y" * 64])


def limit(database: Database, at_most: int | None) -> None:
    database.run(lambda session: queues.limit(session, NPU, at_most))


def test_what_is_wanted_comes_before_what_may_be_wanted(database: Database) -> None:
    speculating = new_job(database, priority=9).searches[0].id
    prepare(database, speculating)
    plan(database, speculating, asks([1], speculative=True))
    asking(database, [2], priority=-9)
    assert [claimed(database).units, claimed(database).units] == [2, 1]


def test_the_plan_says_which_is_best(database: Database) -> None:
    search = asking(database, [1, 2, 3]).searches[0].id
    plan(database, search, asks([3, 1, 2]))
    assert [claimed(database).units for _ in range(3)] == [3, 1, 2]


def test_priority_comes_first(database: Database) -> None:
    asking(database, [1, 2])
    asking(database, [4, 8], priority=1)
    assert [claimed(database).units for _ in range(4)] == [4, 8, 1, 2]


def test_a_small_job_is_not_stuck_behind_a_large_one(database: Database, clock: Clock) -> None:
    large = asking(database, range(1, 101))
    running = [claimed(database) for _ in range(4)]
    small = asking(database, [1, 2])
    assert [claimed(database).job.id for _ in range(2)] == [small.id, small.id]  # it has fewer running than four
    assert claimed(database).job.id == large.id
    assert all(answer(database, each) for each in running)


def test_a_tenant_with_many_jobs_gets_no_more_hands_than_one_with_a_single_job(database: Database) -> None:
    many = [asking(database, range(1, 9), tenant="many") for _ in range(6)]
    few = asking(database, range(1, 9), tenant="few")
    served = [claimed(database).job.id for _ in range(8)]
    assert served.count(few.id) == 4
    assert {served.count(job.id) for job in many} == {0, 1}


def test_one_worker_serves_jobs_in_turn(database: Database, clock: Clock) -> None:
    """With nothing running, the counts are equal: whoever has waited longest is next."""
    made = [asking(database, range(1, 9)).id for _ in range(3)]
    served = []
    for _ in range(6):
        clock.forward(1)
        mine = claimed(database)
        served.append(mine.job.id)
        answer(database, mine)
    assert served == made * 2


def test_fairness_is_between_jobs_not_targets(database: Database, clock: Clock) -> None:
    """A job with two searches for one compiler gets no more of it than a job with one."""
    twice = asking(database, range(1, 9), NPU, NPU).id
    once = asking(database, range(1, 9)).id
    served = []
    for _ in range(6):
        clock.forward(1)
        served.append(claimed(database).job.id)
    assert (served.count(twice), served.count(once)) == (3, 3)


def test_no_more_run_than_a_licence_has_seats(database: Database) -> None:
    asking(database, [1, 2, 3])
    asking(database, [1])
    limit(database, 2)
    first, _ = claimed(database), claimed(database)
    assert claim(database) is None
    answer(database, first)
    assert claim(database) is not None
    assert claim(database) is None
    limit(database, None)
    assert claim(database) is not None


def test_a_paused_compiler_gets_nothing(database: Database) -> None:
    asking(database, [1])
    limit(database, 0)
    assert claim(database) is None


def test_lengths_of_queues(database: Database) -> None:
    asking(database, [1, 2, 3])
    asking(database, [1], "other")
    answer(database, claimed(database))
    claimed(database)
    with database.session() as session:
        assert queues.lengths(session) == {
            NPU: queues.Length(queued=1, running=1),
            "other": queues.Length(queued=1, running=0),
        }


def test_bounds_of_queues(database: Database) -> None:
    asking(database, [1], "other")
    limit(database, 0)
    with database.session() as session:
        assert queues.limits(session) == {NPU: 0}
    limit(database, None)
    with database.session() as session:
        assert queues.limits(session) == {}


def test_slots_are_idle_that_no_other_search_wants(database: Database) -> None:
    mine = asking(database, [1, 2]).searches[0].id
    others = asking(database, [1, 2, 3])
    speculating = new_job(database).searches[0].id
    prepare(database, speculating)
    plan(database, speculating, asks([1], speculative=True))
    asking(database, [1, 2, 3], "another")

    def idle(slots: int) -> int:
        with database.session() as session:
            return queues.idle(session, NPU, mine, slots)

    assert (idle(100), idle(2)) == (97, 0)
    new = new_job(database).searches[0].id
    prepare(database, new)  # its coordinator has not come to it
    assert (idle(100), idle(2)) == (96, 0)
    plan(database, new, [])
    assert idle(100) == 97
    taken = [claimed(database) for _ in range(3)]
    assert any(claim.job.id == others.id for claim in taken)
    assert idle(100) == 97 - sum(claim.job.id != others.id for claim in taken)
    limit(database, 3)
    assert idle(100) == 0


def test_a_worker_takes_what_it_has_in_memory_unless_another_job_has_waited_for_too_long(
    database: Database, clock: Clock
) -> None:
    made = [new_job(database) for _ in range(3)]
    for job, universe in zip(made, "xyz", strict=True):
        prepare(database, job.searches[0].id, universe=universe * 64)
        plan(database, job.searches[0].id, asks(range(1, 9)))
    served = []
    for _ in range(14):
        clock.forward(1)
        mine = database.run(lambda session: probes.claim(session, KNOWING))
        assert mine is not None
        served.append([job.id for job in made].index(mine.job.id))
        answer(database, mine)
    assert served[:8] == [1] * 8  # then it has no more
    assert sorted(set(served[8:])) == [0, 2]


def test_who_has_waited_for_too_long_is_served_whatever_is_in_memory(database: Database, clock: Clock) -> None:
    cold, warm = new_job(database), new_job(database)
    for job, universe in ((cold, "x"), (warm, "y")):
        prepare(database, job.searches[0].id, universe=universe * 64)
        plan(database, job.searches[0].id, asks(range(1, 99)))
    served = []
    for _ in range(40):
        clock.forward(queues.PATIENCE.total_seconds() / 10)
        mine = database.run(lambda session: probes.claim(session, KNOWING))
        assert mine is not None
        served.append(mine.job.id)
        answer(database, mine)
    turns = [number for number, job_id in enumerate(served) if job_id == cold.id]
    assert 3 <= len(turns) <= 5
    assert all(later - earlier <= 10 for earlier, later in pairwise(turns))


def test_memory_is_no_excuse_for_a_job_with_more_probes_running_or_less_priority(database: Database) -> None:
    warm, cold = new_job(database), new_job(database)
    first = new_job(database, priority=1)
    for job, universe in ((warm, "y"), (cold, "x"), (first, "z")):
        prepare(database, job.searches[0].id, universe=universe * 64)
        plan(database, job.searches[0].id, asks([1] if job is first else range(1, 9)))

    def taken() -> str:
        mine = database.run(lambda session: probes.claim(session, KNOWING))
        assert mine is not None
        return mine.job.id

    assert [taken() for _ in range(5)] == [first.id, warm.id, cold.id, warm.id, cold.id]
