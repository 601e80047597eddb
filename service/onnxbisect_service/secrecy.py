"""Protects the environment of the service's processes, which holds passwords, from compilers run by the same user."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def keep_secrets() -> None:
    """Make this process undumpable: only root can read its memory, environment and descriptors, and it writes no core.

    Forked processes inherit this; executed programs, such as compilers, do not. It works on Linux and does nothing
    elsewhere.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
