"""Culprits over all jobs of a tenant, and the versions of compilers that refuse them.

They are recorded in the transaction that stores a target's report.

Reports give a culprit the same `id` in every run, which identifies an entry. The same failure with another message is
another entry.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Select, delete, func, or_, select, update
from sqlalchemy.orm import Session, contains_eager, joinedload

from onnxbisect.diagnosis import CulpritKind
from onnxbisect.verdict import Kind, Status
from onnxbisect_db import events
from onnxbisect_db.database import Page, insert_if_new, page
from onnxbisect_db.errors import CulpritStateError
from onnxbisect_db.states import CulpritState, EventType
from onnxbisect_db.tables import CompilerVersion, CulpritVerdict, Job, KnownCulprit, Label, Search


@dataclass(frozen=True, kw_only=True)
class TargetVersion:
    """A version of a target with its latest verdict on a culprit; `first` and `last` are times of its verdicts."""

    backend: str
    options: str
    tool: str
    version: str
    status: Status
    first: datetime
    last: datetime

    @property
    def target(self) -> tuple[str, str]:
        """Backend and options, which identify the target across versions."""
        return self.backend, self.options

    @property
    def tool_version(self) -> tuple[str, str, str]:
        """Backend, tool and version, whatever the options."""
        return self.backend, self.tool, self.version

    def is_of(self, verdict: CulpritVerdict) -> bool:
        """Whether the verdict is of this version of the target."""
        same = (self.backend, self.options, self.tool, self.version)
        return same == (verdict.backend, verdict.options, verdict.tool, verdict.version)


def note_version(session: Session, search: Search, at: datetime) -> None:
    """Record when the version of a search's compiler is met first."""
    met = {"id": version_id(search.backend, search.tool, search.version), "first_seen": at}
    session.execute(insert_if_new(session, CompilerVersion), met)


def versions_of(session: Session, culprit_ids: Collection[str] | Select[str]) -> dict[str, list[TargetVersion]]:
    """By culprit, the versions from oldest to newest.

    First verdicts do not tell which is older: while workers are updated, an older version may answer later. Databases
    limit the length of lists: for many culprits, pass a query of their ids.
    """
    verdict = CulpritVerdict
    columns = (verdict.culprit_id, verdict.backend, verdict.options, verdict.tool, verdict.version, verdict.status)
    last_at = func.max(verdict.at)
    counted = select(*columns, func.min(verdict.at), last_at).where(verdict.culprit_id.in_(culprit_ids))
    found: defaultdict[str, dict[tuple[str, ...], TargetVersion]] = defaultdict(dict)
    for row in session.execute(counted.group_by(*columns).order_by(last_at)):
        culprit_id, *place, status, first, last = row
        backend, options, tool, version = place
        before = found[culprit_id].get(tuple(place))  # an earlier verdict with another status
        found[culprit_id][tuple(place)] = TargetVersion(
            backend=backend,
            options=options,
            tool=tool,
            version=version,
            status=Status(status),
            first=first if before is None else min(first, before.first),
            last=last,
        )
    # a version has no row if only workers met it that did not record it
    by_id = {version_id(*it.tool_version): it.tool_version for them in found.values() for it in them.values()}
    known = select(CompilerVersion.id, CompilerVersion.first_seen).where(CompilerVersion.id.in_(by_id))
    met = {by_id[it]: first_seen for it, first_seen in session.execute(known)}

    def age(it: TargetVersion) -> tuple[datetime, datetime]:
        return met.get(it.tool_version, it.first), it.first

    return defaultdict(list, {culprit_id: sorted(them.values(), key=age) for culprit_id, them in found.items()})


def version_id(backend: str, tool: str, version: str) -> str:
    """The id of a `CompilerVersion`."""
    return hashlib.sha256(json.dumps([backend, tool, version]).encode()).hexdigest()


def passes_now(versions: Iterable[TargetVersion]) -> bool:
    """Whether the newest version of every target accepts it."""
    newest = {it.target: it for it in versions}
    return all(it.status is Status.PASS for it in newest.values())


#: Most searches of a model that are checked for equal options and shapes.
_LOOKED_THROUGH = 50
#: The file that reproduces a culprit; a verdict has files only with it.
MODEL_FILE = "model.onnx"


@dataclass(frozen=True, kw_only=True)
class FoundCulprit:
    """A culprit as one report has it. `seconds` is its share of compiler time, `files` are stored files by name.

    `passed_in` is an earlier search of the same model (`other_version`) in which it passed.
    """

    identity: str
    kind: CulpritKind
    ops: Sequence[str]
    failure: Kind
    message: str
    cause: str
    variant: str = ""
    seconds: float
    files: Mapping[str, str]
    passed_in: str | None = None


