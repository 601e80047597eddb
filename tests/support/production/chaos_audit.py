"""What must hold when the storm is over; each complaint is a sentence."""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from onnxbisect.verdict import Status
from onnxbisect_db import retention
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.retention import Retention
from onnxbisect_db.states import ANNOUNCED, DeliveryState, EventType, JobState, ProbeState
from onnxbisect_db.tables import Delivery, Endpoint, Event, Job, Probe, Search
from onnxbisect_service.settings import Settings
from onnxbisect_worker.model_processes.pool import clear_process_folders
from support.production.chaos_orders import Wanted, culprits_of, name_of, repair_of
from support.production.topology import Topology
from support.worker.webhook_receiver import Message

#: Files are as old as if they had been stored before that many seconds.
_OLD = 2 * 3600


def jobs(
    database: Database, files: Files, wanted: Mapping[str, Wanted], known: Mapping[Any, str], repairs: Mapping[Any, str]
) -> Iterator[str]:
    """Each ended right: its culprits are those of `run`, and its repair is that of `fix`."""
    with database.session() as session:
        rows = {job.id: job for job in session.scalars(select(Job))}
        searches = defaultdict(list)
        for search in session.scalars(select(Search).where(Search.asked_for.is_(None)).order_by(Search.ordinal)):
            searches[search.job_id].append(search)
    if rows.keys() != wanted.keys():
        yield f"{len(rows)} jobs were made of {len(wanted)}."
    for job_id, want in wanted.items():
        job = rows[job_id]
        if job.state == JobState.CANCELLED and want.cancel_after is not None:
            continue
        if job.state != JobState.DONE:
            yield f"Job {job_id} is {job.state}: {job.problem}"
            continue
        for goal, search in zip(want.goals, searches[job_id], strict=True):
            if search.state != JobState.DONE or search.report is None:
                yield f"Job {job_id} has no report for {name_of(goal)}: it is {search.state}, {search.problem}."
                continue
            with files.open(search.report) as file:
                found = culprits_of(json.load(file))
            right = known[name_of(goal)]
            if found != right:
                yield f"Job {job_id} differs from `run` on {name_of(goal)}: {found[:500]} != {right[:500]}"
            if want.repair:
                yield from _repair(files, job_id, search, repairs[name_of(goal)])


def _repair(files: Files, job_id: str, search: Search, right: str) -> Iterator[str]:
    if (name := search.files.get("repair/repair.json")) is None:
        yield f"Job {job_id} was not repaired: {search.repair}"
        return
    with files.open(name) as file:
        found = repair_of(json.load(file))
    if found != right:
        yield f"Job {job_id} differs from `fix`: {found[:500]} != {right[:500]}"


def verdicts(database: Database) -> Iterator[str]:
    """Each once: no probe is answered twice, and nothing that was known is compiled again."""
    with database.session() as session:
        told = session.execute(select(Event.job_id, Event.data).where(Event.type == EventType.PROBE_ANSWERED))
        answered = Counter(data["probe"] for _, data in told)
        # what nobody took came with an earlier search of the same model
        asked_here = (Probe.state == ProbeState.DONE, Probe.epoch > 0)
        done = set(session.scalars(select(Probe.id).where(*asked_here)))
        compiled = session.execute(
            select(Job.tenant, Search.identity, Probe.key, Probe.attempt, Probe.verdict)
            .join(Search, Search.id == Probe.search_id)
            .join(Job, Job.id == Search.job_id)
            .where(Probe.state == ProbeState.DONE, Probe.cached.is_(False), Probe.key.is_not(None))
        )
        asked = Counter(
            (tenant, identity, key, attempt)
            for tenant, identity, key, attempt, verdict in compiled
            if verdict["status"] != Status.UNRESOLVED
        )
        left = session.scalars(
            select(func.count()).where(Probe.state.in_((ProbeState.QUEUED, ProbeState.RUNNING)))
        ).one()
    twice = [probe for probe, times in answered.items() if times != 1]
    if twice:
        yield f"{len(twice)} probes were answered more than once: {twice[:5]}"
    if not done <= answered.keys():
        yield f"{len(done - answered.keys())} probes are answered, and no event says so."
    again = {question: times for question, times in asked.items() if times != 1}
    if again:
        yield f"{len(again)} questions were compiled again although their answer was kept: {list(again)[:5]}"
    if left:
        yield f"{left} probes are still queued or running."


def events(database: Database) -> Iterator[str]:
    """Numbered without gaps."""
    with database.session() as session:
        counts = {job.id: job.events for job in session.scalars(select(Job))}
        numbers: dict[str, list[int]] = defaultdict(list)
        for job_id, number in session.execute(select(Event.job_id, Event.number)):
            numbers[job_id].append(number)
    for job_id, count in counts.items():
        if sorted(numbers[job_id]) != list(range(1, count + 1)):
            yield f"The events of job {job_id} are numbered {sorted(numbers[job_id])}, and it counts {count}."


def messages(database: Database, received: Sequence[Message], secrets: Mapping[str, str]) -> Iterator[str]:
    """Every webhook arrived, signed, under one id; `secrets` by tenant."""
    with database.session() as session:
        rows = session.execute(select(Delivery, Endpoint.tenant).join(Endpoint, Endpoint.id == Delivery.endpoint_id))
        deliveries = {delivery.id: (delivery, tenant) for delivery, tenant in rows}
        announced = session.scalars(select(func.count()).where(Event.type.in_(ANNOUNCED))).one()
    if len(deliveries) != announced:
        yield f"There are {len(deliveries)} messages for {announced} events."
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for message in received:
        bodies[message.id].add(message.body)
        if message.id in deliveries:
            message.verified(secrets[deliveries[message.id][1]])
    if bodies.keys() - deliveries.keys():
        yield f"{len(bodies.keys() - deliveries.keys())} messages arrived that nobody wrote."
    changed = [message_id for message_id, seen in bodies.items() if len(seen) > 1]
    if changed:
        yield f"{len(changed)} messages said something else when they came again: {changed[:5]}"
    for delivery_id, (delivery, _) in deliveries.items():
        if delivery_id not in bodies or delivery.state != DeliveryState.DELIVERED:
            yield f"Message {delivery_id} is {delivery.state}, and arrived {len(bodies[delivery_id])} times."


def processes(topology: Topology) -> Iterator[str]:
    """None is left of a topology that was stopped; those that are ending have a few seconds.

    Only then: model processes whose fork server was killed have no ancestor but init, and serve their worker on.
    """
    give_up = time.monotonic() + 15
    while left := topology.processes():
        if time.monotonic() > give_up:
            yield from (f"Left behind: {command}" for command in left.values())
            return
        time.sleep(0.2)


def folders(database: Database, files: Files, work: Path) -> Iterator[str]:
    """Stored files are those that rows speak of, once it was swept; working folders are gone. Nobody is running."""
    for name in files.names():
        path = files.path(name)
        os.utime(path, (time.time() - _OLD, time.time() - _OLD))
    with database.session() as session:
        needed = retention.needed(session)
    if missing := needed - set(files.names()):
        yield f"{len(missing)} files that rows speak of are not there."
    retention.sweep(database, files, Retention())
    files.clear_unfinished(older_than=0)
    if surplus := set(files.names()) - needed:
        yield f"{len(surplus)} files are left that nobody speaks of."
    for each in sorted(work.iterdir()):
        clear_process_folders(Settings(work=each))  # as the next worker does
        if left := [path for path in (each / "hosts").glob("*") if path.exists()]:
            yield f"Working folders are left: {left}"
