"""The service as it is installed for a team: redis, PostgreSQL, the API and workers, each a process of its own.

The servers are those of the tests, so `tests` must be on PYTHONPATH, as `make` sees to.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from onnxbisect_db import tokens
from onnxbisect_db.states import Scope
from onnxbisect_service.service import Service, open_service
from onnxbisect_service.settings import Settings
from support.db import postgres_server
from support.worker import redis_server

#: The command line of the environment that runs this.
PROGRAM = Path(sys.executable).with_name("onnx-bisect")
_HOST = "onnxbisect_worker.model_processes.server"
_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 40.0


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A database with tables, a queue, and what processes of the service are told. `service` rings nobody."""

    folder: Path
    environment: Mapping[str, str]
    service: Service
    postgres: int

    @contextmanager
    def process(self, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
        """`onnx-bisect` with these arguments, told to stop in the end."""
        log = self.folder / f"{arguments[0]}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [PROGRAM, *arguments],
                env={**os.environ, **self.environment},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        try:
            yield process
        except BaseException:
            print(log.read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    @contextmanager
    def api(self) -> "Iterator[Api]":
        """`onnx-bisect serve`, once it answers."""
        issued = self.service.database.run(
            lambda session: tokens.issue(session, tenant="", name="benchmark", scopes=[Scope.ADMIN])
        )
        with self.process("serve", "--port", "0") as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            if " is at " not in line:
                raise RuntimeError("the API did not start")
            yield Api(port=int(line.rpartition(":")[2]), pid=process.pid, token=issued.text)


@dataclass(frozen=True, kw_only=True)
class Api:
    """Where it listens, who it is, and a token that is good."""

    port: int
    pid: int
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """What every request must say."""
        return {"Authorization": f"Bearer {self.token}"}


@contextmanager
def installed(**settings: str) -> Iterator[Installed]:
    """All that processes of the service need; everything is gone afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnx-bisect-bench-")))
        redis = stack.enter_context(redis_server.running())
        socket = stack.enter_context(postgres_server.running(durable=True))
        wanted = {
            "data": str(folder / "data"),
            "database_url": f"postgresql://postgres@/postgres?host={socket}",
            "redis_url": redis.url,
            "requests": "1000000/minute",  # counted as ever, and never too many
            "uploads": "1000000/minute",
            **settings,
        }
        service = open_service(Settings.model_validate(wanted))
        stack.callback(service.close)
        service.database.upgrade()
        environment = {f"ONNXBISECT_{name.upper()}": text for name, text in wanted.items()}
        postmaster = int((Path(socket) / "data" / "postmaster.pid").read_text().split()[0])
        yield Installed(folder=folder, environment=environment, service=service, postgres=postmaster)


def cpu_seconds(pid: int) -> float:
    """What a process and all that came of it have used, the ended ones, too."""
    return sum(sum(_ticks(process)) for process in family(pid)) / _TICKS


def worker_seconds(pid: int) -> tuple[float, float]:
    """What a worker has used: its own processes, and its hosts with all that came of them."""
    own = hosts = 0
    for process in family(pid):
        mine, ended = _ticks(process)
        if _HOST in _command(process):
            hosts += mine
        else:
            own += mine
        hosts += ended
    return own / _TICKS, hosts / _TICKS


def resident(pid: int, what: str = "VmRSS") -> int:
    """Bytes of memory that a process holds; `VmHWM` for the most that it held at a time."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not say {what}")


def forget_peak(pid: int) -> None:
    """Count the most that it held from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def until(seconds: float, done: Callable[[], bool]) -> bool:
    """Wait for it, but not for longer."""
    give_up = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.1)
    return True


def family(pid: int) -> list[int]:
    """The process and all that came of it."""
    found = [pid]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:  # ended
                continue
    return found


def _ticks(pid: int) -> tuple[int, int]:
    """Of the process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
