"""Compiles known culprits with new compiler versions, each as its own file, in jobs of the lowest priority."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Select, and_, func, select, tuple_
from sqlalchemy.orm import Session

from onnxbisect_db import jobs, locking, models, workers
from onnxbisect_db.culprits import MODEL_FILE
from onnxbisect_db.database import Database
from onnxbisect_db.errors import DamagedFileError
from onnxbisect_db.files import FileStore
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import CulpritVerdict, Job, KnownCulprit, Search, Worker

#: Below any priority of a client.
_PRIORITY = -1000
_AT_A_TIME = 100
#: Most jobs for one culprit and one version, if they get no verdict or one of another version.
_TRIES = 5
_CHUNK = 1 << 20
#: The option that selects one of several installed versions, whatever the worker announces.
_PINNED = "version"


@dataclass(frozen=True, kw_only=True)
class _Check:
    """A culprit without a verdict of a version, and the idempotency key of the job for it."""

    culprit: KnownCulprit
    known: CulpritVerdict
    key: str


def ask_again(database: Database, files: FileStore) -> int:
    """Create a job for each culprit and each announced version of its targets that has no verdict on it.

    Returns the number of jobs; a few are created at a time.
    """
    with database.session() as session:
        due = [check for tool in _announced(session) for check in _unasked(session, *tool)][:_AT_A_TIME]
    return sum(_ask(database, files, check) for check in due)


def _announced(session: Session) -> Iterator[tuple[str, str, str]]:
    """Backend, tool and version of living workers, for tools that have known culprits."""
    alive = select(Worker.tools, Worker.unusable).where(Worker.seen_at > workers.alive_since(session))
    announced = {
        (backend, words)
        for tools, unusable in session.execute(alive)
        for backend, words in tools.items()
        if backend not in unusable
    }
    for backend, tool in session.execute(select(CulpritVerdict.backend, CulpritVerdict.tool).distinct()):
        for name, words in sorted(announced):
            if name == backend and words.startswith(f"{tool} "):
                yield backend, tool, words.removeprefix(f"{tool} ")


def _unasked(session: Session, backend: str, tool: str, version: str) -> Iterator[_Check]:
    of_tool = (CulpritVerdict.backend == backend, CulpritVerdict.tool == tool)
    place = (CulpritVerdict.culprit_id, CulpritVerdict.options)
    # neither subquery is correlated: SQLite, without statistics, would scan all rows of the tool for each row
    newest = select(func.max(CulpritVerdict.id)).where(*of_tool, CulpritVerdict.files.is_not(None)).group_by(*place)
    answered = select(*place).where(*of_tool, CulpritVerdict.version == version)
    due = and_(CulpritVerdict.id.in_(newest), tuple_(*place).not_in(answered))
    tries = _tries(session, select(CulpritVerdict.culprit_id).where(due))
    found = (
        select(KnownCulprit, CulpritVerdict)
        .join(CulpritVerdict, CulpritVerdict.culprit_id == KnownCulprit.id)
        .where(due)
    )
    for culprit, known in session.execute(found.order_by(CulpritVerdict.id)):
        if known.given.get(_PINNED):
            continue
        # it has a space, so no client's idempotency key is equal
        target = hashlib.sha256(f"{known.backend} {known.options} {known.tool} {version}".encode()).hexdigest()
        key = f"culprit {culprit.id} {target}"
        before = tries.get(key, [])
        if len(before) < _TRIES and all(it.ended and it.version != version for it in before):
            number = max((it.number for it in before), default=-1) + 1  # earlier ones may have been deleted
            yield _Check(culprit=culprit, known=known, key=f"{key} {number}")


@dataclass(frozen=True, kw_only=True)
class _Try:
    """An earlier job for the same check, with its number at the end of its idempotency key.

    Its version is another one if a worker with that version claimed it, as during an upgrade of several workers.
    """

    number: int
    ended: bool
    version: str


def _tries(session: Session, culprit_ids: Select[str]) -> dict[str, list[_Try]]:
    """The earlier jobs by idempotency key."""
    made = select(Job.idempotency_key, Job.state, Search.version).join(Search, Search.job_id == Job.id)
    found: dict[str, list[_Try]] = {}
    for key, state, version in session.execute(made.where(Job.culprit_id.in_(culprit_ids))):
        asked, _, number = (key or " 0").rpartition(" ")
        found.setdefault(asked, []).append(_Try(number=int(number), ended=JobState(state).ended, version=version))
    return found


def _ask(database: Database, files: FileStore, check: _Check) -> bool:
    """False if the culprit has been deleted or its files are gone or damaged."""
    culprit, known = check.culprit, check.known
    assert known.files is not None  # noqa: S101 - they were asked for
    onnx = known.files[MODEL_FILE]
    data = {name: sha256 for name, sha256 in known.files.items() if name == "model.data"}
    whole, size = hashlib.sha256(), 0
    try:
        for sha256 in (onnx, *data.values()):
            with files.open(sha256) as file:
                while chunk := file.read(_CHUNK):
                    whole.update(chunk)
                    size += len(chunk)
    except (FileNotFoundError, DamagedFileError):
        return False
    target = jobs.NewTarget(backend=known.backend, options=known.given)
    wanted = jobs.NewJob(
        model_sha256=whole.hexdigest(), targets=(target,), request={"whole": True, "as_is": True}, priority=_PRIORITY
    )

    def make(session: Session) -> bool:
        # a deletion of the job that the file comes from also deletes all questions about it: it must wait, or be over
        if known.job_id is not None and locking.locked(session, known.job_id) is None:
            return False
        if session.get(KnownCulprit, culprit.id, with_for_update=True) is None:
            return False
        if models.get(session, wanted.model_sha256, culprit.tenant) is None:  # otherwise it has a client's name
            models.keep(
                session,
                tenant=culprit.tenant,
                sha256=wanted.model_sha256,
                name=f"{culprit.identity}.onnx",
                size=size,
                onnx=onnx if data else None,
                files=data,
            )
        created = jobs.create(session, wanted, tenant=culprit.tenant, idempotency_key=check.key)
        created.job.culprit_id = culprit.id
        return True

    return database.run(make)
