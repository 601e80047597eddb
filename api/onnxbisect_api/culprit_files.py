"""Responses with the stored files of a job's culprits."""

import re
from collections.abc import Mapping
from typing import Literal

from fastapi import Request, Response
from fastapi.responses import FileResponse
from starlette.responses import MalformedRangeHeader, RangeNotSatisfiable

from onnxbisect.language import english
from onnxbisect_api.etags import unchanged
from onnxbisect_api.found import report_of
from onnxbisect_api.problems import Problem, missing
from onnxbisect_db.tables import Search
from onnxbisect_service.service import Service

FileName = Literal["model.onnx", "model.data", "compiler.log"]


class _StoredFile(FileResponse):
    """A file, or a part of it. A `Range` that cannot be read is ignored, as RFC 9110 says."""

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []
        except RangeNotSatisfiable:
            whole = f"bytes */{file_size}"
            raise Problem(416, f"The file has {file_size:,} bytes, and none there.", {"Content-Range": whole}) from None


def file_of(search: Search, number: int, name: FileName) -> str:
    """SHA-256 of a file of the culprit with this number, counted from 1; a problem if there is none."""
    report_of(search)
    place = re.compile(rf"culprits/{number:02d}-[^/]*/{re.escape(name)}")
    sha256: str | None = next((sha256 for path, sha256 in search.files.items() if place.fullmatch(path)), None)
    if sha256 is None:
        raise missing(english("file of this culprit"))
    return sha256


def address_of(job_url: str, path: str, target: int) -> str:
    """The URL of a culprit's file: `culprits/02-Exp/model.onnx` is at `culprits/2/model.onnx`."""
    culprit, _, name = path.removeprefix("culprits/").partition("/")
    return f"{job_url}/culprits/{number_of(culprit)}/{name}?target={target}"


def number_of(folder: str) -> int:
    """The number of the culprit in the folder `02-Exp`: 2."""
    return int(folder.partition("-")[0])


def answered(request: Request, service: Service, sha256: str, name: FileName) -> Response:
    """A response with a culprit's stored file, or a 304 if the client has it."""
    is_log = name.endswith(".log")
    placed = "inline" if is_log else "attachment"
    headers = {"ETag": f'"{sha256}"', "Content-Disposition": f'{placed}; filename="{name}"'}
    media_type = "text/plain" if is_log else "application/octet-stream"
    return unchanged(request, headers) or stored(service, sha256, media_type, headers)


def stored(service: Service, sha256: str, media_type: str, headers: Mapping[str, str]) -> FileResponse:
    """A response with a stored file."""
    try:
        path = service.files.path(sha256)
    except FileNotFoundError:  # the job was deleted during this request
        raise missing(english("job")) from None
    return _StoredFile(path, media_type=media_type, headers=dict(headers))
