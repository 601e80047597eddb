"""What goes, and when: jobs that somebody deletes, jobs and models that are old, files that nobody speaks of."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, exists, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import lifecycle, locking
from onnxbisect_db.database import Database, now
from onnxbisect_db.files import FileStore
from onnxbisect_db.insertion import insert_if_new
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import (
    Culprit,
    CulpritVerdict,
    Delivery,
    Job,
    KeptVerdict,
    Model,
    Probe,
    Search,
    UnneededFile,
    Upload,
)

#: Nothing younger is cleared away: a file is stored before the row that speaks of it.
_GRACE_SECONDS = 3600.0
#: What was deleted goes even if it is young, but not within so many seconds: it may have been stored again just now.
_AGAIN_SECONDS = 60.0
_AT_A_TIME = 100


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long jobs are kept after they ended, and uploads after they were last used; None for ever."""

    jobs: timedelta | None = None
    models: timedelta | None = None


def forget(session: Session, job_id: str, tenant: str) -> list[str] | None:
    """Delete a job because its owner says so, with all that came of it: what it taught the verdict base, the culprits
    that it found, its model and the files that it speaks of, unless another job needs them. It may still be running.

    Returns the files that nobody speaks of any more, to be discarded once this is committed; None where the tenant
    has no such job.
    """
    job = locking.locked(session, job_id)
    if job is None or job.tenant != tenant:
        return None
    gone = [job, *_checks_of(session, job)]
    spoken_of = {sha256 for each in gone for sha256 in _files_of(session, each)}
    job_ids = [each.id for each in gone]
    _forget_verdicts(session, tenant, job_ids)
    _forget_culprits(session, job)
    models, uploads = {each.model_sha256 for each in gone}, set(job.files)
    _delete(session, job_ids)
    for sha256 in sorted(models):  # in an order, so that no two transactions wait for each other
        _drop_model(session, tenant, sha256)
    _drop_uploads(session, tenant, uploads)
    return release(session, spoken_of)


def release(session: Session, names: Iterable[str]) -> list[str]:
    """Of files that something no longer speaks of those that nothing does, to be discarded once this is committed."""
    unneeded = sorted(set(names) - needed(session))
    if unneeded:
        rows = [{"sha256": sha256, "since": now(session)} for sha256 in unneeded]
        session.execute(insert_if_new(session, UnneededFile), rows)  # the sooner of two moments is soon enough
    return unneeded


def sweep(database: Database, files: FileStore, retention: Retention) -> int:
    """Delete what is old, then every file that nobody speaks of. Returns how many files went.

    What jobs taught the verdict base stays: it is what makes the next job cheap. So do the culprits that they found.
    """
    while database.run(lambda session: _drop_old_jobs(session, retention)):
        pass
    database.run(lambda session: _drop_old_uploads(session, retention))
    # Names first: a file that comes later is young, and one that is spoken of later was touched.
    names = set(files.names())
    with database.session() as session:
        orphans = names - needed(session)
    return sum(files.discard(sha256, older_than=_GRACE_SECONDS) for sha256 in sorted(orphans))


def discard(files: FileStore, names: Iterable[str]) -> None:
    """Delete the files that were released, as far as they are old enough; `clear` takes the others."""
    for sha256 in names:
        files.discard(sha256, older_than=_AGAIN_SECONDS)


def clear(database: Database, files: FileStore) -> int:
    """Delete some of what was released a while ago, the oldest first, unless it is needed again. Returns how many of
    these files are too young still.
    """
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
    """Every file that a row speaks of."""
    found: set[str] = set()
    for sha256, onnx, others in session.execute(select(Model.sha256, Model.onnx, Model.files)):
        found |= {onnx or sha256, *others.values()}
    found |= set(session.scalars(select(Upload.sha256)))
    for files in session.scalars(select(CulpritVerdict.files).where(CulpritVerdict.files.is_not(None))):
        found |= set((files or {}).values())
    for mine in session.scalars(select(Job.files)):
        found |= set(mine)
    spoken_of = select(Search.universe, Search.graph, Search.report, Search.onnx, Search.data, Search.files)
    for *one, data, others in session.execute(spoken_of):
        found |= {*one, *(data or {}).values(), *others.values()} - {None}
    return found


def _files_of(session: Session, job: Job) -> set[str]:
    found = set(job.files)
    model = session.get(Model, (job.tenant, job.model_sha256))
    found |= model.all_files if model is not None else set()
    for search in lifecycle.searches_of(session, job):
        own = {search.universe, search.graph, search.report, search.onnx}
        found |= {*own, *(search.data or {}).values(), *search.files.values()} - {None}
    return found


