"""What a process sees of the service that reads a model, once the model has taken it over: line 10 of the checklist.

The hostile code is that of a backend of a third party, which runs in the very process that has read the model.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_db.database import Database
from onnxbisect_worker.model_processes.pool import processes_folder
from onnxbisect_worker.model_requests.layout import hold
from onnxbisect_worker.model_requests.protocol import Case, ModelProcess, ProcessLostError
from support.worker.hosted import MODELS, NOTHING, Place

MODEL = MODELS / "unsorted_nodes.onnx"

#: A backend whose compiles run code of the test in the host's process, and fail with what it prints.
SPY = '''
import contextlib, io, json, os
from onnxbisect.model.model import Established
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Access, Description, Outcome
from onnxbisect_backends.probing.forked import forked
from onnxbisect.model.model import Allowance

def ran(code, probe, workdir):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, {"probe": probe, "workdir": workdir})
    return said.getvalue()

class Spy:
    """Looks around."""

    name = "spy"
    isolated = True

    def __init__(self, options):
        self.options = options
        self.access = Access(network="network" in options)

    def check(self):
        return None

    def describe(self):
        # nothing is measured of it before the search: its first compile is the one that a test asks for
        return Description(tool="spy", version="1", dynamic_shapes=True, boundary_known=True)

    def compile(self, probe, workdir, limits):
        code = self.options["code"]
        log = ran(code, probe, workdir)
        if "forked" in self.options:
            def work():
                return Established(types={}, known={}, data_dependent=(), notes=(ran(code, probe, workdir),))
            log = forked(work, Allowance(seconds=60, memory=1 << 30)).notes[0]
        return Outcome(exit_code=1, log=log)

    def judge(self, outcome):
        return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="error")

class Stranger(Spy):
    """One that does not say that it bears isolation."""

    name = "stranger"
    isolated = False
'''
POINTS = "[onnx_bisect.backends]\nspy = spy_backend:Spy\nstranger = spy_backend:Stranger\n"

#: Prints what hostile code in a host finds of the service, as JSON. `given` is written before it.
LOOK = """
import ctypes, json, os, socket, stat

def tried(what, *arguments):
    try:
        return what(*arguments)
    except OSError as error:
        return error.strerror

def read(path):
    with open(path, "rb") as file:
        return len(file.read())

def listed(folder):
    return sorted(os.path.join(at, name)[len(folder) + 1:] for at, _, names in os.walk(folder) for name in names)

libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
open_folders = []
for number in os.listdir("/proc/self/fd"):
    try:
        if stat.S_ISDIR(os.fstat(int(number)).st_mode):
            open_folders.append(os.readlink(f"/proc/self/fd/{number}"))
    except OSError:
        pass  # that of the list itself
