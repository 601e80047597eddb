"""What routes take as parameters: the service, ids in the path, the idempotency key, and the reader's language."""

from typing import Annotated

from fastapi import Depends, Header, Path, Request

from onnxbisect.language import accepted, named
from onnxbisect_service.service import Service


def service_of(request: Request) -> Service:
    """The application's service."""
    service: Service = request.app.state.service
    return service


#: A route's parameter of this type is the application's service.
TheService = Annotated[Service, Depends(service_of)]


UUID_PATTERN = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
SHA256_PATTERN = "^[0-9a-f]{64}$"

#: Types for parameters in the path.
RowId = Annotated[str, Path(pattern=UUID_PATTERN)]
Sha256 = Annotated[str, Path(pattern=SHA256_PATTERN)]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern="^[!-~]+$",
        description="the same key within a day makes the job once, and answers with it again",
    ),
]


LANGUAGE_COOKIE = "onnxbisect_language"


def language_of(request: Request) -> str:
    """The language of what this client's user reads."""
    return named(request.cookies.get(LANGUAGE_COOKIE, "")) or accepted(request.headers.get("accept-language", ""))
