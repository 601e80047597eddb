"""A worker's heartbeat: it registers, reports its tools, and deregisters."""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event, Thread
from uuid import uuid4

from sqlalchemy.orm import Session

from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_db import workers
from onnxbisect_db.database import Database
from onnxbisect_service.service import Service

_TELL_EVERY = 20.0
#: Seconds for tools to report their versions; a container may be pulled first.
_TOOLS_SECONDS = 120.0
#: Seconds after which broken tools are checked again.
_LOOK_EVERY = 300.0

log = logging.getLogger(__name__)


def worker_id() -> str:
    """A unique name for each start, so that a restarted worker is not taken for the dead one."""
    return f"{_host()}:{os.getpid()}:{uuid4().hex[:8]}"


def is_alive(database: Database) -> bool:
    """Whether a worker of this host had a heartbeat recently, for health checks of containers."""
    with database.session() as session:
        since = workers.alive_since(session)
        told = [worker for worker in workers.list_all(session) if worker.id.startswith(f"{_host()}:")]
    return any(worker.seen_at > since for worker in told)


def _host() -> str:
    return socket.gethostname()[:64]


class Heartbeat:
    """A thread that sends heartbeats until it is stopped."""

    def __init__(self, service: Service, presence: workers.Presence) -> None:
        self._service = service
        #: The current presence, replaced after tools were checked; and the one in the database.
        self._presence = presence
        self._announced: workers.Presence | None = None
        self._stopping = Event()
        self._wake = Event()
        #: Set when a slot has failed with a tool that counted as usable; and those tools.
        self._doubting = Event()
        self._doubted: frozenset[str] = frozenset()
        self._asking: subprocess.Popen[bytes] | None = None
        self._telling = Thread(target=self._tell, name="presence", daemon=True)
        self._looking = Thread(target=self._look, name="tools", daemon=True)

    def start(self) -> None:
        """Register at once; the tools are reported when they have answered."""
        self._telling.start()
        if self._presence.backends:
            self._looking.start()

    def stop(self) -> None:
        """Deregister."""
        self._stopping.set()
        self._wake.set()
        self._doubting.set()
        if self._asking is not None:
            self._asking.kill()
        if self._telling.is_alive():
            self._telling.join()
        if self._announced is not None:
            try:
                self._service.database.run(lambda session: workers.record_stop(session, self._presence.id))
            except Exception as error:  # it will count as dead after a minute
                log.warning("the database cannot be told that this worker leaves: %s", type(error).__name__)

    def _tell(self) -> None:
        while not self._stopping.is_set():
            try:
                self._tell_once()
            except Exception as error:  # the next heartbeat repeats it
                log.warning("the database cannot be told that this worker is here: %s", type(error).__name__)
            self._wake.wait(_TELL_EVERY)
            self._wake.clear()

    def _tell_once(self) -> None:
        presence = self._presence

        def tell(session: Session) -> frozenset[str]:
            unusable = workers.renew(session, presence.id) if presence is self._announced else None
            if unusable is None:
                workers.record_heartbeat(session, presence)
            return unusable or presence.unusable

        unusable = self._service.database.run(tell)
        self._announced = presence
        if not unusable <= presence.unusable:
            self._doubted = unusable
            self._doubting.set()

    def _look(self) -> None:
        """Check all tools once; broken ones regularly, and as soon as a slot has failed with one."""
        backends: Sequence[str] = self._presence.backends
        while not self._stopping.is_set():
            if backends:
                try:
                    answers = self._ask_backends(backends)
                    unusable = {name for name, (usable, _, _) in answers.items() if not usable}
                    self._presence = replace(
                        self._presence,
                        tools={**self._presence.tools, **{name: words for name, (_, words, _) in answers.items()}},
                        unusable=self._presence.unusable - answers.keys() | unusable,
                        isolation={
                            **self._presence.isolation,
                            **{name: level for name, (_, _, level) in answers.items()},
                        },
                    )
                    self._wake.set()
                except Exception as error:  # no process can start, or its output is invalid
                    log.warning("tools cannot be asked what they are: %s: %s", type(error).__name__, error)
            self._doubting.wait(_LOOK_EVERY)
            self._doubting.clear()
            backends, self._doubted = sorted(self._presence.unusable | self._doubted), frozenset()

    def _ask_backends(self, backends: Sequence[str]) -> Mapping[str, tuple[bool, str, str]]:
        """Whether each backend is usable, its description, and its isolation.

        A separate process asks them: compilers start slowly, and some crash.
        """
        argv = [sys.executable, "-m", "onnxbisect_worker.tools", *backends]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True) as asking:
            self._asking = asking
            try:
                output, _ = asking.communicate(timeout=_TOOLS_SECONDS)
            except subprocess.TimeoutExpired:
                asking.kill()
                output, _ = asking.communicate()
            finally:
                self._asking = None
        found = {}
        for line in output.splitlines():
            name, usable, words, level = json.loads(line)
            found[name] = (bool(usable), str(words), str(level))
        silent = (False, "It did not say what it is.", Isolation.NONE)
        return {name: found.get(name, silent) for name in backends}
