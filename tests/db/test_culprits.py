"""Culprits over all jobs: one entry each, which is open until every target that refused it takes it."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from onnxbisect.diagnosis import CulpritKind
from onnxbisect.verdict import Kind, Status
from onnxbisect_db import culprits, retention, searches
from onnxbisect_db.culprit_versions import Cost, costs, versions_of
from onnxbisect_db.culprits import Filter, FoundCulprit
from onnxbisect_db.database import Database
from onnxbisect_db.errors import CulpritStateError
from onnxbisect_db.files import Files
from onnxbisect_db.retention import Retention
from onnxbisect_db.states import CulpritState, Stage
from onnxbisect_db.tables import Culprit, Job
from support.db.scenes import MODEL, REPORT, Clock, at_once, new_job, prepare, take


def found(name: str = "Sin-1", *, seconds: float = 1.0, files: dict[str, str] | None = None) -> FoundCulprit:
    return FoundCulprit(
        identity=name,
        kind=CulpritKind.SINGLE,
        ops=[name.partition("-")[0]],
        failure=Kind.UNSUPPORTED,
        message=f"no {name}",
        cause="every Sin",
        seconds=seconds,
        files={"model.onnx": "e" * 64} if files is None else files,
    )


def finished(database: Database, *found: FoundCulprit, version: str = "1", **wanted: Any) -> Job:
    """A job whose one target has its report, with these culprits."""
    job = new_job(database, **wanted)
    finish(database, job.searches[0].id, found, version)
    return job


def finish(database: Database, search_id: str, found: Sequence[FoundCulprit], version: str = "1") -> None:
    prepare(database, search_id, version=version)
    turn = take(database, search_id, Stage.SEARCH)
    with database.transaction() as session:
        searches.searched(session, turn)
        searches.release(session, turn)
    turn = take(database, search_id, Stage.REPORT)
    verdict = Status.FAIL if found else Status.PASS
    with database.transaction() as session:
        searches.finish(session, turn, verdict=verdict, report=REPORT, files={}, found=found)


def listed(database: Database, tenant: str = "", **wanted: Any) -> list[Culprit]:
    with database.session() as session:
        return list(culprits.listed(session, tenant, Filter(**wanted)).culprits)


def identities(database: Database, tenant: str = "", **wanted: Any) -> list[str]:
    return sorted(each.identity for each in listed(database, tenant, **wanted))


def test_a_culprit_of_several_jobs_is_one_entry_of_their_tenant(database: Database, clock: Clock) -> None:
    finished(database, found(), found("Cos-1"))
    clock.forward(3600)
    finished(database, found(seconds=2.5), version="2")
    finished(database, found(), tenant="other")
    assert identities(database) == ["Cos-1", "Sin-1"]
    sin = listed(database, text="SIN-1")[0]
    assert (sin.state, sin.kind, sin.ops, sin.message) == (CulpritState.OPEN, "single", ["Sin"], "no Sin-1")
    assert (sin.last_seen - sin.first_seen).total_seconds() == 3600
    with database.session() as session:
        assert costs(session, [sin.id]) == {sin.id: Cost(found=2, seconds=3.5)}
        assert [(it.version, it.status) for it in versions_of(session, [sin.id])[sin.id]] == [
            ("1", Status.FAIL),
            ("2", Status.FAIL),
        ]
        assert [verdict.version for verdict in culprits.verdicts_of(session, sin.id)] == ["2", "1"]


def test_culprits_are_found_by_where_they_occur(database: Database) -> None:
    finished(database, found(), labels={"repo": "net", "branch": "main"})
    finished(database, found("Cos-1"), labels={"repo": "net"}, model_sha256="9" * 64)
    assert identities(database, labels={"repo": "net"}) == ["Cos-1", "Sin-1"]
    assert identities(database, labels={"repo": "net", "branch": "main"}) == ["Sin-1"]
    assert identities(database, model_sha256=MODEL) == ["Sin-1"]
    assert identities(database, backend="npu") == ["Cos-1", "Sin-1"]
    assert identities(database, backend="other") == []
    assert identities(database, text="%") == []


def test_culprits_come_in_pages(database: Database) -> None:
    finished(database, *(found(f"Sin-{number}") for number in range(5)))
    with database.session() as session:
        first = culprits.listed(session, "", limit=3)
        rest = culprits.listed(session, "", after=first.after, limit=3)
    assert rest.after is None
    names = [each.identity for each in (*first.culprits, *rest.culprits)]
    assert sorted(names) == [f"Sin-{number}" for number in range(5)]


def test_jobs_that_end_at_once_make_one_entry(database: Database) -> None:
    names = ["Sin-1", "Cos-1", "Exp-1"]
    jobs = [new_job(database) for _ in range(4)]

    def end(number: int) -> None:
        order = names if number % 2 else names[::-1]
        finish(database, jobs[number].searches[0].id, [found(name) for name in order])

    at_once(len(jobs), end)
    assert identities(database) == sorted(names)
    with database.session() as session:
        counted = costs(session, [each.id for each in listed(database)])
    assert {cost.found for cost in counted.values()} == {4}


def test_somebody_who_has_seen_to_a_culprit_says_so(database: Database) -> None:
    finished(database, found())
    entry = listed(database)[0]

    def known(known: bool, tenant: str = "") -> Culprit | None:
        return database.run(lambda session: culprits.set_known(session, entry.id, tenant, known=known))

    known(True)
    finished(database, found())
    assert identities(database, state=CulpritState.KNOWN) == ["Sin-1"], "found again is no news"
    assert known(False, "other") is None
    known(False)
    assert identities(database, state=CulpritState.OPEN) == ["Sin-1"]


def test_a_fixed_culprit_is_not_opened_by_hand(database: Database) -> None:
    finished(database, found())
    with database.transaction() as session:
        entry = session.get_one(Culprit, listed(database)[0].id)
        entry.state = CulpritState.FIXED
    with pytest.raises(CulpritStateError, match="by itself"):
        database.run(lambda session: culprits.set_known(session, entry.id, "", known=True))


def test_what_a_forgotten_job_alone_has_found_goes_with_it(database: Database) -> None:
    mine = finished(database, found(files={"model.onnx": "1" * 64}), found("Cos-1", files={"model.onnx": "2" * 64}))
    finished(database, found(), version="2")

    def needed(session: Session) -> set[str]:
        return {name for name in retention.needed(session) if name in ("1" * 64, "2" * 64, "e" * 64)}

    with database.session() as session:
        assert needed(session) == {"1" * 64, "2" * 64, "e" * 64}
    database.run(lambda session: retention.forget(session, mine.id, ""))
    assert identities(database) == ["Sin-1"]
    with database.session() as session:
        assert needed(session) == {"e" * 64}


def test_culprits_outlive_jobs_that_are_deleted_by_their_age(database: Database, clock: Clock, tmp_path: Path) -> None:
    finished(database, found())
    clock.forward(1)
    retention.sweep(database, Files(tmp_path, floor=0), Retention(jobs=timedelta(0)))
    entry = listed(database)[0]
    with database.session() as session:
        assert [(it.job_id, it.model_name) for it in culprits.verdicts_of(session, entry.id)] == [(None, "net.onnx")]
        assert "e" * 64 in retention.needed(session)


def test_one_set_of_files_is_kept_for_each_version_of_a_target(database: Database) -> None:
    for version, name in (("1", "1"), ("1", "2"), ("2", "3")):
        finished(database, found(files={"model.onnx": name * 64}), version=version)
    with database.session() as session:
        kept = [verdict.files for verdict in culprits.verdicts_of(session, listed(database)[0].id)]
    assert sorted(files["model.onnx"][0] for files in kept if files) == ["1", "3"]
