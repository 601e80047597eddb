"""Slots claim work one at a time, do it beside each other, and look again soon whatever happens."""

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Barrier, Event

import pytest

from onnxbisect_worker import context
from onnxbisect_worker.context import Slots, Work


class Waiting:
    """Work that waits to be claimed, and how often it was looked for."""

    def __init__(self) -> None:
        self.work: SimpleQueue[Work] = SimpleQueue()
        self.looks = 0

    def claim(self) -> Work | None:
        self.looks += 1
        try:
            return self.work.get_nowait()
        except Empty:
            return None


def until(what: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@pytest.fixture
def never_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "POLL_SECONDS", 600.0)


@pytest.mark.usefixtures("never_polled")
def test_one_notification_has_all_work_done_by_as_many_slots_as_there_are() -> None:
    waiting, together = Waiting(), Barrier(4)
    running = Slots("slot", 4, waiting.claim)
    running.start()
    until(lambda: waiting.looks == 1)
    for _ in range(4):
        waiting.work.put(lambda: together.wait(30))
    running.wake()
    until(waiting.work.empty)
    running.stop(30)
    assert not together.broken


def test_of_idle_slots_one_looks_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "POLL_SECONDS", 0.2)
    waiting, done = Waiting(), Event()
    running = Slots("slot", 8, waiting.claim)
    began = time.monotonic()
    running.start()
    until(lambda: waiting.looks > 3)
    assert waiting.looks <= (time.monotonic() - began) / 0.2 + 1
    waiting.work.put(done.set)  # and nobody tells them
    assert done.wait(30)
    running.stop(30)


@pytest.mark.usefixtures("never_polled")
def test_the_end_of_work_is_a_reason_to_look_again() -> None:
    """Of what a tenant, or a worker, may do at a time there may be room now."""
    waiting, go = Waiting(), Event()
    running = Slots("slot", 2, waiting.claim)
    waiting.work.put(lambda: go.wait(30))
    running.start()
    until(lambda: waiting.looks == 2)
    go.set()
    until(lambda: waiting.looks > 2)
    running.stop(30)


def test_no_error_ends_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "POLL_SECONDS", 0.01)
    waiting, done, claims = Waiting(), Event(), iter(range(100))

    def fail() -> None:
        raise ConnectionError

    def claim() -> Work | None:
        if next(claims) % 2:
            raise ConnectionError
        return waiting.claim()

    for work in (fail, fail, done.set):
        waiting.work.put(work)
    running = Slots("slot", 1, claim)
    running.start()
    assert done.wait(30)
    running.stop(30)


@pytest.mark.usefixtures("never_polled")
def test_a_stop_waits_for_what_was_claimed_and_claims_nothing_more() -> None:
    waiting, begun, ended = Waiting(), Event(), Event()

    def work() -> None:
        begun.set()
        time.sleep(0.2)
        ended.set()

    for _ in range(2):
        waiting.work.put(work)
    running = Slots("slot", 1, waiting.claim)
    running.start()
    assert begun.wait(30)
    running.stop(30)
    assert ended.is_set()
    assert waiting.work.qsize() == 1
