"""Checks what this process needs to answer requests: database, disk, file store and queue."""

import tempfile
from pathlib import Path

import redis

from onnxbisect.shortage import shortage
from onnxbisect_db.database import Database
from onnxbisect_db.errors import FilesUnreachableError
from onnxbisect_db.files import FileStore
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings

_PATIENCE = 2.0
#: Free bytes that the smallest transaction needs.
_SOME = 64 << 10


def complaints(service: Service) -> list[str]:
    """Sentences about failed checks, without secrets; empty if the process is ready."""
    found = (_database(service.database), _queue(service.settings), disk(service), _files(service.files))
    return [complaint for complaint in found if complaint is not None]


def _database(database: Database) -> str | None:
    try:
        current = database.is_current()
    except Exception:
        # a driver's messages can contain addresses and user names
        return "The database cannot be reached."
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
        return "The file store cannot be reached: models cannot be taken, nor reports be given."
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
        return "The queue (redis) cannot be reached: work goes on, slowly, when it can be again."
    return None
