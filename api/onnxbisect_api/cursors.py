"""Cursors of paginated lists whose items have no row id. A cursor is a time of creation and a SHA-256."""

import re
from datetime import UTC, datetime, timedelta

from onnxbisect_api.pages import NO_PLACE
from onnxbisect_api.problems import Problem

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = timedelta(microseconds=1)
_WRITTEN = re.compile("([0-9a-f]{1,16})-([0-9a-f]{64})")


def write(at: datetime, sha256: str) -> str:
    """The value for `?after=`."""
    return f"{(at - _BEGINNING) // _STEP:x}-{sha256}"


def read(cursor: str) -> tuple[datetime, str]:
    """Parse the result of `write` into its arguments."""
    written = _WRITTEN.fullmatch(cursor)
    try:
        if written is not None:
            return _BEGINNING + int(written[1], 16) * _STEP, written[2]
    except OverflowError:
        pass
    raise Problem(422, f"query.after: {NO_PLACE}.")
