"""Which search a worker claims next: one to prepare for its backends, to coordinate, or to report on.

A job's priority counts first; then the tenant that holds the fewest searches at these stages; then the one served
longest ago. So a tenant's thousand jobs weigh no more than another one's single job. Of a tenant's searches, those in
progress come first, with the job served longest ago; then the oldest one that waits.

A tenant's next search begins only while it has fewer in progress on that backend than the backend has slots, and one
more, which is read while they compile. With more, all would end late, and each holds a model in memory.

What compiles without probes waits until the backend's limit has a seat for it (`queues.full`).

No order helps while all slots are busy, and how long a model takes is not known in advance. So if there are several
tenants, the searches of one hold at most half of a worker's slots.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Select,
    String,
    Subquery,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import Session

from onnxbisect_db import leases, queues, searches, workers
from onnxbisect_db.database import now
from onnxbisect_db.locking import WITH_MODEL, LockedPick
from onnxbisect_db.states import COMPILING, JobState, Stage
from onnxbisect_db.tables import Job, Search, Token
from onnxbisect_db.tables.base import Moment, constant

#: The latest claims that determine when tenants and jobs were served; one without any comes first.
_LATEST = 200
_OPEN = [constant(stage) for stage in Stage if stage is not Stage.OVER]
#: Not in progress: a target that no worker has claimed yet, or not since its retry.
_NEW = and_(Search.state == constant(JobState.QUEUED), Search.asked_for.is_(None))
#: More slots than any worker has, for no limit.
_BOUNDLESS = 1 << 30


@dataclass(frozen=True, kw_only=True)
class ClaimFilter:
    """A worker's request for a search at one of these stages. `backends` are those that it reads models for; None for
    all.

    It has `slots` slots; None if one tenant may hold all. `begin`: also one that is not in progress yet.
    """

    worker: str
    seconds: float
    stages: Collection[Stage]
    backends: Collection[str] | None = None
    slots: int | None = None
    begin: bool = True

    @property
    def share(self) -> int:
        """How many slots one of several tenants may hold."""
        return _BOUNDLESS if self.slots is None else max(self.slots // 2, 1)


def take(session: Session, wanted: ClaimFilter) -> searches.ClaimedSearch | None:
    """Claim the next search; None if none waits or its tenant holds its share.

    A worker must claim in sequence: each claim counts the searches that it holds.
    """
    given = _given(session, wanted)
    if not session.scalars(_ANY, given).one():  # a cheap check, because mostly there is none
        return None
    given |= {
        "worker": wanted.worker,
        "share": wanted.share,
        "last_places": _last_places(session, wanted.backends or ()),
        "without_seat": queues.full(session, wanted.backends or ()),
    }
    for _, search, _ in _CHOICE.of(session, given):
        if search.stage in wanted.stages:
            stage = Stage(search.stage)
            claimed = searches.claim(session, search.id, stage, seconds=wanted.seconds, worker=wanted.worker)
            if claimed is not None:
                return claimed
    return None


def waits(session: Session, wanted: ClaimFilter) -> bool:
    """Whether any search waits, also one whose tenant has enough in progress."""
    return session.scalars(_ANY, _given(session, wanted)).one()


def ahead(session: Session, search: Search, job: Job) -> int:
    """How many jobs of its tenant, in progress or of at least its priority and older, come before a search that waits.

    Of those on its backend: they take the places that one tenant has there.
    """
    sooner = or_(Job.priority > job.priority, and_(Job.priority == job.priority, Job.id < job.id))
    before = or_(Search.state == JobState.RUNNING, sooner)
    found = (
        select(func.count(Search.job_id.distinct()))
        .join(Job, Job.id == Search.job_id)
        .where(Job.tenant == job.tenant, Job.id != job.id, Search.backend == search.backend)
        .where(Search.stage != Stage.OVER, Search.asked_for.is_(None), before)
    )
    return session.scalars(found).one()


def _given(session: Session, wanted: ClaimFilter) -> dict[str, object]:
    return {
        "stages": list(wanted.stages),
        "any_backend": wanted.backends is None,
        "backends": list(wanted.backends or ()),
        "begin": wanted.begin,
        **leases.moments(now(session)),
    }


def _last_places(session: Session, backends: Collection[str]) -> list[tuple[str, int]]:
    """By backend, how many searches of a tenant may be in progress."""
    if not backends:
        return []
    slots, seats = workers.slots(session), queues.limits(session)
    return [(name, 1 + max(min(slots.get(name, 1), seats.get(name, _BOUNDLESS)), 1)) for name in backends]


def _waiting() -> tuple[ColumnElement[bool], ...]:
    """Conditions for searches that a worker may claim for these stages and backends.

    Their holder's lease has expired, or they are free and dirty. Those that wait for a retry are excluded.
    """
    return (
        _at_stages(),
        or_(
            bindparam("any_backend", type_=Boolean(), literal_execute=True),
            Search.backend.in_(bindparam("backends", expanding=True)),
        ),
        leases.is_free(Search.retry_at),
        or_(bindparam("begin", type_=Boolean(), literal_execute=True), ~_NEW),
        or_(leases.is_over(Search.lease_until), and_(Search.lease_until.is_(None), Search.dirty)),
    )


def _at_stages() -> ColumnElement[bool]:
    return Search.stage.in_(bindparam("stages", type_=String(), expanding=True, literal_execute=True))


def _choice() -> Select[str]:
    held = (Search.stage.in_(_OPEN), leases.lasting(Search.lease_until))
    here = case((Search.worker == bindparam("worker", type_=String()), constant(1)), else_=constant(0))
    at_stages = case((_at_stages(), constant(1)), else_=constant(0))
    slots = (
        select(Job.tenant, func.sum(here).label("here"), func.sum(at_stages).label("at_stages"))
        .join(Search, Search.job_id == Job.id)
        .where(*held)
        .group_by(Job.tenant)
        .cte("slots")
    )
    latest = (
        select(Search.job_id, Search.claimed_at)
        .where(Search.claimed_at.is_not(None))
        .order_by(Search.claimed_at.desc())
        .limit(constant(_LATEST))
        .cte("latest")
    )
    of_job = select(latest.c.job_id, func.max(latest.c.claimed_at).label("at")).group_by(latest.c.job_id).cte("of_job")
    served = (
        select(Job.tenant, func.max(latest.c.claimed_at).label("at"))
        .join(latest, latest.c.job_id == Job.id)
        .group_by(Job.tenant)
        .cte("served")
    )
    at = bindparam("at", type_=Moment())
    last = _last_in_progress()
    good = (Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > at))
    tenants = select(func.count(Token.tenant.distinct())).where(*good).scalar_subquery()
    compiling = [constant(stage) for stage in COMPILING]
    full = func.coalesce(slots.c.here, constant(0)) >= bindparam("share")
    return (
        # as few columns as possible: PostgreSQL sorts all rows before it locks one
        select(Search.id)
        .select_from(Job)
        .join(Search, Search.job_id == Job.id)
        .outerjoin(slots, slots.c.tenant == Job.tenant)
        .outerjoin(served, served.c.tenant == Job.tenant)
        .outerjoin(of_job, of_job.c.job_id == Job.id)
        .outerjoin(last, and_(last.c.tenant == Job.tenant, last.c.backend == Search.backend))
        .where(
            *_waiting(),
            ~and_(full, tenants > constant(1)),
            ~and_(Search.stage.in_(compiling), Search.backend.in_(bindparam("without_seat", expanding=True))),
            or_(~_NEW, last.c.priority.is_(None), last.c.priority < Job.priority),
        )
        .order_by(
            Job.priority.desc(),
            func.coalesce(slots.c.at_stages, constant(0)),
            served.c.at.nulls_first(),
            case((_NEW, constant(1)), else_=constant(0)),
            case((_NEW, None), else_=of_job.c.at).nulls_first(),
            Search.claimed_at.nulls_first(),
            Job.id,
            Search.ordinal,
        )
        .limit(constant(1))
    )


def _last_in_progress() -> Subquery:
    """By tenant and backend that may begin no further search: the priority above which one still may.

    Changed models belong to a search in progress, and one that waits for a retry keeps none from beginning.
    """
    place = func.row_number().over(partition_by=(Job.tenant, Search.backend), order_by=Job.priority.desc())
    in_progress = (
        select(Job.tenant, Search.backend, Job.priority, place.label("place"))
        .join(Search, Search.job_id == Job.id)
        .where(
            Search.stage.in_(_OPEN),
            Search.state == constant(JobState.RUNNING),
            Search.asked_for.is_(None),
            leases.is_free(Search.retry_at),
        )
        .subquery("in_progress")
    )
    is_last = tuple_(in_progress.c.backend, in_progress.c.place).in_(bindparam("last_places", expanding=True))
    return select(in_progress.c.tenant, in_progress.c.backend, in_progress.c.priority).where(is_last).subquery("last")


# Built once: composing the statement takes longer than running it.
_CHOICE = LockedPick(_choice(), WITH_MODEL.where(Search.id == bindparam("chosen")))
_ANY = select(select(Search.id).where(*_waiting()).exists())
