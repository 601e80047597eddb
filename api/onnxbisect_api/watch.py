"""Waits for events of jobs, as long as the listener's token is valid.

One reader queries the database for all listeners, a few times a second, so a waiting listener needs neither a thread
nor a connection. It queries only while there are listeners.
"""

import asyncio
import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from onnxbisect_db import events, tokens
from onnxbisect_db.database import Database
from onnxbisect_db.events import JobProgress

_LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 0.05
#: Most jobs in one query, because databases limit the length of lists.
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
                self._tell(known, good)
            await asyncio.sleep(_EVERY_SECONDS)

    def _tell(self, known: Mapping[str, JobProgress], good: AbstractSet[str]) -> None:
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

    def _progress(self, job_ids: list[str], token_ids: list[str]) -> tuple[dict[str, JobProgress], set[str]]:
        found: dict[str, JobProgress] = {}
        good: set[str] = set()
        with self._database.session() as session:
            for first in range(0, len(job_ids), _AT_A_TIME):
                found |= events.progress(session, job_ids[first : first + _AT_A_TIME])
            for first in range(0, len(token_ids), _AT_A_TIME):
                good |= tokens.good_ones(session, token_ids[first : first + _AT_A_TIME])
        return found, good


def watch_of(request: Request) -> Watch:
    """The watch of the request's application."""
    watch: Watch = request.app.state.watch
    return watch


#: A route's parameter of this type is the application's watch.
TheWatch = Annotated[Watch, Depends(watch_of)]
