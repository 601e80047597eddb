"""Many jobs at a time: are the workers' slots full, what does a probe cost, and what do those who watch notice?"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, combinations
from threading import Event as Flag
from threading import Thread
from typing import Any

from sqlalchemy import func, select

import models
from installation import Api, Installed, cpu_seconds, until, worker_seconds
from onnxbisect_db import workers
from onnxbisect_db.database import now
from onnxbisect_db.states import JobState, ProbeState
from onnxbisect_db.tables import Event, Job, Probe, Search
from watchers import Reads, fastest, request, watching

_DELAY = 1.0
_ALONE_SECONDS = 5.0
#: Within which the first jobs must ask questions.
_START_SECONDS = 90.0
#: Sixty variants in a chain of so many nodes. What each job's compiler refuses differs, so none has another's answers.
_NODES = 120
_OPS = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Floor", "Ceil", "Round", "Sign", "HardSwish", "Softplus")


@dataclass(frozen=True, kw_only=True)
class Busy:
    """What came of it, in a window in which there were so many jobs at any moment. Shares are of slot-seconds:
    `in_hand` with a probe or a model that is read, `asking` with a probe, `compiling` in the compiler itself.
    """

    jobs: int
    slots: int
    window: float
    done: int
    probes: int
    compiled: int
    in_hand: float
    asking: float
    compiling: float
    #: Milliseconds of processor time for each probe, by who used them.
    cpu: dict[str, float]
    reads: Reads
    #: As many as are answered when all is done.
    alone: Reads


def measure(here: Installed, jobs: int, slots: int, seconds: float) -> Busy:
    """For so many seconds, from when the first jobs ask questions. As one job ends, the next one comes."""
    with here.api() as api:
        coming = _requests(here, api)
        ids = [next(coming) for _ in range(jobs)]
        with (
            here.process("worker", "--backend", "whitelist") as compiling,
            here.process("worker", "--control") as control,
        ):
            assert until(_START_SECONDS, lambda: _slots(here) >= slots), "the workers did not start"
            with _feeding(here, coming, jobs):
                assert until(_START_SECONDS, lambda: _asking(here, ids)), "the models were not read"
                pids = (compiling.pid, control.pid)
                first, before = _now(here), _cpu(here, api, pids)
                time.sleep(seconds)
                last, after = _now(here), _cpu(here, api, pids)
                with watching(api, ids) as reads:
                    time.sleep(seconds / 2)
            found = _found(here, first, last)
        alone = fastest(api, ids, _ALONE_SECONDS)
    seconds_of_slots = slots * (last - first).total_seconds()
    return Busy(
        jobs=jobs,
        slots=slots,
        window=(last - first).total_seconds(),
        done=found.done,
        probes=found.probes,
        compiled=found.compiled,
        in_hand=(found.asking + found.reading) / seconds_of_slots,
        asking=found.asking / seconds_of_slots,
        compiling=_DELAY * found.compiled / seconds_of_slots,
        cpu={name: 1000 * (after[name] - before[name]) / found.probes for name in after},
        reads=reads.seen(),
        alone=alone,
    )


def _requests(here: Installed, api: Api) -> Iterator[str]:
    """Asks for a job each time, and yields its id."""
    path = here.folder / "model.onnx"
    models.long_chain(path, _NODES)
    answer = request(api, "PUT", "/v1/models", path.read_bytes())
    for denied in chain(combinations(_OPS, 3), combinations(_OPS, 4)):
        options = {"deny": ",".join(denied), "report": "none", "delay": str(_DELAY)}
        body = {"model": answer["sha256"], "targets": [{"backend": "whitelist", "options": options}]}
        yield request(api, "POST", "/v1/jobs", json.dumps(body).encode())["id"]


@contextmanager
def _feeding(here: Installed, coming: Iterator[str], jobs: int) -> Iterator[None]:
    """Meanwhile there are always so many jobs."""
    enough = Flag()

    def feed() -> None:
        while not enough.wait(0.2):
            for _ in range(jobs - _open(here)):
                next(coming)

    thread = Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def _slots(here: Installed) -> int:
    with here.service.database.session() as session:
        return workers.slots(session).get("whitelist", 0)


def _open(here: Installed) -> int:
    with here.service.database.session() as session:
        going = Job.state.in_((JobState.QUEUED, JobState.RUNNING))
        return session.scalars(select(func.count()).select_from(Job).where(going)).one()


def _asking(here: Installed, ids: list[str]) -> bool:
    """Whether all of these have asked something."""
    with here.service.database.session() as session:
        asked = select(func.count(Search.job_id.distinct())).join(Probe).where(Search.job_id.in_(ids))
        return session.scalars(asked).one() == len(ids)


def _now(here: Installed) -> datetime:
    with here.service.database.session() as session:
        return now(session)


def _cpu(here: Installed, api: Api, pids: tuple[int, int]) -> dict[str, float]:
    used = {"api": cpu_seconds(api.pid), "postgres": cpu_seconds(here.postgres)}
    for name, pid in zip(("worker", "control"), pids, strict=True):
        used[name], used[f"{name}'s hosts"] = worker_seconds(pid)
    return used


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a window saw. `asking` and `reading` are seconds of all slots together."""

    done: int
    probes: int
    compiled: int
    asking: float
    reading: float


def _found(here: Installed, first: datetime, last: datetime) -> _Found:
    with here.service.database.session() as session:
        taken = session.execute(
            select(Probe.started_at, Probe.ended_at, Probe.cached).where(
                Probe.state.in_((ProbeState.RUNNING, ProbeState.DONE)), Probe.started_at.is_not(None)
            )
        ).all()
        began: dict[str, datetime] = dict(session.execute(select(Search.job_id, Search.started_at)).all())  # type: ignore[arg-type]
        read = session.execute(select(Event.job_id, Event.created_at).where(Event.type == "search.prepared")).all()
        states = Counter(session.scalars(select(Job.state)))
        done = select(func.count()).select_from(Job).where(Job.ended_at.between(first, last))
        ended = session.scalars(done).one()
    assert states.keys() <= {JobState.DONE, JobState.RUNNING, JobState.QUEUED}, states
    answered = [cached for _, end, cached in taken if end is not None and first <= end <= last]
    return _Found(
        done=ended,
        probes=len(answered),
        compiled=answered.count(False),
        asking=within([(start, end or last) for start, end, _ in taken], first, last),
        reading=within([(began[job], end) for job, end in read], first, last),
    )


def within(spans: list[tuple[Any, Any]], first: datetime, last: datetime) -> float:
    """Seconds of all spans between two moments."""
    return sum((max((min(end, last) - max(start, first)).total_seconds(), 0.0) for start, end in spans), 0.0)
