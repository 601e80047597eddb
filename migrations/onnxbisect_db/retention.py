"""Deletes jobs on request, old jobs and models, and unreferenced files."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement, delete, exists, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import culprits, locking
from onnxbisect_db.database import Database, insert_if_new, now
from onnxbisect_db.errors import FilesUnreachableError
from onnxbisect_db.files import FileStore
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import (
    CulpritVerdict,
    Delivery,
    Job,
    KeptVerdict,
    KnownCulprit,
    Probe,
    Search,
    StoredModel,
    UnneededFile,
    Upload,
)

#: Seconds before an unreferenced file is deleted: a file is stored before the row that references it.
_GRACE_SECONDS = 3600.0
#: Seconds before a released file is deleted: it may just have been stored again.
_AGAIN_SECONDS = 60.0
_AT_A_TIME = 100


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long jobs are kept after they ended, and uploads after their last use; None for ever."""

    jobs: timedelta | None = None
    models: timedelta | None = None


def forget(session: Session, job_id: str, tenant: str) -> list[str] | None:
    """Delete a job at its owner's request, with its verdicts in the verdict base, culprits, model and files.

    What another job needs is kept. The job may still be running. Returns the files that are now unreferenced, to be
    discarded after the commit; None if the tenant has no such job.
    """
    job = locking.locked(session, job_id)
    if job is None or job.tenant != tenant:
        return None
    # the jobs that compiled its culprits again: their models may be cut from its own
    found = select(CulpritVerdict.culprit_id).where(CulpritVerdict.job_id == job.id, CulpritVerdict.found)
    checks = session.scalars(select(Job.id).where(Job.culprit_id.in_(found)).order_by(Job.id)).all()
    gone = [job, *(check for check_id in checks if (check := locking.locked(session, check_id)) is not None)]
    job_ids = [each.id for each in gone]
    spoken_of = _files_of_searches(session, Search.job_id.in_(job_ids))
    for each in gone:
        model = session.get(StoredModel, (tenant, each.model_sha256))
        spoken_of |= {*each.files, *(model.all_files if model is not None else ())}
    _forget_verdicts(session, tenant, job_ids)
    _forget_culprits(session, job)
    models, uploads = {each.model_sha256 for each in gone}, set(job.files)
    _delete(session, job_ids)
    for sha256 in sorted(models):  # sorted to avoid deadlocks
        _drop_model(session, tenant, sha256)
    others = session.scalars(select(Job.files).where(Job.tenant == tenant)) if uploads else ()
    unused = uploads - {sha256 for files in others for sha256 in files}
    session.execute(delete(Upload).where(Upload.tenant == tenant, Upload.sha256.in_(unused)))
    return release(session, spoken_of)


def release(session: Session, names: Iterable[str]) -> list[str]:
    """Those of the files that are now unreferenced, to be discarded after the commit."""
    unneeded = sorted(set(names) - needed(session))
    if unneeded:
        rows = [{"sha256": sha256, "since": now(session)} for sha256 in unneeded]
        session.execute(insert_if_new(session, UnneededFile), rows)  # an existing row has the earlier time
    return unneeded


def sweep(database: Database, files: FileStore, retention: Retention) -> int:
    """Delete what is old, then every unreferenced file. Returns the number of deleted files.

    The verdict base is kept, because it makes later jobs cheap, and so are culprits.
    """
    while database.run(lambda session: _drop_old_jobs(session, retention)):
        pass
    database.run(lambda session: _drop_old_uploads(session, retention))
    # Names first: later files are young, and later references have touched their files.
    names = set(files.names())
    with database.session() as session:
        orphans = names - needed(session)
    return sum(files.discard(sha256, older_than=_GRACE_SECONDS) for sha256 in sorted(orphans))


def discard(files: FileStore, names: Iterable[str]) -> None:
    """Delete the released files that are old enough, unless the store is away; `clear` deletes the others later."""
    with suppress(FilesUnreachableError):
        for sha256 in names:
            files.discard(sha256, older_than=_AGAIN_SECONDS)


def clear(database: Database, files: FileStore) -> int:
    """Delete some files released a while ago, oldest first, unless referenced again. Returns how many are too young."""
    with database.session() as session:
        since = now(session) - timedelta(seconds=_AGAIN_SECONDS)
        due = select(UnneededFile.sha256).where(UnneededFile.since <= since).order_by(UnneededFile.since)
        released = set(session.scalars(due.limit(_AT_A_TIME)))
        again = released & needed(session) if released else set()
    gone = {sha256 for sha256 in released - again if files.discard(sha256, older_than=_AGAIN_SECONDS)}
    if again or gone:
        database.run(lambda session: session.execute(delete(UnneededFile).where(UnneededFile.sha256.in_(again | gone))))
    return len(released - again - gone)


def needed(session: Session) -> set[str]:
    """Every file that a row references."""
    found: set[str] = set()
    for sha256, onnx, others in session.execute(select(StoredModel.sha256, StoredModel.onnx, StoredModel.files)):
        found |= {onnx or sha256, *others.values()}
    found |= set(session.scalars(select(Upload.sha256)))
    for files in session.scalars(select(CulpritVerdict.files).where(CulpritVerdict.files.is_not(None))):
        found |= set((files or {}).values())
    for mine in session.scalars(select(Job.files)):
        found |= set(mine)
    return found | _files_of_searches(session)


