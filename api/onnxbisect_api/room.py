"""How much a tenant may still upload."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request

from onnxbisect_db import uploads
from onnxbisect_db.errors import QuotaError, TooLargeError
from onnxbisect_service.service import Service


@dataclass(frozen=True, kw_only=True)
class Room:
    """`largest` is how large one file may be, `left` how much all of them together."""

    largest: int
    left: int

    @property
    def limit(self) -> int:
        """How large the next file may be, if it is the only one."""
        return min(self.largest, self.left)

    def demand(self, size: int) -> None:
        """QuotaError where files of so many bytes do not fit."""
        if size > self.left:
            raise QuotaError(
                f"You have {self.left:,} bytes left to keep uploads in: delete models and files that you do not need."
            )


def room(service: Service, tenant: str) -> Room:
    """As it is now. Uploads at the same time do not see each other until they are over."""
    most = service.settings.tenant_bytes
    with service.database.session() as session:
        kept = uploads.kept_bytes(session, tenant)
    return Room(largest=service.settings.upload_bytes, left=max(most - kept, 0))


def demand_length(request: Request, room: Room) -> None:
    """Refuse what is said to be too large before any of it comes."""
    length = int(request.headers.get("content-length", "0"))
    if length > room.largest:
        raise TooLargeError(f"The file is larger than {room.largest:,} bytes, which is the most that is taken here.")
    room.demand(length)


@contextmanager
def quota_named(room: Room) -> Iterator[None]:
    """Within, a file that was too large for what is left says so."""
    try:
        yield
    except TooLargeError:
        if room.limit < room.largest:
            room.demand(room.limit + 1)
        raise
