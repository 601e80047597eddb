"""Checks whether an upload starts like an ONNX file, so that other files are refused at once.

Only the tags of the first fields are checked, so a few short texts pass; a job that reads them fails.
"""

from onnxbisect.language import english
from onnxbisect_api.problems import Problem

#: Protobuf tags of ModelProto's fields: those with numbers, and those with a length.
_NUMBERS = frozenset({0x08, 0x28})
_SIZED = frozenset({number << 3 | 2 for number in (2, 3, 4, 6, 7, 8, 14, 20, 25, 26)})
#: The number of bytes that are checked.
ENOUGH = 4096
_VARINT_BYTES = 10


class OnnxHead:
    """Collects and checks the first bytes of an uploaded file."""

    def __init__(self) -> None:
        self._bytes = b""

    def see(self, chunk: bytes | memoryview) -> None:
        """Check the next bytes; a 422 as soon as the file cannot be a model."""
        if len(self._bytes) < ENOUGH:
            self._bytes += bytes(chunk[: ENOUGH - len(self._bytes)])
            if not begins_like_a_model(self._bytes):
                raise Problem(422, english("This is no ONNX file: send the model itself, not a text or an archive."))


def begins_like_a_model(head: bytes) -> bool:
    """Whether these bytes can be the start of a ModelProto."""
    at = 0
    while at < len(head):
        tag, at = _varint(head, at)
        if at > len(head):
            return True
        if tag not in _NUMBERS and tag not in _SIZED:
            return False
        value, at = _varint(head, at)
        if value is None:
            return False
        if tag in _SIZED:
            at += value
    return True


def _varint(head: bytes, at: int) -> tuple[int | None, int]:
    """The number at a position, None if it is too long, and the position after it (past the end if truncated)."""
    number = 0
    for place in range(_VARINT_BYTES):
        if at + place >= len(head):
            return 0, len(head) + 1
        number |= (head[at + place] & 0x7F) << 7 * place
        if head[at + place] < 0x80:
            return number, at + place + 1
    return None, at
