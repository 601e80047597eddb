"""Renders pages in the reader's language, with a policy that prevents untrusted contents from running scripts.

Scripts and styles have URLs that change with their content, so that browsers can cache them for ever. All share one
version in their URLs, so that a module imports `./neighbour.js` in its own version.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import jinja2
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from onnxbisect.finished import phrase
from onnxbisect.language import LANGUAGES, _, english, marked, translate, within
from onnxbisect.report.html import compile_all, environment, stylesheet
from onnxbisect.report.text import plural
from onnxbisect_api.access import Caller
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import language_of
from onnxbisect_db.states import Scope

router = APIRouter()

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: A message in a script.
_MESSAGE = re.compile(r'\b_\("([^"\\]+)"')
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, kw_only=True)
class _File:
    content: bytes
    media_type: str


@dataclass(frozen=True, kw_only=True)
class _Folder:
    files: dict[str, _File]
    version: str
    messages: tuple[str, ...]


def address(name: str) -> str:
    """The URL of a static file; KeyError if there is none of this name."""
    folder = _folder()
    if name not in folder.files:
        raise KeyError(name)
    return f"/static/{folder.version}/{name}"


def messages() -> dict[str, str]:
    """The messages of all scripts, each with its translation, for `said.js`."""
    return {message: translate(message) for message in _folder().messages}


@router.get("/static/{version}/{name:path}")
async def static(version: str, name: str) -> Response:
    """A static file. The URL of another version returns the current content, which must not be cached.

    The content comes from memory, because reading a file in a thread would double the time of the response.
    """
    folder = _folder()
    file = folder.files.get(name)
    if file is None:
        raise missing(english("file"))
    kept = _FOR_EVER if version == folder.version else "no-cache"
    return Response(file.content, media_type=file.media_type, headers={"Cache-Control": kept})


@cache
def _folder() -> _Folder:
    found = dict(_below(resources.files("onnxbisect_api.site").joinpath("static"), ""))
    # one stylesheet instead of two, because browsers wait for each of them before they show the page
    found["site.css"] = stylesheet().encode() + found["site.css"]
    files = {
        name: _File(content=content, media_type=media_type)
        for name, content in sorted(found.items())
        if (media_type := next((media_type for ending, media_type in _TYPES.items() if name.endswith(ending)), None))
        is not None
    }
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name} {len(file.content)} ".encode() + file.content)
    scripts = (file.content.decode() for name, file in files.items() if name.endswith(".js") and "/" not in name)
    said = dict.fromkeys(found for script in scripts for found in _MESSAGE.findall(script))
    return _Folder(files=files, version=digest.hexdigest()[:12], messages=tuple(said))


def _below(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _below(entry, f"{prefix}{entry.name}/")
        else:
            found.append((f"{prefix}{entry.name}", entry.read_bytes()))
    return found


#: Only this site's scripts, styles, URLs and form targets; no framing.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def page(
    request: Request,
    name: str,
    caller: Caller | None,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **what: Any,
) -> HTMLResponse:
    """A response with the template `name`, filled with the values `what`. `caller` determines the navigation."""
    scopes = caller.scopes if caller is not None else frozenset()
    # where the page is loaded again in another language; empty for the answer to a form, which would be lost
    query = f"?{request.url.query}" if request.url.query else ""
    content = fragment(
        name,
        language_of(request),
        here=request.url.path,
        this_page=(f"{request.url.path}{query}" if request.method == "GET" else ""),
        caller=caller,
        may_submit=bool(scopes & {Scope.SUBMIT, Scope.ADMIN}),
        may_administer=Scope.ADMIN in scopes,
        **what,
    )
    # node names may contain lone surrogates, which UTF-8 cannot encode
    return HTMLResponse(
        content.encode("utf-8", "backslashreplace"),
        status,
        {"Content-Security-Policy": POLICY, **(headers or {})},
    )


def fragment(name: str, language: str, **what: Any) -> str:
    """The template `name` in a language, filled with the values `what`, as text, such as for a server-sent event."""
    with within(language):
        return _templates().get_template(name).render(**what)


def prepare() -> None:
    """Compile all templates, so that the first page of each kind is fast."""
    compile_all(_templates())


def age(moment: datetime | None) -> str:
    """`12 s ago`, `3 h ago`, `2 days ago`; empty for None."""
    if moment is None:
        return ""
    seconds = int(max((datetime.now(UTC) - moment).total_seconds(), 0))
    if seconds >= 86_400:
        return _("{days} ago", days=plural(seconds // 86_400, "day"))
    if seconds >= 3600:
        return _("{count} h ago", count=seconds // 3600)
    return _("{count} min ago", count=seconds // 60) if seconds >= 60 else _("{count} s ago", count=seconds)


@cache
def _templates() -> jinja2.Environment:
    made = environment(jinja2.PackageLoader("onnxbisect_api.site"))
    made.globals |= {
        "age": age,
        "languages": LANGUAGES,
        "marked": marked,
        "of_scripts": messages,
        "phrase": phrase,
        "static": address,
    }
    return made
