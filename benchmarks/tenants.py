"""A thousand jobs of ten tenants at once: when are the first results there, and how much is in progress meanwhile?"""

import json
import math
import os
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, combinations, islice
from pathlib import Path
from threading import Event, Thread

from sqlalchemy import func, select

import models
from installation import PROGRAM, Api, Installed, family
from onnxbisect_db import tokens
from onnxbisect_db.database import Database, now
from onnxbisect_db.states import JobState, Scope
from onnxbisect_db.tables import Job
from onnxbisect_service.service import open_service
from onnxbisect_service.settings import Settings
from watchers import Reads, request, watching

_TENANTS = 10
#: A chain in which each job's own compiler refuses two ops, or three.
_NODES = 24
_OPS = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Floor", "Ceil", "Round", "Sign", "HardSwish", "Softplus")
#: Seconds after which jobs that have not ended are given up.
LONGEST = 3600.0
_STOP_SECONDS = 40.0
#: The slots that `serve` has by itself.
_SLOTS = {"slots": "2"}


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Seconds since the first of the jobs was submitted, and what was in progress meanwhile."""

    jobs: int
    #: Jobs that had a result in time.
    ended: int
    first: float
    #: The first result of the tenant that waited longest for one.
    last_first: float
    #: None if fewer than half of the jobs had a result in time.
    median: float | None
    #: Until the last result in time.
    all: float
    #: Jobs, and bytes of memory of all processes of the service, at any moment.
    running: int
    memory: int
    #: Of one tenant, older jobs that were not done when a later one was.
    overtaken: int
    reads: Reads


def embedded(here: Installed, jobs: int) -> Crowd:
    """All in one process, on SQLite."""
    given = {"data": str(here.folder / "embedded"), "requests": "1000000/minute", "uploads": "1000000/minute", **_SLOTS}
    service = open_service(Settings.model_validate(given))
    with closing(service):
        service.database.upgrade()
        environment = {f"ONNXBISECT_{name.upper()}": text for name, text in given.items()}
        with _served(environment) as (port, pid):
            return _measured(here.folder, service.database, port, [pid], jobs)


def with_postgres(here: Installed, jobs: int) -> Crowd:
    """The API, a worker that compiles and one that coordinates, on PostgreSQL."""
    here = replace(here, environment={**here.environment, "ONNXBISECT_SLOTS": _SLOTS["slots"]})
    with (
        here.api() as api,
        here.process("worker", "--backend", "whitelist") as compiling,
        here.process("worker", "--control") as control,
    ):
        pids = [api.pid, compiling.pid, control.pid]
        return _measured(here.folder, here.service.database, api.port, pids, jobs)


@contextmanager
def _served(environment: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    with subprocess.Popen(
        [PROGRAM, "serve", "--port", "0"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _measured(folder: Path, database: Database, port: int, pids: Sequence[int], jobs: int) -> Crowd:
    def api(number: int) -> Api:
        scopes = (Scope.SUBMIT, Scope.READ)
        issue = partial(tokens.issue, tenant=f"tenant{number}", name="benchmark", scopes=scopes)
        return Api(port=port, pid=pids[0], token=database.run(issue).text)

    apis = [api(number) for number in range(_TENANTS)]
    with database.session() as session:
        began = now(session)
    with ExitStack() as stack:
        most = stack.enter_context(_most(database, pids))
        ids = _submitted(folder, apis, jobs)
        reads = stack.enter_context(watching(apis[0], ids[0]))
        give_up = time.monotonic() + LONGEST
        while _open(database) and time.monotonic() < give_up:
            time.sleep(1)
    return _found(database, began, jobs, most, reads.seen())


def _submitted(folder: Path, apis: Sequence[Api], jobs: int) -> list[list[str]]:
    """In turn, one of each tenant; the ids by tenant."""
    path = folder / "model.onnx"
    models.long_chain(path, _NODES)
    digests = [request(api, "PUT", "/v1/models", path.read_bytes())["sha256"] for api in apis]
    ids: list[list[str]] = [[] for _ in apis]
    refused = chain.from_iterable(combinations(_OPS, count) for count in (2, 3))
    variants = list(islice(refused, -(-jobs // len(apis))))
    for number in range(jobs):
        # tenants have no answers of each other
        tenant, denied = number % len(apis), variants[number // len(apis)]
        options = {"deny": ",".join(denied), "report": "none"}
        body = {"model": digests[tenant], "targets": [{"backend": "whitelist", "options": options}]}
        ids[tenant].append(request(apis[tenant], "POST", "/v1/jobs", json.dumps(body).encode())["id"])
    return ids


def _open(database: Database) -> int:
    return _count(database, JobState.QUEUED) + _count(database, JobState.RUNNING)


def _count(database: Database, state: JobState) -> int:
    with database.session() as session:
        return session.scalars(select(func.count()).select_from(Job).where(Job.state == state)).one()


@dataclass
class _Most:
    running: int = 0
    memory: int = 0


@contextmanager
def _most(database: Database, pids: Sequence[int]) -> Iterator[_Most]:
    most, enough = _Most(), Event()

    def look() -> None:
        while not enough.wait(1.0):
            most.running = max(most.running, _count(database, JobState.RUNNING))
            most.memory = max(most.memory, sum(_proportional(it) for pid in pids for it in family(pid)))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        enough.set()
        thread.join()


def _proportional(pid: int) -> int:
    """Bytes of a process, shared pages by the number of processes that share them; forked ones share most."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # ended
        pass
    return 0


def _found(database: Database, began: datetime, jobs: int, most: _Most, reads: Reads) -> Crowd:
    with database.session() as session:
        rows = session.execute(
            select(Job.tenant, Job.state, Job.ended_at).where(Job.created_at >= began).order_by(Job.id)
        ).all()
    after: defaultdict[str, list[float]] = defaultdict(list)
    for tenant, state, ended in rows:
        assert state in (JobState.DONE, JobState.RUNNING, JobState.QUEUED), state
        after[tenant].append(math.inf if ended is None else (ended - began).total_seconds())
    every = sorted(chain.from_iterable(after.values()))
    assert len(every) == jobs, len(every)
    in_time = [seconds for seconds in every if seconds < math.inf]
    median = statistics.median(every)
    return Crowd(
        jobs=jobs,
        ended=len(in_time),
        first=every[0],
        last_first=max(map(min, after.values())),
        median=median if median < math.inf else None,
        all=in_time[-1],
        running=most.running,
        memory=most.memory,
        overtaken=max(
            sum(older > end for older in ends[:number]) for ends in after.values() for number, end in enumerate(ends)
        ),
        reads=reads,
    )
