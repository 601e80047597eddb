"""SQLite and fork: a child must have nothing of a database that its parent uses.

A thread of the parent that is in SQLite just then has locks that in the child nobody will ever let go of: the child
would stop for ever at its own first look at the same file. And what the parent has open does not work in a child
(sqlite.org/howtocorrupt.html, 2.6), not even to close it. So a fork waits until nobody is in SQLite, and lets go of its
connections first. Celery's worker has threads, and forks whenever one of its processes has died.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

#: Seconds that a fork waits at most: a child that may stand still is better than a parent that does.
_PATIENCE = 10.0


class ForkGate:
    """Passed by whoever uses the file, and shut while this process is forked. `let_go` closes idle connections."""

    def __init__(self, let_go: Callable[[], None]) -> None:
        self._let_go = let_go
        self._mine = threading.local()
        self._begin()
        with _listing:
            _gates.add(self)

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Nothing is forked meanwhile. A thread that has passed may pass again."""
        depth = getattr(self._mine, "depth", 0)
        with self._changed:
            self._changed.wait_for(lambda: depth or not self._shut)
            self._inside += 1
        self._mine.depth = depth + 1
        try:
            yield
        finally:
            self._mine.depth = depth
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until no other thread is inside, and let nobody in."""
        mine = getattr(self._mine, "depth", 0)
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: self._inside == mine, _PATIENCE)
        self._let_go()

    def open(self) -> None:
        """In the parent: all go on."""
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def begin_again(self) -> None:
        """In the child, which has one thread."""
        self._begin()
        self._inside = getattr(self._mine, "depth", 0)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False


_gates: "WeakSet[ForkGate]" = WeakSet()
#: Held while a gate is listed, and from before a fork until after it: one that is made meanwhile would not be shut.
_listing = threading.Lock()


def _before() -> None:
    _listing.acquire()
    for gate in list(_gates):
        gate.shut()


def _after_in_parent() -> None:
    for gate in list(_gates):
        gate.open()
    _listing.release()


def _after_in_child() -> None:
    for gate in list(_gates):
        gate.begin_again()
    _listing.release()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
