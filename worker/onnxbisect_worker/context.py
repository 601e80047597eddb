"""What the steps of one worker share: the service, the pool of model processes, its name, whether it stops."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Event

from onnxbisect.universe import Universe
from onnxbisect_db.leases import Claimed
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from onnxbisect_worker.model_requests.protocol import Case, Pool
from onnxbisect_worker.prepared import Prepared

#: A universe of ten thousand units takes some ten megabytes.
_UNIVERSES = 32


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
    def universe(self) -> Callable[[str], Universe]:
        """Reads the universe of a prepared search, with a cache of the last few."""
        return lru_cache(maxsize=_UNIVERSES)(self._universe)

    def case(self, work: Claimed) -> Case:
        """The stored model and the target, for a model process."""
        return Case(
            tenant=work.job.tenant,
            onnx=work.onnx,
            model_name=work.job.model_name,
            files=work.data,
            backend=work.search.backend,
            options={name: str(value) for name, value in work.search.options.items()},
            spec=SearchSpec.from_json(work.request),
            prepared=work.search.universe,
        )

    def _universe(self, sha256: str) -> Universe:
        with self.service.files.open(sha256) as file:
            return Prepared.from_bytes(file.read()).universe
