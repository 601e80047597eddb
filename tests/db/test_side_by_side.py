"""Real threads and processes that want the same things at the same time."""

import subprocess
import sys
import threading
from collections import Counter

import pytest

from onnxbisect_db import locking, probe_queries, probes, queues, searches
from onnxbisect_db.database import Database
from onnxbisect_db.probes import Claim, Deduplicated
from onnxbisect_db.reconcile import reconcile
from onnxbisect_db.states import Stage
from support.db.scenes import (
    FAIL,
    LEASE,
    NPU,
    PASS,
    answer,
    asking,
    asks,
    at_once,
    claim,
    claimed,
    new_job,
    plan,
    prepare,
    read,
)


def test_every_probe_goes_to_one_worker(database: Database) -> None:
    made = [asking(database, range(1, 9)) for _ in range(3)]
    taken: list[str] = []

    def work(number: int) -> None:
        while (mine := claim(database, worker=f"w{number}")) is not None:
            taken.append(mine.probe.id)
            assert answer(database, mine)

    at_once(4, work)
    assert max(Counter(taken).values()) == 1
    assert len(taken) == 24
    assert [read(database, job).searches[0].calls for job in made] == [8, 8, 8]


def test_no_more_run_than_allowed_even_for_a_moment(database: Database) -> None:
    asking(database, range(1, 21))
    database.run(lambda session: queues.limit(session, NPU, 2))
    got = []

    def work(number: int) -> None:
        got.append(claim(database))

    at_once(6, work)
    assert sum(mine is not None for mine in got) == 2


def test_who_takes_a_probe_passes_over_jobs_that_others_work_on(database: Database) -> None:
    """Those are served at this moment. But the last job that there is is waited for."""
    if database.run(lambda session: session.get_bind().dialect.name) == "sqlite":
        pytest.skip("there is one writer at a time")
    first, second = asking(database, [1, 2]), asking(database, [4])
    with database.transaction() as session:
        assert locking.locked(session, first.id)
        mine = claimed(database)
        assert mine.job.id == second.id
        late: list[Claim | None] = []
        waiting = threading.Thread(target=lambda: late.append(claim(database)))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join()
    assert late[0] is not None
    assert late[0].job.id == first.id


def test_of_two_who_answer_one_counts(database: Database) -> None:
    asking(database, [1])
    mine = claimed(database)
    counted = []
    at_once(4, lambda number: counted.append(answer(database, mine, PASS if number % 2 else FAIL)))
    assert sorted(counted) == [False, False, False, True]


def test_of_those_who_cut_the_same_piece_one_compiles_it(database: Database) -> None:
    for _ in range(4):
        asking(database, [1])
    mine = [claimed(database) for _ in range(4)]
    named: list[Deduplicated] = []
    at_once(
        4,
        lambda number: named.append(
            database.run(lambda session: probes.dedupe_by_key(session, mine[number], "1" * 64))
        ),
    )
    assert sum(each.mine for each in named) == 1


def test_of_those_who_want_a_turn_one_gets_it(database: Database) -> None:
    search = new_job(database).searches[0].id
    got = []

    def work(number: int) -> None:
        got.append(
            database.run(lambda session: searches.claim(session, search, Stage.PREPARE, seconds=LEASE)) is not None
        )

    at_once(4, work)
    assert sum(got) == 1


def test_of_those_who_want_a_lease_one_gets_it(database: Database) -> None:
    got = []

    def work(number: int) -> None:
        got.append(reconcile(database, f"h{number}"))

    at_once(4, work)
    assert sum(got) == 1


def test_the_same_request_at_once_is_one_job(database: Database) -> None:
    made: list[str] = []
    at_once(4, lambda number: made.append(new_job(database, key="k").id))
    assert len(set(made)) == 1


def test_planning_and_answering_at_once_lose_nothing(database: Database) -> None:
    """A coordinator plans on while workers claim and answer: no deadlock, no answer lost, no question twice."""
    job = new_job(database)
    search = job.searches[0].id
    prepare(database, search)
    done = threading.Event()
    wanted = range(1, 16)

    def coordinate() -> None:
        left = list(wanted)
        while left:
            plan(database, search, asks(left[:4]))
            with database.session() as session:
                known = {found.units for found in probe_queries.answered(session, search)}
            left = [units for units in wanted if units not in known]

    def work(number: int) -> None:
        if number == 0:
            try:
                coordinate()
            finally:
                done.set()
        while not done.is_set():
            mine = claim(database)
            if mine is not None:
                assert answer(database, mine)

    at_once(3, work)
    with database.session() as session:
        found = probe_queries.answered(session, search)
    assert sorted(record.units for record in found) == list(wanted)
    assert plan(database, search, []) == 0


_WORKER = """
import sys
from onnxbisect.verdict import Status, Verdict
from onnxbisect_db import probes
from onnxbisect_db.database import Database
from onnxbisect_db.queues import ClaimRequest
from onnxbisect.answer import Answer

database = Database(sys.argv[1])
answer = Answer(verdict=Verdict(status=Status.PASS))
request = ClaimRequest(backend="npu", worker=sys.argv[2], seconds=30)
while claim := database.run(lambda session: probes.claim(session, request)):
    database.run(lambda session: probes.answer(session, claim, answer))
    print(claim.probe.id)
"""


def test_processes_share_a_queue(url: str) -> None:
    database = Database(url, durable=False)
    job = asking(database, range(1, 41))
    command = [sys.executable, "-c", _WORKER, url]
    workers = [subprocess.Popen([*command, f"w{number}"], stdout=subprocess.PIPE, text=True) for number in range(2)]
    taken = [line for worker in workers for line in worker.communicate()[0].splitlines()]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert len(set(taken)) == len(taken) == 40
    assert read(database, job).searches[0].calls == 40
    database.close()
