"""A worker tells that it is there, what it can do, and when it goes."""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event, Lock, Thread
from uuid import uuid4

from sqlalchemy.orm import Session

from onnxbisect_backends.isolation import Isolation
from onnxbisect_db import workers
from onnxbisect_db.database import Database
from onnxbisect_db.workers import Presence
from onnxbisect_worker.service import Service
from onnxbisect_worker.settings import Settings

_TELL_EVERY = 20.0
#: A compiler that only tells its version may be a container that is fetched first.
_TOOLS_SECONDS = 120.0
#: After which a tool that has failed is asked again whether it works.
_LOOK_EVERY = 60.0

log = logging.getLogger(__name__)


def worker_id() -> str:
    """A name of its own for each start, so that nobody takes a restarted worker for the one that died."""
    return f"{_host()}:{os.getpid()}:{uuid4().hex[:8]}"


def is_alive(settings: Settings) -> bool:
    """Whether a worker of this host told of itself lately: for health checks of containers, which are hosts."""
    with closing(Database(settings.database)) as database, database.session() as session:
        since = workers.alive_since(session)
        told = [worker for worker in workers.listed(session) if worker.id.startswith(f"{_host()}:")]
    return any(worker.seen_at > since for worker in told)


def _host() -> str:
    return socket.gethostname()[:64]


class Attendance:
    """A thread that tells of this worker until it is stopped."""

    def __init__(self, service: Service, presence: Presence) -> None:
        self._service = service
        self._presence = presence
        self._joined = False
        self._stopping = Event()
        self._wake = Event()
        self._learning = Lock()
        #: A hand has failed with a tool that counted as usable.
        self._doubting = Event()
        #: The tools have said something that was not told yet: it is newer than what hands have found.
        self._looked = False
        self._asking: subprocess.Popen[bytes] | None = None
        self._telling = Thread(target=self._tell, name="presence", daemon=True)
        self._looking = Thread(target=self._look, name="tools", daemon=True)

    def start(self) -> None:
        """Join at once; what the tools are is told when they have answered."""
        self._telling.start()
        if self._presence.backends:
            self._looking.start()

    def stop(self) -> None:
        """Leave."""
        self._stopping.set()
        self._wake.set()
        self._doubting.set()
        if self._asking is not None:
            self._asking.kill()
        if self._telling.is_alive():
            self._telling.join()
        if self._joined:
            try:
                self._service.database.run(lambda session: workers.left(session, self._presence.id))
            except Exception as error:  # then it will be taken for dead in a minute
                log.warning("the database cannot be told that this worker leaves: %s", type(error).__name__)

    def _tell(self) -> None:
        while not self._stopping.is_set():
            try:
                self._service.database.run(self._told)
                self._joined = True
            except Exception as error:  # it is told again
                log.warning("the database cannot be told that this worker is here: %s", type(error).__name__)
            self._wake.wait(_TELL_EVERY)
            self._wake.clear()

    def _told(self, session: Session) -> None:
        if not self._joined:
            workers.joined(session, self._presence)
            return
        with self._learning:
            looked, self._looked, before = self._looked, False, self._presence
        doubted = {} if looked else workers.doubted(session, before)
        if doubted:
            self._learn(doubted, set(doubted))
            self._doubting.set()
        workers.seen(session, self._presence)

    def _look(self) -> None:
        """At all tools once; at one that fails later at once, and again and again until it works."""
        self._ask(self._presence.backends)
        missing = self._presence.unusable
        while not self._stopping.is_set():
            self._doubting.wait(_LOOK_EVERY if self._presence.unusable - missing else None)
            self._doubting.clear()
            doubted = self._presence.unusable - missing
            if doubted and not self._stopping.is_set():
                self._ask(sorted(doubted))

    def _ask(self, backends: Sequence[str]) -> None:
        said = self._said(backends)
        self._learn(
            {name: words for name, (_, words, _) in said.items()},
            {name for name, (usable, _, _) in said.items() if not usable},
            {name: level for name, (_, _, level) in said.items()},
        )
        self._wake.set()

    def _learn(self, tools: Mapping[str, str], unusable: set[str], isolation: Mapping[str, str] | None = None) -> None:
        """What there is to tell of these tools, of which some cannot be used."""
        with self._learning:
            self._presence = replace(
                self._presence,
                tools={**self._presence.tools, **tools},
                unusable=self._presence.unusable - tools.keys() | unusable,
                isolation={**self._presence.isolation, **(isolation or {})},
            )
            self._looked |= isolation is not None

    def _said(self, backends: Sequence[str]) -> Mapping[str, tuple[bool, str, str]]:
        """Whether each backend can be used, what it says, and its isolation. Asked in a process of its own: compilers
        are slow to start, and some of them crash while they do.
        """
        argv = [sys.executable, "-m", "onnxbisect_worker.tools", *backends]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True) as asking:
            self._asking = asking
            try:
                said, _ = asking.communicate(timeout=_TOOLS_SECONDS)
            except subprocess.TimeoutExpired:
                asking.kill()
                said, _ = asking.communicate()
            finally:
                self._asking = None
        found = {}
        for line in said.splitlines():
            name, usable, words, level = json.loads(line)
            found[name] = (bool(usable), str(words), str(level))
        silent = (False, "It did not say what it is.", Isolation.NONE)
        return {name: found.get(name, silent) for name in backends}
