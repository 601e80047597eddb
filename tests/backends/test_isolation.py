"""What a confined compile sees, and what it cannot do; `test_process.py` has how it ends."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import onnx
import pytest

from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Backend, Confinement, Limits, Outcome
from onnxbisect_backends.registry import make
from onnxbisect_backends.sandbox import process
from onnxbisect_backends.sandbox.confined_view import confined_view
from onnxbisect_backends.sandbox.process import clean_env, run
from onnxbisect_backends.testing import BackendConformance, conv_net, processes_in, with_op
from support.backends.confined import confined, demand_namespaces

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Tries each path that it is given: lists or reads, then writes.
LOOK = """
import os, sys
for path in sys.argv[1:]:
    try:
        found = ",".join(sorted(os.listdir(path))) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        found = error.strerror
    try:
        name = os.path.join(path, "new") if os.path.isdir(path) else path
        open(name, "a").close()
        wrote = "written"
    except OSError as error:
        wrote = error.strerror
    print(found, wrote, sep="|")
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a work directory, a probe, and a secret, outside of all that is hidden anyway."""
    demand_namespaces()
    root = Path(__file__).parent
    if hidden := [folder for folder in ("/tmp", "/var/tmp", "/home", "/root") if root.is_relative_to(folder)]:  # noqa: S108 - asked about, not written to
        pytest.skip(f"the project lies in {hidden[0]}, which is hidden as a whole")
    with TemporaryDirectory(dir=root, prefix="place-") as name:
        place = Path(name)
        for folder in ("work", "probe", "data"):
            (place / folder).mkdir()
        (place / "probe" / "model.onnx").write_text("probe")
        (place / "data" / "token").write_text("secret")
        yield place


def look(place: Path, code: str, *argv: str, hidden: tuple[str, ...] = (), **more: object) -> Outcome:
    work = place / "work"
    confinement = Confinement(
        hidden=tuple(place / name for name in hidden), probe=place / "probe" / "model.onnx", workdir=work
    )
    words = [sys.executable, "-I", "-S", "-c", code, *argv]
    limits = Limits(seconds=30, confinement=confinement)
    return run(words, cwd=work, env=clean_env(work), limits=limits, **more)  # type: ignore[arg-type]


def seen(place: Path, *paths: Path | str, **more: object) -> list[str]:
    outcome = look(place, LOOK, *map(str, paths), hidden=("data",), **more)
    assert outcome.exit_code == 0, outcome
    return outcome.log.splitlines()


def test_of_what_is_hidden_nothing_is_there(place: Path) -> None:
    """The service hides its folder: the database, the token, everybody's models."""
    assert seen(place, place / "data", place / "data" / "token") == [
        "|Read-only file system",
        "No such file or directory|Read-only file system",
    ]
    assert (place / "data" / "token").read_text() == "secret"


def test_the_probe_is_read_and_the_work_directory_is_written(place: Path) -> None:
    assert seen(place, place / "probe" / "model.onnx", place / "work") == ["probe|Read-only file system", "|written"]
    assert (place / "work" / "new").exists()


def test_a_work_directory_in_what_is_hidden_is_there_alone(place: Path) -> None:
    """Workers have theirs in the service's folder."""
    work = place / "data" / "hosts" / "work"
    work.mkdir(parents=True)
    confinement = Confinement(hidden=(place / "data",), workdir=work)
    words = [sys.executable, "-I", "-S", "-c", LOOK, str(place / "data"), str(work)]
    outcome = run(words, cwd=work, env={}, limits=Limits(confinement=confinement))
    assert outcome.log.splitlines() == ["hosts|Read-only file system", "|written"]


@pytest.mark.parametrize("folder", ["/root", "/home", "/run"])
def test_what_is_nobodys_business_is_not_there(place: Path, folder: str) -> None:
    """Homes, and sockets, docker's among them."""
    for path in Path(folder).iterdir():
        if path.is_file() or path.is_socket():
            assert seen(place, path) == ["No such file or directory|Read-only file system"]


