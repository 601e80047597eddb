"""A probe in the hands of workers, and which one is next."""

from onnxbisect.json_form import from_json
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_db import leases, lifecycle, notices, probe_queries, probes, queues, searches
from onnxbisect_db.database import Database
from onnxbisect_db.probes import Claim, Deduplicated
from onnxbisect_db.states import ProbeState, Stage
from onnxbisect_db.tables import Probe
from support.db.scenes import (
    FAIL,
    IDENTITY,
    LEASE,
    MODEL,
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
    counts,
    end,
    kept,
    new_job,
    plan,
    prepare,
    read,
    take,
)

KEY = "1" * 64


def expire(database: Database, mine: Claim) -> bool:
    return database.run(lambda session: probes.expire(session, mine.probe.id))


def beat(database: Database, mine: Claim) -> bool:
    return database.run(lambda session: leases.renew(session, mine.lease, seconds=LEASE))


def name(database: Database, mine: Claim, key: str = KEY) -> Deduplicated:
    return database.run(lambda session: probes.dedupe_by_key(session, mine, key))


def give_back(database: Database, mine: Claim) -> bool:
    return counts(database, lambda session: probes.give_back(session, mine))


def state(database: Database, mine: Claim) -> Probe:
    with database.session() as session:
        return session.get_one(Probe, mine.probe.id)


def said(database: Database, mine: Claim) -> Verdict:
    kept = state(database, mine).verdict
    assert kept is not None
    return from_json(kept, Verdict)


def test_a_claim_has_all_that_is_needed_to_ask(database: Database) -> None:
    job = new_job(database, request={"seconds": 60})
    prepare(database, job.searches[0].id)
    plan(database, job.searches[0].id, asks([0b101]))
    mine = claimed(database, worker="host-1")
    assert (mine.units, mine.probe.attempt, mine.probe.why) == (0b101, 0, "units 5")
    assert (mine.job.model_sha256, mine.search.universe, mine.search.identity) == (MODEL, UNIVERSE, IDENTITY)
    assert (mine.search.backend, mine.search.options, mine.request, mine.probe.key) == (NPU, {}, {"seconds": 60}, None)
    assert state(database, mine).worker == "host-1"


def test_a_worker_takes_only_what_is_for_its_compiler(database: Database) -> None:
    asking(database, [1], "other")
    assert claim(database) is None
    assert claimed(database, "other").units == 1


def test_a_heartbeat_keeps_the_probe(database: Database, clock: Clock) -> None:
    asking(database, [1])
    mine = claimed(database)
    for _ in range(4):
        clock.forward(LEASE - 1)
        assert beat(database, mine)
        assert not expire(database, mine)
    assert answer(database, mine)


def test_a_zombie_changes_nothing(database: Database, clock: Clock) -> None:
    job = asking(database, [1])
    zombie = claimed(database, worker="zombie")
    clock.forward(LEASE + 1)
    assert expire(database, zombie)
    living = claimed(database, worker="living")
    assert living.lease.epoch > zombie.lease.epoch
    assert not beat(database, zombie)
    assert not answer(database, zombie, FAIL)
    assert not give_back(database, zombie)
    assert not name(database, zombie).mine
    assert answer(database, living, PASS)
    assert not answer(database, zombie, FAIL)
    assert said(database, living) == PASS.verdict
    assert read(database, job).searches[0].calls == 1


def test_who_was_slow_but_not_replaced_may_answer(database: Database, clock: Clock) -> None:
    asking(database, [1])
    mine = claimed(database)
    clock.forward(LEASE + 1)
    assert answer(database, mine)
    assert not expire(database, mine)
    assert claim(database) is None


def test_answering_twice_is_answering_once(database: Database) -> None:
    job = asking(database, [1])
    mine = claimed(database)
    assert answer(database, mine, PASS)
    assert not answer(database, mine, FAIL)
    assert said(database, mine) == PASS.verdict
    assert read(database, job).searches[0].calls == 1


def lost(database: Database, mine: Claim, what: str = "Its host was shot.") -> bool:
    return counts(database, lambda session: probes.record_loss(session, mine, what))


def crashed(database: Database, mine: Claim, what: str = "it ate all memory.", log: str = "") -> bool:
    """Whether it is answered now."""
    counted = counts(database, lambda session: probes.record_crash(session, mine, what, log))
    return counted and state(database, mine).state == ProbeState.DONE


