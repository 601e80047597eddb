"""Browsers that show how jobs are."""

import http.client
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any
from urllib.parse import urlencode

from installation import Api

_TIMEOUT = 60.0


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Seconds until the first byte of each page, and how many there were in a second."""

    seconds: Sequence[float]
    per_second: float

    def at(self, share: float) -> float:
        """Milliseconds within which so large a share was answered."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def request(api: Api, method: str, path: str, body: bytes) -> Any:
    """What is answered; AssertionError where it is a mistake."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=_TIMEOUT)
    try:
        connection.request(method, path, body, {**api.headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        said = response.read()
        assert response.status < 300, said
        return json.loads(said)
    finally:
        connection.close()


def _cookie(api: Api) -> str:
    """That of a browser that has logged in."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=_TIMEOUT)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://127.0.0.1:{api.port}"}
    try:
        connection.request("POST", "/login", urlencode({"token": api.token}), form)
        return (connection.getresponse().getheader("Set-Cookie") or "").partition(";")[0]
    finally:
        connection.close()


@dataclass
class Watcher:
    """One connection that gets pages of jobs, one after the other: as fast as they come, or so often in a second."""

    api: Api
    ids: Sequence[str]
    rate: float | None
    took: list[float] = field(default_factory=list)
    stopping: Event = field(default_factory=Event)
    began: float = 0.0
    ended: float = 0.0

    def run(self) -> None:
        """Until it is told to stop."""
        connection = http.client.HTTPConnection("127.0.0.1", self.api.port, timeout=_TIMEOUT)
        cookie = {"Cookie": _cookie(self.api)}
        self.began = time.monotonic()
        number = 0
        while not self.stopping.is_set():
            at = time.monotonic()
            connection.request("GET", f"/jobs/{self.ids[number % len(self.ids)]}", headers=cookie)
            response = connection.getresponse()
            self.took.append(time.monotonic() - at)
            assert response.status == 200, response.read()
            response.read()
            number += 1
            if self.rate is not None:
                self.stopping.wait(max(self.began + number / self.rate - time.monotonic(), 0.0))
        self.ended = time.monotonic()
        connection.close()


class Watched:
    """What the watchers saw, once they have ended."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers

    def seen(self) -> Reads:
        """All reads of all of them."""
        seconds = [took for watcher in self._watchers for took in watcher.took]
        lasted = statistics.fmean(watcher.ended - watcher.began for watcher in self._watchers)
        return Reads(seconds=seconds, per_second=len(seconds) / lasted)


@contextmanager
def watching(api: Api, ids: Sequence[str], *, connections: int = 5, rate: float | None = 2.0) -> Iterator[Watched]:
    """So many connections, each with so many reads in a second; None for as many as are answered."""
    watchers = [Watcher(api, ids[number:] + ids[:number], rate) for number in range(connections)]  # type: ignore[operator]
    threads = [Thread(target=watcher.run, daemon=True) for watcher in watchers]
    for thread in threads:
        thread.start()
    try:
        yield Watched(watchers)
    finally:
        for watcher in watchers:
            watcher.stopping.set()
        for thread in threads:
            thread.join(_TIMEOUT)


def fastest(api: Api, ids: Sequence[str], seconds: float) -> Reads:
    """As many reads as are answered, over four connections."""
    with watching(api, ids, connections=4, rate=None) as watched:
        time.sleep(seconds)
    return watched.seen()
