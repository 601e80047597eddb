"""Locks on jobs: a transaction that changes anything of a job locks its row, so such transactions run in sequence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, select
from sqlalchemy.orm import Session

from onnxbisect_db.tables import Job, Search, StoredModel

_HELD = "onnxbisect_held"
#: Most attempts if the chosen work is gone once its job is locked.
_TRIES = 5


@dataclass(frozen=True)
class _Held:
    """Jobs locked by a transaction, None if there is none, and searches read since then with their job.

    They are kept because a session drops unreferenced objects and would read them again.
    """

    jobs: dict[str, Job | None] = field(default_factory=dict)
    searches: dict[str, tuple[Job, Search]] = field(default_factory=dict)


def locked(session: Session, job_id: str) -> Job | None:
    """The current job, locked until the transaction ends. This must come before any change to a part of the job.

    Only a queue, a lease, or a key of `one_at_a_time` may be locked before, so transactions cannot deadlock. Repeated
    calls in one transaction are free.
    """
    held = _held(session).jobs
    if job_id not in held:
        session.flush()
        held[job_id] = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    return held[job_id]


def locked_with(session: Session, search_id: str) -> tuple[Job, Search] | None:
    """The job of a search, locked, and the search's current state."""
    held = _held(session)
    if search_id not in held.searches:
        session.flush()
        job = session.scalars(_JOB_OF, {"search": search_id}).one_or_none()
        if job is None:
            return None
        search = session.get_one(Search, search_id, populate_existing=True)
        held.jobs[job.id], held.searches[search_id] = job, (job, search)
    return held.searches[search_id]


def holds_any(session: Session) -> bool:
    """Whether this transaction has locked a job."""
    return bool(_held(session).jobs)


class LockedPick:
    """A query for the id of the work to be claimed next, which locks its job, and one that then reads this work.

    Jobs locked by other transactions are skipped. If nothing else is left, this transaction waits for them, unless it
    holds a lock on a job itself. The choice precedes the lock, so the work may be gone, and there are a few attempts.
    """

    def __init__(self, choice: Select[str], chosen: Select[*tuple[Any, ...]]) -> None:
        """`chosen` is `WITH_MODEL` of the work whose id is the parameter `chosen`."""
        # built once: composing the statement takes longer than running it
        self._chosen = chosen
        self._unlocked = choice.with_for_update(of=Job, skip_locked=True)
        self._any = choice.with_for_update(of=Job)

    def of(self, session: Session, *given: Mapping[str, object]) -> Iterator[Row[*tuple[Any, ...]]]:
        """The work chosen with the first of these parameters for which there is any; the next one if it was gone."""
        for _ in range(_TRIES):
            work_id = self._first(session, self._unlocked, given)
            if work_id is None and session.get_bind().dialect.name == "postgresql" and not holds_any(session):
                work_id = self._first(session, self._any, given)
            if work_id is None:
                return
            found = session.execute(self._chosen, {"chosen": work_id}).one_or_none()
            if found is not None:
                held = _held(session)
                held.jobs[found.Job.id], held.searches[found.Search.id] = found.Job, (found.Job, found.Search)
                yield found

    @staticmethod
    def _first(session: Session, statement: Select[str], given: Sequence[Mapping[str, object]]) -> str | None:
        found = (session.scalars(statement, parameters).one_or_none() for parameters in given)
        return next((work_id for work_id in found if work_id is not None), None)


def _held(session: Session) -> _Held:
    held: _Held = session.info.setdefault(_HELD, _Held())
    return held


_JOB_OF = (
    select(Job)
    .where(Job.id == select(Search.job_id).where(Search.id == bindparam("search")).scalar_subquery())
    .with_for_update()
    .execution_options(populate_existing=True)
)
#: A job, a search of it, and its model, in one statement, which leaves nothing to read to the claim.
WITH_MODEL = (
    select(Job, Search, StoredModel)
    .join(Search, Search.job_id == Job.id)
    .join(StoredModel, and_(StoredModel.tenant == Job.tenant, StoredModel.sha256 == Job.model_sha256))
    .execution_options(populate_existing=True)
)
