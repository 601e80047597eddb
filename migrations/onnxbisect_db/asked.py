"""All that was asked in a search, in brief: for whoever draws how it went."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Probe


@dataclass(frozen=True, kw_only=True)
class AskedProbe:
    """A probe without its log and without what the compiler tabulated, which can be a thousand times as long."""

    id: str
    units: UnitSet
    attempt: int
    why: str
    state: ProbeState
    speculative: bool
    round: int
    worker: str
    cached: bool
    status: Status | None
    kind: Kind | None
    message: str
    seconds: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def was_asked(self) -> bool:
        """Whether anybody has taken it up, or its answer was known: not so while it waits, or where it was dropped."""
        return self.state in (ProbeState.RUNNING, ProbeState.DONE)


def asked(session: Session, search_id: str) -> list[AskedProbe]:
    """In the order in which they were asked, those that nobody has asked at the end.

    What was known from the beginning was asked by nobody and at no time: of such probes the larger are first.
    """
    answer = Probe.verdict
    found = session.execute(
        select(
            Probe.id,
            Probe.units,
            Probe.attempt,
            Probe.why,
            Probe.state,
            Probe.speculative,
            Probe.round,
            Probe.worker,
            Probe.cached,
            answer["status"].as_string(),
            answer["kind"].as_string(),
            answer["message"].as_string(),
            answer["seconds"].as_float(),
            Probe.created_at,
            Probe.started_at,
            Probe.ended_at,
        ).where(Probe.search_id == search_id)
    )
    probes = [
        AskedProbe(
            id=row[0],
            units=int(row[1], 16),
            attempt=row[2],
            why=row[3],
            state=ProbeState(row[4]),
            speculative=row[5],
            round=row[6],
            worker=row[7],
            cached=row[8],
            status=Status(row[9]) if row[9] else None,
            kind=Kind(row[10]) if row[10] else None,
            message=row[11] or "",
            seconds=row[12],
            created_at=row[13],
            started_at=row[14],
            ended_at=row[15],
        )
        for row in found
    ]
    return sorted(probes, key=_order)


def _order(probe: AskedProbe) -> tuple[bool, datetime, int, str]:
    return not probe.was_asked, probe.started_at or probe.created_at, -probe.units.bit_count(), probe.id