@dataclass(frozen=True, kw_only=True)
class CulpritFilter:
    """Which culprits to list; None matches all. `text` is a part of the identity, message or cause, in any case.

    The model and the labels are those of an existing job that found it.
    """

    state: CulpritState | None = None
    text: str | None = None
    backend: str | None = None
    model_sha256: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def record(session: Session, job: Job, search: Search, found: Sequence[FoundCulprit], at: datetime) -> None:
    """Record the culprits of a target's report; the job must be locked."""
    entries = _entries(session, job.tenant, found, at)
    known = versions_of(session, [entry.id for entry in entries.values()])
    # what a retried target recorded with the same version before is removed, so that it counts once
    mine = (CulpritVerdict.job_id == job.id, CulpritVerdict.culprit_id.in_([it.id for it in entries.values()]))
    options = json.dumps(search.options, sort_keys=True)
    target = (CulpritVerdict.backend == search.backend, CulpritVerdict.options == options)
    same = (CulpritVerdict.tool == search.tool, CulpritVerdict.version == search.version)
    session.execute(delete(CulpritVerdict).where(*mine, *target, *same))
    for each in found:
        entry = entries[each.identity]
        entry.kind, entry.ops, entry.failure = each.kind, list(each.ops), each.failure
        entry.message, entry.cause, entry.variant, entry.last_seen = each.message, each.cause, each.variant, at
        verdict = _verdict(entry, job, search, Status.FAIL, at)
        verdict.found, verdict.labels, verdict.seconds = True, job.labels, each.seconds
        if MODEL_FILE in each.files:
            verdict.files = dict(each.files)
        session.add(verdict)
        earlier = None if each.passed_in is None else session.get(Search, each.passed_in)
        if earlier is not None and earlier.ended_at is not None:  # else it was deleted meanwhile
            verdict = _verdict(entry, job, earlier, Status.PASS, earlier.ended_at)
            verdict.job_id = None  # a reference to the earlier job would lock its row
            if not any(it.is_of(verdict) for it in known[entry.id]):
                session.add(verdict)
    _settle(session, job, search, list(entries.values()), at)


def other_version(session: Session, search_id: str) -> Search | None:
    """The newest search with a report of the same model, shapes and target with another compiler version."""
    mine = session.get_one(Search, search_id, options=[joinedload(Search.job)])
    same_model = (Job.tenant == mine.job.tenant, Job.model_sha256 == mine.job.model_sha256)
    others = (Search.backend == mine.backend, Search.tool == mine.tool, Search.version != mine.version)
    ended = (Search.report.is_not(None), Search.ended_at.is_not(None), Search.asked_for.is_(None))
    found = select(Search).join(Search.job).where(*same_model, *others, *ended).options(contains_eager(Search.job))
    newest = session.scalars(found.order_by(Search.ended_at.desc()).limit(_LOOKED_THROUGH))
    return next((search for search in newest if _question(search) == _question(mine)), None)


def _question(search: Search) -> tuple[object, ...]:
    request = search.job.request
    return search.options, request.get("input_shapes") or {}, request.get("input_values") or {}


def record_recheck(session: Session, job: Job, search: Search, at: datetime) -> None:
    """Record the verdict of a job that compiled a known culprit; an unresolved one has no effect."""
    entry = session.get(KnownCulprit, job.culprit_id, with_for_update=True, populate_existing=True)
    status = Status(search.verdict or Status.UNRESOLVED)
    if entry is not None and status is not Status.UNRESOLVED:
        session.add(_verdict(entry, job, search, status, at))
        _settle(session, job, search, [entry], at)


def _entries(session: Session, tenant: str, found: Sequence[FoundCulprit], at: datetime) -> dict[str, KnownCulprit]:
    """The entries by identity, locked in sorted order to avoid deadlocks."""
    rows = [
        {
            "tenant": tenant,
            "identity": each.identity,
            "kind": each.kind,
            "ops": list(each.ops),
            "failure": each.failure,
            "message": each.message,
            "cause": each.cause,
            "variant": each.variant,
            "first_seen": at,
            "last_seen": at,
        }
        for each in sorted(found, key=lambda each: each.identity)
    ]
    if not rows:
        return {}
    session.execute(insert_if_new(session, KnownCulprit), rows)
    mine = (KnownCulprit.tenant == tenant, KnownCulprit.identity.in_([row["identity"] for row in rows]))
    locked = select(KnownCulprit).where(*mine).order_by(KnownCulprit.identity).with_for_update()
    return {entry.identity: entry for entry in session.scalars(locked, execution_options={"populate_existing": True})}


def _verdict(entry: KnownCulprit, job: Job, search: Search, status: Status, at: datetime) -> CulpritVerdict:
    return CulpritVerdict(
        culprit_id=entry.id,
        job_id=job.id,
        found=False,
        backend=search.backend,
        options=json.dumps(search.options, sort_keys=True),
        tool=search.tool,
        version=search.version,
        status=status,
        model_sha256=job.model_sha256,
        model_name=job.model_name,
        at=at,
    )


