"""URLs that work without a token for a limited time, so that a user can give another program one file.

A ticket contains the id of a token, the time of its end, and a seal of both the end and the ticket's purpose. It is
invalid when the token is, and does not reveal the token's secret.
"""

from datetime import timedelta

from sqlalchemy.orm import Session

from onnxbisect_api.access import Caller
from onnxbisect_api.problems import Problem
from onnxbisect_db import tokens
from onnxbisect_db.database import now
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token

#: How long a ticket is valid.
GOOD_FOR = timedelta(hours=1)
_REFUSED = "This address is not good, or not any more: open it again from the page of the job."


def issue(session: Session, caller: Caller, what: str) -> str:
    """A ticket for `what`, a line of text that identifies the file."""
    until = int((now(session) + GOOD_FOR).timestamp())
    token = session.get_one(Token, caller.token_id)
    return f"{token.id}.{until}.{tokens.seal(token, _sealed(what, until))}"


def holder(session: Session, what: str, ticket: str) -> Caller:
    """The caller that the ticket was issued to, with the scope `read`; a 403 if it is not for `what` or has expired."""
    token_id, _, rest = ticket.partition(".")
    until, _, seal = rest.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) <= 12) or int(until) <= now(session).timestamp():
        raise Problem(403, _REFUSED)
    token = tokens.token_of_seal(session, token_id, _sealed(what, int(until)), seal)
    if token is None or not tokens.allows(token, Scope.READ):
        raise Problem(403, _REFUSED)
    return Caller(tenant=token.tenant, token_id=token.id, scopes=frozenset({Scope.READ}))


def _sealed(what: str, until: int) -> str:
    """The text to seal. Its first word differs from that of other sealed texts, such as those of badges."""
    return f"ticket\n{until}\n{what}"
