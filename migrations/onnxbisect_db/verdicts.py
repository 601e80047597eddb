"""The verdict base: compilers' answers, for all later jobs of a tenant.

An answer belongs to a target's identity, a probe's key and an attempt: attempt 1 is the answer of a second compile, and
never replaces the first. Unresolved answers are not kept, because their cause may be temporary.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from onnxbisect.answer import Answer
from onnxbisect.verdict_json import from_json, to_json
from onnxbisect_db.insertion import insert_if_new
from onnxbisect_db.tables import KeptVerdict


@dataclass(frozen=True, kw_only=True)
class VerdictKey:
    """The key of a kept answer."""

    tenant: str
    identity: str
    key: str
    attempt: int


def answer_of(row: KeptVerdict) -> Answer:
    """The answer in a row."""
    return Answer(verdict=from_json(row.verdict), file_sha256=row.file_sha256, log=row.log)


def put(session: Session, question: VerdictKey, answer: Answer, at: datetime) -> None:
    """Keep a final answer, unless there is one: kept answers never change."""
    if not answer.verdict.final:
        return
    kept = {
        **asdict(question),
        "verdict": to_json(answer.verdict),
        "file_sha256": answer.file_sha256,
        "log": answer.log,
        "created_at": at,
    }
    session.execute(insert_if_new(session, KeptVerdict), kept)
