"""Scripts and styles, at URLs that change with their content, so that browsers can cache them for ever.

All files share one version in their URLs, so that a module imports `./neighbour.js` in its own version.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Response

from onnxbisect.language import english, translate
from onnxbisect.report.html import stylesheet
from onnxbisect_api.problems import missing

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
        if (media_type := _type(name)) is not None
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


def _type(name: str) -> str | None:
    return next((media_type for ending, media_type in _TYPES.items() if name.endswith(ending)), None)
