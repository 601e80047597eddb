"""Strong entity tags, so that unchanged content is not sent again."""

import hashlib
from collections.abc import Mapping
from importlib.metadata import version

from fastapi import Request, Response


def tag_of(*parts: object) -> str:
    """The tag for content made of these parts by this version of the program."""
    text = "\n".join([version("onnx-bisect"), *map(str, parts)])
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def unchanged(request: Request, headers: Mapping[str, str]) -> Response | None:
    """A 304 if the client has the content with the tag in these headers."""
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    same = headers["ETag"] in known or known == ["*"]
    return Response(status_code=304, headers=dict(headers)) if same else None
