"""Ten thousand jobs on two hundred workers: the compilers' time is simulated, claims, answers and plans are real.

    PYTHONPATH=tests python benchmarks/fleet.py [--jobs 10000] [--workers 200] [--write docs/service-load.md]

The database is a real PostgreSQL, whose clock runs ahead: whenever nothing is left to do at a moment, it is set to the
next end of a compile. So many seconds of a fleet pass in the time that its database work takes on one connection.
"""

import argparse
import heapq
import logging
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.orm import Session

import generate
import simulated
import tables
from generate import Generated
from installation import Installed, cpu_seconds, installed
from onnxbisect.answer import Answer
from onnxbisect.diagnosis import Target
from onnxbisect.errors import ModelError
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Description
from onnxbisect_db import models, probes, queues, search_queue, searches, workers
from onnxbisect_db.database import Database, now
from onnxbisect_db.errors import LostClaimError
from onnxbisect_db.probes import Claim
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.search_queue import ClaimFilter
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job, Search
from onnxbisect_db.tables.base import new_id
from onnxbisect_db.workers import Presence
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.claiming import WorkClaimer, work_on
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.model_requests.protocol import Case, ModelProcess, Prepared
from simulated import Log
from support.db.scenes import Clock

_BACKEND, _TENANTS, _SLOTS = "simulated", 20, 8
#: Seconds of a compile, each as likely as another.
_COMPILE = (20.0, 40.0)
#: One job of so many has an op that is refused; the others compile as they are.
_REFUSED = 10
#: Long enough that nothing runs out while a simulated minute takes a real one.
_LEASE = 300.0
_IN_VAIN = 1000
#: Threads, so that this process and PostgreSQL's each have work; and simulated seconds whose compiles end together.
_AT_ONCE, _TOGETHER = 4, 0.5
_AT_A_TIME = 500
Found = TypeVar("Found")


class _NoModels:
    """Of a simulated model nobody can read a file: culprits' own files are not asked about."""

    def acquire(self, case: Case, *, new: bool = False) -> AbstractContextManager[ModelProcess]:
        """Always raises ModelError."""
        raise ModelError(f"{case.model_name} is simulated.")

    def warm(self) -> tuple[str, ...]:
        """None."""
        return ()

    def close(self) -> None:
        """Nothing to end."""


