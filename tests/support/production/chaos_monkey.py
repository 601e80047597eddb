"""Whoever kills: a thread that ends parts of a topology at random, without a word, and starts them again."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import redis as redis_client

from onnxbisect_worker.model_requests.protocol import PROCESS_NAME
from support.production.topology import Part, Topology
from support.worker.webhook_receiver import Receiver

#: How often each is chosen, and how long a part stays away at most, in seconds.
_WEIGHTS = {
    "API": 3,
    "control worker": 2,
    "worker": 6,
    "worker, told to stop": 2,
    "model process": 8,
    "fork server or keeper": 5,
    "compiler": 8,
    "redis": 2,
    "webhook receiver": 2,
}
_AWAY = 3.0
_FORK_SERVER = "onnxbisect_worker.model_processes.server"
#: Tries to meet a compiler or a model process, which may live for a moment only.
_TRIES = 200


class Monkey:
    """Kills about every `seconds`. With `FLUSHALL` once, after so many kills."""

    def __init__(
        self,
        topology: Topology,
        receiver: Receiver,
        chance: random.Random,
        *,
        seconds: float,
        flush_after: int,
        most: int | None = None,
    ) -> None:
        self._topology = topology
        self._receiver = receiver
        self._chance = chance
        self._seconds = seconds
        self._flush_after = flush_after
        self._most = most
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="monkey")
        #: What was killed, how often.
        self.killed: Counter[str] = Counter()
        self.trouble: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """When it returns, all parts are there again."""
        self._stopping.set()
        self._thread.join()
        if self.trouble is not None:
            raise self.trouble

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._chance.expovariate(1 / self._seconds)):
                [kind] = self._chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
                if self._kills[kind]():
                    self.killed[kind] += 1
                if self.killed.total() >= self._flush_after and not self.killed["FLUSHALL"]:
                    redis_client.Redis.from_url(self._topology.redis.url).flushall()
                    self.killed["FLUSHALL"] += 1
                if self._most is not None and self.killed.total() >= self._most:
                    return
        except Exception as error:  # it is the run's, not the thread's
            self.trouble = error

    @property
    def _kills(self) -> dict[str, Callable[[], bool]]:
        parts = self._topology
        return {
            "API": lambda: self._restart(parts.api),
            "control worker": lambda: self._restart(parts.control),
            "worker": lambda: self._restart(self._chance.choice(parts.workers)),
            "worker, told to stop": lambda: self._restart(self._chance.choice(parts.workers), gently=True),
            "model process": lambda: self._shoot(self._hosts),
            "fork server or keeper": lambda: self._shoot(lambda: self._named(_FORK_SERVER) - self._hosts()),
            "compiler": lambda: self._shoot(lambda: self._named("/stand_in_compiler.py", "/ort_session.py")),
            "redis": self._redis,
            "webhook receiver": self._unplug,
        }

    def _restart(self, part: Part, *, gently: bool = False) -> bool:
        if gently:
            part.stop()
        else:
            part.kill()
        self._away()
        part.start()
        return True

    def _redis(self) -> bool:
        self._topology.redis.stop()
        self._away()
        self._topology.redis.start()
        return True

    def _unplug(self) -> bool:
        self._receiver.down()
        self._away()
        self._away()
        self._receiver.up()
        return True

    def _away(self) -> None:
        self._stopping.wait(self._chance.uniform(0, _AWAY))

    def _shoot(self, find: Callable[[], Iterable[int]]) -> bool:
        for _ in range(_TRIES):
            found = sorted(find())
            if found:
                try:
                    os.kill(self._chance.choice(found), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return True
            if self._stopping.wait(0.02):
                break
        return False

    def _named(self, *marks: str) -> set[int]:
        going = self._topology.processes()
        # a compiler's supervisor is told the command on standard input, and has it not in its own
        return {pid for pid, command in going.items() if any(mark in command for mark in marks)}

    def _hosts(self) -> set[int]:
        found = set()
        for pid in self._named(_FORK_SERVER):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == PROCESS_NAME:
                    found.add(pid)
        return found
