"""The reader's language: the one chosen on the page, which a cookie keeps, else the one that the client prefers."""

from fastapi import Request

from onnxbisect.language import accepted, named

LANGUAGE_COOKIE = "onnxbisect_language"


def language_of(request: Request) -> str:
    """The language of what this client's user reads."""
    return named(request.cookies.get(LANGUAGE_COOKIE, "")) or accepted(request.headers.get("accept-language", ""))