def _files_of_searches(session: Session, *which: ColumnElement[bool]) -> set[str]:
    found: set[str] = set()
    spoken_of = select(Search.universe, Search.graph, Search.report, Search.onnx, Search.data, Search.files)
    for *one, data, others in session.execute(spoken_of.where(*which)):
        found |= {*one, *(data or {}).values(), *others.values()} - {None}
    return found


def _forget_verdicts(session: Session, tenant: str, job_ids: list[str]) -> None:
    """Delete from the verdict base what only these jobs asked."""
    asked = select(Search.identity, Probe.key).join(Probe, Probe.search_id == Search.id).where(Probe.key.is_not(None))
    mine = asked.where(Search.job_id.in_(job_ids))
    other_probe, other_search, other_job = aliased(Probe), aliased(Search), aliased(Job)
    elsewhere = exists().where(
        other_probe.key == KeptVerdict.key,
        other_search.id == other_probe.search_id,
        other_search.identity == KeptVerdict.identity,
        other_search.job_id.not_in(job_ids),
        other_job.id == other_search.job_id,
        other_job.tenant == tenant,
    )
    only_mine = (tuple_(KeptVerdict.identity, KeptVerdict.key).in_(mine), ~elsewhere)
    session.execute(delete(KeptVerdict).where(KeptVerdict.tenant == tenant, *only_mine))


def _forget_culprits(session: Session, job: Job) -> None:
    """Delete this job's findings, and culprits that no other job has; what is left decides the state of the others."""
    verdict = CulpritVerdict
    mine = KnownCulprit.id.in_(select(verdict.culprit_id).where(verdict.job_id == job.id))
    locked = select(KnownCulprit).where(mine).order_by(KnownCulprit.identity).with_for_update()
    entries = session.scalars(locked, execution_options={"populate_existing": True}).all()
    # locked before the other jobs that have them are read
    session.execute(delete(verdict).where(verdict.job_id == job.id))
    culprit_ids = [entry.id for entry in entries]
    found = select(verdict.culprit_id).where(verdict.culprit_id.in_(culprit_ids), verdict.found)
    elsewhere = set(session.scalars(found))
    session.execute(delete(KnownCulprit).where(KnownCulprit.id.in_({*culprit_ids} - elsewhere)))
    culprits.update_states(session, [entry for entry in entries if entry.id in elsewhere], now(session))


def _drop_model(session: Session, tenant: str, sha256: str) -> None:
    model = session.get(StoredModel, (tenant, sha256), with_for_update=True)
    used = exists().where(Job.tenant == tenant, Job.model_sha256 == sha256)
    if model is not None and not session.scalars(select(used)).one():
        session.delete(model)
        session.flush()


def _drop_old_jobs(session: Session, retention: Retention) -> int:
    if retention.jobs is None:
        return 0
    ended = [state for state in JobState if state.ended]
    old = select(Job.id).where(Job.state.in_(ended), Job.ended_at < now(session) - retention.jobs)
    # locked, so that a concurrent retry comes before or after this
    ids = list(session.scalars(old.order_by(Job.id).limit(_AT_A_TIME).with_for_update(skip_locked=True)))
    _drop_spare_files(session, ids)
    asked_again = select(Job.tenant, Job.model_sha256).where(Job.id.in_(ids), Job.culprit_id.is_not(None))
    models = sorted({(tenant, sha256) for tenant, sha256 in session.execute(asked_again)})
    _delete(session, ids)
    for tenant, sha256 in models:
        _drop_model(session, tenant, sha256)
    return len(ids)


def _drop_spare_files(session: Session, job_ids: list[str]) -> None:
    """Keep the files that reproduce a culprit once for each version of a target, after their jobs are deleted."""
    verdict = CulpritVerdict
    version_of = (verdict.culprit_id, verdict.backend, verdict.options, verdict.tool, verdict.version)
    has_files = select(verdict.id, *version_of).where(verdict.files.is_not(None))
    culprit_ids = select(verdict.culprit_id).where(verdict.job_id.in_(job_ids))
    outlived = session.execute(has_files.where(verdict.job_id.is_(None), verdict.culprit_id.in_(culprit_ids)))
    kept = {tuple(version) for _, *version in outlived}
    spare = []
    going = has_files.where(verdict.job_id.in_(job_ids)).order_by(verdict.id.desc())
    for verdict_id, *version in session.execute(going):
        if tuple(version) in kept:
            spare.append({"id": verdict_id, "files": None})
        kept.add(tuple(version))
    if spare:
        session.execute(update(verdict), spare)


def _delete(session: Session, job_ids: list[str]) -> None:
    """Delete the jobs. Everything below a job is deleted with its row, except deliveries, which belong to endpoints."""
    session.execute(delete(Delivery).where(Delivery.job_id.in_(job_ids)))
    session.execute(delete(Job).where(Job.id.in_(job_ids)))


def _drop_old_uploads(session: Session, retention: Retention) -> None:
    if retention.models is not None:
        since = now(session) - retention.models
        used = exists().where(Job.tenant == StoredModel.tenant, Job.model_sha256 == StoredModel.sha256)
        session.execute(delete(StoredModel).where(StoredModel.used_at < since, ~used))
        session.execute(delete(Upload).where(Upload.used_at < since))
