"""Checks what this process needs to answer requests: database, disk, file store and queue.

Anybody may ask, so all requests share one check, whose result is kept for a moment. It has threads of its own and a
time limit, so that a server that accepts connections and never answers stops no other request.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import redis

from onnxbisect.shortage import shortage
from onnxbisect_db.database import Database
from onnxbisect_db.errors import FilesUnreachableError
from onnxbisect_db.files import FileStore
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings

#: Seconds for which a result is kept.
_FRESH = 2.0
#: Seconds for all checks, which run at the same time, and for one attempt to reach redis.
_LONGEST, _PATIENCE = 4.0, 2.0
_NO_DATABASE = "The database cannot be reached."
_NO_QUEUE = "The queue (redis) cannot be reached: work goes on, slowly, when it can be again."
_NO_DISK = "The data folder does not answer."
_NO_FILES = "The file store cannot be reached: models cannot be taken, nor reports be given."
#: Free bytes that the smallest transaction needs.
_SOME = 64 << 10


class Readiness:
    """The checks of one application. Not thread-safe: use it in the event loop."""

    def __init__(self, service: Service) -> None:
        #: Each with the sentence for the case that it does not end in time.
        self._checks: tuple[tuple[Callable[[], str | None], str], ...] = (
            (lambda: _database(service.database), _NO_DATABASE),
            (lambda: _queue(service.settings), _NO_QUEUE),
            (lambda: disk(service), _NO_DISK),
            (lambda: _files(service.files), _NO_FILES),
        )
        self._threads = ThreadPoolExecutor(len(self._checks), thread_name_prefix="readiness")
        self._checking = asyncio.Lock()
        self._found: list[str] = []
        self._fresh_until = 0.0

    async def complaints(self) -> list[str]:
        """Sentences about failed checks, without secrets; empty if the process is ready."""
        async with self._checking:
            if time.monotonic() >= self._fresh_until:
                found = await asyncio.gather(*(self._in_time(check, silent) for check, silent in self._checks))
                self._found = [complaint for complaint in found if complaint is not None]
                self._fresh_until = time.monotonic() + _FRESH
            return self._found

    async def _in_time(self, check: Callable[[], str | None], silent: str) -> str | None:
        try:
            async with asyncio.timeout(_LONGEST):
                return await asyncio.get_running_loop().run_in_executor(self._threads, check)
        except TimeoutError:
            return silent


def _database(database: Database) -> str | None:
    try:
        current = database.is_current()
    except Exception:
        # a driver's messages can contain addresses and user names
        return _NO_DATABASE
    return None if current else "The database's tables are not those of this version: run `onnx-bisect migrate`."


def disk(service: Service) -> str | None:
    """A sentence if the folders of uploads or of SQLite cannot be written to, else None."""
    folders = {service.settings.data, *map(Path, filter(None, [service.database.file]))}
    try:
        for folder in folders:
            with tempfile.TemporaryFile(dir=folder if folder.is_dir() else folder.parent, buffering=0) as file:
                file.write(bytes(_SOME))
    except OSError as error:
        why = shortage(error) or f"The data folder cannot be written ({error.strerror})."
        return f"{why} What is there can be read and deleted, and nothing else is done until there is room."
    return None


def _files(files: FileStore) -> str | None:
    try:
        files.check()
    except FilesUnreachableError:
        # a server's messages can contain names and addresses
        return _NO_FILES
    return None


def _queue(settings: Settings) -> str | None:
    if settings.redis_url is None:
        return None
    # celery has a URL scheme of its own for sockets
    url = settings.redis_url.get_secret_value().replace("redis+socket://", "unix://", 1)
    try:
        with redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE) as client:
            client.ping()
    except Exception:
        return _NO_QUEUE
    return None