@dataclass(kw_only=True)
class Fleet:
    """The simulation, and what it measures."""

    here: Installed
    jobs: int
    workers: int
    clock: Clock = field(default_factory=Clock)
    #: The simulated seconds that have passed.
    moment: float = 0.0
    #: By kind of call, the seconds of each and its CPU time in this process.
    costs: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    #: By search.
    compilers: dict[str, simulated.Compile] = field(default_factory=dict)
    #: When tenants had their first probe, and searches their report.
    tenants: dict[str, float] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)
    busy: float = 0.0
    #: CPU seconds of PostgreSQL until then, and for one look of a worker where nothing waits.
    postgres: float = 0.0
    in_vain: float = 0.0

    @cached_property
    def database(self) -> Database:
        """The installation's, on simulated time. A commit does not wait for the disk, which costs time and no CPU."""
        return Database(f"{self.here.service.settings.database}&options=-csynchronous_commit%3Doff", clock=self.clock)

    def run(self) -> None:
        """All jobs, which are there at once, until each has its report."""
        context = WorkerContext(
            service=replace(self.here.service, database=self.database), pool=_NoModels(), worker="control"
        )
        self._make_jobs()
        postgres, start = cpu_seconds(self.here.postgres), random.Random(0)
        free = [f"worker-{number % self.workers}" for number in range(_SLOTS * self.workers)]
        ends: list[tuple[float, int, str, Claim]] = []
        number = count()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            while True:
                for ended in [threads.submit(self._coordinate, context) for _ in range(_AT_ONCE)]:
                    ended.result()
                print(f"second {self.moment:.0f}: {len(self.done)} jobs done, {len(ends)} compile", file=sys.stderr)
                if len(self.done) == self.jobs:
                    break
                if not self.moment:
                    with self.database.transaction() as session:
                        session.execute(text("ANALYZE"))  # what autovacuum does a minute later
                while free:
                    claims = list(threads.map(self._claim, free[-_AT_ONCE:]))
                    for claim in filter(None, claims):
                        seconds = start.uniform(*_COMPILE)
                        self.tenants.setdefault(claim.job.tenant, self.moment)
                        self.busy += seconds
                        free.remove(claim.probe.worker)
                        heapq.heappush(ends, (self.moment + seconds, next(number), claim.probe.worker, claim))
                    if None in claims:
                        break
                if free and not self.in_vain:  # the first slots are idle, all others compile
                    self._look_in_vain(context)
                passed = ends[0][0] + _TOGETHER - self.moment
                self.moment += passed
                self.clock.forward(passed)
                over = []
                while ends and ends[0][0] <= self.moment:
                    _, _, worker, claim = heapq.heappop(ends)
                    free.append(worker)
                    over.append(claim)
                list(threads.map(self._answer, over))
        self.postgres = cpu_seconds(self.here.postgres) - postgres - self.in_vain * _IN_VAIN

    def _look_in_vain(self, context: WorkerContext) -> None:
        """What an idle worker does when it is told of something, and every two seconds."""
        looking = WorkClaimer(replace(context, worker="idle", backends=(_BACKEND,)), control=False, probes=_SLOTS)
        postgres = cpu_seconds(self.here.postgres)
        for _ in range(_IN_VAIN):
            assert self._timed("look where nothing waits", looking) is None
        self.in_vain = (cpu_seconds(self.here.postgres) - postgres) / _IN_VAIN

    def _coordinate(self, context: WorkerContext) -> None:
        """Claim searches, and write reports, while there are any."""
        taker = ClaimFilter(worker="control", seconds=_LEASE, stages=(Stage.SEARCH, Stage.REPORT))
        run = self.database.run
        while (
            claimed := self._timed("claim a search", lambda: run(lambda session: search_queue.take(session, taker)))
        ) is not None:
            if claimed.stage is Stage.SEARCH:
                self._timed("coordinate", partial(work_on, context, claimed))
            else:
                report = claimed.search.universe or ""
                end = partial(searches.finish, claimed=claimed, verdict=Status.PASS, report=report, files={})
                self._timed("report", partial(run, end))
                self.done[claimed.search.id] = self.moment

    def _claim(self, worker: str) -> Claim | None:
        request = ClaimRequest(backend=_BACKEND, worker=worker, seconds=_LEASE)

        def claim(session: Session) -> Claim | None:
            return probes.claim(session, request) if queues.due(session, [_BACKEND]) else None

        return self._timed("claim", partial(self.database.run, claim))

    def _answer(self, claim: Claim) -> None:
        verdict = self.compilers[claim.search.id](claim.units)
        answer = partial(probes.answer, claim=claim, given=Answer(verdict=verdict))
        with suppress(LostClaimError):  # the search has ended meanwhile
            self._timed("answer", partial(self.database.run, answer))

    def _timed(self, kind: str, work: Callable[[], Found]) -> Found:
        began, cpu = time.monotonic(), time.thread_time()
        found = work()
        self.costs[kind].append((time.monotonic() - began, time.thread_time() - cpu))
        return found

    def _make_jobs(self) -> None:
        """Prepared, half of them of one tenant."""
        kinds = [generate.singles(24, m=12, k=bool(number), seed=number) for number in range(_TENANTS)]
        stored = [self._stored(kind) for kind in kinds]
        compilers = [simulated.compiler_of(kind, Log.OPAQUE) for kind in kinds]
        with self.database.transaction() as session:
            for number in range(self.workers):
                workers.record_heartbeat(session, Presence(id=f"worker-{number}", backends=(_BACKEND,), slots=_SLOTS))
            for number in range(_TENANTS):
                for universe in stored:
                    models.keep(session, tenant=f"tenant {number}", sha256=universe, name="net.onnx", size=1)
        for first in range(0, self.jobs, _AT_A_TIME):
            with self.database.transaction() as session:
                for number in range(first, min(first + _AT_A_TIME, self.jobs)):
                    tenant = f"tenant {number % _TENANTS if number % 2 else 0}"
                    which = 1 + number // _REFUSED % (_TENANTS - 1) if number % _REFUSED == 0 else 0
                    search = _prepared(session, tenant, stored[which])
                    self.compilers[search.id] = compilers[which]

    def _stored(self, kind: Generated) -> str:
        prepared = Prepared(
            target=Target(backend=_BACKEND, tool="simulated", version="1", options={}),
            description=Description(tool="simulated", version="1"),
            universe=kind.universe,
            identity="0" * 64,
        )
        return self.here.service.files.put([prepared.to_bytes()]).sha256


