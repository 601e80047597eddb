"""Tokens: `obk_<id>_<secret>`, shown once, and the sessions of browsers logged in with one.

The secret has 256 random bits, as the id in a session's cookie: a plain SHA-256 of each is safe to keep.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from onnxbisect_db.database import now
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import BrowserSession, Token
from onnxbisect_db.tables.base import new_id

_PREFIX = "obk"
#: How long a browser stays logged in.
SESSION_LASTS = timedelta(days=30)
#: Resolution of `used_at`, so that not every request writes.
_USED_EVERY = timedelta(minutes=1)
_IMPLIED = {
    Scope.READ: {Scope.READ, Scope.SUBMIT, Scope.ADMIN},
    Scope.SUBMIT: {Scope.SUBMIT, Scope.ADMIN},
    Scope.ADMIN: {Scope.ADMIN},
    Scope.OPERATOR: {Scope.OPERATOR},
}


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A new token. `text` is stored nowhere else."""

    token: Token
    text: str = field(repr=False)


def issue(
    session: Session, *, tenant: str, name: str, scopes: Iterable[Scope], expires_at: datetime | None = None
) -> Issued:
    """Create a token for a tenant."""
    secret = secrets.token_hex(32)
    token = Token(
        id=new_id(),
        tenant=tenant,
        name=name,
        secret_sha256=_digest(secret),
        scopes=sorted(set(scopes)),
        created_at=now(session),
        expires_at=expires_at,
    )
    session.add(token)
    session.flush()
    return Issued(token=token, text=f"{_PREFIX}_{UUID(token.id).hex}_{secret}")


def check(session: Session, text: str) -> Token | None:
    """The token with this text, if it is valid."""
    prefix, _, rest = text.partition("_")
    name, _, secret = rest.partition("_")
    try:
        token_id = str(UUID(name))
    except ValueError:
        token_id = ""
    token = session.get(Token, token_id)
    right = hmac.compare_digest(token.secret_sha256 if token is not None else "", _digest(secret))
    return token if token is not None and right and prefix == _PREFIX and _is_good(session, token) else None


def seal(token: Token, text: str) -> str:
    """A word that proves knowledge of the token for this text (`token_of_seal`) without revealing its secret."""
    return hmac.new(token.secret_sha256.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def token_of_seal(session: Session, token_id: str, text: str, word: str) -> Token | None:
    """The token whose seal for this text is `word`, if it is valid."""
    token = session.get(Token, token_id)
    if token is None or not hmac.compare_digest(seal(token, text).encode(), word.encode("utf-8", "replace")):
        return None
    return token if _is_good(session, token) else None


def valid_token(session: Session, token_id: str) -> Token | None:
    """The token with this id, if it is valid."""
    token = session.get(Token, token_id)
    return token if token is not None and _is_good(session, token) else None


def valid_ids(session: Session, token_ids: Collection[str]) -> set[str]:
    """Those of these ids whose tokens are valid."""
    at = now(session)
    valid = (Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > at))
    return set(session.scalars(select(Token.id).where(Token.id.in_(token_ids), *valid)))


def allows(token: Token, scope: Scope) -> bool:
    """Whether the token has this scope: submit includes read, and admin both; neither includes operator."""
    return any(held in _IMPLIED[scope] for held in token.scopes)


def use_is_unnoted(session: Session, token: Token) -> bool:
    """Whether `note_use` would write: most requests need no transaction that writes."""
    return token.used_at is None or now(session) - token.used_at > _USED_EVERY


def note_use(session: Session, token_id: str) -> None:
    """Record that it was used."""
    token = session.get(Token, token_id)
    if token is not None and use_is_unnoted(session, token):
        token.used_at = now(session)


def list_all(session: Session, tenant: str) -> list[Token]:
    """The tenant's tokens, newest first, including revoked ones."""
    return list(session.scalars(select(Token).where(Token.tenant == tenant).order_by(Token.id.desc())))


def count_valid(session: Session, tenant: str) -> int:
    """How many of the tenant's tokens are neither revoked nor expired."""
    lasts = or_(Token.expires_at.is_(None), Token.expires_at > now(session))
    count = select(func.count()).where(Token.tenant == tenant, Token.revoked_at.is_(None), lasts)
    return session.scalar(count.select_from(Token)) or 0


def revoke(session: Session, token_id: str, tenant: str) -> Token | None:
    """Revoke it at once; None if the tenant has no such token."""
    token = session.get(Token, token_id)
    if token is None or token.tenant != tenant:
        return None
    token.revoked_at = token.revoked_at or now(session)
    return token


def _is_good(session: Session, token: Token) -> bool:
    expired = token.expires_at is not None and token.expires_at <= now(session)
    return not expired and token.revoked_at is None


def begin_session(session: Session, token_id: str) -> str:
    """The id of a new session, which is stored nowhere else. Expired sessions are deleted."""
    moment = now(session)
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= moment))
    text = secrets.token_hex(32)
    session.add(
        BrowserSession(id=_digest(text), token_id=token_id, created_at=moment, expires_at=moment + SESSION_LASTS)
    )
    return text


def token_of_session(session: Session, text: str) -> Token | None:
    """The session's token, while both are valid."""
    found = session.get(BrowserSession, _digest(text))
    if found is None or found.expires_at <= now(session):
        return None
    return valid_token(session, found.token_id)


def end_session(session: Session, text: str) -> None:
    """End the session."""
    session.execute(delete(BrowserSession).where(BrowserSession.id == _digest(text)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
