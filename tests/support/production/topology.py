"""docker-compose.yml as plain processes: redis, PostgreSQL, the API, a control worker, workers with compilers.

    make topology

starts it in a temporary folder, says where it is, and ends it at Ctrl-C.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from support.db import postgres_server
from support.worker import redis_server
from support.worker.redis_server import RedisServer

PROGRAM = Path(sys.executable).with_name("onnx-bisect")
#: A third party's backend, which starts a process for each compile.
PLUGIN = Path(__file__).with_name("plugin")
BACKENDS = ("whitelist", "onnxruntime", "stand-in", "own-chip")
#: An installation's own compiler by its TOML file, which all processes read; the program is where workers are alone.
OWN_CHIP = """
name = "own-chip"
tool = "own chip's compiler"
command = ["own-chip", "{model}"]
version = "1"
boundary_known = true
"""
OWN_CHIP_PROGRAM = f"""#!{sys.executable}
import sys, onnx
refused = [node.name for node in onnx.load(sys.argv[1]).graph.node if node.op_type == "Cos"]
sys.exit(f"no Cos: {{refused[0]}}" if refused else 0)
"""
#: Seconds for whatever a process has in hand when it is told to stop.
_PATIENCE = 30.0


@dataclass(kw_only=True)
class Part:
    """One process, as a container runner has it: started, started again, stopped, killed."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            argv = [str(PROGRAM), *self.arguments]
            # Ctrl-C is for who started all of this, and tells the parts
            self.process = subprocess.Popen(
                argv,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Tell it to end. Its exit status, once it has."""
        assert self.process is not None
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Its exit status, once it has done what it was told."""
        assert self.process is not None
        try:
            return self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@dataclass(kw_only=True)
class Topology:
    """All of it, on this machine. `environment` is what every process is told."""

    folder: Path
    redis: RedisServer
    database_url: str
    environment: Mapping[str, str]
    api: Part
    control: Part
    workers: list[Part]
    _clients: list[httpx2.Client] = field(default_factory=list)

    @property
    def parts(self) -> list[Part]:
        return [self.api, self.control, *self.workers]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.environment['ONNXBISECT_PORT']}"

    @property
    def data(self) -> Path:
        return Path(self.environment["ONNXBISECT_DATA"])

    def token(self, tenant: str = "", scope: str = "admin") -> str:
        """A new token, made as the operator makes one."""
        argv = [str(PROGRAM), "token", "create", "topology", "--scope", scope, "--tenant", tenant]
        done = subprocess.run(argv, env=dict(self.environment), capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def client(self, tenant: str = "") -> httpx2.Client:
        """Speaks for a tenant; closed with the topology."""
        headers = {"Authorization": f"Bearer {self.token(tenant)}"}
        self._clients.append(httpx2.Client(base_url=self.url, headers=headers, timeout=90))
        return self._clients[-1]

    def until_ready(self, seconds: float = 120) -> None:
        """Until the API answers, and says that it reaches the others."""
        give_up = time.monotonic() + seconds
        while True:
            try:
                if httpx2.get(f"{self.url}/readyz", timeout=10).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            assert time.monotonic() < give_up, self.log(self.api)
            time.sleep(0.1)

    @staticmethod
    def log(part: Part) -> str:
        return part.log.read_text(errors="replace")

    def processes(self) -> dict[int, str]:
        """All that belong to it, by the folder in their environment, with their command lines."""
        marker = os.fsencode(self.folder)
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
                told = command + (entry / "environ").read_bytes() + os.fsencode((entry / "cwd").readlink())
            except OSError:  # ended, or nobody's
                continue
            if marker in told and int(entry.name) != os.getpid():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def stop(self) -> dict[str, int]:
        """Exit statuses of all that ran, told to stop at once."""
        for client in self._clients:
            client.close()
        going = [part for part in self.parts if part.process is not None and part.process.poll() is None]
        for part in going:
            assert part.process is not None
            part.process.terminate()
        return {part.name: part.ended() for part in going}

    def kill_leftovers(self) -> None:
        for part in self.parts:
            if part.process is not None:
                part.kill()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def running(
    folder: Path, *, workers: int = 2, backends: Sequence[str] = BACKENDS, **settings: object
) -> Iterator[Topology]:
    """It is up, with `workers` workers for these backends; what is left of it in the end is killed."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server.running())
        sockets = stack.enter_context(postgres_server.running())
        topology = _made(folder, redis, f"postgresql://postgres@/postgres?host={sockets}", workers, backends, settings)
        subprocess.run([PROGRAM, "migrate"], env=dict(topology.environment), check=True, capture_output=True)
        stack.callback(topology.kill_leftovers)
        for part in topology.parts:
            part.start()
        topology.until_ready()
        yield topology
        topology.stop()


def _made(
    folder: Path,
    redis: RedisServer,
    database_url: str,
    workers: int,
    backends: Sequence[str],
    settings: Mapping[str, object],
) -> Topology:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {
        **{"data": folder / "data", "database_url": database_url, "redis_url": redis.url, "port": port},
        **{"slots": 1, "disk_floor": 0, "webhook_allow": "127.0.0.1", **settings},
    }
    ours = {f"ONNXBISECT_{name.upper()}": str(value) for name, value in told.items()}
    others = {name: value for name, value in os.environ.items() if not name.startswith("ONNXBISECT_")}
    environment = {**others, **ours, "PYTHONPATH": str(PLUGIN)}
    (folder / "logs").mkdir(parents=True)
    (folder / "compilers").mkdir()
    (folder / "compilers" / "own-chip.toml").write_text(OWN_CHIP)
    environment["ONNXBISECT_BACKENDS"] = str(folder / "compilers")
    (folder / "tools").mkdir()
    (folder / "tools" / "own-chip").write_text(OWN_CHIP_PROGRAM)
    (folder / "tools" / "own-chip").chmod(0o755)

    def part(name: str, *arguments: str) -> Part:
        # each container has a working folder of its own, and no other folder where files are in a bucket
        own = {**environment, "ONNXBISECT_WORK": str(folder / "work" / name)}
        if "files" in settings:
            own["ONNXBISECT_DATA"] = str(folder / "data" / name)
        if name.startswith("worker"):
            own["PATH"] = f"{folder / 'tools'}{os.pathsep}{environment['PATH']}"
        return Part(name=name, arguments=arguments, environment=own, log=folder / "logs" / f"{name}.log")

    named = [word for backend in backends for word in ("--backend", backend)]
    return Topology(
        folder=folder,
        redis=redis,
        database_url=database_url,
        environment=environment,
        api=part("api", "serve"),
        control=part("control", "worker", "--control"),
        workers=[part(f"worker-{number}", "worker", *named) for number in range(1, workers + 1)],
    )


def main() -> None:
    """Until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-") as folder, running(Path(folder)) as topology:
        print(f"export ONNXBISECT_SERVER={topology.url} ONNXBISECT_TOKEN={topology.token()}")
        print(f"logs: {topology.folder / 'logs'}; Ctrl-C ends it", flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    main()
