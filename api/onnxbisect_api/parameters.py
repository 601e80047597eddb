"""What routes take as parameters (the service, URLs of resources, ids, the reader's language), and views of rows."""

from contextlib import suppress
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from fastapi import Depends, Header, Path, Request
from pydantic import BaseModel, StringConstraints

from onnxbisect.language import ENGLISH, named
from onnxbisect_service.service import Service


def service_of(request: Request) -> Service:
    """The application's service."""
    service: Service = request.app.state.service
    return service


#: A route's parameter of this type is the application's service.
TheService = Annotated[Service, Depends(service_of)]


class Addresses:
    """The URLs of one installation."""

    def __init__(self, service: TheService) -> None:
        self._root = (service.settings.public_url or "").rstrip("/")

    def job(self, job_id: str) -> str:
        """A job."""
        return f"{self._root}/v1/jobs/{job_id}"

    def page(self, job_id: str) -> str:
        """A job's HTML page."""
        return f"{self._root}/jobs/{job_id}"

    def model(self, sha256: str) -> str:
        """A model."""
        return f"{self._root}/v1/models/{sha256}"

    def file(self, sha256: str) -> str:
        """An uploaded file that is no model, such as a calibration sample."""
        return f"{self._root}/v1/files/{sha256}"

    def webhook(self, webhook_id: str) -> str:
        """A webhook."""
        return f"{self._root}/v1/webhooks/{webhook_id}"

    def culprit(self, culprit_id: str) -> str:
        """A culprit over all jobs."""
        return f"{self._root}/v1/culprits/{culprit_id}"

    def parts(self, query: list[tuple[str, str]]) -> str:
        """The table of several models."""
        return f"{self._root}/v1/parts?{urlencode(query, safe=':')}"

    def badge(self, query: list[tuple[str, str]]) -> str:
        """A badge."""
        return f"{self._root}/v1/badge.svg?{urlencode(query)}"


#: A parameter of this type is the installation's addresses.
TheAddresses = Annotated[Addresses, Depends()]

UUID_PATTERN = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
SHA256_PATTERN = "^[0-9a-f]{64}$"
LABEL_NAME = "^[A-Za-z0-9][A-Za-z0-9._/-]*$"
ONE_LINE = r"^[^\x00-\x1f\x7f]*$"

BackendName = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]

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


class RowView(BaseModel):
    """A view whose fields are attributes of a row, but for some."""

    @classmethod
    def of_row(cls, row: object, **others: Any) -> Self:
        """The view of a row; `others` are the fields that are no attributes of it."""
        own = {name: getattr(row, name) for name in cls.model_fields if name not in others}
        return cls.model_validate({**own, **others})


LANGUAGE_COOKIE = "onnxbisect_language"


def weighed(header: str) -> list[tuple[str, float]]:
    """What a header such as `Accept` names, in lower case and with its weight, the most wanted first."""
    found = []
    for part in filter(str.strip, header.lower().split(",")):
        name, *parameters = (word.strip() for word in part.split(";"))
        with suppress(ValueError):
            found.append((name, float(next((it[2:] for it in parameters if it.startswith("q=")), "1"))))
    return sorted(found, key=lambda it: -it[1])


def language_of(request: Request) -> str:
    """The language of what this client's user reads."""
    wanted = weighed(request.headers.get("accept-language", "")[:1000])
    accepted = (named(name) for name, weight in wanted if weight > 0)
    return named(request.cookies.get(LANGUAGE_COOKIE, "")) or next(filter(None, accepted), ENGLISH)
