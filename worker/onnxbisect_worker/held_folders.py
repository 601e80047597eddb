"""Folders that several processes make, use and remove at the same time, each with a lock in it.

The kernel keeps the locks (flock), so a process that ends releases them, however it ends. Any process may remove a
folder that is not locked: so the folders of killed processes are removed.
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
    """Make the folder where there is none, and hold it, alone or with others; waits. Closing the descriptor lets go."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except (FileExistsError, FileNotFoundError):  # removed in this moment, unless it is none
            if folder.is_file():
                raise
            continue
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if _is_lock_of(descriptor, folder):
            return descriptor
        os.close(descriptor)


@contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """The folder, held within; afterwards it is gone."""
    descriptor = hold(folder)
    try:
        yield folder
    finally:
        remove_held(folder)
        os.close(descriptor)


def remove(folder: Path) -> bool:
    """Remove the folder unless somebody holds it. True where it is gone."""
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
    """Remove a folder that the caller holds alone."""
    # Renamed first: a process that waits for the lock, or makes the folder again, must not see half of it.
    gone = folder.with_name(f"{folder.name[:64]}-{uuid4().hex}")
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _is_lock_of(descriptor: int, folder: Path) -> bool:
    """Whether the folder that is there now is the one whose lock this is."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / _LOCK).stat())
    except FileNotFoundError:
        return False