def _settle(session: Session, job: Job, search: Search, entries: Sequence[KnownCulprit], at: datetime) -> None:
    """Open or close the entries, and announce the changes."""
    target = {"search": search.id, "backend": search.backend, "tool": search.tool, "version": search.version}
    for entry in update_states(session, entries, at):
        kind = EventType.CULPRIT_FIXED if entry.state == CulpritState.FIXED else EventType.CULPRIT_RETURNED
        words = {"id": entry.id, "identity": entry.identity, "ops": entry.ops, "message": entry.message}
        events.tell(session, job, kind, at, **target, culprit=words)


def update_states(session: Session, entries: Sequence[KnownCulprit], at: datetime) -> list[KnownCulprit]:
    """Open or close the locked entries according to the newest version of each target. Returns the changed ones."""
    session.flush()
    known = versions_of(session, [entry.id for entry in entries])
    changed = [it for it in entries if passes_now(known[it.id]) != (it.state == CulpritState.FIXED)]
    for entry in changed:
        opens = entry.state == CulpritState.FIXED
        entry.state, entry.fixed_at = (CulpritState.OPEN, None) if opens else (CulpritState.FIXED, at)
    return changed


def note_remedies(session: Session, tenant: str, remedies: Mapping[str, str]) -> None:
    """Record the rules with which a repair replaced the culprits of these identities."""
    for identity, remedy in sorted(remedies.items()):  # sorted, as in `_entries`
        mine = (KnownCulprit.tenant == tenant, KnownCulprit.identity == identity)
        session.execute(update(KnownCulprit).where(*mine).values(remedy=remedy))


def get(session: Session, culprit_id: str, tenant: str) -> KnownCulprit | None:
    """One of the tenant's culprits; None if there is none."""
    return session.scalars(
        select(KnownCulprit).where(KnownCulprit.id == culprit_id, KnownCulprit.tenant == tenant)
    ).one_or_none()


def list_page(
    session: Session, tenant: str, wanted: CulpritFilter | None = None, *, after: str | None = None, limit: int = 50
) -> Page[KnownCulprit, str]:
    """The tenant's culprits, newest first, after the one with id `after`."""
    found = select_matching(tenant, wanted or CulpritFilter())
    if after is not None:
        found = found.where(KnownCulprit.id < after)
    return page(session, found.order_by(KnownCulprit.id.desc()), lambda culprit: culprit.id, limit=limit)


def select_matching(tenant: str, wanted: CulpritFilter) -> Select[KnownCulprit]:
    """A query for the tenant's culprits that match."""
    found = select(KnownCulprit).where(KnownCulprit.tenant == tenant)
    if wanted.state is not None:
        found = found.where(KnownCulprit.state == wanted.state)
    if wanted.text is not None:
        columns = (KnownCulprit.identity, KnownCulprit.message, KnownCulprit.cause)
        found = found.where(or_(*(column.icontains(wanted.text, autoescape=True) for column in columns)))
    occurs = select(CulpritVerdict.id).where(CulpritVerdict.culprit_id == KnownCulprit.id, CulpritVerdict.found)
    if wanted.backend is not None:
        occurs = occurs.where(CulpritVerdict.backend == wanted.backend)
    if wanted.model_sha256 is not None:
        occurs = occurs.where(CulpritVerdict.model_sha256 == wanted.model_sha256)
    for name, value in wanted.labels.items():
        same = (Label.tenant == tenant, Label.name == name, Label.value == value)
        occurs = occurs.where(CulpritVerdict.job_id.in_(select(Label.job_id).where(*same)))
    return found.where(occurs.exists())


def set_known(session: Session, culprit_id: str, tenant: str, *, known: bool) -> KnownCulprit | None:
    """Mark the culprit as known, or not; None if the tenant has no such culprit.

    CulpritStateError for a fixed one.
    """
    mine = select(KnownCulprit).where(KnownCulprit.id == culprit_id, KnownCulprit.tenant == tenant).with_for_update()
    entry = session.scalars(mine).one_or_none()
    if entry is not None:
        if entry.state == CulpritState.FIXED:
            raise CulpritStateError("The culprit is fixed. It opens by itself when it comes back.")
        entry.state = CulpritState.KNOWN if known else CulpritState.OPEN
    return entry


def latest_findings(session: Session, culprit_id: str, *, limit: int) -> list[CulpritVerdict]:
    """The latest verdicts of jobs that found it, newest first."""
    found = select(CulpritVerdict).where(CulpritVerdict.culprit_id == culprit_id, CulpritVerdict.found)
    return list(session.scalars(found.order_by(CulpritVerdict.at.desc(), CulpritVerdict.id.desc()).limit(limit)))


def reproducing(session: Session, culprit_id: str) -> CulpritVerdict | None:
    """The newest verdict with files that reproduce the culprit; None if there is none."""
    kept = (CulpritVerdict.culprit_id == culprit_id, CulpritVerdict.files.is_not(None))
    newest = select(CulpritVerdict).where(*kept).order_by(CulpritVerdict.at.desc(), CulpritVerdict.id.desc())
    return session.scalars(newest.limit(1)).one_or_none()
