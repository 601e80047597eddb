"""The process runner against programs that misbehave in every way a compiler has been seen to."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from onnxbisect_backends.contract import Confinement, Limits, Outcome
from onnxbisect_backends.sandbox import isolation, process
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_backends.sandbox.process import clean_env, kill_running, run, written
from onnxbisect_backends.testing import processes_in
from support.worker.process_tree import is_privileged

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and subreapers")

DAEMON = """
import os, sys, time
if os.fork():                       # the compiler itself
    if sys.argv[1] == "stays":
        time.sleep(600)
    while not (os.path.exists("daemon") and os.path.getsize("daemon")):
        time.sleep(0.01)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for descriptor in range(3):
    os.close(descriptor)
open("daemon", "w").write(str(os.getpid()))
time.sleep(600)
"""

# forks again and again, each parent ending at once: always one alive, never the same one
RUNAWAY = """
import os, time
open("started", "w").close()
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""

STUBBORN = """
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
print("still here", flush=True)
time.sleep(600)
"""


@pytest.fixture(params=["bounded", "confined"])
def python(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """Starts a program, which is bounded, killed and told of alike wherever it is kept."""
    confinement = Confinement(workdir=tmp_path) if request.param == "confined" else None
    if confinement is not None and isolation.available() is Isolation.NONE:
        pytest.skip("the kernel allows no namespaces here")

    def start(code: str, *argv: str, **limits: float) -> Outcome:
        words = [sys.executable, "-I", "-S", "-c", code, *argv]
        bounds = Limits(**{"seconds": 30, "confinement": confinement, **limits})  # type: ignore[arg-type]  # as they belong
        return run(words, cwd=tmp_path, env=clean_env(tmp_path), limits=bounds)

    return start


def test_tells_exit_status_and_both_outputs(python: Callable[..., Outcome]) -> None:
    outcome = python("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)")

    assert (outcome.exit_code, outcome.signal, outcome.timed_out, outcome.broken) == (3, None, False, "")
    assert outcome.log == "out\nerr\n"
    assert 0 < outcome.seconds < 10
    assert outcome.peak_memory > 1 << 20


def test_standard_input_is_empty(python: Callable[..., Outcome]) -> None:
    assert python("import sys; print(repr(sys.stdin.read()))").log == "''\n"


def test_starts_in_its_directory_as_leader_of_its_own_session(python: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = python("import os; print(os.getcwd(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())")

    assert outcome.log == f"{tmp_path} True True\n"


def test_environment_is_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("VENDOR_SDK", "/opt/sdk")
    env = clean_env(tmp_path, inherit=["VENDOR_SDK", "NOT_SET"], extra={"LANG": "C"})

    outcome = run(["env"], cwd=tmp_path, env=env, limits=Limits())

    told = dict(line.split("=", 1) for line in outcome.log.splitlines())
    assert told["HOME"] == told["TMPDIR"] == str(tmp_path)
    assert told["VENDOR_SDK"] == "/opt/sdk"
    assert told["LANG"] == "C"
    assert not {"SECRET_TOKEN", "NOT_SET"} & set(told)


def test_a_crash_is_its_signal(python: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")

    assert (outcome.signal, outcome.exit_code) == (signal.SIGSEGV, None)
    assert written(tmp_path) == ()  # no core file


def test_signals_have_their_default_action(python: Callable[..., Outcome]) -> None:
    code = (
        "import signal; print(*(signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGCHLD)));"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )

    assert python(code).log == "True True\nset()\n"


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", STUBBORN], ids=["idle", "stubborn"])
def test_a_hang_ends_at_the_limit(python: Callable[..., Outcome], code: str) -> None:
    begun = time.monotonic()

    outcome = python(code, seconds=0.5)

    assert outcome.timed_out
    assert (outcome.exit_code, outcome.signal) == (None, None)
    assert 0.5 <= time.monotonic() - begun < 2.5


@linux
@pytest.mark.parametrize("main", ["ends", "stays"])
def test_a_daemon_does_not_survive(python: Callable[..., Outcome], tmp_path: Path, main: str) -> None:
    outcome = python(DAEMON, main, seconds=1.5)

    assert outcome.timed_out == (main == "stays")
    assert (tmp_path / "daemon").read_text().isdigit()
    assert processes_in(tmp_path) == []


@linux
def test_a_runaway_chain_of_forks_is_caught(python: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = python(RUNAWAY, seconds=20)

    assert outcome.exit_code == 0
    assert (tmp_path / "started").exists()
    assert processes_in(tmp_path) == []


def test_an_endless_log_is_cut_and_keeps_both_ends(python: Callable[..., Outcome], tmp_path: Path) -> None:
    code = """
import os
print("first line", flush=True)
for _ in range(1000):
    os.write(1, b"x" * (1 << 20))
print("last line")
"""

    outcome = python(code, log_bytes=1000, seconds=60)

    assert outcome.exit_code == 0
    assert outcome.log_truncated
    assert outcome.log.startswith("first line\n")
    assert outcome.log.endswith("last line\n")
    assert "bytes left out" in outcome.log
    assert len(outcome.log) < 1100
    assert written(tmp_path) == ()


def test_of_lines_that_differ_in_numbers_one_is_enough(python: Callable[..., Outcome]) -> None:
    """A compiler with an error for each register; what it says in their midst is not lost."""
    code = """
for number in range(4000):
    print(f"E [20:30:{number}] register 0x{number:x} overflows")
    if number == 2000:
        print("No lowering found for: node_7")
"""

    outcome = python(code, log_bytes=4000)

    assert not outcome.log_truncated
    assert "No lowering found for: node_7\n" in outcome.log
    assert "lines left out that differ from these in numbers" in outcome.log
    assert outcome.log.startswith("E [20:30:0]")
    assert outcome.log.endswith("overflows\n")
    assert len(outcome.log) < 4300


def test_a_short_log_is_whole(python: Callable[..., Outcome]) -> None:
    outcome = python("print('x' * 999)", log_bytes=1000)

    assert outcome.log == "x" * 999 + "\n"
    assert not outcome.log_truncated


def test_a_log_of_any_bytes_is_text(python: Callable[..., Outcome]) -> None:
    outcome = python("import os; os.write(1, bytes(range(256)))")

    assert outcome.log.startswith("\x00\x01")
    assert "\ufffd" in outcome.log


@linux
def test_a_memory_hog_is_killed_at_its_limit(python: Callable[..., Outcome]) -> None:
    code = "import time\nheld = []\nwhile True: held.append(bytearray(1 << 22)); time.sleep(0.005)"

    outcome = python(code, memory_bytes=200 << 20)

    assert outcome.over_memory
    assert outcome.signal == signal.SIGKILL
    assert 200 << 20 < outcome.peak_memory < 800 << 20


@linux
def test_memory_counts_for_the_whole_tree_but_shared_pages_once(python: Callable[..., Outcome]) -> None:
    code = """
import os, sys, time
shared = bytearray(os.urandom(1 << 20)) * 60
for _ in range(4):
    if not os.fork():
        own = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])
        time.sleep(float(sys.argv[2]))
        os._exit(0)
time.sleep(float(sys.argv[2]))
"""

    assert python(code, "1", "1", memory_bytes=200 << 20).exit_code == 0  # 5 x 60 MB, shared
    assert python(code, "60", "60", memory_bytes=200 << 20).over_memory  # 60 + 4 x 60 MB


def test_a_huge_file_is_stopped(python: Callable[..., Outcome], tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); open('big', 'wb').write(bytes(1 << 20))"

    outcome = python(code, file_bytes=1000)

    assert outcome.signal == signal.SIGXFSZ
    assert (tmp_path / "big").stat().st_size <= 1000


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("no-such-compiler", "'no-such-compiler' was not found on PATH"),
        ("./no-such-compiler", "'./no-such-compiler' is not a file that can be executed"),
        ("./plain.txt", "'./plain.txt' is not a file that can be executed"),
        ("./no-interpreter", "'./no-interpreter' could not be started: No such file or directory"),
        ("./no-format", "'./no-format' could not be started: Exec format error"),
    ],
)
def test_what_cannot_be_started_is_said_in_a_sentence(tmp_path: Path, command: str, sentence: str) -> None:
    (tmp_path / "plain.txt").write_text("x")
    for name, text in [("no-interpreter", "#!/no/such/interpreter\n"), ("no-format", "gibberish\n")]:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    outcome = run([command], cwd=tmp_path, env=clean_env(tmp_path), limits=Limits())

    assert sentence in outcome.broken
    assert outcome.exit_code is outcome.signal is None


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_compiler_dies_with_the_process_that_started_it(tmp_path: Path, number: signal.Signals) -> None:
    driver = f"""
import sys; sys.path[:] = {sys.path!r}
from pathlib import Path
from onnxbisect_backends.sandbox.process import run, clean_env
from onnxbisect_backends.contract import Limits
work = Path({str(tmp_path)!r})
run([sys.executable, "-c", {DAEMON!r}, "stays"], cwd=work, env=clean_env(work), limits=Limits())
"""
    with subprocess.Popen([sys.executable, "-c", driver], cwd="/", stderr=subprocess.DEVNULL) as process:
        _wait_for(lambda: (tmp_path / "daemon").exists())
        process.send_signal(number)

    _wait_for(lambda: processes_in(tmp_path) == [])


@linux
@pytest.mark.skipif(not is_privileged(), reason="from who has no privilege the kernel takes few changes a second")
def test_a_compile_is_as_nice_as_who_asks_for_it(tmp_path: Path) -> None:
    """With its session: Linux shares processors between sessions first."""
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("the kernel does not group processes by session")
    driver = f"""
import sys; sys.path[:] = {sys.path!r}
import os
from pathlib import Path
from onnxbisect_backends.sandbox.process import run, clean_env
from onnxbisect_backends.contract import Limits
os.nice(7)
work = Path({str(tmp_path)!r})
words = [sys.executable, "-c", "import os; print(open('/proc/self/autogroup').read(), os.nice(0))"]
print(run(words, cwd=work, env=clean_env(work), limits=Limits()).log)
"""
    said = subprocess.run([sys.executable, "-c", driver], cwd="/", capture_output=True, text=True, check=True).stdout
    niceness = str(os.nice(0) + 7)  # the tests may be nice themselves
    assert said.split()[1:] == ["nice", niceness, niceness]


@linux
def test_running_compiles_can_be_stopped_from_another_thread(python: Callable[..., Outcome], tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(python, DAEMON, "stays")
        _wait_for(lambda: (tmp_path / "daemon").exists())
        kill_running()
        outcome = future.result(timeout=10)

    assert "was stopped before it ended" in outcome.broken
    assert processes_in(tmp_path) == []


@linux
def test_compiles_in_threads_know_their_own_children(tmp_path: Path) -> None:
    started = threading.Barrier(4, timeout=20)

    def compile_one(number: int) -> Outcome:
        work = tmp_path / str(number)
        work.mkdir()
        started.wait()
        code = DAEMON if number % 2 else "import time; time.sleep(1.5); print('mine')"
        words = [sys.executable, "-I", "-S", "-c", code, "ends"]
        return run(words, cwd=work, env=clean_env(work), limits=Limits(seconds=30))

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(compile_one, range(4)))

    # the daemons of two were swept away while the other two were still at work, and these did not notice
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 0, 0]
    assert [outcome.log for outcome in outcomes] == ["mine\n", "", "mine\n", ""]
    assert processes_in(tmp_path) == []


CONNECT = """
import os, socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5).close()
    print("connected", os.geteuid())
except OSError as error:
    print(type(error).__name__, os.geteuid())
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname(), timeout=5).close()
    print("own loopback")
"""


def namespaces(user: int) -> None:
    """Skip where the kernel lets that user have no network of its own."""
    words = ["unshare", "--net", "true"] if user == 0 else ["unshare", "--user", "--net", "true"]
    done = subprocess.run(words, user=user if os.geteuid() == 0 else None, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the kernel lets nobody take the network away here: {done.stderr.strip()}")


@linux
def test_without_network_there_is_nobody_to_talk_to(tmp_path: Path) -> None:
    me = os.geteuid()
    namespaces(me)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [sys.executable, "-I", "-S", "-c", CONNECT, str(listener.getsockname()[1])]
        logs = [
            run(words, cwd=tmp_path, env=clean_env(tmp_path), limits=Limits(seconds=30), network=network).log
            for network in (True, False)
        ]

    assert logs == [f"connected {me}\nown loopback\n", f"ConnectionRefusedError {me}\nown loopback\n"]


def supervised_by(python: str, prefix: list[str], user: int) -> str:
    """The log of an attempt to connect to this process, without network, by another user or in another way."""
    scripts = [Path(process.__file__).with_name(name) for name in ("supervise.py", "process_tree.py", "confine.py")]
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        words = [python, "-I", "-S", "-c", CONNECT, str(listener.getsockname()[1])]
        limits = {
            "seconds": 30,
            "memory_bytes": None,
            "file_bytes": None,
            "log_bytes": 10_000,
            "network": False,
            "view": None,
        }
        for script in scripts:
            shutil.copy(script, folder)  # they may be out of that user's reach
        Path(folder).chmod(0o755)
        order = json.dumps({"argv": words, "path": python, "cwd": "/", "env": {}, **limits})
        with subprocess.Popen(
            [*prefix, python, "-I", "-S", f"{folder}/supervise.py"],
            user=user,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as started:
            assert started.stdin is not None
            assert started.stdout is not None
            started.stdin.write(order + "\n")
            started.stdin.flush()
            head, _, log = started.stdout.read().partition("\n")
    assert json.loads(head)["exit_code"] == 0, log
    return log


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="the test before this one is about users without privileges")
def test_users_without_privileges_stay_who_they_are_without_network() -> None:
    namespaces(65534)
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None:
        pytest.skip("the system has no python3 that every user may start")

    assert supervised_by(python, [], 65534) == "ConnectionRefusedError 65534\nown loopback\n"


@linux
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and the command setpriv")
def test_where_the_kernel_keeps_the_network_the_compile_runs_all_the_same() -> None:
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]

    assert supervised_by(sys.executable, powerless, 0) == "connected 0\nown loopback\n"


def test_written_lists_files_with_content_and_follows_no_links(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.bin").write_bytes(b"1")
    (tmp_path / "a.bin").write_bytes(b"1")
    (tmp_path / "empty.bin").touch()
    (tmp_path / "link.bin").symlink_to(tmp_path / "a.bin")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")

    assert written(tmp_path) == (Path("a.bin"), Path("sub/b.bin"))


@pytest.mark.parametrize(
    ("outcome", "trouble"),
    [
        (Outcome(exit_code=1, log="cp: error writing 'x': No space left on device\n"), "No space left on device"),
        (Outcome(signal=7, log="[Errno 122] Disk quota exceeded"), "Disk quota exceeded"),
        (Outcome(exit_code=0, log="warning: no cache: No space left on device\n"), ""),
        (Outcome(exit_code=1, log="error: op 'Sin' is not supported"), ""),
    ],
)
def test_a_compile_that_the_disk_failed_says_nothing_of_the_model(
    tmp_path: Path, outcome: Outcome, trouble: str
) -> None:
    home = process.with_artifacts(outcome, tmp_path / "model.onnx", tmp_path)

    assert trouble in home.broken
    assert bool(home.broken) == bool(trouble)
    assert (home.exit_code, home.signal) == ((None, None) if trouble else (outcome.exit_code, outcome.signal))


def _wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
