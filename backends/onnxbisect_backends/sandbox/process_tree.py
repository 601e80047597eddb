"""The processes below this one: finds them, measures their memory, and kills them.

Loaded by `supervise.py`, which runs before any package can be imported.
"""

import contextlib
import os
import resource
import signal
import time

#: Seconds after which processes that survive SIGKILL (stuck in the kernel) are reported instead of waited for.
PATIENCE = 10.0


def descendants() -> list[int]:
    """The processes below this one, from one scan of /proc; empty if there is no /proc."""
    children: dict[int, list[int]] = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return []
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - as above
            # the command's name is in brackets and may itself hold brackets and spaces
            parent = int(stat.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def resident(pids: list[int]) -> int:
    """The resident memory of the processes in bytes, with shared pages counted for each."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/statm", "rb") as statm:  # noqa: PTH123 - as above
            pages += int(statm.read().split()[1])
    return pages * resource.getpagesize()


def proportional(pids: list[int]) -> int:
    """The memory of the processes in bytes, with shared pages counted once; slower than `resident`."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:  # noqa: PTH123 - as above
                total += sum(int(line.split()[1]) << 10 for line in rollup if line.startswith(b"Pss:"))
        except OSError:
            total += resident([pid])
    return total


def kill_all(compiler: int) -> int:
    """SIGKILL everything below this process until nothing is left; returns the number of unkillable processes."""
    deadline = time.monotonic() + PATIENCE
    while True:
        left = descendants()
        if not left:
            with contextlib.suppress(OSError):  # no /proc, or the last process has just ended
                os.killpg(compiler, signal.SIGKILL)
        # stop all before killing any, because a tree may fork faster than it is killed
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        if not reap(compiler)[1]:
            # without children there are no descendants, because orphans become children of this process
            return 0
        if time.monotonic() > deadline:
            return len(descendants())
        time.sleep(0.002)


def reap(compiler: int) -> tuple[int | None, bool]:
    """Reap ended processes; returns the compiler's wait status if it is one of them, and whether children are left."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if pid == compiler:
            status = ended
