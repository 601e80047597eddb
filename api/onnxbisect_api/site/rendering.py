"""Renders pages in the reader's language, with a policy that prevents untrusted contents from running scripts."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

from onnxbisect.finished import phrase
from onnxbisect.language import LANGUAGES, _, marked, within
from onnxbisect.report.html import compile_all, environment
from onnxbisect.report.text import plural
from onnxbisect_api.access import Caller
from onnxbisect_api.parameters import language_of
from onnxbisect_api.site.static import address, messages
from onnxbisect_db.states import Scope

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
    content = fragment(
        name,
        language_of(request),
        here=request.url.path,
        this_page=_this(request),
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


def _this(request: Request) -> str:
    """Where the page is loaded again in another language; empty for the answer to a form, which would be lost."""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{query}" if request.method == "GET" else ""


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
