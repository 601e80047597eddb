"""The chaos run: jobs for a topology whose parts are killed meanwhile, and what came of it."""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from sqlalchemy import func, select, update

from onnx_bisect import Client
from onnxbisect.errors import OnnxBisectError
from onnxbisect_db import endpoints, tokens, workers
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.states import DeliveryState, JobState, ProbeState, Scope
from onnxbisect_db.tables import Delivery, Job, Probe, Search
from support.production import chaos_audit, topology
from support.production.chaos_monkey import Monkey
from support.production.chaos_orders import GOALS, Goal, Wanted, known_culprits, known_repairs, orders
from support.production.topology import Topology
from support.worker.webhook_receiver import Receiver

#: Clients that ask for jobs at a time.
_CLIENTS = 4


@dataclass(kw_only=True)
class Result:
    """`complaints` are what did not hold: none, one hopes."""

    complaints: list[str] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    #: What happened, in numbers.
    counted: dict[str, int] = field(default_factory=dict)
    #: From the first request until the last job ended.
    seconds: float = 0.0
    #: Tracebacks in the logs of all processes, by their last line.
    tracebacks: Counter[str] = field(default_factory=Counter)


@dataclass(kw_only=True)
class Run:
    """One of them, in an empty folder. `seconds` is how long it may take, `kills` the most that is killed; `say` hears
    how it goes.
    """

    folder: Path
    jobs: int
    seed: int
    kill_every: float
    seconds: float
    kills: int | None = None
    workers: int = 2
    goals: Sequence[tuple[Goal, ...]] = GOALS
    say: Callable[[str], None] = print
    result: Result = field(default_factory=Result)

    def __call__(self) -> Result:
        wanted = list(orders(self.jobs, random.Random(self.seed), self.goals))
        known, repairs = known_culprits(wanted), known_repairs(wanted)
        self.say(f"run knows the culprits of {len(known)} targets")
        receiver = Receiver()
        receiver.up()
        try:
            with (
                topology.running(
                    self.folder, workers=self.workers, lease_seconds=10, reconcile_seconds=1, uploads="100000/minute"
                ) as going,
                closing(Database(going.database_url)) as database,
            ):
                self._storm(going, database, receiver, wanted, known, repairs)
        finally:
            receiver.down()
        return self.result

    def _storm(
        self,
        going: Topology,
        database: Database,
        receiver: Receiver,
        wanted: list[Wanted],
        known: Mapping[Any, str],
        repairs: Mapping[Any, str],
    ) -> None:
        texts, secrets = _tenants(database, {want.tenant for want in wanted}, receiver.url)
        monkey = Monkey(
            going,
            receiver,
            random.Random(self.seed),
            seconds=self.kill_every,
            flush_after=max(self.jobs // 20, 3),
            most=self.kills,
        )
        began = time.monotonic()
        monkey.start()
        try:
            made = self._ask(going, wanted, texts)
            self.say(f"{len(made)} jobs are asked for")
            ended = self._wait(database, began, _Regrets(going.url, made, texts))
        finally:
            monkey.stop()
        self.result.seconds = time.monotonic() - began
        self.result.killed = monkey.killed
        self.say("the storm is over")
        receiver_has = self._deliver(database, receiver)
        complaints = self.result.complaints
        files = Files(going.data / "files", floor=0)
        self._until_all_work(database, going)
        codes = going.stop()
        complaints += [f"{name} ended with {code}." for name, code in codes.items() if code != 0]
        complaints += chaos_audit.processes(going)
        if ended:
            complaints += chaos_audit.jobs(database, files, made, known, repairs)
        complaints += chaos_audit.verdicts(database)
        complaints += chaos_audit.events(database)
        if receiver_has:
            complaints += chaos_audit.messages(database, receiver.messages, secrets)
        complaints += chaos_audit.folders(database, files, self.folder / "work")
        self.result.counted = _counted(database, receiver)
        self.result.tracebacks = _tracebacks(going)

    def _ask(self, going: Topology, wanted: list[Wanted], texts: Mapping[str, str]) -> dict[str, Wanted]:
        """As `onnx-bisect submit` does: tried again where the API is away, under one key."""
        going.until_ready()

        def ask(want: Wanted) -> str:
            with Client(going.url, texts[want.tenant]) as server:
                model = want.goals[0].model
                sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
                key, patience = uuid4().hex, time.monotonic() + 120
                while True:
                    try:
                        (created,) = server.create({**want.body, "model": server.upload(model, sha256, ())}, key)
                        job = created["id"]
                        break
                    except OnnxBisectError:  # `submit` gives up where a server was never reached
                        if time.monotonic() > patience:
                            raise
                        time.sleep(1)
            return job

        with ThreadPoolExecutor(_CLIENTS) as pool:
            return dict(zip(pool.map(ask, wanted), wanted, strict=True))

    def _wait(self, database: Database, began: float, regrets: "_Regrets") -> bool:
        """Until all jobs have ended. False, with complaints, where that takes too long."""
        told = 0.0
        while True:
            with database.session() as session:
                rows = {job.id: job.state for job in session.scalars(select(Job))}
            states = Counter(rows.values())
            regrets.see({job_id for job_id, state in rows.items() if state == JobState.RUNNING})
            going = {state: count for state, count in states.items() if not JobState(state).ended}
            now = time.monotonic() - began
            if not going:
                return True
            if now > self.seconds:
                self.result.complaints.append(f"After {now:.0f} seconds there are {going}.")
                return False
            if now - told > 15:
                told = now
                self.say(f"{now:.0f} s: {dict(states)}")
            time.sleep(0.5)

    def _until_all_work(self, database: Database, going: Topology) -> None:
        """What was started again only now must have got as far as to know what to do when it is told to stop."""
        going.until_ready()
        wanted = {str(part.pid) for part in (going.control, *going.workers)}
        give_up = time.monotonic() + 90
        while True:
            with database.session() as session:
                told = {worker.id.split(":")[-2] for worker in workers.list_all(session)}
            if wanted <= told:
                return
            assert time.monotonic() < give_up, "workers that were started again do not work"
            time.sleep(0.2)

    def _deliver(self, database: Database, receiver: Receiver) -> bool:
        """Until every message has arrived. What waits for its next try is due now: the schedule takes days."""
        give_up = time.monotonic() + 90
        while True:
            with database.session() as session:
                pending = list(session.scalars(select(Delivery).where(Delivery.state == DeliveryState.PENDING)))
            if not pending:
                return True
            if time.monotonic() > give_up:
                self.result.complaints.append(f"{len(pending)} messages are not delivered.")
                return False
            waiting = [delivery.id for delivery in pending if delivery.lease_until is None]
            with database.transaction() as session:
                held = (Delivery.id.in_(waiting), Delivery.lease_until.is_(None))
                session.execute(update(Delivery).where(*held).values(due_at=Delivery.created_at))
            time.sleep(2)


class _Regrets:
    """Cancels those that are not wanted any more, so many seconds after they began."""

    def __init__(self, url: str, made: Mapping[str, Wanted], texts: Mapping[str, str]) -> None:
        self._url = url
        self._left = {job_id: want for job_id, want in made.items() if want.cancel_after is not None}
        self._texts = texts
        self._began: dict[str, float] = {}

    def see(self, running: set[str]) -> None:
        for job_id in running & self._left.keys():
            began = self._began.setdefault(job_id, time.monotonic())
            want = self._left[job_id]
            if time.monotonic() - began >= (want.cancel_after or 0) and self._cancelled(job_id, want):
                del self._left[job_id]

    def _cancelled(self, job_id: str, want: Wanted) -> bool:
        """False where the API is away: it is asked again. What has ended by itself cannot be cancelled."""
        headers = {"Authorization": f"Bearer {self._texts[want.tenant]}"}
        try:
            return httpx2.post(f"{self._url}/v1/jobs/{job_id}/cancel", headers=headers, timeout=30).status_code < 500
        except httpx2.TransportError:
            return False


def _tenants(database: Database, names: set[str], url: str) -> tuple[dict[str, str], dict[str, str]]:
    """A token and a webhook for each: the tokens' texts and the webhooks' secrets."""
    texts, secrets = {}, {}
    with database.transaction() as session:
        for name in sorted(names):
            texts[name] = tokens.issue(session, tenant=name, name="chaos", scopes=[Scope.SUBMIT]).text
            secrets[name] = endpoints.add(session, tenant=name, url=url, events=[]).secrets[0]
    return texts, secrets


def _counted(database: Database, receiver: Receiver) -> dict[str, int]:
    with database.session() as session:
        states = Counter(session.scalars(select(Job.state)))
        targets, turns = session.execute(select(func.count(), func.sum(Search.epoch))).one()
        done = Probe.state == ProbeState.DONE
        answered, cached, recalled = session.execute(
            select(func.count(), func.count().filter(Probe.cached), func.count().filter(Probe.epoch == 0)).where(done)
        ).one()
        claims, losses = session.execute(select(func.sum(Probe.epoch), func.sum(Probe.losses))).one()
        repaired = sum("repair/repair.json" in files for files in session.scalars(select(Search.files)))
        tries = [len(delivery.tries) for delivery in session.scalars(select(Delivery))]
    return {
        "jobs": states.total(),
        "targets repaired": repaired,
        "of these cancelled": states[JobState.CANCELLED],
        "targets": targets,
        "runs of the coordinator": turns or 0,
        "probes answered": answered,
        "of these from stored answers, not compiled": cached,
        "of these copied from an earlier job": recalled,
        "claims of probes": claims or 0,
        "probes lost with their worker, model process or compiler": losses or 0,
        "webhook messages": len(tries),
        "attempts to send them": sum(tries),
        "messages received more than once": _repeated(message.id for message in receiver.messages),
    }


def _repeated(ids: Iterator[str]) -> int:
    return sum(times > 1 for times in Counter(ids).values())


def _tracebacks(going: Topology) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in going.parts:
        inside, indent = False, ""
        for logged in going.log(part).splitlines():
            if logged.lstrip().startswith("Traceback "):
                inside, indent = True, logged[: -len(logged.lstrip())]  # the service's own are indented
                continue
            line = logged.removeprefix(indent)
            if inside and line and not line.startswith((" ", "\t")):
                found[f"{part.name}: {line[:160]}"] += 1
                inside = False
    return found
