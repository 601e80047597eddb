"""Metrics that show whether the service makes progress, which living processes alone do not."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from onnxbisect_db import queues, reconcile, workers
from onnxbisect_db.database import now
from onnxbisect_db.states import DeliveryState, JobState, ProbeState, Stage
from onnxbisect_db.tables import Delivery, Endpoint, Job, Lease, Probe, Search


@dataclass(frozen=True, kw_only=True)
class Gauges:
    """A snapshot, without details of tenants, models and labels.

    `oldest` is, by backend, the seconds that its oldest probe has waited; `overdue` the seconds since the expiry of the
    oldest lease not yet recovered; `unreconciled` the seconds since the last reconciliation, None if there was none.
    """

    jobs: Mapping[str, int]
    searches: Mapping[tuple[str, str], int]
    probes: Mapping[str, queues.Length]
    oldest: Mapping[str, float]
    slots: Mapping[str, int]
    workers: int
    overdue: float
    deliveries: Mapping[str, int]
    failing: int
    disabled: int
    unreconciled: float | None


def read(session: Session) -> Gauges:
    """The metrics, from one consistent view."""
    at = now(session)
    stages = select(Search.backend, Search.stage, func.count()).where(Search.stage != Stage.OVER)
    waiting = select(Search.backend, func.min(Probe.created_at)).join(Probe, Probe.search_id == Search.id)
    waiting = waiting.where(Probe.state == ProbeState.QUEUED).group_by(Search.backend)
    running = select(func.min(Probe.lease_until)).where(Probe.state == ProbeState.RUNNING)
    ended = [
        session.scalars(running).one(),
        session.scalars(select(func.min(Search.lease_until)).where(Search.stage != Stage.OVER)).one(),
    ]
    reconciled = session.scalars(select(Lease.until).where(Lease.name == reconcile.LEASE)).one_or_none()
    alive = workers.alive_since(session)
    jobs = dict(session.execute(select(Job.state, func.count()).group_by(Job.state)).all())
    deliveries = dict(session.execute(select(Delivery.state, func.count()).group_by(Delivery.state)).all())
    failing = select(func.count()).select_from(Endpoint)
    return Gauges(
        jobs={state: jobs.get(state, 0) for state in JobState},
        searches={
            (backend, stage): count
            for backend, stage, count in session.execute(stages.group_by(Search.backend, Search.stage))
        },
        probes=queues.lengths(session),
        oldest={backend: (at - since).total_seconds() for backend, since in session.execute(waiting)},
        slots=workers.slots(session),
        workers=sum(worker.seen_at > alive for worker in workers.list_all(session)),
        overdue=max([(at - until).total_seconds() for until in ended if until is not None] + [0.0]),
        deliveries={state: deliveries.get(state, 0) for state in DeliveryState},
        failing=session.scalars(failing.where(Endpoint.failing_since.is_not(None))).one(),
        disabled=session.scalars(failing.where(Endpoint.disabled_at.is_not(None))).one(),
        unreconciled=None
        if reconciled is None
        else (at - (reconciled - timedelta(seconds=reconcile.LEASE_SECONDS))).total_seconds(),
    )
