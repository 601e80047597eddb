"""Culprits over all jobs: one entry each, which is open until every target that refused it takes it."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from onnxbisect.diagnosis import CulpritKind
from onnxbisect.verdict import Kind, Status
from onnxbisect_db import culprits, endpoints, jobs, lifecycle, models, retention, searches, uploads, workers
from onnxbisect_db.culprit_checks import ask_again
from onnxbisect_db.culprit_overview import Cost, changes, costliest, costs, weeks
from onnxbisect_db.culprits import CulpritFilter, FoundCulprit, versions_of
from onnxbisect_db.database import Database
from onnxbisect_db.errors import CulpritStateError, DamagedFileError
from onnxbisect_db.files import Files
from onnxbisect_db.retention import Retention
from onnxbisect_db.states import CulpritState, Stage
from onnxbisect_db.tables import Delivery, Job, KeptVerdict, KnownCulprit, Search, StoredModel
from onnxbisect_db.workers import Presence
from support.db.scenes import (
    FAIL,
    MODEL,
    NPU,
    REPORT,
    Clock,
    answer,
    asks,
    at_once,
    claimed,
    new_job,
    plan,
    prepare,
    read,
    take,
)


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


def finish(
    database: Database,
    search_id: str,
    found: Sequence[FoundCulprit],
    version: str = "1",
    verdict: Status = Status.FAIL,
) -> None:
    prepare(database, search_id, version=version)
    report(database, search_id, found, verdict)


def report(
    database: Database, search_id: str, found: Sequence[FoundCulprit] = (), verdict: Status = Status.FAIL
) -> None:
    """The search has nothing left to ask, and has its report."""
    claimed = take(database, search_id, Stage.SEARCH)
    with database.transaction() as session:
        searches.end_search(session, claimed)
    claimed = take(database, search_id, Stage.REPORT)
    with database.transaction() as session:
        searches.finish(session, claimed, verdict=verdict, report=REPORT, files={}, found=found)


def listed(database: Database, tenant: str = "", **wanted: Any) -> list[KnownCulprit]:
    with database.session() as session:
        return list(culprits.list_page(session, tenant, CulpritFilter(**wanted)).rows)


def identities(database: Database, tenant: str = "", **wanted: Any) -> list[str]:
    return sorted(each.identity for each in listed(database, tenant, **wanted))


def passes(database: Database, version: str) -> None:
    """This version takes the file of the only culprit."""
    job = new_job(database)
    with database.transaction() as session:
        session.get_one(Job, job.id).culprit_id = session.scalars(select(KnownCulprit.id)).one()
    finish(database, job.searches[0].id, [], version, Status.PASS)


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
        assert [verdict.version for verdict in culprits.latest_findings(session, sin.id, limit=9)] == ["2", "1"]


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
        first = culprits.list_page(session, "", limit=3)
        rest = culprits.list_page(session, "", after=first.after, limit=3)
    assert rest.after is None
    names = [each.identity for each in (*first.rows, *rest.rows)]
    assert sorted(names) == [f"Sin-{number}" for number in range(5)]


def test_jobs_that_end_at_once_make_one_entry(database: Database) -> None:
    names = ["Sin-1", "Cos-1", "Exp-1"]
    four = [new_job(database) for _ in range(4)]

    def end(number: int) -> None:
        order = names if number % 2 else names[::-1]
        finish(database, four[number].searches[0].id, [found(name) for name in order])

    at_once(len(four), end)
    assert identities(database) == sorted(names)
    with database.session() as session:
        counted = costs(session, [each.id for each in listed(database)])
    assert {cost.found for cost in counted.values()} == {4}


def test_somebody_who_has_seen_to_a_culprit_says_so(database: Database) -> None:
    finished(database, found())
    entry = listed(database)[0]

    def known(known: bool, tenant: str = "") -> KnownCulprit | None:
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
        entry = session.get_one(KnownCulprit, listed(database)[0].id)
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
        assert [(it.job_id, it.model_name) for it in culprits.latest_findings(session, entry.id, limit=9)] == [
            (None, "net.onnx")
        ]
        assert "e" * 64 in retention.needed(session)


def test_one_set_of_files_outlives_jobs_for_each_version_of_a_target(
    database: Database, clock: Clock, tmp_path: Path
) -> None:
    def kept() -> list[str | None]:
        with database.session() as session:
            verdicts = culprits.latest_findings(session, listed(database)[0].id, limit=9)
            return [verdict.files["model.onnx"][0] if verdict.files else None for verdict in verdicts]

    def finish_one(version: str, name: str) -> Job:
        clock.forward(1)
        return finished(database, found(files={"model.onnx": name * 64}), version=version)

    for version, name in (("1", "1"), ("1", "2"), ("2", "3")):
        finish_one(version, name)
    clock.forward(1)
    retention.sweep(database, Files(tmp_path, floor=0), Retention(jobs=timedelta(0)))
    assert kept() == ["3", "2", None]
    finish_one("1", "4")
    mine = finish_one("1", "5")
    database.run(lambda session: retention.forget(session, mine.id, ""))
    assert kept() == ["4", "3", "2", None]
    clock.forward(1)
    retention.sweep(database, Files(tmp_path, floor=0), Retention(jobs=timedelta(0)))
    assert kept() == [None, "3", "2", None]
    with database.session() as session:
        newest = culprits.reproducing(session, listed(database)[0].id)
    assert newest is not None
    assert newest.version == "2"


def test_a_culprit_is_fixed_when_the_job_with_the_last_target_that_refuses_it_is_deleted(
    database: Database, clock: Clock
) -> None:
    finished(database, found())
    job = new_job(database, "other")
    finish(database, job.searches[0].id, [found()])
    clock.forward(60)
    passes(database, "2")
    assert identities(database, state=CulpritState.OPEN) == ["Sin-1"]
    database.run(lambda session: retention.forget(session, job.id, ""))
    assert identities(database, state=CulpritState.FIXED) == ["Sin-1"]


def test_a_culprit_keeps_the_files_of_the_jobs_that_are_left(database: Database) -> None:
    first = finished(database, found(files={"model.onnx": "1" * 64}))
    finished(database, found(files={"model.onnx": "2" * 64}))
    database.run(lambda session: retention.forget(session, first.id, ""))
    with database.session() as session:
        left = culprits.reproducing(session, listed(database)[0].id)
    assert left is not None
    assert left.files == {"model.onnx": "2" * 64}


def test_a_culprit_that_is_found_while_another_job_with_it_is_deleted_stays(database: Database) -> None:
    first = finished(database, found())
    job = new_job(database)
    prepare(database, job.searches[0].id)
    claimed = take(database, job.searches[0].id, Stage.SEARCH)
    with database.transaction() as session:
        searches.end_search(session, claimed)
    claimed = take(database, job.searches[0].id, Stage.REPORT)
    forgetting = Thread(target=lambda: database.run(lambda session: retention.forget(session, first.id, "")))
    with database.transaction() as session:
        searches.finish(session, claimed, verdict=Status.FAIL, report=REPORT, files={}, found=[found()])
        session.flush()
        forgetting.start()
        forgetting.join(0.3)
        assert forgetting.is_alive()
    forgetting.join()
    assert identities(database) == ["Sin-1"]


def test_a_target_that_is_retried_has_found_a_culprit_once(database: Database) -> None:
    """As where the whole model takes too long, and a part of it is refused."""
    job = new_job(database)
    finish(database, job.searches[0].id, [found()], verdict=Status.UNRESOLVED)
    database.run(lambda session: lifecycle.retry(session, job.id, ""))
    finish(database, read(database, job).searches[0].id, [found(), found("Cos-1")])
    with database.session() as session:
        counted = costs(session, [each.id for each in listed(database)])
    assert list(counted.values()) == [Cost(found=1, seconds=1.0)] * 2


def test_a_retry_with_the_version_before_brings_no_culprit_back(database: Database, clock: Clock) -> None:
    """The retry does not make that version the newer one."""
    job = new_job(database)
    finish(database, job.searches[0].id, [found()], verdict=Status.UNRESOLVED)
    clock.forward(60)
    passes(database, "2")
    assert identities(database, state=CulpritState.FIXED) == ["Sin-1"]
    clock.forward(60)
    database.run(lambda session: lifecycle.retry(session, job.id, ""))
    finish(database, read(database, job).searches[0].id, [found()])
    assert identities(database, state=CulpritState.FIXED) == ["Sin-1"]


NEW_TOOL = "t 2"


def announce(database: Database, says: str = NEW_TOOL, *, usable: bool = True) -> None:
    unusable = frozenset() if usable else frozenset({NPU})
    presence = Presence(id="w", backends=(NPU,), slots=1, tools={NPU: says}, unusable=unusable)
    database.run(lambda session: workers.record_heartbeat(session, presence))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, floor=0)


def small(files: Files, content: bytes = b"a culprit's model") -> dict[str, str]:
    return {"model.onnx": files.put([content]).sha256}


def checks(database: Database) -> list[Job]:
    with database.session() as session:
        asked = select(Job).where(Job.culprit_id.is_not(None)).options(selectinload(Job.searches))
        return list(session.scalars(asked.order_by(Job.id)))


def told(database: Database) -> list[tuple[str, Any]]:
    with database.session() as session:
        sent = session.scalars(select(Delivery).order_by(Delivery.created_at, Delivery.id))
        return [(each.type, each.payload["data"].get("culprit", {}).get("identity")) for each in sent]


def test_a_new_version_is_asked_once_about_each_culprit_after_all_other_work(database: Database, files: Files) -> None:
    finished(database, found(files=small(files)), found("Cos-1", files={}))
    announce(database, "t 1")
    assert ask_again(database, files) == 0, "it has said what it says"
    announce(database, "another tool 2")
    announce(database, NEW_TOOL, usable=False)
    assert ask_again(database, files) == 0
    announce(database)
    assert [ask_again(database, files), ask_again(database, files)] == [1, 0]
    (job,) = checks(database)
    assert (job.request, job.priority < -100) == ({"whole": True, "as_is": True}, True)
    assert files.path(job.model_sha256).read_bytes() == b"a culprit's model"
    with database.session() as session:
        assert [model.name for model in models.list_page(session, "").rows] == ["net.onnx"]
        assert uploads.kept_bytes(session, "") == 10, "of what clients have uploaded"
    assert [(search.backend, search.options) for search in job.searches] == [(NPU, {})]
    with database.session() as session:
        assert job.id not in [each.id for each in jobs.list_page(session, "").rows]
        assert jobs.going(session, "") == 0
    finish(database, job.searches[0].id, [], "2", Status.UNRESOLVED)
    assert ask_again(database, files) == 0
    assert identities(database, state=CulpritState.OPEN) == ["Cos-1", "Sin-1"]


def test_a_damaged_file_of_a_culprit_stops_no_question_about_another(
    database: Database, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged, whole = small(files, b"damaged"), small(files)
    finished(database, found(files=damaged), found("Cos-1", files=whole))
    announce(database)
    opened = files.open

    def open_if_whole(sha256: str) -> BinaryIO:
        if sha256 == damaged["model.onnx"]:
            raise DamagedFileError("The file store has other bytes.")
        return opened(sha256)

    monkeypatch.setattr(files, "open", open_if_whole)
    assert ask_again(database, files) == 1
    (job,) = checks(database)
    assert job.model_sha256 == whole["model.onnx"]


def test_a_target_that_names_its_version_is_not_asked_with_another_one(database: Database, files: Files) -> None:
    job = new_job(database)
    with database.transaction() as session:
        session.get_one(Search, job.searches[0].id).options = {"version": "1"}
    finish(database, job.searches[0].id, [found(files=small(files))])
    announce(database)
    assert ask_again(database, files) == 0


def test_a_version_is_asked_again_where_another_one_has_answered(database: Database, files: Files) -> None:
    """As while workers are updated one after the other; but not for ever."""
    finished(database, found(files=small(files)))
    announce(database)
    for asked in range(1, 6):
        assert ask_again(database, files) == 1
        assert ask_again(database, files) == 0, "it is being asked"
        finish(database, checks(database)[-1].searches[0].id, [], "1")
        assert len(checks(database)) == asked
    assert ask_again(database, files) == 0


def test_a_version_is_asked_again_where_an_earlier_question_is_deleted(database: Database, files: Files) -> None:
    finished(database, found(files=small(files)))
    announce(database)
    for _ in range(2):
        ask_again(database, files)
        finish(database, checks(database)[-1].searches[0].id, [], "1")
    first, second = checks(database)
    database.run(lambda session: retention.forget(session, first.id, ""))
    assert ask_again(database, files) == 1
    assert [job.id == second.id for job in checks(database)] == [True, False]


def test_a_culprit_closes_when_its_file_passes_and_opens_when_it_comes_back(
    database: Database, clock: Clock, files: Files
) -> None:
    database.run(lambda session: endpoints.add(session, tenant="", url="https://h.example"))
    finished(database, found(files=small(files)))
    for version, status in (("2", Status.PASS), ("3", Status.PASS), ("4", Status.FAIL)):
        clock.forward(60)
        announce(database, f"t {version}")
        assert ask_again(database, files) == 1
        finish(database, checks(database)[-1].searches[0].id, [], version, status)
        state = CulpritState.FIXED if status is Status.PASS else CulpritState.OPEN
        assert identities(database, state=state) == ["Sin-1"]
    about_culprits = [each for each in told(database) if each[0].startswith("culprit.")]
    assert about_culprits == [("culprit.fixed", "Sin-1"), ("culprit.returned", "Sin-1")]
    assert [kind for kind, _ in told(database)].count("job.finished") == 1, "of the client's job alone"


def test_a_culprit_is_fixed_when_each_of_its_targets_takes_it(database: Database, clock: Clock, files: Files) -> None:
    job = new_job(database, NPU, "other")
    for search in job.searches:
        finish(database, search.id, [found(files=small(files))])
    clock.forward(60)
    announce(database)
    ask_again(database, files)
    finish(database, checks(database)[0].searches[0].id, [], "2", Status.PASS)
    assert identities(database, state=CulpritState.OPEN) == ["Sin-1"]


def test_the_version_before_still_refuses_what_the_next_one_takes(
    database: Database, clock: Clock, files: Files
) -> None:
    finished(database, found(files=small(files)))
    clock.forward(60)
    announce(database)
    ask_again(database, files)
    finish(database, checks(database)[0].searches[0].id, [], "2", Status.PASS)
    clock.forward(60)
    finished(database, found(files=small(files)), version="1")
    assert identities(database, state=CulpritState.FIXED) == ["Sin-1"]
    finished(database, found(files=small(files)), version="2")
    assert identities(database, state=CulpritState.OPEN) == ["Sin-1"]


def test_an_older_version_that_is_asked_later_fixes_nothing(database: Database, clock: Clock, files: Files) -> None:
    """As while workers are updated one after the other."""
    finished(database, found("Cos-1"), version="1")
    clock.forward(60)
    finished(database, found(files=small(files)), version="2")
    clock.forward(60)
    announce(database, "t 1")
    assert ask_again(database, files) == 1
    finish(database, checks(database)[0].searches[0].id, [], "1", Status.PASS)
    assert identities(database, state=CulpritState.OPEN) == ["Cos-1", "Sin-1"]
    with database.session() as session:
        (changed,) = changes(session, "")
    assert (changed.version, [each.identity for each in changed.broke], changed.fixed) == ("2", ["Sin-1"], [])


def test_a_search_with_other_shapes_says_nothing_of_this_one(database: Database) -> None:
    finished(database, request={"input_shapes": {"x": [1, 3]}})
    equal = finished(database, request={"input_shapes": {"x": [8, 3]}})
    finished(database)
    finished(database, request={"input_shapes": {"x": [8, 3]}, "input_values": {"sr": 1}})
    job = new_job(database, request={"input_shapes": {"x": [8, 3]}})
    prepare(database, job.searches[0].id, version="2")
    with database.session() as session:
        other = culprits.other_version(session, job.searches[0].id)
    assert other is not None
    assert other.id == equal.searches[0].id


def test_what_an_earlier_version_took_the_later_one_broke(database: Database, clock: Clock) -> None:
    earlier = finished(database, found("Cos-1"), version="1")
    clock.forward(60)
    job = new_job(database)
    prepare(database, job.searches[0].id, version="2")
    with database.session() as session:
        other = culprits.other_version(session, job.searches[0].id)
        assert other is not None
        assert other.id == earlier.searches[0].id
    report(database, job.searches[0].id, [replace(found(), passed_in=other.id)])
    (entry,) = listed(database, text="Sin-1")
    with database.session() as session:
        said = [(it.version, it.status) for it in versions_of(session, [entry.id])[entry.id]]
        assert said == [("1", Status.PASS), ("2", Status.FAIL)]


def test_what_was_asked_again_goes_with_the_job_whose_model_it_is_cut_from(database: Database, files: Files) -> None:
    job = finished(database, found(files=small(files)))
    announce(database)
    ask_again(database, files)
    (asked,) = checks(database)
    gone = database.run(lambda session: retention.forget(session, job.id, ""))
    assert gone is not None
    assert asked.model_sha256 in gone
    assert not checks(database)
    assert not listed(database)


def test_what_several_questions_about_a_culprit_have_taught_goes_with_its_job(database: Database, files: Files) -> None:
    job = finished(database, found(files=small(files)))
    announce(database)
    for _ in range(2):
        assert ask_again(database, files) == 1
        search_id = checks(database)[-1].searches[0].id
        prepare(database, search_id)
        plan(database, search_id, asks([1]))
        answer(database, claimed(database), FAIL, key="1" * 64)
        report(database, search_id, verdict=Status.UNRESOLVED)
    database.run(lambda session: retention.forget(session, job.id, ""))
    with database.session() as session:
        assert not session.scalars(select(KeptVerdict)).all()


def test_a_culprit_whose_file_is_gone_keeps_no_other_from_being_asked(database: Database, files: Files) -> None:
    finished(database, found(files={"model.onnx": "1" * 64}), found("Cos-1", files=small(files)))
    announce(database)
    assert ask_again(database, files) == 1
    assert len(checks(database)) == 1


def test_a_culprit_that_is_deleted_while_its_file_is_read_is_not_asked_about(
    database: Database, files: Files, tmp_path: Path
) -> None:
    job = finished(database, found(files=small(files)))
    announce(database)

    class Deleting(Files):
        def open(self, sha256: str) -> BinaryIO:
            database.run(lambda session: retention.forget(session, job.id, ""))
            return super().open(sha256)

    assert ask_again(database, Deleting(tmp_path, floor=0)) == 0
    assert not checks(database)


def test_a_question_that_is_asked_while_its_job_is_deleted_goes_with_it(
    database: Database, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(database, found(files=small(files)))
    announce(database)
    asking = Thread(target=lambda: ask_again(database, files))
    forget_verdicts = retention._forget_verdicts

    def meanwhile(session: Session, tenant: str, job_ids: list[str]) -> None:
        asking.start()
        asking.join(0.5)
        forget_verdicts(session, tenant, job_ids)

    monkeypatch.setattr(retention, "_forget_verdicts", meanwhile)
    database.run(lambda session: retention.forget(session, job.id, ""))
    asking.join()
    assert not checks(database)


def test_a_model_that_is_a_culprits_file_keeps_its_name(database: Database, files: Files) -> None:
    own = small(files)
    finished(database, found(files=own))
    database.run(lambda session: models.keep(session, tenant="", sha256=own["model.onnx"], name="mine.onnx", size=16))
    announce(database)
    ask_again(database, files)
    with database.session() as session:
        model = models.get(session, own["model.onnx"], "")
    assert model is not None
    assert model.name == "mine.onnx"


def test_the_model_of_a_question_goes_with_it_by_its_age(database: Database, clock: Clock, files: Files) -> None:
    finished(database, found(files=small(files)))
    announce(database)
    ask_again(database, files)
    finish(database, checks(database)[0].searches[0].id, [], "2", Status.PASS)
    clock.forward(1)
    retention.sweep(database, files, Retention(jobs=timedelta(0)))
    with database.session() as session:
        assert list(session.scalars(select(StoredModel.name))) == ["net.onnx"]


def test_a_culprit_with_external_data_is_a_model_of_all_its_bytes(database: Database, files: Files) -> None:
    both = {**small(files, b"graph"), "model.data": files.put([b"weights"]).sha256, "compiler.log": "0" * 64}
    finished(database, found(files=both))
    announce(database)
    ask_again(database, files)
    (asked,) = checks(database)
    with database.session() as session:
        model = models.get(session, hashlib.sha256(b"graphweights").hexdigest(), "")
        assert model is not None
        assert (asked.model_sha256, model.size) == (model.sha256, 12)
        assert (model.onnx, model.files) == (both["model.onnx"], {"model.data": both["model.data"]})


def test_what_versions_changed_is_told_of_each(database: Database, clock: Clock, files: Files) -> None:
    first = finished(database, found(files=small(files)), version="1")
    clock.forward(60)
    announce(database)
    ask_again(database, files)
    finish(database, checks(database)[0].searches[0].id, [], "2", Status.PASS)
    clock.forward(60)
    finished(database, replace(found("Cos-1"), passed_in=first.searches[0].id), found("Exp-1"), version="2")
    with database.session() as session:
        (changed,) = changes(session, "")
        assert changes(session, "other") == []
    assert (changed.tool, changed.version) == ("t", "2")
    assert [[each.identity for each in them] for them in (changed.fixed, changed.broke)] == [["Sin-1"], ["Cos-1"]]


def test_a_version_is_told_of_from_when_it_was_first_asked(database: Database, clock: Clock, files: Files) -> None:
    """Though another culprit was known before."""
    job = finished(database, found(files=small(files)), version="1")
    clock.forward(60)
    first = clock.at
    finished(database, replace(found("Cos-1"), passed_in=job.searches[0].id), version="2")
    clock.forward(60)
    announce(database)
    ask_again(database, files)
    finish(database, checks(database)[0].searches[0].id, [], "2", Status.PASS)
    with database.session() as session:
        (changed,) = changes(session, "")
    assert (len(changed.fixed), len(changed.broke), changed.first) == (1, 1, first)


def test_weeks_tell_what_was_new_and_what_it_cost(database: Database, clock: Clock) -> None:
    finished(database, found(), found("Cos-1", seconds=5.0))
    clock.forward(8 * 24 * 3600)
    finished(database, found(seconds=2.0), found("Exp-1", seconds=3.0))
    with database.session() as session:
        told_of = [(week.new, week.fixed, week.seconds) for week in weeks(session, "", count=3)]
        first = costliest(session, "", CulpritFilter(), limit=2)
    assert told_of == [(1, 0, 5.0), (2, 0, 6.0), (0, 0, 0.0)]
    assert [each.identity for each in first] == ["Cos-1", "Sin-1"]
