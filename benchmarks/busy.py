"""Many jobs at a time: are the workers' hands full, what does a probe cost, and what do those who watch notice?"""

import json
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations, islice
from typing import Any

from sqlalchemy import func, select

import models
from installed import Api, Installed, cpu_seconds, until, worker_seconds
from onnxbisect_db.states import JobState, ProbeState
from onnxbisect_db.tables import Event, Job, Probe, Search
from onnxbisect_db.workers import slots
from reading import Reads, fastest, request, watching

_DELAY = 0.05
_ALONE_SECONDS = 5.0
#: Sixty variants in a chain of so many nodes. What each job's compiler refuses differs, so none has another's answers.
_NODES = 120
_OPS = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Floor", "Ceil", "Round", "Sign", "HardSwish", "Softplus")


@dataclass(frozen=True, kw_only=True)
class Busy:
    """What came of it. Shares are of slot-seconds between the first claim and the last one, when nothing waits
    any more: `in_hand` with a probe or a model that is read, `asking` with a probe, `compiling` in the compiler itself.
    """

    jobs: int
    done: int
    hands: int
    seconds: float
    window: float
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


def measure(here: Installed, jobs: int, hands: int, seconds: float) -> Busy:
    """All jobs are there before the first worker is. What is not done after so many seconds is left."""
    with here.api() as api:
        ids = _submitted(here, api, jobs)
        workers = [here.process("worker", "--backend", "whitelist"), here.process("worker", "--control")]
        before = _cpu(here, api, ())
        began = time.monotonic()
        with workers[0] as compiling, workers[1] as control:
            assert until(seconds, lambda: _hands(here) >= hands), "the workers did not start"
            with watching(api, ids) as reads:
                until(seconds, lambda: _open(here) == 0)
                took = time.monotonic() - began
                after = _cpu(here, api, (compiling.pid, control.pid))
        alone = fastest(api, ids, _ALONE_SECONDS)
    used = {name: after[name] - before.get(name, 0.0) for name in after}
    return _found(here, jobs, hands, took, used, reads.seen(), alone)


def _submitted(here: Installed, api: Api, count: int) -> list[str]:
    path = here.folder / "model.onnx"
    models.long_chain(path, _NODES)
    answer = request(api, "PUT", "/v1/models", path.read_bytes())
    ids = []
    for denied in islice(combinations(_OPS, 3), count):
        options = {"deny": ",".join(denied), "report": "none", "delay": str(_DELAY)}
        body = {"model": answer["sha256"], "targets": [{"backend": "whitelist", "options": options}]}
        ids.append(request(api, "POST", "/v1/jobs", json.dumps(body).encode())["id"])
    return ids


def _hands(here: Installed) -> int:
    with here.service.database.session() as session:
        return slots(session).get("whitelist", 0)


def _open(here: Installed) -> int:
    with here.service.database.session() as session:
        going = Job.state.in_((JobState.QUEUED, JobState.RUNNING))
        return session.scalars(select(func.count()).select_from(Job).where(going)).one()


def _cpu(here: Installed, api: Api, workers: tuple[int, ...]) -> dict[str, float]:
    used = {"api": cpu_seconds(api.pid), "postgres": cpu_seconds(here.postgres)}
    for name, pid in zip(("worker", "control"), workers, strict=False):
        used[name], used[f"{name}'s hosts"] = worker_seconds(pid)
    return used


def _found(
    here: Installed, jobs: int, hands: int, took: float, used: dict[str, float], reads: Reads, alone: Reads
) -> Busy:
    with here.service.database.session() as session:
        probes = list(session.execute(select(Probe.started_at, Probe.ended_at).where(Probe.state == ProbeState.DONE)))
        calls = session.scalars(select(func.sum(Search.calls))).one()
        began: dict[str, datetime] = dict(session.execute(select(Search.job_id, Search.started_at)).all())  # type: ignore[arg-type]
        read = session.execute(select(Event.job_id, Event.created_at).where(Event.type == "search.prepared")).all()
        states = Counter(session.scalars(select(Job.state)))
    assert states.keys() <= {JobState.DONE, JobState.RUNNING, JobState.QUEUED}, states
    asked = [(start, end) for start, end in probes]
    first, last = min(start for start, _ in asked), max(start for start, _ in asked)
    window = (last - first).total_seconds()
    asking = within(asked, first, last)
    reading = within([(began[job], end) for job, end in read], first, last)
    return Busy(
        jobs=jobs,
        done=states[JobState.DONE],
        hands=hands,
        seconds=took,
        window=window,
        probes=len(probes),
        compiled=calls,
        in_hand=(asking + reading) / (hands * window),
        asking=asking / (hands * window),
        compiling=_DELAY * calls / (hands * window),
        cpu={name: 1000 * seconds / len(probes) for name, seconds in used.items()},
        reads=reads,
        alone=alone,
    )


def within(spans: list[tuple[Any, Any]], first: datetime, last: datetime) -> float:
    """Seconds of all spans between two moments."""
    return sum(max((min(end, last) - max(start, first)).total_seconds(), 0.0) for start, end in spans)
