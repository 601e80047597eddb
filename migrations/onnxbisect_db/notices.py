"""The topics that a transaction notifies workers of. `Database` calls its listeners once, after the commit.

A notification may be lost: workers poll every few seconds anyway, and it only makes them poll at once.
"""

from sqlalchemy.orm import Session

from onnxbisect_db.states import AT_BACKEND
from onnxbisect_db.tables import Search

#: Searches to be coordinated or reported on.
CONTROL = "control"
#: Webhook messages to be sent.
WEBHOOKS = "webhooks"

_TOPICS = "onnxbisect_topics"


def backend(name: str) -> str:
    """The topic of a backend: models to read for it, and probes to compile."""
    return f"backend.{name}"


def notify(session: Session, topic: str) -> None:
    """Notify workers of the topic after this transaction's commit."""
    session.info.setdefault(_TOPICS, set()).add(topic)


def notify_of(session: Session, search: Search) -> None:
    """Notify the workers that take the search at its stage."""
    notify(session, backend(search.backend) if search.stage in AT_BACKEND else CONTROL)


def topics(session: Session) -> frozenset[str]:
    """The topics of this transaction."""
    return frozenset(session.info.get(_TOPICS, ()))
