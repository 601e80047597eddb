"""What a tenant has uploaded: models and other files, found again by whoever uploaded them and nobody else."""

import pytest

from onnxbisect_db import lifecycle, models, uploads
from onnxbisect_db.database import Database
from onnxbisect_db.errors import InUseError, UnknownFileError
from onnxbisect_db.tables import StoredModel
from support.db.scenes import MODEL, Clock, asking, new_job

SAMPLE = "5" * 64
GRAPH = "6" * 64


def keep(database: Database, number: int = 0, tenant: str = "", **wanted: object) -> StoredModel:
    fields = {"name": "net.onnx", "size": 10, **wanted}
    with database.transaction() as session:
        return models.keep(session, tenant=tenant, sha256=f"{number:064x}", **fields)  # type: ignore[arg-type]


def test_models_are_listed_newest_first_page_by_page(database: Database, clock: Clock) -> None:
    for number in (3, 1, 2):
        keep(database, number)
        keep(database, number + 10)  # in the same moment
        clock.forward(1)
    keep(database, 9, tenant="other")
    found: list[int] = []
    after = None
    while True:
        with database.session() as session:
            page = models.list_page(session, "", after=after, limit=2)
        found += [int(model.sha256, 16) for model in page.rows]
        after = page.after
        if after is None:
            break
    assert found == [12, 2, 11, 1, 13, 3]


def test_a_model_is_removed_with_its_files_for_its_owner_only(database: Database) -> None:
    keep(database, 1, onnx=GRAPH, files={"w.bin": SAMPLE})
    keep(database, 1, tenant="other")
    with database.transaction() as session:
        assert models.remove(session, f"{1:064x}", "stranger") is None
        assert models.remove(session, f"{1:064x}", "") == {GRAPH, SAMPLE}
        assert models.remove(session, f"{1:064x}", "other") == {f"{1:064x}"}
    with database.session() as session:
        assert models.get(session, f"{1:064x}", "") is None


def test_a_model_that_a_job_needs_stays(database: Database) -> None:
    job = new_job(database)
    with pytest.raises(InUseError, match=job.id), database.transaction() as session:
        models.remove(session, MODEL, "")
    with database.session() as session:
        assert models.get(session, MODEL, "") is not None


def test_a_model_that_is_uploaded_again_has_the_new_name(database: Database) -> None:
    keep(database, 1, onnx=GRAPH, files={"w.bin": SAMPLE}, size=100)
    again = keep(database, 1, onnx=GRAPH, files={"w.bin": SAMPLE}, size=100, name="other.onnx")
    assert (again.files, again.onnx_file, again.size, again.name) == ({"w.bin": SAMPLE}, GRAPH, 100, "other.onnx")


def test_weights_do_not_change_under_a_job_that_reads_them(database: Database) -> None:
    job = asking(database)

    def change() -> None:
        with database.transaction() as session:
            models.keep(session, tenant="", sha256=MODEL, name="net.onnx", size=10, files={"w.bin": SAMPLE})

    with pytest.raises(InUseError, match=job.id):
        change()
    with database.transaction() as session:
        lifecycle.cancel(session, job.id, "")
    change()


def test_a_file_is_there_for_who_uploaded_it(database: Database) -> None:
    with database.transaction() as session:
        uploads.keep(session, tenant="", sha256=SAMPLE, size=3)
        uploads.keep(session, tenant="", sha256=SAMPLE, size=3)
    job = new_job(database, files=(SAMPLE,))
    assert job.files == [SAMPLE]
    with pytest.raises(UnknownFileError, match=SAMPLE):
        new_job(database, files=(SAMPLE,), tenant="stranger")
    with database.transaction() as session:
        assert uploads.get(session, SAMPLE, "stranger") is None
        assert not uploads.remove(session, SAMPLE, "stranger")
        assert uploads.remove(session, SAMPLE, "")
    with pytest.raises(UnknownFileError, match=SAMPLE):
        new_job(database, files=(SAMPLE,))


def test_a_model_of_the_tenants_is_no_file_that_jobs_may_speak_of(database: Database) -> None:
    keep(database, 1)
    with pytest.raises(UnknownFileError):
        new_job(database, files=(f"{1:064x}",))


def test_what_a_tenant_keeps_is_counted(database: Database) -> None:
    keep(database, 1, size=1 << 40)
    keep(database, 2, size=5)
    keep(database, 3, size=7, tenant="other")
    with database.transaction() as session:
        uploads.keep(session, tenant="", sha256=SAMPLE, size=3)
    with database.session() as session:
        assert [uploads.kept_bytes(session, tenant) for tenant in ("", "other", "third")] == [(1 << 40) + 8, 7, 0]
