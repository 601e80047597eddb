"""Parses a form with a model and its external data while it is received: one field `model`, a field `data` per file.

The file name of `model` is the model's name, that of `data` the file's location. A form may contain text fields, too.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from onnxbisect.language import english
from onnxbisect.report.text import clip
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.uploads.receiving import UploadQuota
from onnxbisect_db.files import StoredFile, Unfinished

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


_SEGMENT_BYTES = 255
_LOCATION_BYTES = 1024
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ufffd\ud800-\udfff]")


def demand_location(location: str) -> None:
    """Raise a 422 unless this is a valid location of a data file."""
    segments = location.split("/")
    plain = not _FORBIDDEN.search(location) and not {"", ".", ".."} & set(segments)
    short = len(location.encode()) <= _LOCATION_BYTES if plain else False
    if not short or max(len(segment.encode()) for segment in segments) > _SEGMENT_BYTES:
        raise Problem(
            422,
            english(
                "A data file cannot lie at {location}: its file name in the form must be its location as the "
                "model has it, relative to the model, without '.', '..' and '\\'.",
                location=repr(clip(location, 100)),
            ),
        )


def demand_tree(locations: Iterable[str]) -> None:
    """Raise a 422 if one location is the folder of another one."""
    files = set(locations)
    for location in files:
        for folder in PurePosixPath(location).parents:
            if str(folder) in files:
                raise Problem(
                    422,
                    english(
                        "{folder} cannot be a data file and a folder of data files.",
                        folder=repr(clip(str(folder), 100)),
                    ),
                )


_MODEL, _DATA = "model", "data"
_MOST_FILES = 10_000


@dataclass(frozen=True, kw_only=True)
class ReceivedForm:
    """The received files: the ONNX file, and data files by location.

    `sha256` is the digest of all their bytes, as in a report: the ONNX file, then the data sorted by location.
    """

    name: str
    sha256: str
    model: StoredFile
    data: dict[str, StoredFile]

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return self.model.size + sum(stored.size for stored in self.data.values())


class PartWriter(Protocol):
    """A writer for the bytes of a part."""

    def write(self, chunk: bytes) -> None:
        """Append bytes."""

    def seal(self) -> object:
        """End the part."""


class Texts(Protocol):
    """A receiver of the form's text fields. An exception ends the upload."""

    #: A description of the fields for the error about an unknown field.
    description: str

    def begin(self, field: str, file_name: str) -> PartWriter | None:
        """A writer for the field's bytes; None if it is no text field."""

    def demand_all(self) -> None:
        """Called when the form is complete; raises if a required field is missing."""


class NoModel(Problem):
    """A complete form without a model."""

    def __init__(self) -> None:
        super().__init__(422, "The form has no file in the field 'model': the ONNX file belongs there.")


