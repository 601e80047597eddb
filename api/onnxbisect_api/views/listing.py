"""Queries of lists: labels (`label=repo:net&label=branch:main`), pages, and cursors of items without a row id."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Query, Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from pydantic import AfterValidator

from onnxbisect.language import english
from onnxbisect.report.text import clip
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.parameters import LABEL_NAME, ONE_LINE, UUID_PATTERN
from onnxbisect_backends.options import unknown

#: The error for an invalid cursor.
NO_PLACE = "This is no place in the list: go on from the `Link` header of the page before"
_LIMIT = 50
_MOST = 200
_REST = "/v1/"

_Limit = Annotated[int, Query(ge=1, le=_MOST, description="how many to answer at most")]


def _id(text: str | None) -> str | None:
    if text is not None and re.fullmatch(UUID_PATTERN, text) is None:
        raise ValueError(NO_PLACE)
    return text


class PageRequest:
    """The requested page of a list, and the link to the next one. Each route interprets the cursor `after` itself."""

    def __init__(
        self,
        request: Request,
        response: Response,
        after: Annotated[
            str | None, Query(description="where the page before ends, as its `Link` header says; none for the first")
        ] = None,
        limit: _Limit = _LIMIT,
    ) -> None:
        if request.url.path.startswith(_REST):  # URLs of HTML pages may have any parameters
            fields = get_flat_params(request.scope["route"].dependant)
            names = [it.alias for it in fields if getattr(it.field_info, "in_", None) == ParamTypes.query]
            # a list would return all rows for a misspelt filter
            if wrong := [name for name in request.query_params if name not in names]:
                raise Problem(422, unknown("parameter of this list", clip(wrong[0], 50), names))
        self.after = after
        self.limit = limit
        #: The cursor of the next page, once known.
        self.next: str | None = None
        self._request = request
        self._response = response

    def next_is(self, after: str | None) -> None:
        """Set the `Link` header to the next page; None for the last page."""
        if after is not None:
            url = self._request.url.include_query_params(after=after)
            self.next = f"{url.path}?{url.query}"
            self._response.headers["Link"] = f'<{self.next}>; rel="next"'


class PageOfRows(PageRequest):
    """A page of a list whose items have ids."""

    def __init__(
        self,
        request: Request,
        response: Response,
        after: Annotated[
            str | None,
            AfterValidator(_id),
            Query(
                description="the last id of the page before, none for the first",
                json_schema_extra={"pattern": UUID_PATTERN},
            ),
        ] = None,
        limit: _Limit = _LIMIT,
    ) -> None:
        super().__init__(request, response, after, limit)


#: A parameter of one of these types makes an operation paginated.
Paged = Annotated[PageRequest, Depends()]
PagedRows = Annotated[PageOfRows, Depends()]


_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = timedelta(microseconds=1)
_WRITTEN = re.compile("([0-9a-f]{1,16})-([0-9a-f]{64})")


def write_cursor(at: datetime, sha256: str) -> str:
    """The value for `?after=`."""
    return f"{(at - _BEGINNING) // _STEP:x}-{sha256}"


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """Parse the result of `write` into its arguments."""
    written = _WRITTEN.fullmatch(cursor)
    try:
        if written is not None:
            return _BEGINNING + int(written[1], 16) * _STEP, written[2]
    except OverflowError:
        pass
    raise Problem(422, f"query.after: {NO_PLACE}.")


#: A label's name, separator and value; names contain neither separator.
_PARTS = re.compile(r"([^:=]*)([:=]?)(.*)", re.DOTALL)


def read_labels(texts: Iterable[str]) -> dict[str, str]:
    """The labels in texts `name:value` or `name=value`; a 422 for any other text and for repeated names."""
    found = {}
    for text in texts:
        name, mark, value = _PARTS.fullmatch(text).groups()  # type: ignore[union-attr] # it matches any text
        if not mark or not value or not re.fullmatch(LABEL_NAME, name) or not re.fullmatch(ONE_LINE, value):
            raise Problem(422, english("A label is written as name:value, as in label=repo:net."))
        if name in found:
            raise Problem(422, english("The label '{name}' is asked for twice.", name=name))
        found[name] = value
    return found


def _labels(
    label: Annotated[
        list[str] | None,
        Query(max_length=8, description="name:value; several must all be there", examples=["repo:net"]),
    ] = None,
) -> dict[str, str]:
    return read_labels(label or ())


#: A parameter of this type has the labels in the request's query.
TheLabels = Annotated[dict[str, str], Depends(_labels)]