def _prepared(session: Session, tenant: str, universe: str) -> Search:
    """The search of a new job, as it is once its model was read."""
    at, identity = now(session), new_id()
    search = Search(
        **{
            "id": new_id(),
            "ordinal": 0,
            "backend": _BACKEND,
            "state": JobState.RUNNING,
            "stage": Stage.SEARCH,
            "started_at": at,
        },
        **{"tool": "simulated", "version": "1", "identity": identity, "universe": universe, "units": 24},
        compiles_after={},
    )
    session.add(
        Job(
            **{"tenant": tenant, "model_sha256": universe, "model_name": "net.onnx", "request": SearchSpec().to_json()},
            **{"state": JobState.RUNNING, "created_at": at, "started_at": at, "searches": [search]},
        )
    )
    return search


def table(fleet: Fleet) -> str:
    """As `docs/service-load.md` shows it. Cores are what it would take to keep up with this fleet."""
    answers, slots, ended = len(fleet.costs["answer"]), _SLOTS * fleet.workers, max(fleet.done.values())
    rate = slots / (sum(_COMPILE) / 2)
    control = sum(cpu for kind in ("claim a search", "coordinate", "report") for _, cpu in fleet.costs[kind]) / answers
    hosts = sum(cpu for kind in ("claim", "answer") for _, cpu in fleet.costs[kind]) / answers
    rows: list[tuple[object, ...]] = [
        ("probes", answers, ""),
        ("simulated seconds until the last report", f"{ended:.0f}", ""),
        ("slots that compile until then, %", f"{100 * fleet.busy / slots / ended:.0f}", ""),
        ("seconds until the last tenant's first probe", f"{max(fleet.tenants.values()):.0f}", ""),
        *(
            (f"{kind}, ms, p50 / p99", f"{_at(calls, 0.5):.1f} / {_at(calls, 0.99):.1f}", len(calls))
            for kind, calls in fleet.costs.items()
        ),
        ("CPU for each answer: coordinators, ms", f"{1000 * control:.1f}", f"{control * rate:.1f} cores"),
        ("workers, ms", f"{1000 * hosts:.1f}", f"{hosts * rate:.1f} cores of {fleet.workers} hosts"),
        (
            "PostgreSQL, ms",
            f"{1000 * fleet.postgres / answers:.1f}",
            f"{fleet.postgres / answers * rate:.1f} cores",
        ),
        (
            "of PostgreSQL, for a look where nothing waits, ms",
            f"{1000 * fleet.in_vain:.2f}",
            f"{fleet.in_vain * rate * fleet.workers:.1f} cores if all workers look after each answer",
        ),
        (
            "answers a second for which one core is enough",
            f"{answers / fleet.postgres:.0f} in PostgreSQL, {1 / control:.0f} in coordinators",
            "",
        ),
    ]
    head = f"{fleet.jobs} jobs of {_TENANTS} tenants, {fleet.workers} workers of {_SLOTS} slots"
    return tables.table((head, "", f"times, or at {rate:.0f} answers a second"), rows)


def _at(calls: Sequence[tuple[float, float]], share: float) -> float:
    """Milliseconds within which so large a share was done."""
    ordered = sorted(seconds for seconds, _ in calls)
    return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def main() -> None:
    """Measure, then print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this document")
    given = parser.parse_args()
    logging.getLogger("onnxbisect_worker").setLevel(logging.ERROR)  # each culprit's file that cannot be asked about
    began, load = time.monotonic(), os.getloadavg()[0]
    with installed() as here:
        fleet = Fleet(here=here, jobs=given.jobs, workers=given.workers)
        fleet.run()
        fleet.database.close()
    took = time.monotonic() - began
    found = f"{table(fleet)}\n\n*{took:.0f} s; load average when it began: {load:.1f} on {os.cpu_count()} cores.*"
    if given.write is None:
        print(found)
    else:
        given.write.write_text(tables.fill(given.write.read_text(), {"fleet": found}))
        print(f"wrote {given.write}", file=sys.stderr)


if __name__ == "__main__":
    main()
