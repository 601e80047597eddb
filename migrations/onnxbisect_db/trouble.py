"""Work that ended without an answer: when it is retried, and when the model counts as the cause.

A *loss* says nothing about the model: a vanished worker, a process killed from outside, a full disk. The work is
retried after a delay, any number of times. A *crash* is of the model process or its compiler, as its parent process
saw. It is retried once, alone in a new process; then it counts.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import leases
from onnxbisect_db.database import now
from onnxbisect_db.states import ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Troubled

#: Consecutive crashes, the last one alone in a new process, after which the model counts as the cause.
MOST_CRASHES = 2
#: The longest delay; shorter than `leases.LONGEST`.
_LONGEST = timedelta(minutes=5)


def lose(row: Troubled, what: str, at: datetime) -> None:
    """Record a loss, described by `what`. The first time, it may be retried at once."""
    row.losses += 1
    wait = 0 if row.losses == 1 else 2 ** min(row.losses - 2, 20)
    row.retry_at = at + min(timedelta(seconds=wait), _LONGEST)
    row.trouble = what


def crash(row: Troubled, what: str) -> bool:
    """Record a crash. True if it counts; False if it is to be retried alone."""
    row.crashes += 1
    row.retry_at = None
    row.trouble = what
    return row.crashes >= MOST_CRASHES


def forget(row: Troubled) -> None:
    """Reset after success."""
    row.losses = row.crashes = 0
    row.retry_at = None
    row.trouble = ""


def waits(session: Session, jobs: Collection[Job]) -> dict[str, str]:
    """By search: what happened and when it is retried, if a probe or the search itself was lost and none is in
    progress.

    The jobs are read with their searches.
    """
    at = now(session)
    found = {
        search.id: _sentence(search.trouble, search.retry_at, at)
        for job in jobs
        for search in job.searches
        if search.trouble and search.stage != Stage.OVER and not leases.lasts(search.lease_until, at)
    }
    beside = aliased(Probe)
    going = select(beside.id).where(beside.search_id == Probe.search_id, beside.state == ProbeState.RUNNING)
    mine = Probe.search_id.in_([search.id for job in jobs for search in job.searches if search.stage == Stage.SEARCH])
    lost = (Probe.state == ProbeState.QUEUED, Probe.trouble != "", ~going.exists())
    rows = select(Probe.search_id, Probe.trouble, Probe.retry_at).where(mine, *lost).order_by(Probe.retry_at.desc())
    for search_id, trouble, retry_at in session.execute(rows):  # the next retry comes last
        found[search_id] = _sentence(trouble, retry_at, at)
    return found


def _sentence(trouble: str, retry_at: datetime | None, at: datetime) -> str:
    if retry_at is None:  # a crash
        return f"{trouble.rstrip('.')}. It is tried once more, alone in a new process."
    when = f"at {retry_at:%H:%M:%S} UTC" if leases.lasts(retry_at, at) else "soon"
    return f"{trouble.rstrip('.')}. This says nothing about the model; it is tried again {when}."
