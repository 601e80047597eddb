"""Work that ended without an answer: when it is tried again, and when it counts against the model.

A *loss* says nothing about the model: a worker that vanished, a process that was killed from outside, a full disk. The
work waits for a while and is tried again, however often. A *crash* is one of the process that has the model, or of its
compiler, as the kernel told that process's parent. It is tried once more, alone in a new process; then it is believed.
"""

from datetime import datetime, timedelta

from onnxbisect_db.tables import Troubled

#: Crashes in a row, the last one alone in a new process, before it counts as what the model does.
MOST_CRASHES = 2
#: The longest pause; shorter than `leases.LONGEST`.
_LONGEST = timedelta(minutes=5)
_AT_ONCE = timedelta(0)


def lose(row: Troubled, what: str, at: datetime) -> bool:
    """It was lost, as `what` tells in a sentence. True where it may be tried again at once, which is the first time."""
    row.losses += 1
    wait = _AT_ONCE if row.losses == 1 else min(timedelta(seconds=2 ** min(row.losses - 2, 20)), _LONGEST)
    row.retry_at = at + wait
    row.trouble = what
    return not wait


def crash(row: Troubled, what: str) -> bool:
    """Its own process died of it. True where it is believed; else it is to be tried once more, alone."""
    row.crashes += 1
    row.retry_at = None
    row.trouble = what
    return row.crashes >= MOST_CRASHES


def forget(row: Troubled) -> None:
    """It went well."""
    row.losses = row.crashes = 0
    row.retry_at = None
    row.trouble = ""
