"""Live updates of a job's page by server-sent events.

Every event has a complete part of the page, so a browser that reconnects does not need the events it missed.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.concurrency import run_in_threadpool

from onnxbisect_api.access import AccessControl, Caller, Listener, demand_good
from onnxbisect_api.limits import Turns
from onnxbisect_api.parameters import Addresses, RowId, TheAddresses, TheService, language_of
from onnxbisect_api.problems import Problem
from onnxbisect_api.site.job import Target
from onnxbisect_api.site.rendering import fragment
from onnxbisect_api.site.situation import situation
from onnxbisect_api.units import PassedUnitsCache
from onnxbisect_api.watch import TheWatch, Watch
from onnxbisect_db.states import Scope
from onnxbisect_service.service import Service

router = APIRouter()

#: Seconds between updates of the page.
_PAUSE_SECONDS = 0.5
#: Seconds between heartbeats, which keep proxies from closing the stream. Then the stream also reads the job again,
#: because new workers create no events.
_HEARTBEAT_SECONDS = 5.0
_RETRY_MILLISECONDS = 1000
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The job and target that a stream is about, and the resources to read them."""

    service: Service
    known: PassedUnitsCache
    caller: Caller
    addresses: Addresses
    job_id: str
    target: int | None
    language: str
    turns: Turns


@dataclass(frozen=True, kw_only=True)
class _Look:
    """The contents of the page when the job has `events` events."""

    events: int
    shape: str
    going: bool
    html: str
    states: str


@router.get("/jobs/{job_id}/stream")
async def stream(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Listener,
    addresses: TheAddresses,
    watch: TheWatch,
    shape: Annotated[str, Query(max_length=20)],
    target: Target = None,
) -> Response:
    """Streams changes of the page, which was loaded with this `shape`.

    Events without a name have HTML for htmx, `verdicts` the states of the units. `anew` tells the page to reload,
    because it now has other parts. `over` tells that nothing will change any more.
    """
    access_control: AccessControl = request.app.state.access_control
    place = _Place(
        service=service,
        known=request.app.state.passed_units,
        caller=caller,
        addresses=addresses,
        job_id=job_id,
        target=target,
        language=language_of(request),
        turns=access_control.stream_turns,
    )
    async with place.turns.turn(caller.tenant):
        first = await run_in_threadpool(_look, place)
    return EventSourceResponse(_frames(place, watch, first, shape), headers=_UNBUFFERED)


async def _frames(place: _Place, watch: Watch, look: _Look, shape: str) -> AsyncIterator[bytes]:
    yield format_sse_event(retry=_RETRY_MILLISECONDS)
    html = states = ""
    while look.shape == shape:
        if look.states != states:
            states = look.states
            yield format_sse_event(data_str=states, event="verdicts")
        if look.html != html:
            html = look.html
            yield format_sse_event(data_str=html)
        if not look.going:
            yield format_sse_event(data_str="", event="over")
            return
        await asyncio.sleep(_PAUSE_SECONDS)
        if not await watch.past(place.job_id, look.events, token_id=place.caller.token_id, seconds=_HEARTBEAT_SECONDS):
            if watch.ended:
                return
            yield KEEPALIVE_COMMENT
        try:
            async with place.turns.turn(place.caller.tenant):
                look = await run_in_threadpool(_look, place)
        except Problem:  # the job was deleted, the token revoked, or the service too busy
            break
    yield format_sse_event(data_str="", event="anew")


def _look(place: _Place) -> _Look:
    with place.service.database.session() as session:
        demand_good(session, place.caller)
    now = situation(place.service, place.known, place.caller, place.addresses, place.job_id, place.target)
    may_submit = bool(place.caller.scopes & {Scope.SUBMIT, Scope.ADMIN})
    return _Look(
        events=now.row.events,
        shape=now.shape,
        going=now.going,
        html=fragment("_job_changes.html.j2", place.language, **now.content(), may_submit=may_submit),
        states="" if now.states is None else json.dumps(now.states.model_dump(), separators=(",", ":")),
    )