def test_workers_that_vanish_say_nothing_however_many_they_are(database: Database, clock: Clock) -> None:
    job = asking(database, [1])
    for _ in range(20):
        mine = claimed(database)
        clock.forward(LEASE + 1)
        assert expire(database, mine)
        clock.forward(301)
    assert answer(database, claimed(database), PASS)
    with database.session() as session:
        [record] = probe_queries.answered(session, job.searches[0].id)
    assert record.verdict.passed


def test_what_is_lost_again_and_again_is_asked_after_longer_and_longer_pauses(database: Database, clock: Clock) -> None:
    asking(database, [1])
    for pause in (0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300):
        if pause:
            clock.forward(pause - 0.5)
            assert claim(database) is None
            clock.forward(0.5)
        mine = claimed(database)
        assert lost(database, mine)
    assert state(database, mine).trouble == "Its host was shot."


def test_a_question_whose_process_crashes_twice_is_unresolved_and_its_job_goes_on(database: Database) -> None:
    job = asking(database, [1])
    first = claimed(database)
    assert not first.alone
    assert not crashed(database, first)
    again = claimed(database)
    assert again.alone
    assert crashed(database, again, log="half a l")
    assert claim(database) is None
    with database.session() as session:
        [record] = probe_queries.answered(session, job.searches[0].id)
        assert probe_queries.log(session, again.probe.id, "") == "half a l"
    assert (record.verdict.status, record.verdict.kind) == (Status.UNRESOLVED, Kind.CRASH)
    assert record.verdict.message.endswith("it ate all memory.")
    assert take(database, job.searches[0].id, Stage.SEARCH)


def test_losses_are_no_crashes(database: Database, clock: Clock) -> None:
    asking(database, [1])
    assert not crashed(database, claimed(database))
    for _ in range(5):
        assert lost(database, claimed(database))
        clock.forward(301)
    mine = claimed(database)
    assert mine.alone
    assert state(database, mine).crashes == 1


def test_what_crashed_is_asked_with_nothing_beside_it(database: Database) -> None:
    asking(database, [1, 2, 3])
    crashing, beside = claimed(database), claimed(database)
    assert not crashed(database, crashing)
    alone = claimed(database)
    assert alone.probe.id == crashing.probe.id

    def waits() -> bool:
        with database.session() as session:
            return queues.others_run(session, "w", alone.probe.id)

    assert waits()
    assert claim(database) is None  # its worker takes nothing while it is asked
    elsewhere = claimed(database, worker="another")
    assert answer(database, beside)
    assert not waits()
    assert answer(database, alone)
    assert answer(database, elsewhere)


def test_a_lease_that_ends_further_ahead_than_any_can_has_run_out(database: Database, clock: Clock) -> None:
    """The clock was a day ahead, and is set back."""
    job = asking(database, [1])
    clock.forward(24 * 3600)
    mine = claimed(database)
    clock.forward(-24 * 3600)
    assert expire(database, mine)
    assert not answer(database, mine, FAIL)  # the fence holds
    assert answer(database, claimed(database), PASS)
    with database.session() as session:
        [record] = probe_queries.answered(session, job.searches[0].id)
    assert record.verdict.passed


def test_a_worker_that_stops_is_no_loss(database: Database) -> None:
    asking(database, [1])
    for _ in range(5):
        assert give_back(database, claimed(database))
    assert state(database, claimed(database)).losses == 0


def test_a_zombie_loses_nothing(database: Database, clock: Clock) -> None:
    asking(database, [1])
    zombie = claimed(database)
    clock.forward(LEASE + 1)
    assert expire(database, zombie)
    mine = claimed(database)
    assert not lost(database, zombie, "late news")
    assert not crashed(database, zombie, "late news")
    assert (state(database, mine).crashes, state(database, mine).losses) == (0, 1)
    assert answer(database, mine)


def test_a_probe_given_back_for_want_of_time_wakes_its_coordinator(database: Database) -> None:
    job = asking(database, [1])
    mine = claimed(database)
    assert not read(database, job).searches[0].dirty
    with database.transaction() as session:
        probes.give_back(session, mine, spent=True)
    assert read(database, job).searches[0].dirty


def test_for_want_of_time_a_probe_is_not_taken_again_and_again(database: Database) -> None:
    """With no coordinator about, workers would go round and round, and leave two events each time."""
    search = asking(database, [1]).searches[0].id
    mine = claimed(database)
    with database.transaction() as session:
        probes.give_back(session, mine, spent=True)
    assert claim(database) is None
    assert plan(database, search, asks([1])) == 1  # there was time after all
    assert claimed(database).probe.id == mine.probe.id


