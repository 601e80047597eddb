"""`onnx-bisect serve`, everything in one tree of processes, killed at random moments while it has jobs."""

import hashlib
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from sqlalchemy import func, select

from onnx_bisect import Client
from onnxbisect.errors import OnnxBisectError
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, Probe, Search
from support.production import chaos_audit
from support.production.chaos_orders import GOALS, Goal, Wanted, known_culprits, known_repairs, orders
from support.production.topology import PLUGIN, Part

_TOKEN_FILE = "token"  # noqa: S105 - where it is


@dataclass(kw_only=True)
class EmbeddedResult:
    """`right` reports of `jobs` are those of `run`; `complaints` say what is wrong with the others."""

    complaints: list[str] = field(default_factory=list)
    jobs: int = 0
    right: int = 0
    kills: int = 0
    #: What was lost by it.
    questions: int = 0
    turns: int = 0
    seconds: float = 0.0


@dataclass(kw_only=True)
class EmbeddedRun:
    """So many jobs and so many kills, a kill about every `kill_every` seconds. `seconds` is how long it may take.

    Half of the jobs are asked for before the first kill, the others one by one between kills, so that no machine is
    fast enough to end all jobs before the last kill.
    """

    folder: Path
    jobs: int
    kills: int
    seed: int
    kill_every: float
    seconds: float
    goals: Sequence[tuple[Goal, ...]] = GOALS
    say: Callable[[str], None] = print

    def __call__(self) -> EmbeddedResult:
        chance = random.Random(self.seed)
        wanted = [_uncancelled(want) for want in orders(self.jobs, chance, self.goals)]
        known, repairs = known_culprits(wanted), known_repairs(wanted)
        self.say(f"run knows the culprits of {len(known)} targets")
        serve = self._part()
        result = EmbeddedResult(jobs=len(wanted))
        serve.start()
        try:
            waiting = wanted[len(wanted) // 2 :]
            made = self._ask(serve, wanted[: len(wanted) // 2])
            began = time.monotonic()
            with closing(Database(f"sqlite:///{self.folder / 'data' / 'onnx-bisect.sqlite'}")) as database:
                made |= self._storm(serve, database, chance, waiting, result, began)
                result.seconds = time.monotonic() - began
                _until_ready(serve)  # a process that is still being loaded has no handler of signals
                if (code := serve.stop()) != 0:
                    result.complaints.append(f"It ended with {code}.")
                if left := _left(self.folder):
                    result.complaints.append(f"Left behind: {left}")
                self._count(database, made, known, repairs, result)
        finally:
            serve.kill()
            for pid in _processes(self.folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return result

    def _part(self) -> Part:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        others = {name: value for name, value in os.environ.items() if not name.startswith("ONNXBISECT_")}
        told = {"LEASE_SECONDS": "5", "RECONCILE_SECONDS": "1", "SLOTS": "2", "DISK_FLOOR": "0", "PORT": str(port)}
        ours = {f"ONNXBISECT_{name}": value for name, value in {**told, "UPLOADS": "100000/minute"}.items()}
        # without vendors' compilers, of which each would be tried at each start
        ours["ONNXBISECT_CACHE_DIR"] = str(self.folder / "cache")
        environment = {**others, **ours, "PYTHONPATH": str(PLUGIN)}
        arguments = ("serve", "--data", str(self.folder / "data"))
        return Part(name="serve", arguments=arguments, environment=environment, log=self.folder / "serve.log")

    def _ask(self, serve: Part, wanted: Sequence[Wanted]) -> dict[str, Wanted]:
        """The jobs by their ids. A request that a kill interrupts is repeated, as a client would."""
        url = f"http://127.0.0.1:{serve.environment['ONNXBISECT_PORT']}"
        made = {}
        patience = time.monotonic() + 120
        token = self.folder / "data" / _TOKEN_FILE
        while not token.exists():
            assert time.monotonic() < patience, serve.log.read_text()
            time.sleep(0.1)
        with Client(url, token.read_text().strip()) as server:
            for want in wanted:
                model = want.goals[0].model
                sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
                while True:
                    try:
                        (created,) = server.create(
                            {**want.body, "model": server.upload(model, sha256, ())}, uuid4().hex
                        )
                        job = created["id"]
                        break
                    except OnnxBisectError:
                        assert time.monotonic() < patience, serve.log.read_text()
                        time.sleep(0.5)
                made[job] = want
        return made

    def _storm(
        self,
        serve: Part,
        database: Database,
        chance: random.Random,
        waiting: Sequence[Wanted],
        result: EmbeddedResult,
        began: float,
    ) -> dict[str, Wanted]:
        """Kill the service, asking for one of the `waiting` jobs after every other kill; then let all jobs end."""
        made: dict[str, Wanted] = {}
        every = max(1, self.kills // max(1, len(waiting)))
        kill_at = began + chance.expovariate(1 / self.kill_every)
        told = began
        while True:
            states = self._states(database)
            going = sum(not state.ended for state in states.elements())
            now = time.monotonic()
            if not going and result.kills == self.kills and len(made) == len(waiting):
                return made
            if now - began > self.seconds:
                result.complaints.append(f"After {now - began:.0f} seconds there are {dict(states)}.")
                return made
            if now >= kill_at and result.kills < self.kills:
                serve.kill()
                result.kills += 1
                serve.start()
                if result.kills % every == 0 or result.kills == self.kills:
                    due = waiting[len(made) :] if result.kills == self.kills else waiting[len(made) : len(made) + 1]
                    made |= self._ask(serve, due)
                kill_at = time.monotonic() + chance.expovariate(1 / self.kill_every)
            if now - told > 15:
                told = now
                self.say(f"{now - began:.0f} s: {result.kills} kills, {dict(states)}")
            time.sleep(0.05)

    def _states(self, database: Database) -> Counter[JobState]:
        with database.session() as session:
            return Counter(JobState(state) for state in session.scalars(select(Job.state)))

    def _count(
        self,
        database: Database,
        made: Mapping[str, Wanted],
        known: Mapping[Any, str],
        repairs: Mapping[Any, str],
        result: EmbeddedResult,
    ) -> None:
        files = Files(self.folder / "data" / "files", floor=0)
        wrong = set()
        for complaint in chaos_audit.jobs(database, files, made, known, repairs):
            result.complaints.append(complaint)
            wrong |= {job for job in made if job in complaint}
        result.right = len(made) - len(wrong)
        result.complaints += chaos_audit.verdicts(database)
        result.complaints += chaos_audit.events(database)
        with database.session() as session:
            result.questions = session.scalars(select(func.sum(Probe.losses))).one() or 0
            claims = select(func.sum(Search.epoch))
            result.turns = session.scalars(claims).one() or 0


def _until_ready(serve: Part) -> None:
    give_up = time.monotonic() + 120
    while True:
        try:
            httpx2.get(f"http://127.0.0.1:{serve.environment['ONNXBISECT_PORT']}/livez", timeout=10)
        except httpx2.TransportError:
            assert time.monotonic() < give_up, serve.log.read_text()
            time.sleep(0.1)
        else:
            return


def _uncancelled(want: Wanted) -> Wanted:
    return Wanted(tenant="", goals=want.goals)


def _left(folder: Path) -> dict[int, str]:
    """What is still there some seconds after the service has ended."""
    give_up = time.monotonic() + 15
    while (found := _processes(folder)) and time.monotonic() < give_up:
        time.sleep(0.2)
    return found


def _processes(folder: Path) -> dict[int, str]:
    """All that belong to it, by the folder in their environment or their command."""
    marker = os.fsencode(folder)
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if marker in command + (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found
