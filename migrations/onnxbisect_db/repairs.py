"""Searches of changed models, asked by a target before its own search and in its repair, in the same job.

A repair is replayed on all answers, as a search is: it asks for the first missing one, and releases the target's search
until that has ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from onnxbisect_db import notices, probe_queries, searches
from onnxbisect_db.answers import Reply
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import Fault, JobState, Stage
from onnxbisect_db.tables import Search


@dataclass(frozen=True, kw_only=True)
class ChangedModel:
    """A model that a target asks about: SHA-256 of its stored ONNX file, and its external data by location.

    `question` is the target's name for it; `request` is its request, as `Job.request`. `options` replace the target's.
    """

    question: str
    onnx: str
    data: Mapping[str, str]
    request: Mapping[str, Any]
    options: Mapping[str, str] = field(default_factory=dict)


def replies(session: Session, claimed: ClaimedSearch) -> tuple[Reply, ...]:
    """All answers, in the order of the questions."""
    mine = select(Search).where(Search.asked_for == claimed.search.id, Search.stage == Stage.OVER)
    found = []
    for search in session.scalars(mine.order_by(Search.ordinal)):
        failed = search.state != JobState.DONE
        reply = Reply(
            question=search.question or "",
            identity=search.identity or "",
            answers=() if failed else probe_queries.answered(session, search.id),
            calls=search.calls,
            rounds=search.round,
            problem=(search.problem or f"The search was {search.state}.") if failed else "",
            refused=search.fault == Fault.REQUEST,
        )
        found.append(reply)
    return tuple(found)


def changed_model(session: Session, search: Search) -> Search:
    """The search of the latest changed model that a repair asked about; the given search if there is none."""
    mine = select(Search).where(Search.asked_for == search.id).order_by(Search.ordinal.desc()).limit(1)
    return session.scalars(mine).one_or_none() or search


def ask(session: Session, claimed: ClaimedSearch, model: ChangedModel) -> None:
    """Create the search of a changed model, and release the search that asks."""
    job, search = searches.lock_claimed(session, claimed)
    last = session.scalars(select(func.max(Search.ordinal)).where(Search.job_id == job.id)).one()
    asked = Search(
        job_id=job.id,
        ordinal=last + 1,
        asked_for=search.id,
        question=model.question,
        onnx=model.onnx,
        data=dict(model.data),
        request=dict(model.request),
        backend=search.backend,
        options={**search.options, **model.options},
    )
    session.add(asked)
    notices.notify(session, notices.backend(asked.backend))
    searches.release(session, claimed)