class ModelForm:
    """A `receiving.Sink` that parses a multipart/form-data body; its files are invisible until `finish`."""

    def __init__(
        self, content_type: str, begin: Callable[[], Unfinished], quota: UploadQuota, texts: Texts | None = None
    ) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not content_type.lower().startswith("multipart/form-data") or not boundary:
            raise Problem(415, english("Send a form of type multipart/form-data, or the ONNX file alone with PUT."))
        self._parser = _parser(boundary, self)
        self._begin = begin
        self._quota = quota
        self._size = 0
        self._header = self._value = b""
        self._disposition = ""
        self._texts = texts
        self._current: PartWriter | None = None
        self._ended = False
        self._model: tuple[str, Unfinished] | None = None
        self._head = OnnxHead()
        self._data: dict[str, Unfinished] = {}
        #: The digest of model and data; None if they came in another order, so that all files are read again.
        self._whole: hashlib._Hash | None = None

    def write(self, chunk: memoryview) -> None:
        try:
            self._parser.write(bytes(chunk))
        except FormParserError as error:
            raise _broken() from error

    def sealed(self) -> ReceivedForm:
        """End all files; they are on disk and not yet visible. Raises Problem for an incomplete or invalid form."""
        if not self._ended:
            raise _broken()
        if self._model is None:
            raise NoModel
        if self._texts is not None:
            self._texts.demand_all()
        demand_tree(self._data)
        name, model = self._model
        stored, data = model.seal(), {at: file.seal() for at, file in self._data.items()}
        sha256 = stored.sha256
        if data and self._whole is not None:
            sha256 = self._whole.hexdigest()
        elif data:
            digest = hashlib.sha256()
            for file in [model, *(self._data[location] for location in sorted(self._data))]:
                file.add_to(digest)
            sha256 = digest.hexdigest()
        return ReceivedForm(name=name, sha256=sha256, model=stored, data=data)

    def finish(self) -> None:
        """Make all files visible under their names."""
        for file in self._files():
            file.finish()

    def abandon(self) -> None:
        for file in self._files():
            file.abandon()

    def _files(self) -> list[Unfinished]:
        return [*self._data.values(), *([self._model[1]] if self._model is not None else [])]

    # The methods below are callbacks of the parser.

    def on_part_begin(self) -> None:
        """Handle the start of a part; its headers follow."""
        self._header = self._value = b""
        self._disposition = ""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        """Append to the current header's name."""
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        """Append to the current header's value."""
        self._value += data[start:end]

    def on_header_end(self) -> None:
        """Handle a complete header."""
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value.decode("latin-1")
        self._header = self._value = b""

    def on_headers_finished(self) -> None:
        """Open a writer for the part, once its headers are complete."""
        options = parse_options_header(self._disposition)[1]
        field = options.get(b"name", b"").decode("utf-8", "replace")
        name = options.get(b"filename", b"").decode("utf-8", "replace")
        text = None if self._texts is None else self._texts.begin(field, name)
        if text is not None:
            self._current = text
            return
        if field not in (_MODEL, _DATA) or b"filename" not in options:
            also = "" if self._texts is None else f", and {self._texts.description}"
            raise Problem(
                422,
                english(
                    "The form has a field {field}: it takes files in 'model' and 'data' only{also}.",
                    field=repr(clip(field, 50)),
                    also=also,
                ),
            )
        if field == _MODEL:
            if self._model is not None:
                raise Problem(
                    422, english("The form has two files in the field 'model': data of the model belongs in 'data'.")
                )
            model = self._current = self._begin()
            self._model = (name, model)
        else:
            demand_location(name)
            if name in self._data:
                raise Problem(422, english("The form has two files at {location}.", location=repr(clip(name, 100))))
            if len(self._data) >= _MOST_FILES:
                raise Problem(
                    422,
                    english(
                        "The form has more than {most_files} data files: export all tensors into one.",
                        most_files=f"{_MOST_FILES:,}",
                    ),
                )
            if not self._data and self._model is not None:
                self._whole = self._model[1].digest()
            elif name < next(reversed(self._data), ""):
                self._whole = None
            self._current = self._data[name] = self._begin()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Write bytes of the part."""
        assert self._current is not None, "the parser tells of a part's headers first"  # noqa: S101
        if isinstance(self._current, Unfinished):  # only files count against the quota
            self._size += end - start
            self._quota.demand(self._size)
            if self._model is not None and self._current is self._model[1]:
                self._head.see(data[start : min(end, start + ENOUGH)])
            if self._whole is not None:
                self._whole.update(data[start:end])
        self._current.write(data[start:end])

    def on_part_end(self) -> None:
        """End the part and close its file, because a form may have more files than a process can open."""
        assert self._current is not None, "the parser tells of a part's headers first"  # noqa: S101
        self._current.seal()

    def on_end(self) -> None:
        """Handle the end of the form."""
        self._ended = True


def _broken() -> Problem:
    return Problem(422, english("The form is broken off, or is none: send it again as multipart/form-data."))


def _parser(boundary: bytes, form: ModelForm) -> MultipartParser:
    try:
        return MultipartParser(
            boundary,
            {
                "on_part_begin": form.on_part_begin,
                "on_header_field": form.on_header_field,
                "on_header_value": form.on_header_value,
                "on_header_end": form.on_header_end,
                "on_headers_finished": form.on_headers_finished,
                "on_part_data": form.on_part_data,
                "on_part_end": form.on_part_end,
                "on_end": form.on_end,
            },
        )
    except FormParserError as error:
        raise _broken() from error
