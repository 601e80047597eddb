"""What one process at a time may do."""

from datetime import timedelta

from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from onnxbisect_db.database import now
from onnxbisect_db.insertion import insert
from onnxbisect_db.tables import Lease


def take(session: Session, name: str, holder: str, *, seconds: float) -> bool:
    """Have it, or have it for longer. False while another holder does."""
    at = now(session)
    mine = {"holder": holder, "until": at + timedelta(seconds=seconds)}
    taken = (
        insert(session, Lease)
        .values(name=name, **mine)
        .on_conflict_do_update(
            index_elements=[Lease.name], set_=mine, where=or_(Lease.holder == holder, Lease.until <= at)
        )
        .returning(Lease.name)
    )
    return session.scalars(taken).one_or_none() is not None


def give_back(session: Session, name: str, holder: str) -> None:
    """Let another one have it now, unless another one has it already. That it was held stays on record."""
    session.execute(update(Lease).where(Lease.name == name, Lease.holder == holder).values(until=now(session)))
