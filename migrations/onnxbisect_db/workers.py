"""Worker processes and their heartbeats."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Text, bindparam, cast, delete, func, or_, select, update
from sqlalchemy.orm import Session

from onnxbisect_db.database import insert, now
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Probe, Worker
from onnxbisect_db.tables.base import Moment

#: A worker without a heartbeat for so long is dead; heartbeats come about every 20 seconds.
ALIVE = timedelta(seconds=60)
_FORGOTTEN = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Presence:
    """A worker's heartbeat: `tools` has for each backend its tool and version, or a sentence why it is unusable.

    `unusable` names the latter. `isolation` is the isolation of each backend's compiles on that machine.
    """

    id: str
    backends: tuple[str, ...]
    slots: int
    tools: Mapping[str, str] = field(default_factory=dict)
    unusable: frozenset[str] = frozenset()
    isolation: Mapping[str, str] = field(default_factory=dict)


def record_heartbeat(session: Session, presence: Presence) -> None:
    """Record a worker's start or full heartbeat."""
    at = now(session)
    values = {
        "backends": sorted(presence.backends),
        "tools": dict(presence.tools),
        "unusable": sorted(presence.unusable),
        "isolation": dict(presence.isolation),
        "slots": presence.slots,
        "seen_at": at,
    }
    session.execute(
        insert(session, Worker)
        .values(id=presence.id, started_at=at, **values)
        .on_conflict_do_update(index_elements=[Worker.id], set_=values)
    )


def renew(session: Session, worker_id: str) -> frozenset[str] | None:
    """Record a short heartbeat. Returns the backends whose tools do not work there; None if the worker is unknown.

    They are reported by the worker, or by its slots since then (`record_broken_tool`).
    """
    mine = update(Worker).where(Worker.id == worker_id).values(seen_at=now(session))
    unusable = session.scalars(mine.returning(Worker.unusable)).one_or_none()
    return None if unusable is None else frozenset(unusable)


def record_broken_tool(session: Session, worker_id: str, backend: str, what: str) -> bool:
    """Record that the backend's tool failed on the worker, described by `what`; it is unusable until checked again.

    Returns whether the worker leaves the backend's work to others (`usable_backends`).
    """
    worker = session.get(Worker, worker_id, with_for_update=True, populate_existing=True)
    if worker is not None and backend in worker.backends:
        worker.unusable = sorted({*worker.unusable, backend})
        worker.tools = {**worker.tools, backend: what}
        session.flush()
    return not usable_backends(session, worker_id, [backend])


def usable_backends(session: Session, worker_id: str, backends: Collection[str]) -> list[str]:
    """Those of its backends for which the worker takes work: not those whose tool fails there and works elsewhere.

    If it works nowhere, a worker must report that.
    """
    if not backends:
        return []
    broken = set(session.scalars(select(Worker.unusable).where(Worker.id == worker_id)).one_or_none() or ())
    if broken.isdisjoint(backends):  # the usual case, without reading a row of each worker
        return list(backends)
    others = select(Worker.backends, Worker.unusable).where(
        Worker.id != worker_id, Worker.seen_at > alive_since(session)
    )
    elsewhere: set[str] = set()
    for theirs, unusable in session.execute(others):
        elsewhere.update({*theirs} - {*unusable})
    return [name for name in backends if name not in broken & elsewhere]


def record_stop(session: Session, worker_id: str) -> None:
    """Record that a worker has stopped."""
    session.execute(delete(Worker).where(Worker.id == worker_id))


def list_all(session: Session) -> list[Worker]:
    """All workers seen within a day; living ones have `seen_at` after `alive_since`."""
    recent = select(Worker).where(Worker.seen_at > now(session) - _FORGOTTEN)
    return list(session.scalars(recent.order_by(Worker.id)))


def alive_since(session: Session) -> datetime:
    """Workers not seen since this time count as dead."""
    return now(session) - ALIVE


def slots(session: Session) -> dict[str, int]:
    """By backend, how many probes the living workers can run: those where it is usable, if there are any."""
    found: dict[str, int] = {}
    able: dict[str, int] = {}
    for backends, unusable, count in session.execute(_SLOTS, {"since": alive_since(session)}):
        broken = json.loads(unusable)
        for backend in json.loads(backends):
            found[backend] = found.get(backend, 0) + count
            if backend not in broken:
                able[backend] = able.get(backend, 0) + count
    return {**found, **able}


def busy(session: Session) -> dict[str, int]:
    """By worker, the number of its claimed probes."""
    held = select(Probe.worker, func.count()).where(Probe.state == ProbeState.RUNNING).group_by(Probe.worker)
    return dict(session.execute(held).all())


def forget(session: Session) -> None:
    """Delete workers not seen for a day, and those seen before the clock was set back.

    Living ones register again with their next heartbeat.
    """
    at = now(session)
    session.execute(delete(Worker).where(or_(Worker.seen_at <= at - _FORGOTTEN, Worker.seen_at > at + ALIVE)))


# as text, which can be grouped, because most of hundreds of workers are equal
_LISTS = cast(Worker.backends, Text), cast(Worker.unusable, Text)
_SLOTS = (
    select(*_LISTS, func.sum(Worker.slots)).where(Worker.seen_at > bindparam("since", type_=Moment())).group_by(*_LISTS)
)
