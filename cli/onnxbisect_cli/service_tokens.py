"""`onnx-bisect token …`: creates, lists and revokes tokens in the service's database."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect_cli import table
from onnxbisect_cli.own_database import own_database
from onnxbisect_db import tokens
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token


def create(data: Path | None, name: str, *, tenant: str, scopes: Iterable[Scope], days: float | None) -> None:
    """Print a new token to standard output; it is stored nowhere else."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with own_database(data) as database:
        issued = database.run(
            lambda session: tokens.issue(session, tenant=tenant, name=name, scopes=scopes, expires_at=expires_at)
        )
    print(issued.text)


def show(data: Path | None, tenant: str) -> None:
    """Print the tenant's tokens, without their secrets."""
    with own_database(data) as database, database.session() as session:
        found = tokens.listed(session, tenant)
    table.show(("id", "name", "scopes", "made", "last used", "state"), map(_row, found))


def revoke(data: Path | None, token_id: str, *, tenant: str) -> None:
    """Revoke the token at once; OptionError if the id is unknown."""
    with own_database(data) as database:
        revoked = database.run(lambda session: tokens.revoke(session, token_id, tenant))
    if revoked is None:
        raise OptionError(f"There is no token {token_id}: 'onnx-bisect token list' shows them.")


def _row(token: Token) -> tuple[str, ...]:
    made, used = f"{token.created_at:%Y-%m-%d}", "never" if token.used_at is None else f"{token.used_at:%Y-%m-%d}"
    return token.id, token.name, ", ".join(token.scopes), made, used, _state(token)


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "good"
    over = token.expires_at <= datetime.now(UTC)
    return f"{'expired on' if over else 'good until'} {token.expires_at:%Y-%m-%d}"
