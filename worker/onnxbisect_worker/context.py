"""What the steps of one worker share: the service, the pool of model processes, its name, whether it stops."""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event, Lock

from onnxbisect.universe import Universe
from onnxbisect_service.service import Service
from onnxbisect_worker.model_requests.protocol import Pool
from onnxbisect_worker.prepared import Prepared

#: Bytes of all that are kept; the latest one is kept however large it is.
MEMORY = 512 << 20
#: Most of them, whatever they take.
_MOST = 32


class LatestPrepared:
    """The prepared searches that were read last; threads may share it."""

    def __init__(self, read: Callable[[str], Prepared], memory: int = MEMORY) -> None:
        self._read = read
        self._memory = memory
        self._kept: OrderedDict[str, Prepared] = OrderedDict()
        self._lock = Lock()

    def __call__(self, sha256: str) -> Prepared:
        """The prepared search that is stored under this SHA-256."""
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
                return self._kept[sha256]
        found = self._read(sha256)
        with self._lock:
            found = self._kept.setdefault(sha256, found)
            self._kept.move_to_end(sha256)
            while len(self._kept) > 1 and (len(self._kept) > _MOST or self._taken() > self._memory):
                self._kept.popitem(last=False)
        return found

    def _taken(self) -> int:
        return sum(_bytes(prepared.universe) for prepared in self._kept.values())


def _bytes(universe: Universe) -> int:
    """About what a universe takes once a search has used it: names, numbers, and sets of edges in both directions."""
    units = len(universe)
    return units * (2000 + units // 8)


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
