"""What commands for the operator of a service show and change: its settings, tokens and webhook messages."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import SecretStr

from onnxbisect.errors import OptionError
from onnxbisect_cli import table
from onnxbisect_cli.own_database import own_database
from onnxbisect_db import deliveries, tokens
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Delivery, Endpoint, Token
from onnxbisect_service.settings import Settings, load_settings


def show_settings() -> None:
    """Print every setting with its value and purpose; of secrets only whether they are set."""
    settings = load_settings()
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"ONNXBISECT_{name.upper()}"
        given = "set" if variable in os.environ else "default"
        rows.append((variable, _shown(getattr(settings, name)), given, field.description or ""))
    table.show(("variable", "value", "", "what it is"), rows)


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "(a secret)"
    if value is None or value == ():
        return "-"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def create_token(data: Path | None, name: str, *, tenant: str, scopes: Iterable[Scope], days: float | None) -> None:
    """Print a new token to standard output; it is stored nowhere else."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with own_database(data) as database:
        issued = database.run(
            lambda session: tokens.issue(session, tenant=tenant, name=name, scopes=scopes, expires_at=expires_at)
        )
    print(issued.text)


def show_tokens(data: Path | None, tenant: str) -> None:
    """Print the tenant's tokens, without their secrets."""
    with own_database(data) as database, database.session() as session:
        found = tokens.listed(session, tenant)
    table.show(("id", "name", "scopes", "made", "last used", "state"), map(_token_row, found))


def revoke_token(data: Path | None, token_id: str, *, tenant: str) -> None:
    """Revoke the token at once; OptionError if the id is unknown."""
    with own_database(data) as database:
        revoked = database.run(lambda session: tokens.revoke(session, token_id, tenant))
    if revoked is None:
        raise OptionError(f"There is no token {token_id}: 'onnx-bisect token list' shows them.")


def _token_row(token: Token) -> tuple[str, ...]:
    made, used = f"{token.created_at:%Y-%m-%d}", "never" if token.used_at is None else f"{token.used_at:%Y-%m-%d}"
    return token.id, token.name, ", ".join(token.scopes), made, used, _state(token)


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "good"
    over = token.expires_at <= datetime.now(UTC)
    return f"{'expired on' if over else 'good until'} {token.expires_at:%Y-%m-%d}"


def show_webhooks(data: Path | None, tenant: str, limit: int) -> None:
    """Print the newest messages to the tenant's endpoints and job webhooks, with the outcome of the last attempt."""
    with own_database(data) as database, database.session() as session:
        rows = [
            _webhook_row(endpoint, delivery) for endpoint, delivery in deliveries.newest(session, tenant, limit=limit)
        ]
    table.show(("message", "to", "of", "made", "state", "tries", "last"), rows)


def redeliver_message(data: Path | None, delivery_id: str, *, tenant: str) -> None:
    """Make the message due now, with its own id; OptionError if the id is unknown."""
    with own_database(data) as database:
        found = database.run(lambda session: deliveries.redeliver(session, delivery_id, tenant))
    if found is None:
        raise OptionError(f"There is no message {delivery_id}: 'onnx-bisect webhook log' shows them.")


def _webhook_row(endpoint: Endpoint, delivery: Delivery) -> tuple[str, ...]:
    made = f"{delivery.created_at:%Y-%m-%d %H:%M}"
    tries = str(len(delivery.tries))
    return delivery.id, endpoint.url, delivery.type, made, delivery.state, tries, _last(delivery)


def _last(delivery: Delivery) -> str:
    if not delivery.tries:
        return ""
    last = delivery.tries[-1]
    return last["problem"] or str(last["status"])
