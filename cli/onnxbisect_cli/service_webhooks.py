"""`onnx-bisect webhook …`: lists messages with their outcome, and sends one again, in the service's database."""

from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect_cli import table
from onnxbisect_cli.own_database import own_database
from onnxbisect_db import deliveries
from onnxbisect_db.tables import Delivery, Endpoint


def show(data: Path | None, tenant: str, limit: int) -> None:
    """Print the newest messages to the tenant's endpoints and job webhooks, with the outcome of the last attempt."""
    with own_database(data) as database, database.session() as session:
        rows = [_row(endpoint, delivery) for endpoint, delivery in deliveries.newest(session, tenant, limit=limit)]
    table.show(("message", "to", "of", "made", "state", "tries", "last"), rows)


def redeliver(data: Path | None, delivery_id: str, *, tenant: str) -> None:
    """Make the message due now, with its own id; OptionError if the id is unknown."""
    with own_database(data) as database:
        found = database.run(lambda session: deliveries.redeliver(session, delivery_id, tenant))
    if found is None:
        raise OptionError(f"There is no message {delivery_id}: 'onnx-bisect webhook log' shows them.")


def _row(endpoint: Endpoint, delivery: Delivery) -> tuple[str, ...]:
    made = f"{delivery.created_at:%Y-%m-%d %H:%M}"
    tries = str(len(delivery.tries))
    return delivery.id, endpoint.url, delivery.type, made, delivery.state, tries, _last(delivery)


def _last(delivery: Delivery) -> str:
    if not delivery.tries:
        return ""
    last = delivery.tries[-1]
    return last["problem"] or str(last["status"])
