"""What a transaction has made ready for workers. `Database` tells its listeners once, after the commit.

A notification may be lost: workers look at the database every few seconds anyway, and it only makes them look at once.
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
    """The topic of a backend: models to be read for it, and probes to be asked."""
    return f"backend.{name}"


def notify(session: Session, topic: str) -> None:
    """Tell workers about the topic once this transaction is committed."""
    session.info.setdefault(_TOPICS, set()).add(topic)


def notify_of(session: Session, search: Search) -> None:
    """Tell those workers that take the search at its stage."""
    notify(session, backend(search.backend) if search.stage in AT_BACKEND else CONTROL)


def topics(session: Session) -> frozenset[str]:
    """What the transaction has notified of."""
    return frozenset(session.info.get(_TOPICS, ()))
