"""The outbox of webhooks: messages to send, their senders, and the outcomes.

The schedule is that of the Standard Webhooks specification. A message has the same id on every attempt, so a receiver
can recognise repeats.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from onnxbisect_db import leases, notices
from onnxbisect_db.database import Page, now, page
from onnxbisect_db.states import DeliveryState, EventType
from onnxbisect_db.tables import Delivery, Endpoint
from onnxbisect_db.tables.base import Moment

#: The delay before each attempt; the first is immediate.
SCHEDULE = (
    timedelta(0),
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    *(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
)
#: An endpoint that accepted nothing for so long is disabled when the next message fails.
_PATIENCE = timedelta(days=5)
_LONGEST_RETRY_AFTER = timedelta(days=1)
_GONE = 410
_ANSWER_CHARACTERS = 2000


@dataclass(frozen=True, kw_only=True)
class Sending:
    """A claimed delivery."""

    lease: leases.RowLease
    delivery: Delivery
    endpoint: Endpoint


@dataclass(frozen=True, kw_only=True)
class Try:
    """The outcome of one attempt. `status` is None if there was no answer, for the reason in `problem`.

    With a status, a `problem` says why the receiver did not accept it. `retry_after` is the delay that the answer
    requested.
    """

    status: int | None
    milliseconds: int
    answer: str = ""
    problem: str = ""
    retry_after: timedelta | None = None

    @property
    def arrived(self) -> bool:
        """Whether the receiver accepted it; redirects are not followed, so they count as failures."""
        return self.status is not None and 200 <= self.status < 300 and not self.problem


def announce(
    session: Session, kind: EventType, data: Mapping[str, Any], at: datetime, *, tenant: str, job_id: str | None
) -> None:
    """Write a delivery for every endpoint that wants it: the tenant's, and that of the job."""
    mine = select(Endpoint).where(Endpoint.tenant == tenant, Endpoint.disabled_at.is_(None))
    mine = mine.where(or_(Endpoint.job_id.is_(None), Endpoint.job_id == job_id))
    # Locked against deletion, which would make the insert fail and undo the announced change.
    for endpoint in session.scalars(mine.with_for_update(read=True, key_share=True)):
        if not endpoint.events or kind in endpoint.events:
            _write(session, endpoint, kind, data, at, job_id)


def ping(session: Session, endpoint: Endpoint) -> Delivery:
    """Write a test message."""
    return _write(session, endpoint, EventType.PING, {"endpoint": endpoint.id}, now(session), None)


def _write(
    session: Session, endpoint: Endpoint, kind: EventType, data: Mapping[str, Any], at: datetime, job_id: str | None
) -> Delivery:
    payload = {"type": kind, "timestamp": at.isoformat(), "data": dict(data)}
    delivery = Delivery(endpoint_id=endpoint.id, job_id=job_id, type=kind, payload=payload, due_at=at, created_at=at)
    session.add(delivery)
    session.flush()
    notices.notify(session, notices.WEBHOOKS)
    return delivery


def list_page(session: Session, endpoint_id: str, *, after: str | None = None, limit: int = 50) -> Page[Delivery, str]:
    """An endpoint's deliveries, newest first, after the one with id `after`."""
    mine = select(Delivery).where(Delivery.endpoint_id == endpoint_id)
    if after is not None:
        mine = mine.where(Delivery.id < after)
    return page(session, mine.order_by(Delivery.id.desc()), lambda delivery: delivery.id, limit=limit)


def newest(session: Session, tenant: str, *, limit: int) -> list[tuple[Endpoint, Delivery]]:
    """The tenant's newest deliveries with their endpoints, including those of single jobs."""
    mine = _of(tenant).add_columns(Endpoint).order_by(Delivery.id.desc()).limit(limit)
    return [(endpoint, delivery) for delivery, endpoint in session.execute(mine)]


def get(session: Session, delivery_id: str, tenant: str) -> Delivery | None:
    """One of the deliveries to the tenant's endpoints."""
    return session.scalars(_of(tenant).where(Delivery.id == delivery_id)).one_or_none()


def claim(session: Session, *, seconds: float) -> Sending | None:
    """Claim a due delivery for so many seconds; None if none is due.

    It is one of the tenant, and then of the URL, with the fewest claimed ones, so that none waits for receivers that
    are silent; of these, the one that has been due longest.
    """
    at = now(session)
    found = session.scalars(_NEXT, leases.moments(at)).one_or_none()
    if found is None:
        return None
    lease = leases.claim(found, at, seconds=seconds)
    return Sending(lease=lease, delivery=found, endpoint=session.get_one(Endpoint, found.endpoint_id))