found = {
    "connects": tried(socket.create_connection, ("127.0.0.1", given["port"]), 5),
    "unix": tried(socket.socket(socket.AF_UNIX).connect, given["socket"]),
    "database": tried(read, given["database"]),
    "token file": tried(read, given["token"]),
    "stranger's model": tried(read, given["stranger"]),
    "stranger's host": tried(lambda: sorted(os.listdir(given["hosts"]))),
    "data": listed(given["data"]),
    "environment": [name for name, value in os.environ.items() if "secret" in value],
    "first environment": b"secret" in open("/proc/self/environ", "rb").read(),
    "capabilities": {status[name].strip() for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")},
    "privileges": status["NoNewPrivs"].strip(),
    "worker": os.path.exists(f"/proc/{given['pid']}/stat"),
    "signals": tried(os.kill, given["pid"], 0),
    "folders": open_folders,
    "above": tried(os.listdir, ".."),
    "home": tried(os.listdir, os.path.expanduser("~")),
    "reads its model": tried(read, given["model"]) == given["size"],
    "changes its model": tried(open, given["model"], "ab"),
    "probe": len(open(probe, "rb").read()) > 0,
    "writes": open(os.path.join(workdir, "out"), "w").write("x"),
    "changes programs": tried(open, given["program"], "ab"),
    "undoes": [libc.umount2(given["data"].encode(), 2), libc.mount(None, b"/", None, 32, None)],
}
read_end, write_end = os.pipe()
if os.fork() == 0:  # without threads, as namespaces of users want it
    made = libc.unshare(0x10000000 | 0x20000)
    undone = [libc.umount2(given["data"].encode(), 2), libc.mount(None, b"/", None, 32 | 4096, None)]
    os.write(write_end, json.dumps([made, undone, len(listed(given["data"]))]).encode())
    os._exit(0)
found["undoes in a namespace"] = json.loads(os.read(read_end, 4096))
found["data at last"] = listed(given["data"])
found["capabilities"] = sorted(found["capabilities"])
print(json.dumps(found, default=str))
"""


@dataclass
class Ground:
    """A service's folders with secrets in them, beside a listening server."""

    place: Place
    given: dict[str, Any]

    def found(self, backend: str = "spy", **options: str) -> dict[str, Any]:
        """What the process finds that has read the model."""
        code = f"given = {self.given!r}\n{LOOK}"
        with self.hosted(code, backend, **options) as (host, units):
            asked = host.ask(units, seconds_left=None)
        assert asked.answer is not None, asked
        return dict(json.loads(asked.answer.log))

    def hosted(self, code: str, backend: str = "spy", **options: str) -> "_Hosted":
        case = self.place.case(MODEL, backend, options={"code": code, **options})
        return _Hosted(self.place, case)


class _Hosted:
    """A host that has prepared the case, and all units of its model."""

    def __init__(self, place: Place, case: Case) -> None:
        self._hosts = place.hosts()
        self._case = case

    def __enter__(self) -> tuple[ModelProcess, int]:
        self._lent = self._hosts.__enter__().acquire(self._case)
        host = self._lent.__enter__()
        return host, host.prepare().universe.everything

    def __exit__(self, *error: Any) -> None:
        self._lent.__exit__(*error)
        self._hosts.__exit__(*error)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ground]]:
    """Makes a service's folders outside of those that are hidden from everybody, if the project lies outside."""
    plugin = tmp_path / "plugin"
    (plugin / "spy-1.0.dist-info").mkdir(parents=True)
    (plugin / "spy_backend.py").write_text(SPY)
    (plugin / "spy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: spy\nVersion: 1.0\n")
    (plugin / "spy-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(plugin)
    monkeypatch.setenv("PYTHONPATH", str(plugin))
    for name in ("ONNXBISECT_REDIS_URL", "ONNXBISECT_TOKEN", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "redis://:secret@queue.example/0")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    held: list[int] = []
    with (
        TemporaryDirectory(dir=Path(__file__).parent, prefix="service-") as name,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
    ):
        root = Path(name)
        local.bind(str(root / "socket"))
        local.listen()

        def make(level: str) -> Ground:
            place = Place.at(root / "data", work=root / "data" / "work", isolation=level)
            Database(place.settings.database).upgrade()
            (root / "data" / "token").write_text("secret")
            stranger = place.files.put([b"another tenant's model"])
            another = processes_folder(place.settings) / "another"
            held.append(hold(another))
            (another / "own").mkdir()
            case = place.case(MODEL, "spy", options={})
            (root / "data" / "socket").symlink_to(root / "socket")
            given = {
                "port": server.getsockname()[1],
                "socket": str(root / "data" / "socket"),
                "database": place.settings.database.removeprefix("sqlite:///"),
                "token": str(root / "data" / "token"),
                "stranger": str(place.files.path(stranger.sha256).absolute()),
                "hosts": str(another),
                "data": str(root / "data"),
                "pid": os.getpid(),
                "model": str(place.files.path(case.onnx).absolute()),
                "size": MODEL.stat().st_size,
                "program": isolation.__file__,
            }
            assert Path(given["database"]).stat().st_size > 0
            return Ground(place, given)

        yield make
        for lock in held:
            os.close(lock)


@pytest.fixture
def required(ground: Callable[..., Ground]) -> Ground:
    if isolation.available() is Isolation.NONE:
        pytest.skip("the kernel allows no namespaces here")
    return ground("required")


def test_10_what_has_read_a_model_sees_nothing_else_of_the_service(required: Ground) -> None:
    demand_nothing_found(required.found())


def test_10_nor_does_what_it_forks_to_run_the_model(required: Ground) -> None:
    demand_nothing_found(required.found(forked=""))


def test_10_where_isolation_is_required_it_is_kept_for_backends_that_do_not_bear_it(required: Ground) -> None:
    demand_nothing_found(required.found("stranger"))


def demand_nothing_found(found: dict[str, Any]) -> None:
    here = {when: [name for name in found.pop(when) if not name.endswith("/out")] for when in ("data", "data at last")}
    for listed in here.values():
        mine = [name for name in listed if name.startswith("work/hosts/") and "/own/" in name]
        model = [name for name in listed if name.startswith("files/")]
        assert sorted([*mine, *model]) == listed, "nothing but its own folder and its model"
        assert len(model) == 1
        assert len({name.split("/")[2] for name in mine}) == 1
    assert here["data"] == here["data at last"]
    made, undone, files = found.pop("undoes in a namespace")
    assert (made, undone, files - 1) == (0, [-1, -1], len(here["data"]))
    assert found.pop("unix") in ("No such file or directory", "Connection refused")
    assert found.pop("above") == ["own"]
    assert found.pop("home") in ([], "No such file or directory")
    assert found == {
        "connects": "Connection refused",
        "database": "No such file or directory",
        "token file": "No such file or directory",
        "stranger's model": "No such file or directory",
        "stranger's host": "No such file or directory",
        "environment": [],
        "first environment": False,
        "capabilities": ["0000000000000000"],
        "privileges": "1",
        "worker": False,
        "signals": "No such process",
        "folders": [],
        "reads its model": True,
        "changes its model": "Read-only file system",
        "probe": True,
        "writes": 1,
        "changes programs": "Read-only file system",
        "undoes": [-1, -1],
    }


def test_10_without_isolation_it_sees_what_its_user_sees(ground: Callable[..., Ground]) -> None:
    """What SECURITY.md says, so that the tests above are known to look at the right things."""
    it = ground("none")
    found = it.found()
    assert "socket.socket" in found["connects"]
    assert "token" in found["data"]
    for name in ("database", "token file", "stranger's model"):
        assert int(found[name]) > 0
    assert found["stranger's host"] == ["lock", "own"]
    assert (found["worker"], found["signals"], found["privileges"]) == (True, None, "0")


def test_10_auto_confines_backends_that_bear_it_and_no_others(ground: Callable[..., Ground]) -> None:
    if isolation.available() is Isolation.NONE:
        pytest.skip("the kernel allows no namespaces here")
    it = ground("auto")
    demand_nothing_found(it.found())
    assert int(it.found("stranger")["database"]) > 0


def test_10_a_network_is_there_where_the_backend_needs_one_and_nothing_else(required: Ground) -> None:
    found = required.found(network="")
    assert "socket.socket" in found.pop("connects")
    demand_nothing_found({**found, "connects": "Connection refused"})


#: Makes the host answer the next request for a report with a file that it names, which `before` has put there.
ANSWERS = """
import os
import __main__ as server
{before}
answer = {{"document": {{}}, "files": {{{name!r}: {path!r}}}}}
server._answer = lambda work, setup, request: {{"result": answer}}
"""
CULPRIT = "culprits/01-Abs/model.onnx"


@pytest.mark.parametrize(
    ("name", "path", "before"),
    [
        (CULPRIT, "{token}", ""),
        (CULPRIT, "../../../../token", ""),
        (CULPRIT, "nothing", ""),
        (CULPRIT, "link", 'os.symlink("{token}", "link")'),
        (CULPRIT, "folder", 'os.mkdir("folder")'),
        (CULPRIT, "pipe", 'os.mkfifo("pipe")'),
        ("../../outside", "file", 'open("file", "w").close()'),
        ("/outside", "file", 'open("file", "w").close()'),
    ],
    ids=["absolute", "above", "nothing", "link", "folder", "pipe", "name above", "name absolute"],
)
def test_10_a_host_cannot_make_its_worker_read_or_write_a_file(
    required: Ground, name: str, path: str, before: str
) -> None:
    """A worker stores what hosts say that a report has, and tenants download it."""
    given = required.given
    code = ANSWERS.format(name=name, path=path.format(**given), before=before.format(**given))
    folder = required.place.settings.cache / "report"
    with required.hosted(code) as (host, units):
        host.ask(units, seconds_left=None)
        with pytest.raises(ProcessLostError, match="The process that had the model"):
            host.report(NOTHING, folder, logs={})
    assert not [it for it in folder.rglob("*") if it.is_file() and not it.is_symlink()]
    assert Path(given["token"]).read_text() == "secret"
    assert not (required.place.settings.cache.parent / "outside").exists()


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b"[" * 100_000 + b"\n"], ids=["text", "list", "nesting"])
def test_10_an_answer_that_is_none_ends_the_host(required: Ground, line: bytes) -> None:
    code = f"""
import os, socket, stat
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            socket.socket(fileno=os.dup(number)).sendall({line!r})
    except OSError:
        pass
"""
    with required.hosted(code) as (host, units), pytest.raises(ProcessLostError, match="an answer that is none"):
        host.ask(units, seconds_left=None)
