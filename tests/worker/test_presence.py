"""What a worker tells of its tools: what they say themselves, and what its slots have found since."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onnxbisect_db import workers
from onnxbisect_db.tables import Worker
from onnxbisect_db.workers import Presence
from onnxbisect_worker import presence
from onnxbisect_worker.presence import Heartbeat
from support.worker.installation import Installation
from support.worker.process_tree import within

#: Two backends, as a package that is installed: each works unless a file says why not, and notes when it is asked.
_MODULE = """
from pathlib import Path

from onnxbisect_backends.contract import Description

HERE = Path(__file__).parent


class Chip:
    options = {}

    def __init__(self, options):
        pass

    def check(self):
        if (HERE / "greeting").exists():
            print((HERE / "greeting").read_text(), flush=True)
        with (HERE / f"{self.name}.asked").open("a") as file:
            file.write("once\\n")
        broken = HERE / f"{self.name}.broken"
        return broken.read_text() if broken.exists() else None

    def describe(self):
        return Description(tool=self.name, version=(HERE / "version").read_text())


class One(Chip):
    name = "one"


class Two(Chip):
    name = "two"
"""


class Chips:
    """The compilers of these backends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "chips-1.0.dist-info").mkdir(parents=True)
        (folder / "chips-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: chips\nVersion: 1.0\n")
        points = "[onnx_bisect.backends]\none = chips:One\ntwo = chips:Two\n"
        (folder / "chips-1.0.dist-info" / "entry_points.txt").write_text(points)
        (folder / "chips.py").write_text(_MODULE)
        self.version = "2.31"

    @property
    def version(self) -> str:
        return (self._folder / "version").read_text()

    @version.setter
    def version(self, version: str) -> None:
        (self._folder / "version").write_text(version)

    def breaks(self, name: str, why: str) -> None:
        (self._folder / f"{name}.broken").write_text(why)

    def prints(self, greeting: str) -> None:
        (self._folder / "greeting").write_text(greeting)

    def works_again(self, name: str) -> None:
        (self._folder / f"{name}.broken").unlink()

    def asked(self, name: str) -> int:
        path = self._folder / f"{name}.asked"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Installation]:
    with closing(Installation.at(tmp_path)) as made:
        yield made


@pytest.fixture
def chips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chips:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "chips"))
    return Chips(tmp_path / "chips")


def told(it: Installation) -> Worker | None:
    with it.service.database.session() as session:
        return next(iter(workers.list_all(session)), None)


def says(it: Installation, backend: str) -> str | None:
    worker = told(it)
    return None if worker is None else worker.tools.get(backend)


def test_a_tool_that_failed_is_asked_again(it: Installation, chips: Chips, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_TELL_EVERY", 0.05)

    def works() -> bool:
        worker = told(it)
        return worker is not None and worker.tools == {"one": "one 2.31", "two": "two 2.31"} and not worker.unusable

    heartbeat = Heartbeat(it.service, Presence(id="w", backends=("one", "two"), slots=1))
    heartbeat.start()
    try:
        assert within(60, works)
        it.service.database.run(lambda session: workers.record_broken_tool(session, "w", "one", "no licence"))
        assert within(60, lambda: chips.asked("one") == 2 and works())
    finally:
        heartbeat.stop()
    assert chips.asked("two") == 1
    assert told(it) is None


def test_what_tools_print_is_no_answer(it: Installation, chips: Chips) -> None:
    chips.prints("Loading the toolkit")
    heartbeat = Heartbeat(it.service, Presence(id="w", backends=("one", "two"), slots=1))
    heartbeat.start()
    try:
        assert within(60, lambda: says(it, "two") == "two 2.31")
    finally:
        heartbeat.stop()


@pytest.mark.long
def test_one_that_still_fails_is_asked_until_it_works(
    it: Installation, chips: Chips, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_TELL_EVERY", 0.05)
    monkeypatch.setattr(presence, "_LOOK_EVERY", 0.05)
    heartbeat = Heartbeat(it.service, Presence(id="w", backends=("one",), slots=1))
    heartbeat.start()
    try:
        assert within(60, lambda: says(it, "one") == "one 2.31")
        chips.breaks("one", "no licence")
        it.service.database.run(lambda session: workers.record_broken_tool(session, "w", "one", "it failed"))
        assert within(60, lambda: says(it, "one") == "no licence" and chips.asked("one") >= 3)
        chips.version = "2.32"
        chips.works_again("one")
        assert within(60, lambda: says(it, "one") == "one 2.32")
        worker = told(it)
        assert worker is not None
        assert worker.unusable == []
    finally:
        heartbeat.stop()
