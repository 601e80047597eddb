"""Errors as `application/problem+json` (RFC 9457), with a sentence for the user in `detail`."""

import logging
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from onnxbisect.errors import OnnxBisectError, ShortageError, shortage
from onnxbisect.language import english
from onnxbisect_api.errors import mistakes
from onnxbisect_api.headers import SECURITY
from onnxbisect_db.errors import (
    CulpritStateError,
    DamagedFileError,
    DiskFullError,
    FilesUnreachableError,
    InUseError,
    JobStateError,
    QuotaError,
    SchemaError,
    TooLargeError,
)

_LOG = logging.getLogger(__name__)
_MEDIA_TYPE = "application/problem+json"
_STATUSES: Mapping[type[OnnxBisectError], int] = {
    CulpritStateError: 409,
    InUseError: 409,
    JobStateError: 409,
    TooLargeError: 413,
    DamagedFileError: 502,
    SchemaError: 503,
    FilesUnreachableError: 503,
    DiskFullError: 507,
    ShortageError: 507,
    QuotaError: 507,
}
#: The status of well-formed but invalid requests: unknown model or option, key of another request.
_REFUSED = 422
_DETAILS = {
    400: english("The request's body cannot be read: send JSON in UTF-8."),
    404: english("There is nothing at this address, or nothing that this token may see."),
    405: english("This address does not take {method}."),
    413: english("The request's body is larger than what is taken here."),
}
_UNTOLD = english("Send the body as JSON, and say so with the header `Content-Type: application/json`.")
_MAKE_ROOM = english("So the server cannot do this now: delete jobs or models, or tell its admin.")
_UNAVAILABLE = english("The service cannot reach its database at the moment: try again soon.")


class Mistake(BaseModel):
    """One error in a request."""

    where: str = Field(description="a path into the request, as body.targets.0.backend")
    problem: str


class ProblemDocument(BaseModel):
    """The form of every error (RFC 9457)."""

    type: str = "about:blank"
    title: str = Field(description="what the status means")
    status: int
    detail: str = Field(description="what is wrong, and what to do, in a sentence")
    errors: list[Mistake] | None = Field(None, description="where a request has several mistakes, all of them")


class Problem(HTTPException):
    """An error with an HTTP status and a sentence for the user."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, dict(headers) if headers is not None else None)


def missing(what: str) -> Problem:
    """A 404 for a resource that does not exist or belongs to another tenant, which clients must not tell apart."""
    return Problem(404, english("There is no such {what}.", what=what))


def answer(
    status: int, detail: str, *, headers: Mapping[str, str] | None = None, errors: list[Mistake] | None = None
) -> Response:
    """The problem as a response."""
    document = ProblemDocument(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors)
    return JSONResponse(
        document.model_dump(exclude_none=True), status, headers={**SECURITY, **(headers or {})}, media_type=_MEDIA_TYPE
    )


def responses() -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of the problem, for every operation."""
    content = {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {
        "4XX": {"description": "The request is refused", "content": content},
        "5XX": {"description": "The service cannot do this now", "content": content},
    }


def status_and_sentence(error: OnnxBisectError | Problem) -> tuple[int, str]:
    """The HTTP status and the sentence for an expected error, which is a Problem or one of the engine's errors."""
    if isinstance(error, Problem):
        return error.status_code, error.detail
    return _STATUSES.get(type(error), _REFUSED), str(error)


def _unreadable(error: HTTPException) -> str | None:
    """A sentence for JSON with too deep nesting or too long a number for Python's parser; None for other errors."""
    match error.__cause__:
        case RecursionError():
            return "The request's body has lists or objects that are nested too deep."
        case UnicodeError():
            return None
        case ValueError():
            digits = sys.get_int_max_str_digits()
            return f"The request's body has a whole number of more than {digits:,} digits, which is too large."
    return None


#: Returns an error page for a person's request, or None for a problem document.
Pages = Callable[[Request, int, str], Response | None]


def install(app: FastAPI, pages: Pages) -> None:
    """Return every error of the application as a problem, or as a page."""

    def answered(
        request: Request,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: list[Mistake] | None = None,
    ) -> Response:
        return pages(request, status, detail) or answer(status, detail, headers=headers, errors=errors)

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 304:
            return Response(status_code=304, headers=error.headers)
        detail = error.detail
        if not isinstance(error, Problem) and error.status_code in _DETAILS:
            detail = _unreadable(error) or _DETAILS[error.status_code].format(method=request.method)
        return answered(request, error.status_code, detail, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        if any(mistakes.is_untold_json(each) for each in error.errors()):
            return answered(request, 415, _UNTOLD)
        # `input` is left out, because it can be large or secret.
        made = mistakes.of_client(error.errors())
        found = [Mistake(where=mistakes.where(each), problem=mistakes.sentence(each)) for each in made]
        if all(mistake.where.startswith("path.") for mistake in found):
            return answered(request, 404, _DETAILS[404])
        more = f" ({len(found) - 1} more in `errors`)" if len(found) > 1 else ""
        return answered(request, _REFUSED, f"{found[0].where}: {found[0].problem}{more}.", errors=found)

    @app.exception_handler(OnnxBisectError)
    def _own(request: Request, error: OnnxBisectError) -> Response:
        return answered(request, *status_and_sentence(error))

    @app.exception_handler(DataError)
    def _unstorable(request: Request, error: DataError) -> Response:
        return answered(request, _REFUSED, "The request has a text or a number that cannot be stored.")

    @app.exception_handler(PoolTimeoutError)
    @app.exception_handler(InterfaceError)
    @app.exception_handler(OperationalError)
    def _database(request: Request, error: Exception) -> Response:
        if (short := shortage(error)) is not None:
            return answered(request, 507, f"{short} {_MAKE_ROOM}")
        _LOG.error("the database failed: %s", error, exc_info=error)
        return answered(request, 503, _UNAVAILABLE, headers={"Retry-After": "5"})

    @app.exception_handler(OSError)
    def _short(request: Request, error: OSError) -> Response:
        if (short := shortage(error)) is None:
            raise error
        return answered(request, 507, f"{short} {_MAKE_ROOM}")

    @app.exception_handler(ClientDisconnect)
    def _gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the client has disconnected

    @app.exception_handler(Exception)
    def _unexpected(request: Request, error: Exception) -> Response:
        # The server logs the error; the caller gets no details.
        return answered(request, 500, english("This is a mistake of the service, and in its log: please report it."))
