"""Events of jobs: waits for them, as long as the listener's token is valid, and sends them as server-sent events."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from onnxbisect_api.access import AccessControl, Caller, Listener, demand_good
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.limits import Turns
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.views.found import job_of
from onnxbisect_db import events, tokens
from onnxbisect_db.database import Database
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Event
from onnxbisect_service.service import Service

_LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 0.05
#: Most jobs in one query, because databases limit the length of lists; most events of one answer.
_AT_A_TIME = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class _Waiter:
    job_id: str
    #: The last known event's number; None to wait for the end of the job.
    number: int | None
    token_id: str
    happened: asyncio.Future[bool]


class Watch:
    """The listeners of one application. Not thread-safe: use it in the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: set[_Waiter] = set()
        self._reader: asyncio.Task[None] | None = None
        self.ended = False

    async def past(self, job_id: str, number: int | None, *, token_id: str, seconds: float) -> bool:
        """Wait until the job has more than `number` events (None: until it has ended), is deleted, or the token is no
        longer valid.

        False if this did not happen within `seconds`, or if the service stops.
        """
        if self.ended:
            return False
        happened = asyncio.get_running_loop().create_future()
        waiter = _Waiter(job_id=job_id, number=number, token_id=token_id, happened=happened)
        self._waiting.add(waiter)
        try:
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read())
            return await asyncio.wait_for(waiter.happened, seconds)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)

    @property
    def listeners(self) -> int:
        """The number of listeners."""
        return len(self._waiting)

    def end(self) -> None:
        """End the waiting of all current and future listeners, because the service stops."""
        self.ended = True
        for waiter in self._waiting:
            if not waiter.happened.done():
                waiter.happened.set_result(False)

    async def _read(self) -> None:
        while self._waiting:
            try:
                job_ids = sorted({waiter.job_id for waiter in self._waiting})
                token_ids = sorted({waiter.token_id for waiter in self._waiting})
                known, good = await run_in_threadpool(self._progress, job_ids, token_ids)
            except SQLAlchemyError as error:
                _LOG.warning("listeners wait on, the database did not answer: %s", error)
            else:
                for waiter in self._waiting:
                    job = known.get(waiter.job_id)
                    if waiter.happened.done():
                        continue
                    if (
                        waiter.token_id not in good
                        or job is None
                        or (job.ended if waiter.number is None else job.events > waiter.number)
                    ):
                        waiter.happened.set_result(True)
            await asyncio.sleep(_EVERY_SECONDS)

    def _progress(self, job_ids: list[str], token_ids: list[str]) -> tuple[dict[str, events.JobProgress], set[str]]:
        found: dict[str, events.JobProgress] = {}
        good: set[str] = set()
        with self._database.session() as session:
            for first in range(0, len(job_ids), _AT_A_TIME):
                found |= events.progress(session, job_ids[first : first + _AT_A_TIME])
            for first in range(0, len(token_ids), _AT_A_TIME):
                good |= tokens.valid_ids(session, token_ids[first : first + _AT_A_TIME])
        return found, good


def watch_of(request: Request) -> Watch:
    """The watch of the request's application."""
    watch: Watch = request.app.state.watch
    return watch


#: A route's parameter of this type is the application's watch.
TheWatch = Annotated[Watch, Depends(watch_of)]


router = APIRouter(tags=["events"])

#: Seconds between heartbeats, because proxies close silent streams.
_HEARTBEAT_SECONDS = 5.0
_RETRY_MILLISECONDS = 2000
_LARGEST = 2**31 - 1
#: Tells proxies not to buffer the stream.
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer"},
    },
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The events: `id` is the number, `event` the type, `data` an object with number, type, at, data",
        "content": {"text/event-stream": {"itemSchema": _EVENT}},
    },
    204: {"description": "The job has ended, and nothing came after that event: do not ask again"},
}


@router.get(
    "/jobs/{job_id}/events", summary="A job's events, as they happen", response_class=Response, responses=_STREAM
)
async def stream_events(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Listener,
    watch: TheWatch,
    after: Annotated[int, Query(ge=0, le=_LARGEST, description="the number of the last event that is known")] = 0,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="the same, as browsers send it when they reconnect")
    ] = None,
) -> Response:
    """Sends the job's events, from the one after the last known event, and ends after the job's last event."""
    known = after
    if last_event_id:
        is_number = last_event_id.isdecimal() and last_event_id.isascii() and len(last_event_id) <= 10
        if not is_number or int(last_event_id) > _LARGEST:
            raise Problem(422, "Last-Event-ID is no number of an event.")
        known = int(last_event_id)
    access_control: AccessControl = request.app.state.access_control
    so_far = await run_in_threadpool(_read, service, caller, job_id, known)
    if so_far.over and not so_far.events:
        return Response(status_code=204)
    frames = _frames(service, caller, watch, access_control.stream_turns, job_id, so_far)
    return EventSourceResponse(frames, headers=_UNBUFFERED)


class _SoFar:
    """The next events after a known one.

    `over` tells that the job has ended and these are its last events, `more` that further events are stored already.
    """

    def __init__(self, found: list[Event], known: int, *, ended: bool, count: int) -> None:
        self.events = found
        self.known = found[-1].number if found else known
        self.over = ended and self.known >= count
        self.more = self.known < count


def _read(service: Service, caller: Caller, job_id: str, known: int) -> _SoFar:
    with service.database.session() as session:
        demand_good(session, caller)
        job = job_of(session, job_id, caller)
        found = events.after(session, job_id, known, _AT_A_TIME)
        return _SoFar(found, known, ended=JobState(job.state).ended, count=job.events)


async def _frames(
    service: Service, caller: Caller, watch: Watch, turns: Turns, job_id: str, so_far: _SoFar
) -> AsyncIterator[bytes]:
    yield format_sse_event(retry=_RETRY_MILLISECONDS)
    while True:
        for event in so_far.events:
            content = {
                "number": event.number,
                "type": event.type,
                "at": event.created_at.isoformat(),
                "data": event.data,
            }
            yield format_sse_event(data_str=json.dumps(content), event=event.type, id=str(event.number))
        if so_far.over:
            return
        while not so_far.more and not await watch.past(
            job_id, so_far.known, token_id=caller.token_id, seconds=_HEARTBEAT_SECONDS
        ):
            if watch.ended:
                return
            yield KEEPALIVE_COMMENT
        try:
            async with turns.turn(caller.tenant):
                so_far = await run_in_threadpool(_read, service, caller, job_id, so_far.known)
        except Problem:  # the job was deleted, the token revoked, or the service too busy
            return
