"""Folders that several processes create, use and remove, each with a lock in it.

The kernel keeps the locks (flock), so they are released when a process ends in any way. Any process may remove an
unlocked folder; so the folders of killed processes are removed.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

_LOCK = "lock"


def hold(folder: Path, *, shared: bool = False) -> int:
    """Create the folder if needed and lock it, alone or shared; waits. Closing the returned descriptor unlocks it."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except (FileExistsError, FileNotFoundError):  # removed just now, unless it is a file
            if folder.is_file():
                raise
            continue
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if _is_lock_of(descriptor, folder):
            return descriptor
        os.close(descriptor)


@contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """The folder, locked within the context and removed after it."""
    descriptor = hold(folder)
    try:
        yield folder
    finally:
        remove_held(folder)
        os.close(descriptor)


def remove(folder: Path) -> bool:
    """Remove the folder unless it is locked. True if it is gone."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return not folder.exists()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_lock_of(descriptor, folder):
            remove_held(folder)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return not folder.exists()


def remove_held(folder: Path) -> None:
    """Remove a folder that the caller has locked alone."""
    # Renamed first, so that no process that waits for the lock, or creates the folder, sees half of it.
    gone = folder.with_name(f"{folder.name[:64]}-{uuid4().hex}")
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _is_lock_of(descriptor: int, folder: Path) -> bool:
    """Whether this lock belongs to the folder that exists now."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / _LOCK).stat())
    except FileNotFoundError:
        return False
