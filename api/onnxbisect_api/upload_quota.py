"""A tenant's remaining upload quota."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request

from onnxbisect_db import uploads
from onnxbisect_db.errors import QuotaError, TooLargeError
from onnxbisect_service.service import Service


@dataclass(frozen=True, kw_only=True)
class UploadQuota:
    """A tenant's remaining quota: `largest` is the limit of one file, `left` that of all further files, in bytes."""

    largest: int
    left: int

    @property
    def limit(self) -> int:
        """The largest possible size of the next file in bytes."""
        return min(self.largest, self.left)

    def demand(self, size: int) -> None:
        """QuotaError if files of `size` bytes in total exceed the quota."""
        if size > self.left:
            raise QuotaError(
                f"You have {self.left:,} bytes left to keep uploads in: delete models and files that you do not need."
            )


def upload_quota(service: Service, tenant: str) -> UploadQuota:
    """The tenant's current quota. Concurrent uploads count only once they are complete."""
    most = service.settings.tenant_bytes
    with service.database.session() as session:
        kept = uploads.kept_bytes(session, tenant)
    return UploadQuota(largest=service.settings.upload_bytes, left=max(most - kept, 0))


def demand_length(request: Request, quota: UploadQuota) -> None:
    """Refuse an upload whose declared length is too large, before it is read."""
    length = int(request.headers.get("content-length", "0"))
    if length > quota.largest:
        raise TooLargeError(f"The file is larger than {quota.largest:,} bytes, which is the most that is taken here.")
    quota.demand(length)


@contextmanager
def quota_named(quota: UploadQuota) -> Iterator[None]:
    """Within the context, a TooLargeError becomes a QuotaError if the quota was the limit."""
    try:
        yield
    except TooLargeError:
        if quota.limit < quota.largest:
            quota.demand(quota.limit + 1)
        raise
