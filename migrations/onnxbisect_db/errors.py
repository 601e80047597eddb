"""What callers of the database can do wrong, or be told of. Every text is for the user."""

from onnxbisect.errors import OnnxBisectError, ShortageError


class SchemaError(OnnxBisectError):
    """The database cannot be used by this version of the program."""


class UnknownModelError(OnnxBisectError):
    """A job names a model that was not uploaded."""


class UnknownFileError(OnnxBisectError):
    """A job speaks of a file that its tenant has not uploaded."""


class IdempotencyError(OnnxBisectError):
    """An idempotency key was used before, for another request."""


class JobStateError(OnnxBisectError):
    """The job is in no state in which this can be done."""


class CulpritStateError(OnnxBisectError):
    """The culprit is in no state in which this can be done."""


class InUseError(OnnxBisectError):
    """A job needs what would be deleted or changed."""


class LostClaimError(OnnxBisectError):
    """The search was taken from this holder: its lease ran out, or the job ended. Nothing was written."""


class TooLargeError(OnnxBisectError):
    """A file is larger than allowed."""


class DiskFullError(ShortageError):
    """Less disk is left than must stay free."""


class FilesUnreachableError(ShortageError):
    """The host that keeps the files does not answer, or not as it should."""


class QuotaError(OnnxBisectError):
    """A tenant would keep more here than it may."""
