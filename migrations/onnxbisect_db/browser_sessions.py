"""Browsers logged in with a token. A cookie holds a random id; the database holds its SHA-256."""

import hashlib
import secrets
from datetime import timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from onnxbisect_db import tokens
from onnxbisect_db.database import now
from onnxbisect_db.tables import BrowserSession, Token

#: How long a browser stays logged in.
LASTS = timedelta(days=30)


def begin(session: Session, token_id: str) -> str:
    """The id of a new session, which is stored nowhere else. Expired sessions are deleted."""
    moment = now(session)
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= moment))
    text = secrets.token_hex(32)
    session.add(BrowserSession(id=_digest(text), token_id=token_id, created_at=moment, expires_at=moment + LASTS))
    return text


def token_of(session: Session, text: str) -> Token | None:
    """The session's token, while both are valid."""
    found = session.get(BrowserSession, _digest(text))
    if found is None or found.expires_at <= now(session):
        return None
    return tokens.valid_token(session, found.token_id)


def end(session: Session, text: str) -> None:
    """End the session."""
    session.execute(delete(BrowserSession).where(BrowserSession.id == _digest(text)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
