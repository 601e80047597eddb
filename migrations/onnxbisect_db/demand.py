"""What hands a backend has, and who wants them: so a search knows for how many it plans."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer, Select, String, bindparam, func, select
from sqlalchemy.orm import Session

from onnxbisect_db.states import ProbeState, Stage
from onnxbisect_db.tables import Probe, Queue, Search


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What hands of a backend there are for: how many probes may run at a time, None for no bound; how many do; and how
    many questions others have for it: those that wait, but for speculative ones, and one for each search that waits for
    its coordinator. Where these are behind, what they have yet to ask comes before what one of them can only guess.
    """

    at_most: int | None
    running: int
    elsewhere: int


def demand(session: Session, backend: str, search_id: str, *, most: int) -> Demand:
    """As one search sees it. Of what waits `most` are counted."""
    at_most, running, elsewhere = session.execute(
        _DEMAND, {"backend": backend, "search": search_id, "most": most}
    ).one()
    return Demand(at_most=at_most, running=running, elsewhere=elsewhere)


def _demand() -> Select[Any]:
    backend = bindparam("backend", type_=String())
    bound = select(Queue.at_most).where(Queue.backend == backend)
    mine = (Search.backend == backend, Probe.state == ProbeState.RUNNING)
    running = select(func.count()).select_from(Probe).join(Search).where(*mine)
    others = (Search.backend == backend, Search.stage == Stage.SEARCH, Search.id != bindparam("search"))
    waiting = (Probe.state == ProbeState.QUEUED, Probe.speculative.is_(False))
    wanted = select(Probe.id).join(Search, Search.id == Probe.search_id).where(*others, *waiting)
    few = wanted.limit(bindparam("most", type_=Integer())).subquery()
    asked = select(func.count()).select_from(few)
    to_come = select(func.count()).select_from(Search).where(*others, Search.dirty)
    elsewhere = asked.scalar_subquery() + to_come.scalar_subquery()
    return select(bound.scalar_subquery(), running.scalar_subquery(), elsewhere)


_DEMAND = _demand()
