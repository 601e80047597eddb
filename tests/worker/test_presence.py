"""What a worker tells of its tools: what they say themselves, and what its hands have found since."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from onnxbisect_db import workers
from onnxbisect_db.tables import Worker
from onnxbisect_db.workers import Presence
from onnxbisect_worker import presence
from onnxbisect_worker.presence import Attendance
from support.worker.installation import Installation
from support.worker.process_tree import within


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Installation]:
    with closing(Installation.at(tmp_path)) as made:
        yield made


def told(it: Installation) -> Worker | None:
    with it.service.database.session() as session:
        return next(iter(workers.listed(session)), None)


def says(it: Installation, backend: str) -> str | None:
    worker = told(it)
    return None if worker is None else worker.tools.get(backend)


def test_a_tool_that_failed_is_asked_again(it: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_TELL_EVERY", 0.05)
    asked: list[Sequence[str]] = []
    ask = Attendance._said

    def noted(self: Attendance, backends: Sequence[str]) -> Mapping[str, tuple[bool, str, str]]:
        asked.append(backends)
        return ask(self, backends)

    monkeypatch.setattr(Attendance, "_said", noted)

    def works() -> bool:
        worker = told(it)
        return worker is not None and "onnxruntime 1." in worker.tools.get("onnxruntime", "") and not worker.unusable

    attendance = Attendance(it.service, Presence(id="w", backends=("onnxruntime", "whitelist"), slots=1))
    attendance.start()
    try:
        assert within(60, works)
        it.service.database.run(lambda session: workers.doubt(session, "w", "onnxruntime", "no licence"))
        assert within(60, lambda: len(asked) >= 2 and works())
    finally:
        attendance.stop()
    assert asked[:2] == [("onnxruntime", "whitelist"), ["onnxruntime"]]
    assert told(it) is None


def test_one_that_still_fails_is_asked_until_it_works(it: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_TELL_EVERY", 0.05)
    monkeypatch.setattr(presence, "_LOOK_EVERY", 0.05)
    answers = iter([(True, "2.31"), (False, "no licence"), (False, "no licence")])
    monkeypatch.setattr(
        Attendance,
        "_said",
        lambda self, backends: {name: (*next(answers, (True, "2.32")), "none") for name in backends},
    )
    attendance = Attendance(it.service, Presence(id="w", backends=("qnn",), slots=1))
    attendance.start()
    try:
        assert within(60, lambda: says(it, "qnn") == "2.31")
        it.service.database.run(lambda session: workers.doubt(session, "w", "qnn", "no licence"))
        assert within(60, lambda: says(it, "qnn") == "2.32")
        worker = told(it)
        assert worker is not None
        assert worker.unusable == []
    finally:
        attendance.stop()