def test_the_first_answer_since_a_search_was_claimed_notifies_coordinators(database: Database) -> None:
    """The worker that holds the search sees what comes meanwhile when it releases it."""
    search = asking(database, [1, 2, 4]).searches[0].id

    def notified() -> bool:
        mine = claimed(database)
        with database.transaction() as session:
            probes.answer(session, mine, FAIL)
            return notices.CONTROL in notices.topics(session)

    assert [notified(), notified()] == [True, False]
    taken = take(database, search, Stage.SEARCH)
    assert notified()
    with database.transaction() as session:
        searches.release(session, taken)
        assert notices.topics(session) == {notices.CONTROL}


def test_a_probe_that_could_not_be_cut_was_no_call(database: Database) -> None:
    job = asking(database, [1, 2])
    mine = claimed(database)
    with database.transaction() as session:
        probes.answer(session, mine, UNSURE, compiled=False)
    assert read(database, job).searches[0].calls == 0


def test_what_was_answered_before_is_known(database: Database) -> None:
    asking(database, [1])
    assert answer(database, claimed(database), FAIL, key=KEY)
    job = asking(database, [1])
    mine = claimed(database)
    named = name(database, mine)
    assert named.mine
    assert named.known == FAIL
    with database.transaction() as session:
        probes.answer(session, mine, FAIL, cached=True)
    found = read(database, job).searches[0]
    assert (found.calls, found.round) == (0, 0)
    with database.session() as session:
        assert probe_queries.log(session, mine.probe.id, "") == FAIL.log
        assert probe_queries.log(session, mine.probe.id, "stranger") is None


def test_what_another_tenant_asked_is_not_known(database: Database) -> None:
    asking(database, [1], tenant="a")
    assert answer(database, claimed(database), FAIL, key=KEY)
    asking(database, [1], tenant="b")
    assert name(database, claimed(database)) == Deduplicated(mine=True, known=None)


def test_unresolved_answers_are_not_kept(database: Database) -> None:
    asking(database, [1, 2])
    assert answer(database, claimed(database), UNSURE, key=KEY)
    mine = claimed(database)
    assert name(database, mine).known is None
    with database.session() as session:
        assert kept(session, mine.question(KEY)) is None


def test_the_first_answer_to_an_attempt_stands(database: Database) -> None:
    asking(database, [1, 2])
    first, second = claimed(database), claimed(database)
    answer(database, first, PASS, key=KEY)
    with database.transaction() as session:
        probes.keep_verdict(session, second.question(KEY), FAIL, session.get_one(Probe, first.probe.id).created_at)
    with database.session() as session:
        assert kept(session, first.question(KEY)) == PASS


def test_two_alike_are_compiled_once(database: Database) -> None:
    """Two places of one structure, or two jobs of one model: the second waits, and then knows."""
    asking(database, [1])
    asking(database, [1, 2])
    first, second, third = claimed(database), claimed(database), claimed(database)
    assert first.job.id != second.job.id
    assert name(database, first).mine
    assert not name(database, second).mine
    assert name(database, third, "3" * 64).mine
    assert claim(database) is None  # it would only wait again
    assert answer(database, first, FAIL)
    again = claimed(database)
    assert (again.probe.id, again.probe.key) == (second.probe.id, KEY)
    assert name(database, again).known == FAIL


def test_who_waits_for_a_probe_that_nobody_wants_any_more_asks_itself(database: Database) -> None:
    job = asking(database, [1])
    asking(database, [1])
    first, second = claimed(database), claimed(database)
    assert name(database, first).mine
    assert not name(database, second).mine
    with database.transaction() as session:
        lifecycle.cancel(session, job.id, "")
    assert claimed(database).probe.id == second.probe.id


def test_who_waits_for_a_probe_without_an_answer_asks_itself(database: Database) -> None:
    asking(database, [1, 2])
    first, second = claimed(database), claimed(database)
    assert name(database, first).mine
    assert not name(database, second).mine
    assert answer(database, first, UNSURE)
    again = claimed(database)
    assert again.probe.id == second.probe.id
    assert name(database, again) == Deduplicated(mine=True, known=None)


def test_the_log_of_a_probe_is_not_read_with_its_row(database: Database) -> None:
    job = asking(database, [1])
    mine = claimed(database)
    answer(database, mine, FAIL)
    assert "log" not in state(database, mine).__dict__
    end(database, job.searches[0].id)
    with database.session() as session:
        assert probe_queries.log(session, mine.probe.id, "") == FAIL.log
