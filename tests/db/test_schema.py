"""The tables' versions: what the migrations make is what the program works with, from wherever they begin."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from alembic import command, op
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, create_engine, select, text
from sqlalchemy.orm import Session

from onnxbisect_db import schema
from onnxbisect_db.culprits import version_id
from onnxbisect_db.database import Database
from onnxbisect_db.errors import SchemaError
from onnxbisect_db.tables import Base, CompilerVersion
from support.db.scenes import asking, read

REVISIONS = [script.revision for script in ScriptDirectory.from_config(schema._config()).walk_revisions()]


@pytest.mark.parametrize("begin", [None, *REVISIONS])
def test_every_revision_leads_to_the_tables_of_the_program(new_url: Callable[[], str], begin: str | None) -> None:
    url = new_url()
    engine = create_engine(url)
    if begin is not None:
        schema.upgrade(engine, begin)
        with engine.connect() as connection:
            assert schema.revision(connection) == begin
    database = Database(url)
    database.upgrade()
    assert database.is_current()
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()
    database.close()


def test_versions_are_as_old_as_their_first_verdicts_before_that_was_recorded(new_url: Callable[[], str]) -> None:
    engine = create_engine(new_url())
    schema.upgrade(engine, "0015")
    tables = MetaData()
    tables.reflect(engine)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    said = {"kind": "single", "ops": [], "failure": "unsupported", "message": "", "cause": "", "remedy": ""}
    culprit = {"id": "c", "tenant": "", "identity": "i", "state": "open", "first_seen": at, "last_seen": at, **said}
    target = {"backend": "npu", "options": "{}", "tool": "t", "version": "1", "status": "fail"}
    model = {"model_sha256": "", "model_name": "", "labels": {}, "found": True, "seconds": 0.0}
    with engine.begin() as connection:
        connection.execute(tables.tables["culprit"].insert().values(culprit))
        for hours in (2, 1, 3):
            row = {"id": str(hours), "culprit_id": "c", "at": at + timedelta(hours=hours), **target, **model}
            connection.execute(tables.tables["culprit_verdict"].insert().values(row))
    schema.upgrade(engine)
    with Session(engine) as session:
        (version,) = session.scalars(select(CompilerVersion))
        assert (version.id, version.first_seen) == (version_id("npu", "t", "1"), at + timedelta(hours=1))
    engine.dispose()


def test_the_newest_file_is_what_alembic_takes_for_the_head() -> None:
    assert ScriptDirectory.from_config(schema._config()).get_current_head() == schema.head()


def test_an_empty_database_has_no_revision_and_is_not_current(new_url: Callable[[], str]) -> None:
    database = Database(new_url())
    assert database.revision() is None
    assert not database.is_current()
    database.close()


def test_upgrading_again_changes_nothing(database: Database) -> None:
    job = asking(database)
    database.upgrade()
    assert read(database, job).state == "running"


_UPGRADE = """
import sys
from onnxbisect_db.database import Database

database = Database(sys.argv[1])
database.is_current()  # connected, and everything imported
print("ready", flush=True)
sys.stdin.readline()
database.upgrade()
"""


def test_two_processes_may_upgrade_at_once(new_url: Callable[[], str]) -> None:
    url = new_url()
    processes = [
        subprocess.Popen([sys.executable, "-c", _UPGRADE, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0]
    database = Database(url)
    assert database.is_current()
    database.close()


def test_a_database_of_a_newer_version_is_left_alone(url: str) -> None:
    database = Database(url)
    with database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert not database.is_current()
    with pytest.raises(SchemaError, match=r"another version .* 9999"):
        database.upgrade()
    database.close()


def test_there_is_one_line_of_revisions_and_no_way_back() -> None:
    script = ScriptDirectory.from_config(schema._config())
    assert len(script.get_heads()) == len(script.get_bases()) == 1
    assert not [revision for revision in script.walk_revisions() if hasattr(revision.module, "downgrade")]


def test_rebuilding_a_table_keeps_what_belongs_to_its_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite alters a table by dropping it, which would delete all searches of all jobs, and their probes."""
    database = Database(url)
    job = asking(database)

    def rebuild(config: Config, to: str) -> None:
        context = MigrationContext.configure(config.attributes["connection"])
        with Operations.context(context), op.batch_alter_table("job", recreate="auto") as batch:
            batch.alter_column("problem", nullable=True)

    monkeypatch.setattr(command, "upgrade", rebuild)
    engine = create_engine(url)
    schema.upgrade(engine, "the next one")
    engine.dispose()
    assert [search.units for search in read(database, job).searches] == [9]
    database.close()
