"""Making way for others on the same machine.

Linux shares processors between sessions first (autogroup, sched(7)), and niceness counts within one. Pool and compiles
have sessions of their own, so these are made as nice as their processes; `supervise.py` does so for compiles.
"""

import os
from contextlib import suppress
from pathlib import Path


def make_way(more: int) -> None:
    """Be nicer by so much, with the session if it is this process's own: a terminal's is its user's, too.

    Only as far as the kernel goes along: control groups may share processors instead, and from who has no privilege it
    takes one such change in a tenth of a second.
    """
    nice = os.nice(more)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))
