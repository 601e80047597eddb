"""Requests that submit a job and its model in one form: recognises them, and reads the JSON document in them."""

import json
from collections.abc import Callable
from typing import Any, Self

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.routing import Match
from starlette.types import Scope

from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.submission.job_making import ValidTerms
from onnxbisect_api.submission.job_request import RequestedTerms
from onnxbisect_api.uploads.receiving import DOCUMENT_BYTES, is_form

_FIELD = "job"

#: The form as an alternative to the JSON body, for the OpenAPI description of `POST /v1/jobs`.
DESCRIBED: dict[str, Any] = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [_FIELD, "model"],
                    "properties": {
                        _FIELD: {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "description": "the same document, without `model`",
                            "examples": [json.dumps({"targets": [{"backend": "onnxruntime"}]})],
                        },
                        "model": {"type": "string", "format": "binary", "description": "the ONNX file"},
                        "data": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "its external data: each file's name is its location in the model",
                        },
                    },
                }
            }
        }
    }
}


class FormRoute(APIRoute):
    """Matches only requests with a multipart form; other requests go to the next route with the same path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if is_form(scope) else (Match.NONE, {})


class JobDocument:
    """The form's field with the request for a job, as a `model_form.Texts`; `accept` validates the request."""

    description = f"a document in '{_FIELD}'"

    def __init__(self, accept: Callable[[RequestedTerms], ValidTerms]) -> None:
        self._accept = accept
        self._text = bytearray()
        self._came = False
        self._valid_terms: ValidTerms | None = None

    def begin(self, field: str, file_name: str) -> Self | None:
        if field != _FIELD:
            return None
        if self._came:
            raise Problem(422, f"The form has two fields '{_FIELD}'.")
        self._came = True
        return self

    def demand_all(self) -> None:
        if not self._came:
            raise Problem(422, f"The form has no field '{_FIELD}': a JSON document belongs there.")

    def write(self, chunk: bytes) -> None:
        """Append bytes to the document; a 413 if it is too large."""
        if len(self._text) + len(chunk) > DOCUMENT_BYTES:
            raise Problem(413, f"The field '{_FIELD}' may have {DOCUMENT_BYTES:,} bytes here.")
        self._text += chunk

    def seal(self) -> None:
        """Parse and validate the complete document."""
        try:
            terms = RequestedTerms.model_validate_json(bytes(self._text))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise RequestValidationError([{**each, "loc": ("body", _FIELD, *each["loc"])} for each in found]) from None
        self._valid_terms = self._accept(terms)

    @property
    def valid_terms(self) -> ValidTerms:
        """The validated request; available after `seal`."""
        assert self._valid_terms is not None, "a form without its document is none"  # noqa: S101
        return self._valid_terms