def _forget_verdicts(session: Session, tenant: str, job_ids: list[str]) -> None:
    """Take out of the verdict base what only these jobs have asked."""
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


def _checks_of(session: Session, job: Job) -> list[Job]:
    """The jobs, locked, that have asked again about its culprits: their models may be cut from its own."""
    found = select(CulpritVerdict.culprit_id).where(CulpritVerdict.job_id == job.id, CulpritVerdict.found)
    checks = session.scalars(select(Job.id).where(Job.culprit_id.in_(found)).order_by(Job.id)).all()
    return [check for check_id in checks if (check := locking.locked(session, check_id)) is not None]


def _forget_culprits(session: Session, job: Job) -> None:
    """What this job has found, and those of its culprits that no other job has."""
    mine = select(CulpritVerdict.culprit_id).where(CulpritVerdict.job_id == job.id)
    locked = select(Culprit.id).where(Culprit.id.in_(mine)).order_by(Culprit.identity).with_for_update()
    culprit_ids = session.scalars(locked).all()  # before it is looked which other jobs have them
    session.execute(delete(CulpritVerdict).where(CulpritVerdict.job_id == job.id))
    elsewhere = exists().where(CulpritVerdict.culprit_id == Culprit.id, CulpritVerdict.found)
    session.execute(delete(Culprit).where(Culprit.id.in_(culprit_ids), ~elsewhere))


def _drop_model(session: Session, tenant: str, sha256: str) -> None:
    model = session.get(Model, (tenant, sha256), with_for_update=True)
    used = exists().where(Job.tenant == tenant, Job.model_sha256 == sha256)
    if model is not None and not session.scalars(select(used)).one():
        session.delete(model)
        session.flush()


def _drop_uploads(session: Session, tenant: str, names: set[str]) -> None:
    others = session.scalars(select(Job.files).where(Job.tenant == tenant)) if names else ()
    unused = names - {sha256 for files in others for sha256 in files}
    session.execute(delete(Upload).where(Upload.tenant == tenant, Upload.sha256.in_(unused)))


def _drop_old_jobs(session: Session, retention: Retention) -> int:
    if retention.jobs is None:
        return 0
    ended = [state for state in JobState if state.ended]
    old = select(Job.id).where(Job.state.in_(ended), Job.ended_at < now(session) - retention.jobs)
    # locked: who retries one of them now comes before this or after it
    ids = list(session.scalars(old.order_by(Job.id).limit(_AT_A_TIME).with_for_update(skip_locked=True)))
    _drop_spare_files(session, ids)
    asked_again = select(Job.tenant, Job.model_sha256).where(Job.id.in_(ids), Job.culprit_id.is_not(None))
    models = sorted({(tenant, sha256) for tenant, sha256 in session.execute(asked_again)})
    _delete(session, ids)
    for tenant, sha256 in models:
        _drop_model(session, tenant, sha256)
    return len(ids)


def _drop_spare_files(session: Session, job_ids: list[str]) -> None:
    """What reproduces a culprit outlives its job once for each version of a target."""
    it = CulpritVerdict
    has_files = select(it.id, it.culprit_id, it.backend, it.options, it.tool, it.version).where(it.files.is_not(None))
    culprit_ids = select(it.culprit_id).where(it.job_id.in_(job_ids))
    outlived = session.execute(has_files.where(it.job_id.is_(None), it.culprit_id.in_(culprit_ids)))
    kept = {tuple(version) for _, *version in outlived}
    spare = []
    for verdict_id, *version in session.execute(has_files.where(it.job_id.in_(job_ids)).order_by(it.id.desc())):
        if tuple(version) in kept:
            spare.append({"id": verdict_id, "files": None})
        kept.add(tuple(version))
    if spare:
        session.execute(update(it), spare)


def _delete(session: Session, job_ids: list[str]) -> None:
    """Everything below a job goes with its row, but for what webhooks were told of it: that hangs on their endpoint."""
    session.execute(delete(Delivery).where(Delivery.job_id.in_(job_ids)))
    session.execute(delete(Job).where(Job.id.in_(job_ids)))


def _drop_old_uploads(session: Session, retention: Retention) -> None:
    if retention.models is not None:
        since = now(session) - retention.models
        used = exists().where(Job.tenant == Model.tenant, Job.model_sha256 == Model.sha256)
        session.execute(delete(Model).where(Model.used_at < since, ~used))
        session.execute(delete(Upload).where(Upload.used_at < since))
