"""A host that is confined lives and dies as one that is not: of its model, of its worker and of being told to."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import onnx
import pytest

from onnxbisect.errors import BackendUnusableError
from onnxbisect.verdict import Status
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.model_processes.pool import processes_folder
from onnxbisect_worker.model_requests.protocol import ProcessKilledError, ProcessLostError, ReportOutcome
from support import TESTS
from support.backends.confined import demand_namespaces
from support.worker.hosted import MODELS, Place, searched
from support.worker.process_tree import children, gone, hosts_of, within
from support.worker.small_models import model, relus

#: Says in its work directory that it runs, where the test looks for it, and does not end by itself.
SLEEPS = """
name = "sleeps"
command = ["sh", "-c", "touch running; setsid sleep 1000", "{model}"]
"""
#: Fails with the first operator that it finds in the model.
REFUSES = """
name = "refuses"
version = {command = ["{here}/bin/refuses", "--version"]}
command = ["{here}/bin/refuses", "{model}"]
"""
SCRIPT = """#!/bin/sh
[ "$1" = --version ] && echo 1.2.3 && exit 0
cat ../data/token ../../data/token 2>/dev/null
grep -q Sinh "$1" && echo "error: op Sinh is not supported" && exit 1
exit 0
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder outside of the temporary ones, which are hidden as a whole."""
    demand_namespaces()
    with TemporaryDirectory(dir=Path(__file__).parent, prefix="service-") as name:
        yield Path(name)


def place_in(root: Path, **settings: object) -> Place:
    return Place.at(root / "data", isolation="required", **settings)


def sleeping(root: Path) -> str:
    path = root / "sleeps.toml"
    path.write_text(SLEEPS)
    return str(path)


def runs(place: Place) -> bool:
    return bool([*processes_folder(place.settings).glob("*/own/probe-*/work/running")])


def below(pid: int) -> list[int]:
    """A process and all that came of it."""
    return [pid, *(each for child in children(pid) for each in below(child))]


def the_process() -> list[int]:
    """The only host: the process that waits, the first of the namespace, the one that has the model."""
    [waiting] = hosts_of(os.getpid())
    [first] = children(waiting)
    [confined] = children(first)
    return [waiting, first, confined]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("which", [0, 2], ids=["waiting", "confined"])
def test_one_that_dies_is_told_of_and_leaves_nothing(root: Path, number: signal.Signals, which: int) -> None:
    place = place_in(root)
    with place.hosts() as hosts:
        with hosts.acquire(place.case(relus(2), sleeping(root))) as host:
            host.prepare()
            found: list[int] = []

            def die() -> None:
                assert within(60, lambda: runs(place))
                found.extend(below(the_process()[0]))
                os.kill(the_process()[which], number)

            Thread(target=die, daemon=True).start()
            with pytest.raises(ProcessLostError, match=f"was killed by {number.name}") as lost:
                host.ask(0b11, seconds_left=None)
            assert isinstance(lost.value, ProcessKilledError) is (number is signal.SIGKILL)
        assert len(found) > 4
        assert within(30, lambda: all(map(gone, found)))
    assert list(processes_folder(place.settings).iterdir()) == []


def test_where_the_first_of_its_namespace_is_killed_so_is_it(root: Path) -> None:
    place = place_in(root)
    with place.hosts() as hosts, hosts.acquire(place.case(relus(2))) as host:
        host.prepare()
        _, first, confined = the_process()
        os.kill(first, signal.SIGKILL)
        assert within(30, lambda: gone(confined))
        with pytest.raises(ProcessKilledError):
            host.key(1)


def test_a_kill_ends_it_and_its_compile(root: Path) -> None:
    place = place_in(root)
    lost: list[str] = []

    def ask() -> None:
        with pytest.raises(ProcessLostError) as error:
            host.ask(0b11, seconds_left=None)
        lost.append(str(error.value))

    with place.hosts() as hosts, hosts.acquire(place.case(relus(2), sleeping(root))) as host:
        host.prepare()
        waiting = Thread(target=ask, daemon=True)
        waiting.start()
        assert within(60, lambda: runs(place))
        found = below(the_process()[0])
        host.kill()
        waiting.join(30)
        assert lost == ["The process that had the model was told to end."]
        assert within(30, lambda: all(map(gone, found)))
        assert list(processes_folder(place.settings).iterdir()) == []


def test_nothing_outlives_a_worker_that_is_killed(root: Path) -> None:
    place = place_in(root)
    backend = sleeping(root)
    script = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.worker.hosted import Place
place = Place.at(Path(sys.argv[2]), isolation="required")
with place.hosts() as hosts, hosts.acquire(place.case(Path(sys.argv[3]).read_bytes(), sys.argv[4])) as host:
    host.prepare()
    host.ask(0b11, seconds_left=None)
"""
    (root / "model.onnx").write_bytes(relus(2))
    words = [str(TESTS), str(root / "data"), str(root / "model.onnx"), backend]
    worker = subprocess.Popen([sys.executable, "-c", script, *words])
    assert within(120, lambda: runs(place))
    found = below(worker.pid)[1:]
    worker.kill()
    worker.wait()
    assert within(30, lambda: all(map(gone, found)))
    assert within(30, lambda: list(processes_folder(place.settings).iterdir()) == [])


