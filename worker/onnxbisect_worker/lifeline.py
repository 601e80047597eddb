"""How the processes of a worker learn that it ends: a pipe that nobody writes to, and that the worker's end closes.

The worker closes it when it is told to stop. When it is killed, the system does, so nobody is left behind either way.
"""

import os
import signal
import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from types import FrameType

#: Seconds for giving back what is in hand, when nobody is left to wait for it.
_GRACE = 5.0
_LOOK_EVERY = 0.5


class Lifeline:
    """Made in the worker, before it forks."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._worker = os.getpid()
        self._lock = Lock()
        self._open = True

    def cut(self) -> None:
        """In the worker: all of its processes are to stop."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._write)

    def hold(self, stopping: Event, let_go: Callable[[], None]) -> None:
        """In a process of the worker, in its main thread: `stopping` is set when the worker ends, or when this process
        is told to. Without a worker it does not live on: what it has is let go, and it exits.
        """
        os.close(self._write)

        def told(number: int, frame: FrameType | None) -> None:
            stopping.set()
            Thread(target=self._exit, args=(let_go,), name="exit", daemon=True).start()

        def wait() -> None:
            os.read(self._read, 1)
            stopping.set()
            while os.getppid() == self._worker:
                time.sleep(_LOOK_EVERY)
            self._exit(let_go)

        signal.signal(signal.SIGTERM, told)
        Thread(target=wait, name="lifeline", daemon=True).start()

    def _exit(self, let_go: Callable[[], None]) -> None:
        time.sleep(_GRACE)
        let_go()
        os._exit(0)
