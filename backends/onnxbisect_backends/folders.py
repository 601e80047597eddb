"""The folder for reproducible data (kept verdicts, and vendors' compilers), and temporary folders.

Temporary folders of killed processes are removed by later ones. Each has a lock (flock), which the kernel releases when
its process ends in any way.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

_PREFIX = "onnx-bisect-"
_LOCK = "lock"


def cache_folder() -> Path:
    """`ONNXBISECT_CACHE_DIR`, or this program's folder in the user's cache directory; it may not exist yet."""
    configured = os.environ.get("ONNXBISECT_CACHE_DIR")
    return Path(configured).absolute() if configured else platformdirs.user_cache_path("onnx-bisect", appauthor=False)


@contextmanager
def working_folder() -> Iterator[Path]:
    """A new folder that only this user can read, removed after the context. Also removes those of killed processes."""
    _clear_abandoned()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if _locked(lock, folder):
            break
        os.close(lock)  # another process removed the folder as abandoned before it was locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _clear_abandoned() -> None:
    """Remove folders of this user whose lock is free. One without a lock is foreign, or just being created."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is gone, or unreadable
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _locked(lock, folder):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(lock: int, folder: Path) -> bool:
    """Whether this process holds the lock, and the lock is still the folder's."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock), (folder / _LOCK).stat())
    except (BlockingIOError, FileNotFoundError):
        return False
