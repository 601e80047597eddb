"""Lists in pages: `?after=` is the last id of the page before, so rows that come or go shift nothing."""

from typing import Annotated

from fastapi import Depends, Query, Request, Response

#: An id, or several joined by dashes.
_CURSOR = "^[0-9a-f-]{1,100}$"
_LIMIT = 50
_MOST = 200


class Page:
    """Which page is asked for, and how its answer names the next one."""

    def __init__(
        self,
        request: Request,
        response: Response,
        after: Annotated[
            str | None, Query(pattern=_CURSOR, description="the last id of the page before, none for the first")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST, description="how many to answer at most")] = _LIMIT,
    ) -> None:
        self.after = after
        self.limit = limit
        #: Where it goes on, once that is known.
        self.next: str | None = None
        self._request = request
        self._response = response

    def next_is(self, after: str | None) -> None:
        """Say in the `Link` header where it goes on; nothing where this is the last page."""
        if after is not None:
            url = self._request.url.include_query_params(after=after)
            self.next = f"{url.path}?{url.query}"
            self._response.headers["Link"] = f'<{self.next}>; rel="next"'


#: A parameter of this type makes an operation answer in pages.
Paged = Annotated[Page, Depends()]