def record(session: Session, sending: Sending, tried: Try, *, jitter: float = 0.0) -> bool:
    """Store the outcome: the delivery is done, or due again later.

    Every attempt is recorded, but it changes nothing, and False is returned, if the message was claimed or redelivered
    since. `jitter`, from 0 to 1, adds that share of a tenth of the delay.
    """
    # Without its key, so that transactions that add messages for it need not wait.
    endpoint = session.get(Endpoint, sending.endpoint.id, with_for_update={"key_share": True}, populate_existing=True)
    found = session.get(Delivery, sending.delivery.id, with_for_update=True, populate_existing=True)
    if endpoint is None or found is None:
        return False
    at = now(session)
    kept = {
        "at": at.isoformat(),
        "status": tried.status,
        "milliseconds": tried.milliseconds,
        "answer": tried.answer[:_ANSWER_CHARACTERS],
        "problem": tried.problem,
    }
    found.tries = [*found.tries, kept]
    if found.epoch != sending.lease.epoch:
        return False
    found.lease_until = None
    found.step += 1
    if tried.arrived:
        found.state = DeliveryState.DELIVERED  # also if the endpoint was disabled meanwhile
        endpoint.failing_since = None
        return True
    endpoint.failing_since = endpoint.failing_since or at
    if tried.status == _GONE:
        _disable(session, endpoint, at, "it answered 410 Gone")
    elif found.state == DeliveryState.FAILED:
        pass  # the endpoint was disabled during the attempt
    elif found.step < len(SCHEDULE):
        wait = SCHEDULE[found.step] * (1 + 0.1 * jitter)
        asked = min(tried.retry_after or timedelta(0), _LONGEST_RETRY_AFTER)
        found.due_at = at + max(wait, asked)
    else:
        found.state = DeliveryState.FAILED
        if at - endpoint.failing_since > _PATIENCE:
            _disable(session, endpoint, at, f"it took nothing since {endpoint.failing_since:%Y-%m-%d}")
    return True


def redeliver(session: Session, delivery_id: str, tenant: str) -> Delivery | None:
    """Send it again now, from the start of the schedule; None if the tenant has no such delivery."""
    mine = _of(tenant).where(Delivery.id == delivery_id)
    found = session.scalars(mine.with_for_update(of=Delivery)).one_or_none()
    if found is not None:
        found.state = DeliveryState.PENDING
        found.due_at = now(session)
        found.step = 0
        found.epoch += 1  # fences a worker that is sending it now
        found.lease_until = None
        notices.notify(session, notices.WEBHOOKS)
    return found


def _of(tenant: str) -> Select[Delivery]:
    return select(Delivery).join(Endpoint, Endpoint.id == Delivery.endpoint_id).where(Endpoint.tenant == tenant)


def _disable(session: Session, endpoint: Endpoint, at: datetime, why: str) -> None:
    if endpoint.disabled_at is None:
        endpoint.disabled_at = at
        endpoint.disabled_because = f"Disabled: {why}."
    mine = (Delivery.endpoint_id == endpoint.id, Delivery.state == DeliveryState.PENDING)
    session.flush()
    session.execute(update(Delivery).where(*mine).values(state=DeliveryState.FAILED, lease_until=None))


_OF_TENANT, _AT_URL = (
    select(column.label("whose"), func.count().label("claimed"))
    .join(Delivery, Delivery.endpoint_id == Endpoint.id)
    .where(Delivery.state == DeliveryState.PENDING, leases.lasting(Delivery.lease_until))
    .group_by(column)
    .subquery()
    for column in (Endpoint.tenant, Endpoint.url)
)
_NEXT = (
    select(Delivery)
    .join(Endpoint, Endpoint.id == Delivery.endpoint_id)
    .outerjoin(_OF_TENANT, _OF_TENANT.c.whose == Endpoint.tenant)
    .outerjoin(_AT_URL, _AT_URL.c.whose == Endpoint.url)
    .where(
        Delivery.state == DeliveryState.PENDING,
        Delivery.due_at <= bindparam("at", type_=Moment()),
        leases.is_free(Delivery.lease_until),
    )
    .order_by(func.coalesce(_OF_TENANT.c.claimed, 0), func.coalesce(_AT_URL.c.claimed, 0))
    .order_by(Delivery.due_at, Delivery.id)
    .limit(1)
    .with_for_update(of=Delivery, skip_locked=True)
)
