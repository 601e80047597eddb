"""Transactions that wait for each other though they have no row in common."""

import hashlib

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def one_at_a_time(session: Session, what: object) -> None:
    """Of the transactions that say the same, the first goes on, and the others wait here until it has ended.

    `what` is told apart by its `repr`. It comes before all other locks. SQLite has one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256(repr(what).encode()).digest()
        session.execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], "big", signed=True))))