def test_a_model_that_takes_too_long_is_given_up(root: Path) -> None:
    place = place_in(root, model_seconds=0.2)
    case = place.case(MODELS / "real" / "bert_base12_h256_dyn__ts17.onnx")
    refused = pytest.raises(ProcessLostError, match=r"given up after 0\.2 seconds.*ONNXBISECT_MODEL_SECONDS")
    with place.hosts() as hosts, hosts.acquire(case) as host, refused:
        host.prepare()


@pytest.mark.parametrize("step", ["enter", "arrange"])
def test_where_it_cannot_be_confined_it_reads_nothing(root: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The kernel refused a namespace, or a mount, which it did not when the worker began."""
    (root / "sitecustomize.py").write_text(f"""
import errno
from onnxbisect_backends.sandbox import confine
def refused(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")
confine.{step} = refused
""")
    monkeypatch.setenv("PYTHONPATH", str(root))
    place = place_in(root)
    refused = pytest.raises(ProcessLostError, match="last words were: could not be isolated: No space left on device")
    with place.hosts() as hosts, hosts.acquire(place.case(b"not read")) as host, refused:
        host.prepare()
    assert list(processes_folder(place.settings).iterdir()) == []


def test_models_with_external_data_are_read(root: Path) -> None:
    place = place_in(root)
    [path] = (MODELS / "external").glob("*.onnx")
    with place.hosts() as hosts, hosts.acquire(place.case(path)) as host:
        prepared = host.prepare()
        assert host.draw()
        asked = host.ask(prepared.universe.everything, seconds_left=None)
    assert asked.answer is not None
    assert asked.answer.verdict.status is Status.PASS


def test_a_compiler_in_a_home_is_found_with_all_that_it_is_installed_with(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process that reads the model, which checks it, asks its version, and starts it: what one hides, the other
    could not show.
    """
    home = root / "home"
    (home / "sdk" / "bin").mkdir(parents=True)
    (home / "diary").write_text("secret")
    (home / "sdk" / "bin" / "refuses").write_text(SCRIPT)
    (home / "sdk" / "bin" / "refuses").chmod(0o755)
    (home / "sdk" / "refuses.toml").write_text(REFUSES)
    monkeypatch.setenv("HOME", str(home))
    place = place_in(root)
    path = root / "model.onnx"
    path.write_bytes(model(onnx.helper.make_node("Sinh", ["x"], ["y"])))
    with place.hosts() as hosts, hosts.acquire(place.case(path, str(home / "sdk" / "refuses.toml"))) as host:
        prepared = host.prepare()
        assert prepared.target.version == "1.2.3"
        found = searched(host, prepared)
        written = host.report(found.begun, place.settings.cache / "report", logs=found.logs)
        assert isinstance(written, ReportOutcome)
    assert [culprit["ops"] for culprit in written.document["culprits"]] == [["Sinh"]]
    assert sorted(Path(name).name for name in written.files) == ["compiler.log", "model.onnx"]
    assert all(file.read_bytes() for file in written.files.values())


def test_a_compiler_that_is_not_there_is_a_sentence(root: Path) -> None:
    path = root / "none.toml"
    path.write_text('name = "none"\ncommand = ["no-such-compiler", "{model}"]\n')
    place = place_in(root)
    refused = pytest.raises(BackendUnusableError, match="'no-such-compiler' was not found")
    with place.hosts() as hosts, hosts.acquire(place.case(relus(2), str(path), spec=SearchSpec())) as host, refused:
        host.prepare()
