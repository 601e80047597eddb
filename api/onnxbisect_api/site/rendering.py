"""Renders pages from templates, with a policy that prevents untrusted contents from running scripts."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

from onnxbisect.report.rendering import compile_all, environment
from onnxbisect_api.access import Caller
from onnxbisect_api.site.static import address
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
    content = (
        _templates()
        .get_template(name)
        .render(
            here=request.url.path,
            caller=caller,
            may_submit=bool(scopes & {Scope.SUBMIT, Scope.ADMIN}),
            may_administer=Scope.ADMIN in scopes,
            **what,
        )
    )
    # node names may contain lone surrogates, which UTF-8 cannot encode
    return HTMLResponse(
        content.encode("utf-8", "backslashreplace"),
        status,
        {"Content-Security-Policy": POLICY, **(headers or {})},
    )


def fragment(name: str, **what: Any) -> str:
    """The template `name`, filled with the values `what`, as text for a server-sent event."""
    return _templates().get_template(name).render(**what)


def prepare() -> None:
    """Compile all templates, so that the first page of each kind is fast."""
    compile_all(_templates())


def age(moment: datetime | None) -> str:
    """`12 s ago`, `3 h ago`, `2 days ago`; empty for None."""
    if moment is None:
        return ""
    seconds = max((datetime.now(UTC) - moment).total_seconds(), 0)
    for size, name in ((86_400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if name == 'day' and count != 1 else ''} ago"
    return f"{int(seconds)} s ago"


@cache
def _templates() -> jinja2.Environment:
    made = environment(jinja2.PackageLoader("onnxbisect_api.site"))
    made.globals |= {"static": address, "age": age}
    return made
