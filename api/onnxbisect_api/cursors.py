"""Where a list of what has no id of its own goes on: by the moment in which it was made, and its SHA-256."""

from datetime import UTC, datetime, timedelta

from onnxbisect_api.problems import Problem

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = timedelta(microseconds=1)


def write(at: datetime, sha256: str) -> str:
    """For `?after=`."""
    return f"{(at - _BEGINNING) // _STEP:x}-{sha256}"


def read(cursor: str) -> tuple[datetime, str]:
    """What `write` was given."""
    stamp, _, sha256 = cursor.partition("-")
    try:
        return _BEGINNING + int(stamp, 16) * _STEP, sha256
    except (ValueError, OverflowError):
        raise Problem(422, "query.after: This is no place in the list: use the link of the page before.") from None
