"""The last step of a search: its report is written, and stored with the files that go with it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from sqlalchemy.orm import Session

from onnxbisect.job import Stats
from onnxbisect.report.files import FORMS
from onnxbisect.verdict import Status
from onnxbisect_db import records, searches
from onnxbisect_db.answered import Answered
from onnxbisect_db.database import now
from onnxbisect_db.errors import LostTurnError
from onnxbisect_db.files import FileStore
from onnxbisect_db.searches import Turn
from onnxbisect_db.tables import Search
from onnxbisect_service.settings import Settings
from onnxbisect_worker import held_folders
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.outside import DATABASE_AWAY
from onnxbisect_worker.preparing import give_up

_CHUNK = 1 << 20
#: How the folders begin in which steps write.
FOLDERS = "report-"

log = logging.getLogger(__name__)


def write_report(context: WorkerContext, turn: Turn) -> None:
    """Write the report of a claimed search."""
    cache = context.service.settings.cache
    with LeaseKeeper(context, turn) as keeper:
        try:
            with held_folders.temporary(cache / f"{FOLDERS}{uuid4().hex}") as folder:
                verdict, report, files = _stored(context, turn, keeper, folder)
        except DATABASE_AWAY:
            raise
        except Exception as error:
            give_up(turn, keeper, error)
            return
        try:
            keeper.write(lambda session: searches.finish(session, turn, verdict=verdict, report=report, files=files))
        except LostTurnError:
            return
    log.info("search %s: over, %s", turn.search_id, verdict)


def clear_reports(settings: Settings) -> None:
    """Remove what processes left behind that were killed while they wrote a report."""
    for left in settings.cache.glob(f"{FOLDERS}*"):
        held_folders.remove(left)


def _stored(
    context: WorkerContext, turn: Turn, keeper: LeaseKeeper, folder: Path
) -> tuple[Status, str, Mapping[str, str]]:
    with context.service.database.session() as session:
        answers = records.answered(session, turn.search_id)
        stats = stats_of(session, turn, answers)
        logs = _logs(session, turn, answers)
    with context.pool.acquire(context.case(turn), new=turn.alone) as process, keeper.kills(process):
        written = process.report(answers, stats, logs, folder)
    store = context.service.files
    files = store_all(store, written.files)
    report = store.put([FORMS["report.json"](written.document).encode("utf-8", "backslashreplace")])
    return Status(written.document["verdict"]), report.sha256, files


def store_all(store: FileStore, written: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of files that are stored now, by their names."""
    return {name: store.put(_chunks(path)).sha256 for name, path in sorted(written.items())}


def stats_of(session: Session, turn: Turn, answers: Sequence[Answered]) -> Stats:
    """What a search has cost so far."""
    search = session.get_one(Search, turn.search_id)
    return Stats.of(
        answers,
        calls=search.calls,
        rounds=search.round,
        engine_seconds=sum(answer.engine_seconds for answer in answers),
        wall_seconds=(now(session) - turn.started_at).total_seconds(),
    )


def _logs(session: Session, turn: Turn, answers: Sequence[Answered]) -> dict[str, str]:
    """Of the failures on a file that may be handed out: a culprit's log goes with its file."""
    found = {}
    for answer in answers:
        if answer.verdict.failed and answer.file_sha256:
            found[answer.probe_id] = records.log(session, answer.probe_id, turn.tenant) or ""
    return found


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