def test_of_a_home_programs_are_seen_and_nothing_else(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = place / "home"
    for name in ("sdk/bin/npucc", ".ssh/id", ".local/bin/tool", ".local/share/keys"):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text("#!/bin/sh\ncd ../home && find . -type f | sort | tr '\\n' ' '")
        (home / name).chmod(0o755)
    (home / "bin").symlink_to("sdk/bin")
    monkeypatch.setenv("HOME", str(home))
    for command, files in (
        (home / "sdk" / "bin" / "npucc", "./sdk/bin/npucc "),
        (home / "bin" / "npucc", "./bin/npucc ./sdk/bin/npucc "),
        (home / ".local" / "bin" / "tool", "./.local/bin/tool "),
    ):
        work = place / "work"
        limits = Limits(confinement=Confinement(workdir=work))
        assert run([str(command)], cwd=work, env={"PATH": "/usr/bin:/bin"}, limits=limits).log == files


def test_temporary_folders_are_its_own(place: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch()
    folders = [gettempdir(), "/var/tmp", "/dev/shm"]  # noqa: S108 - which are everybody's
    found = seen(place, theirs, *folders)
    assert found[0].startswith("No such file or directory")
    assert found[1:] == ["|written"] * 3
    assert not [folder for folder in folders if Path(folder, "new").exists()]


def test_the_system_is_read_only_and_has_no_disks(place: Path) -> None:
    found = seen(place, "/usr", "/etc", "/dev")
    assert [line.rpartition("|")[2] for line in found] == ["Read-only file system"] * 3
    devices = set(found[2].partition("|")[0].split(","))
    assert {"null", "zero", "urandom"} <= devices
    assert not [name for name in devices if Path("/dev", name).is_block_device()]
    assert "mem" not in devices


def test_devices_work(place: Path) -> None:
    code = "open('/dev/null', 'w').write('x'); print(len(open('/dev/urandom', 'rb').read(4)), open('/dev/fd/0').read())"
    assert look(place, code).log == "4 \n"


def test_it_sees_no_process_but_its_own(place: Path) -> None:
    """Nor can it signal one."""
    code = """
import os, sys
print(*(name for name in os.listdir('/proc') if name.isdigit()), flush=True)
os.kill(int(sys.argv[1]), 9)
"""
    outcome = look(place, code, str(os.getpid()))
    assert outcome.log.startswith("1 2\n")
    assert "ProcessLookupError" in outcome.log


def test_it_reaches_nobody_unless_its_backend_says_that_it_must(place: Path) -> None:
    code = "import socket, sys; print(socket.socket().connect_ex(('127.0.0.1', int(sys.argv[1]))))"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert int(look(place, code, port).log) != 0
        assert int(look(place, code, port, network=True).log) == 0


def test_it_cannot_undo_it(place: Path) -> None:
    """Neither with rights, which it does not have, nor with those of another namespace, which it may make."""
    code = """
import ctypes, os, sys
print(open("/proc/self/status").read().split("CapEff:")[1].split()[0])
libc = ctypes.CDLL(None, use_errno=True)
def undo():
    print(libc.umount2(sys.argv[1].encode(), 2), os.listdir(sys.argv[1]))
    print(libc.mount(None, b"/usr", None, 32 | 4096, None) and libc.mount(None, b"/", None, 32, None))
undo()
print(libc.unshare(0x10000000 | 0x20000))
undo()
try:
    open("/proc/1/root/etc/hostname").close()
    os.listdir("/proc/1/fd")
    print("reads the first process")
except OSError as error:
    print(error.strerror)
"""
    outcome = look(place, code, str(place / "data"), hidden=("data",))
    assert outcome.exit_code == 0, outcome
    assert outcome.log.split("\n") == ["0000000000000000", "-1 []", "-1", "0", "-1 []", "-1", "Permission denied", ""]


def test_who_fails_because_of_it_says_nothing_of_the_model(place: Path) -> None:
    outcome = look(place, "open('/usr/cache', 'w')")
    assert "wrote where an isolated compile may not" in outcome.broken
    assert outcome.exit_code is None
    assert look(place, "import sys; sys.exit('error: no such op')").exit_code == 1


CHIP = """
name = "chip"
inherit_env = ["LICENSE"]
command = ["sh", "-c", "cat $LICENSE; ls {here} $(dirname $LICENSE); exec {python} -c '%s' %d", "{model}"]
"""


@pytest.mark.parametrize(("more", "reached"), [("", False), ("network = true", True)])
def test_a_toml_file_says_what_its_compiler_needs(
    place: Path, monkeypatch: pytest.MonkeyPatch, more: str, reached: bool
) -> None:
    """Its own folder and what variables name are seen wherever they are; others are reached where it says so."""
    home = place / "home"
    (home / "chip").mkdir(parents=True)
    (home / "licence").write_text("licensed ")
    (home / "diary").touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LICENSE", str(home / "licence"))
    code = 'import socket, sys; print(socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))) == 0)'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        text = CHIP % (code.replace('"', '\\"'), listener.getsockname()[1])
        (home / "chip" / "chip.toml").write_text(f"{more}\n{text}")
        confinement = Confinement(probe=place / "probe" / "model.onnx", workdir=place / "work")
        backend = make(str(home / "chip" / "chip.toml"), {})
        limits = Limits(confinement=confinement)
        outcome = backend.compile(place / "probe" / "model.onnx", place / "work", limits)
    words = outcome.log.split()
    assert "licensed" in words
    assert "chip.toml" in words
    assert "diary" not in words
    assert words[-1] == str(reached), outcome


def test_an_abort_is_one(place: Path) -> None:
    """The first process of a namespace would not die of it."""
    assert look(place, "import os; os.abort()").signal == 6


@pytest.mark.parametrize("isolated", [True, False])
def test_what_is_required_is_not_gone_without(tmp_path: Path, isolated: bool) -> None:
    """A backend that must see the machine, and a kernel that allows nothing."""
    confinement = Confinement(workdir=tmp_path / "is not there", required=True)
    limits = Limits(confinement=confinement)
    outcome = run(["true"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, limits=limits, isolated=isolated)
    assert "isolat" in outcome.broken
    assert outcome.exit_code is None


def test_a_compile_dies_with_the_process_that_asked(place: Path) -> None:
    work = place / "work"
    driver = f"""
import sys; sys.path[:] = {sys.path!r}
from pathlib import Path
from onnxbisect_backends.sandbox.process import run
from onnxbisect_backends.contract import Confinement, Limits
work = Path({str(work)!r})
code = "import os, time; os.fork() or os.setsid(); open('started', 'w').close(); time.sleep(600)"
run([sys.executable, "-c", code], cwd=work, env={{}}, limits=Limits(confinement=Confinement(workdir=work)))
"""
    with subprocess.Popen([sys.executable, "-c", driver], cwd="/", stderr=subprocess.DEVNULL) as asking:
        wait_for((work / "started").exists)
        asking.kill()
    wait_for(lambda: processes_in(work) == [])


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


@pytest.mark.skipif(os.geteuid() != 0, reason="everything here is already about users without privileges")
def test_users_without_privileges_can_do_it_and_start_no_thousands() -> None:
    demand_namespaces()
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None:
        pytest.skip("the system has no python3 that every user may start")
    code = """
import os
print(os.getuid(), os.getgid(), os.listdir("/root"), open("/proc/self/status").read().split("CapEff:")[1].split()[0])
try:
    for number in range(5000):
        if os.fork() == 0:
            os.read(os.pipe()[0], 1)
except BlockingIOError:
    print("enough")
"""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for script in ("supervise.py", "process_tree.py", "confine.py"):
            shutil.copy(Path(process.__file__).with_name(script), folder)  # they may be out of that user's reach
        work = folder / "work"
        work.mkdir()
        os.chown(work, 65534, 65534)
        view = confined_view(Confinement(workdir=work), [python], cwd=work, env={}, reads=())
        order = {
            **{"argv": [python, "-I", "-S", "-c", code], "path": python, "cwd": str(work), "env": {}},
            **{"seconds": 60, "memory_bytes": None, "file_bytes": None, "log_bytes": 10_000, "network": False},
            "view": view,
        }
        with subprocess.Popen(
            [python, "-I", "-S", folder / "supervise.py"],
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as started:
            assert started.stdin is not None
            assert started.stdout is not None
            started.stdin.write(json.dumps(order) + "\n")
            started.stdin.flush()
            head, _, log = started.stdout.read().partition("\n")
    assert json.loads(head)["complaint"] == ""
    assert log == "65534 65534 [] 0000000000000000\nenough\n"


#: Confines itself, and from there another process, as what reads a model does with a compiler.
NESTED = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import confine
view = json.loads(sys.argv[2])
def look(depth):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    rights = {status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd")}
    here = os.getcwd() == view["own"]
    print(depth, os.getuid(), here, rights, status["NoNewPrivs"].strip(), sorted(os.listdir("/tmp")), flush=True)
    open(f"from-{depth}", "w").close()
ended = confine.fork_confined(view, network=False)
if ended is None:
    look(1)
    inner = confine.fork_confined(view, network=False)
    if inner is None:
        look(2)
        os.abort()
    os._exit(os.WTERMSIG(inner))
print(os.waitstatus_to_exitcode(ended), flush=True)
"""


@pytest.mark.parametrize("user", [0, 65534] if os.geteuid() == 0 else [os.geteuid()])
def test_what_is_confined_can_confine_others(user: int) -> None:
    """As root, which is nobody inside, and as a user without privileges."""
    demand_namespaces()
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None:
        pytest.skip("the system has no python3 that every user may start")
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(Path(process.__file__).with_name("confine.py"), folder)
        own = folder / "own"
        own.mkdir()
        if os.geteuid() == 0:
            os.chown(own, user, user)
        view = confined_view(Confinement(workdir=own), [python], cwd=own, env={}, reads=[folder])
        argv = [python, "-I", "-S", "-c", NESTED, str(folder), json.dumps(view)]
        done = subprocess.run(argv, user=user, group=user, extra_groups=[], cwd="/", capture_output=True, text=True)
        written = sorted(path.name for path in own.iterdir())
    # This checkout may stand below /tmp, too: then the compiler sees it there, and nothing else.
    below = [Path(path).relative_to("/tmp") for path in view["shown"] if Path(path).is_relative_to("/tmp")]  # noqa: S108
    each = f"{user or 65534} True {{'0000000000000000'}} 1 {sorted({path.parts[0] for path in below})}"
    assert (done.stdout.splitlines(), done.stderr) == ([f"1 {each}", f"2 {each}", "6"], "")
    assert written == ["from-1", "from-2"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and the command setpriv")
def test_where_the_kernel_refuses_nothing_is_run_half_isolated(tmp_path: Path) -> None:
    """As in a container: whoever wants it run all the same asks again, without isolation."""
    view = confined_view(Confinement(workdir=tmp_path), [sys.executable], cwd=tmp_path, env={}, reads=())
    order = {
        **{"argv": ["touch", str(tmp_path / "ran")], "path": "/usr/bin/touch", "cwd": str(tmp_path), "env": {}},
        **{"seconds": 60, "memory_bytes": None, "file_bytes": None, "log_bytes": 10_000, "network": False},
        "view": view,
    }
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    supervisor = Path(process.__file__).with_name("supervise.py")
    done = subprocess.run(
        [*powerless, sys.executable, "-I", "-S", supervisor], input=json.dumps(order) + "\n", stdout=-1, text=True
    )
    assert "could not be isolated" in json.loads(done.stdout.partition("\n")[0])["complaint"]
    assert not (tmp_path / "ran").exists()


class TestOnnxRuntime(BackendConformance):
    def backend(self) -> Backend:
        return confined(make("onnxruntime", {}))

    def refused(self) -> onnx.ModelProto:
        return with_op("FancyAct", domain="vendor.npu")


@pytest.mark.long
class TestToml(BackendConformance):
    def backend(self) -> Backend:
        return confined(make(str(EXAMPLES / "mychip.toml"), {"chip": "mc1"}))

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "op"), [("openvino", "Det"), ("mnn", "Multinomial"), ("iree", "Det")])
def test_a_vendor_s_compiler_answers_where_it_is_isolated(tmp_path: Path, name: str, op: str) -> None:
    backend = make(name, {})
    if complaint := backend.check():
        pytest.skip(complaint)
    for model, expected in ((conv_net(), Status.PASS), (with_op(op), Status.FAIL)):
        probe, work = tmp_path / f"{expected}.onnx", tmp_path / expected
        work.mkdir()
        onnx.save(model, probe)
        outcome = confined(backend).compile(probe, work, Limits(seconds=120))
        assert backend.judge(outcome).status is expected, outcome.log
