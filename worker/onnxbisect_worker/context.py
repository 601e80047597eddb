"""What every step of a worker needs: its context, slots for work that is done at the same time, and machine faults."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event, Lock, Thread

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from onnxbisect.errors import OnnxBisectError, shortage
from onnxbisect.universe import Universe
from onnxbisect_db.errors import FilesUnreachableError
from onnxbisect_service.service import Service
from onnxbisect_worker.model_requests.protocol import Pool, Prepared, ProcessKilledError, ToolBrokenError

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
            # about what a universe takes once it was used: names, numbers, and sets of edges in both directions
            sizes = [units * (2000 + units // 8) for units in (len(it.universe) for it in self._kept.values())]
            while len(sizes) > 1 and (len(sizes) > _MOST or sum(sizes) > self._memory):
                self._kept.popitem(last=False)
                del sizes[0]
        return found


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

        def read(sha256: str) -> Prepared:
            with self.service.files.open(sha256) as file:
                return replace(Prepared.from_bytes(file.read()), established=b"")

        return LatestPrepared(read)

    def universe(self, sha256: str) -> Universe:
        """The universe of a prepared search."""
        return self.prepared(sha256).universe


#: Seconds between claims without a notification: the most that a lost one costs.
POLL_SECONDS = 2.0

Work = Callable[[], object]

log = logging.getLogger(__name__)


class Slots:
    """`count` threads. `claim` returns work or None; one thread at a time calls it."""

    def __init__(self, name: str, count: int, claim: Callable[[], Work | None]) -> None:
        self._claim = claim
        self._claiming = Lock()
        self._woken = Event()
        self._stopping = Event()
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)]

    def start(self) -> None:
        """Start to claim."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Claim now, because there may be work."""
        self._woken.set()

    def stop(self, seconds: float) -> None:
        """Claim nothing more, and wait up to `seconds` until all claimed work is done."""
        self._stopping.set()
        self.wake()
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(until - time.monotonic(), 0))

    def _run(self) -> None:
        while True:
            with self._claiming:
                work = self._next()
            if work is None:
                return
            try:
                work()
            except Exception as error:
                # Most likely the database is away: the lease expires, and the work is claimed again.
                log.warning("work was left: %s", type(error).__name__, exc_info=_in_detail())
            self.wake()  # for work that waited for this slot

    def _next(self) -> Work | None:
        """The next work; None if this slot must stop."""
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                work = self._claim()
            except Exception as error:
                log.warning("nothing can be claimed: %s", type(error).__name__, exc_info=_in_detail())
                work = None
            if work is not None:
                return work
            self._woken.wait(POLL_SECONDS)
        return None


def _in_detail() -> bool:
    return log.isEnabledFor(logging.DEBUG)


#: The database is away, or its disk is full: nothing can be stored, and leases expire.
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeoutError)


def machine_fault(error: Exception) -> str | None:
    """The outside cause of an error, as a sentence; None for an error that the model caused."""
    if isinstance(error, FilesUnreachableError):
        return str(error)
    short = None if isinstance(error, DBAPIError) else shortage(error)
    if short is not None:
        return f"A worker has no room to go on. {short}"
    if isinstance(error, ProcessKilledError | ToolBrokenError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(
        error, FileNotFoundError
    ):  # raised in the worker's process, which reads no model
        return f"A worker cannot go on: {error.strerror or type(error).__name__}."
    return None


def sentence(error: Exception) -> str:
    """The sentence for an error that counts."""
    if isinstance(error, OnnxBisectError):
        return str(error)
    return f"onnx-bisect has a fault that this model brings out: {type(error).__name__}: {error}. Please report it."
