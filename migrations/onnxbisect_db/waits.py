"""What searches wait for that is no worker's turn: the last trouble that they met, until it is tried again."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import leases
from onnxbisect_db.database import now
from onnxbisect_db.states import ProbeState, Stage
from onnxbisect_db.tables import Job, Probe


def waits(session: Session, jobs: Collection[Job]) -> dict[str, str]:
    """By search, where it has a question that was lost and none is being asked, or its last turn was lost: what
    happened, and when it is tried again. The jobs are read with their searches.
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
    for search_id, trouble, retry_at in session.execute(rows):  # the one that is tried first comes last
        found[search_id] = _sentence(trouble, retry_at, at)
    return found


def _sentence(trouble: str, retry_at: datetime | None, at: datetime) -> str:
    if retry_at is None:  # a crash
        return f"{trouble.rstrip('.')}. It is tried once more, alone in a new process."
    when = f"at {retry_at:%H:%M:%S} UTC" if leases.lasts(retry_at, at) else "soon"
    return f"{trouble.rstrip('.')}. This says nothing about the model; it is tried again {when}."
