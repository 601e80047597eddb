"""What the steps of one worker share: the service, the pool of model processes, its name, whether it stops."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event

from onnxbisect.universe import Universe
from onnxbisect_service.service import Service
from onnxbisect_worker.latest_prepared import LatestPrepared
from onnxbisect_worker.model_requests.protocol import Pool
from onnxbisect_worker.prepared import Prepared


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """Shared by all steps of a job; threads may share it. `worker` is the name under which work for `backends` is
    claimed.

    It has `slots` slots, which several tenants share. Once `stopping` is set, nothing more is claimed, and claimed work
    is given back.
    """

    service: Service
    pool: Pool
    worker: str
    backends: Collection[str] = ()
    slots: int | None = None
    stopping: Event = field(default_factory=Event)

    @cached_property
    def prepared(self) -> LatestPrepared:
        """Reads what planning needs of a prepared search, with a cache of the last few."""
        return LatestPrepared(self._prepared)

    def universe(self, sha256: str) -> Universe:
        """The universe of a prepared search."""
        return self.prepared(sha256).universe

    def _prepared(self, sha256: str) -> Prepared:
        with self.service.files.open(sha256) as file:
            return replace(Prepared.from_bytes(file.read()), established=b"")
