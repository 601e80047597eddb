"""Whether a failed write, not the model, is what a compiler stumbled over."""

import os
import re
from pathlib import Path

#: Bytes below which a disk counts as full: the last write of those that filled it may have been larger.
_FULL = 64 << 10

#: What programs say of a disk that takes no more, in the words of the C library.
_WORDS = re.compile(r"No space left on device|Disk quota exceeded")


def disk_trouble(workdir: Path, log: str) -> str:
    """A sentence where the disk of a work directory takes no more, or a failure's log complains of one; else empty.

    Programs remove what they could not finish, so that there is room again when they have ended: hence the log.
    """
    state = os.statvfs(workdir)
    free = state.f_bfree if os.geteuid() == 0 else state.f_bavail
    if state.f_blocks and free * state.f_frsize < _FULL:
        return f"The disk of {workdir} is full; make room, or let TMPDIR name another."
    if not os.access(workdir, os.W_OK):
        return f"{workdir} cannot be written to; let TMPDIR name another place."
    if said := _WORDS.search(log):
        return f"The compiler could not write: {said[0]}. Make room, or let TMPDIR name another disk."
    return ""
