"""Compilers run as the service's user and could read the environment of its processes, which holds passwords."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def keep_secrets() -> None:
    """From now on nobody but root reads this process's memory, environment and descriptors, or writes a core of it.

    Processes that are forked from it are kept so, too; what is executed, such as hosts and compilers, is not. Linux
    does this; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
