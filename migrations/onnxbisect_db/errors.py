"""Errors of the data layer. Every text is for the user."""

from onnxbisect.errors import OnnxBisectError, ShortageError


class SchemaError(OnnxBisectError):
    """The database cannot be used by this version of the program."""


class UnknownModelError(OnnxBisectError):
    """A job names a model that was not uploaded."""


class UnknownFileError(OnnxBisectError):
    """A job names a file that its tenant has not uploaded."""


class IdempotencyError(OnnxBisectError):
    """An idempotency key was used before, for another request."""


class JobStateError(OnnxBisectError):
    """The job's state does not allow the operation."""


class CulpritStateError(OnnxBisectError):
    """The culprit's state does not allow the operation."""


class InUseError(OnnxBisectError):
    """A job needs what would be deleted or changed."""


class LostClaimError(OnnxBisectError):
    """The claim is lost: the lease expired, or the job ended. Nothing was written."""


class TooLargeError(OnnxBisectError):
    """A file is larger than allowed."""


class DiskFullError(ShortageError):
    """Less disk space is free than must stay free."""


class FilesUnreachableError(ShortageError):
    """The file store's host does not answer, or not correctly."""


class DamagedFileError(OnnxBisectError):
    """The file store has other bytes under the name of a file than those it was stored with."""


class QuotaError(OnnxBisectError):
    """A tenant would exceed its storage quota."""
