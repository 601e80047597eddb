"""Errors that say nothing about the model, because a process or the machine failed."""

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from onnxbisect.errors import OnnxBisectError
from onnxbisect.shortage import shortage
from onnxbisect_db.errors import FilesUnreachableError
from onnxbisect_worker.model_requests.protocol import ProcessKilledError, ToolBrokenError

#: The database is away, or its disk is full: nothing can be stored, and leases expire.
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeoutError)


def outside(error: Exception) -> str | None:
    """The outside cause of an error, as a sentence; None for an error that the model caused."""
    if isinstance(error, FilesUnreachableError):
        return str(error)
    short = None if isinstance(error, DBAPIError) else shortage(error)
    if short is not None:
        return f"A worker has no room to go on. {short}"
    if isinstance(error, ProcessKilledError | ToolBrokenError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(
        error, FileNotFoundError
    ):  # raised in the worker's process, which reads no model
        return f"A worker cannot go on: {error.strerror or type(error).__name__}."
    return None


def sentence(error: Exception) -> str:
    """The sentence for an error that counts."""
    if isinstance(error, OnnxBisectError):
        return str(error)
    return f"onnx-bisect has a fault that this model brings out: {type(error).__name__}: {error}. Please report it."
