"""The operator's commands: settings, the database's version, tokens."""

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from kombu import Connection

from onnxbisect_db import deliveries, endpoints, tokens
from onnxbisect_db.database import Database
from onnxbisect_db.deliveries import Try
from onnxbisect_db.files import Files
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token
from onnxbisect_service.settings import load_settings
from support.cli.command_line import Shell


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ONNXBISECT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def token_of(data: Path, text: str) -> Token | None:
    database = Database(f"sqlite:///{data / 'onnx-bisect.sqlite'}")
    with database.session() as session:
        token = tokens.check(session, text)
    database.close()
    return token


def test_settings_show_values_and_no_secret(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_DATABASE_URL", "postgresql://ci:hunter2@db/onnxbisect")
    monkeypatch.setenv("ONNXBISECT_PORT", "9000")
    monkeypatch.setenv("ONNXBISECT_WEBHOOK_ALLOW", "10.0.0.0/8, ci.local")
    shown = shell.call("settings").out
    assert "hunter2" not in shown
    assert "10.0.0.0/8,ci.local" in "".join(shown.split())
    [port] = [line.split() for line in shown.splitlines() if line.startswith("ONNXBISECT_PORT ")]
    assert port[1:3] == ["9000", "set"]


def test_a_wrong_setting_is_one_sentence(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_SLOTS", "0")
    ended = shell.call("settings")
    assert ended.code == 2
    assert ended.sentence().startswith("ONNXBISECT_SLOTS is wrong: ")


@pytest.mark.parametrize(
    ("variable", "value", "command", "said"),
    [
        ("PORT", "99999", "serve", "ONNXBISECT_PORT is wrong: "),
        ("KEEP_JOBS_DAYS", "1e300", "serve", "ONNXBISECT_KEEP_JOBS_DAYS is wrong: "),
        ("REDIS_URL", "http://:hunter2@x", "serve", "ONNXBISECT_REDIS_URL is wrong: it must be redis://"),
        ("REDIS_URL", "redis://:hunter2@x:y", "settings", "ONNXBISECT_REDIS_URL is wrong: it must be redis://"),
        ("PUBLIC_URL", "https://u:hunter2@x", "settings", "ONNXBISECT_PUBLIC_URL is wrong: it must have no user"),
        ("DATABASE_URL", "postgresql://x:hunter2@127.0.0.1:1/db", "serve", "is ONNXBISECT_DATABASE_URL right?"),
        ("DATABASE_URL", "postgresql://x:hunter2@127.0.0.1:1/db", "migrate", "is ONNXBISECT_DATABASE_URL right?"),
        ("DATABASE_URL", "postgresql://x:hunter2@127.0.0.1:1/db", "token list", "is ONNXBISECT_DATABASE_URL right?"),
    ],
)
def test_what_cannot_be_served_is_said_without_its_secrets(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, command: str, said: str
) -> None:
    monkeypatch.setenv(f"ONNXBISECT_{variable}", value)
    ended = shell.call(*command.split())
    assert ended.code == 2
    assert said in ended.sentence()
    assert "hunter2" not in ended.err


def test_a_token_is_made_listed_and_revoked(shell: Shell, data: Path) -> None:
    assert shell.call("migrate").code == 0
    text = shell.call("token", "create", "ci of a repo", "--scope", "read", "--days", "3").out.strip()
    token = token_of(data, text)
    assert token is not None
    assert token.scopes == [Scope.READ]
    listed = shell.call("token", "list").out
    assert "ci of a repo" in listed
    assert text not in listed
    assert shell.call("token", "revoke", token.id).code == 0
    assert token_of(data, text) is None
    assert "revoked" in shell.call("token", "list").out


def test_commands_work_on_the_service_in_the_folder_that_is_given(shell: Shell, tmp_path: Path) -> None:
    service = tmp_path / "service"
    here = ("--data", str(service))
    assert shell.call("migrate", *here).code == 0
    text = shell.call("token", "create", "ci", *here).out.strip()
    token = token_of(service, text)
    assert token is not None
    assert token.id in shell.call("token", "list", *here).out
    assert shell.call("token", "revoke", token.id, *here).code == 0
    assert "message" in shell.call("webhook", "log", *here).out
    assert shell.call("webhook", "redeliver", token.id, *here).sentence().startswith("There is no message")
    elsewhere = shell.call("token", "list").sentence()
    assert "--data" in elsewhere


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://:secret@x:6379/0", "redis://:secret@x:6379/0"),
        ("rediss://x", "rediss://x"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock"),
        ("redis+socket:///run/redis.sock", "redis+socket:///run/redis.sock"),
    ],
)
def test_a_queue_is_named_as_celery_wants_it(monkeypatch: pytest.MonkeyPatch, url: str, broker: str) -> None:
    monkeypatch.setenv("ONNXBISECT_REDIS_URL", url)
    monkeypatch.setenv("ONNXBISECT_PUBLIC_URL", "")  # as compose files pass on what is not set
    assert load_settings().broker == broker
    with Connection(broker) as queue:
        assert queue.transport.driver_type == "redis"


@pytest.mark.parametrize("terminal", [False, True])
def test_ids_are_whole_on_one_line(shell: Shell, data: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    shell.call("migrate")
    for number in range(3):
        shell.call("token", "create", f"number {number} of a repository whose name takes half of a line")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then believes that it prints to one
    else:
        assert len(shell.call("token", "list").out.splitlines()) == 4
    shown = re.sub(r"\x1b\[[\d;]*m", "", shell.call("token", "list").out)
    ids = re.findall(r"^[0-9a-f-]{36} ", shown, re.MULTILINE)
    assert len(ids) == 3
    assert all(shell.call("token", "revoke", found.strip()).code == 0 for found in ids)


def test_a_message_that_was_given_up_is_shown_and_sent_again(shell: Shell, data: Path) -> None:
    shell.call("migrate")
    database = Database(f"sqlite:///{data / 'onnx-bisect.sqlite'}")
    with database.transaction() as session:
        endpoint = endpoints.add(session, tenant="a", url="https://ci.example/hook")
        message = deliveries.ping(session, endpoint)
    refused = Try(status=410, milliseconds=3, problem="It is \x1b[31mgone.")
    with database.transaction() as session:
        sending = deliveries.claim(session, seconds=30)
        assert sending is not None
        assert deliveries.record(session, sending, refused)
        assert endpoints.enable(session, endpoint.id, "a")
    shown = shell.call("webhook", "log", "--tenant", "a").out
    [line] = [line for line in shown.splitlines() if line.startswith(f"{message.id} ")]
    assert "failed" in line
    assert "https://ci.example/hook" in line
    assert "\x1b" not in shown
    assert "https" not in shell.call("webhook", "log").out  # another tenant's
    assert shell.call("webhook", "redeliver", message.id, "--tenant", "a").code == 0
    with database.transaction() as session:
        again = deliveries.claim(session, seconds=30)
    assert again is not None
    assert again.delivery.id == message.id
    database.close()
    unknown = shell.call("webhook", "redeliver", message.id)
    assert unknown.code == 2
    assert message.id in unknown.sentence()


def test_what_cannot_be_done_is_said(shell: Shell) -> None:
    before = shell.call("token", "list")
    assert before.code == 2
    assert "onnx-bisect migrate" in before.sentence()
    assert "onnx-bisect migrate" in shell.call("worker", "--alive").sentence()
    shell.call("migrate")
    assert shell.call("worker", "--alive").code == 1
    unknown = shell.call("token", "revoke", "no-such-id")
    assert unknown.code == 2
    assert "no-such-id" in unknown.sentence()
    endless = shell.call("token", "create", "x", "--days", "1e300")
    assert endless.code == 2
    assert "Invalid value for '--days'" in endless.err
    scope = shell.call("token", "create", "x", "--scope", "write")
    assert scope.code == 2
    assert "read, submit, admin" in scope.sentence()


def test_a_file_that_is_no_database_is_named(shell: Shell, data: Path) -> None:
    data.mkdir(parents=True)
    (data / "onnx-bisect.sqlite").write_text("these are notes, and no database at all")
    done = shell.call("token", "list")
    assert done.code == 2
    assert str(data / "onnx-bisect.sqlite") in done.sentence()


@pytest.mark.parametrize(
    "command", [("serve", "--data", ""), ("token", "list", "--data", ""), ("migrate", "--data", "")]
)
def test_a_data_folder_without_a_name_is_a_mistake(shell: Shell, command: tuple[str, ...]) -> None:
    """As `--data "$UNSET"`; an empty path would be the folder that one is in."""
    done = shell.call(*command)
    assert done.code == 2
    assert "it is empty" in done.err
    assert not list(shell.folder.glob("*.sqlite"))


def test_a_data_variable_without_a_value_is_a_mistake(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_DATA", "")
    assert "ONNXBISECT_DATA is wrong: it is empty" in shell.call("settings").sentence()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no folder that not even root can write to")
@pytest.mark.parametrize("folder", ["/proc", "/proc/new"])
def test_a_folder_that_cannot_be_written_is_said_to_be_one(shell: Shell, folder: str) -> None:
    done = shell.call("serve", "--port", "0", "--data", folder)
    assert done.code == 2
    assert f"The data folder {folder} cannot be written" in done.sentence()


class TestBackup:
    """`onnx-bisect backup`, and what `serve` and `migrate` do before they migrate."""

    def test_a_backup_is_a_service_of_its_own(self, shell: Shell, data: Path, tmp_path: Path) -> None:
        shell.call("migrate")
        text = shell.call("token", "create", "ci").out.strip()
        first = Files(data / "files", floor=0).put([b"first"]).sha256
        to = tmp_path / "backup"
        database = Database(f"sqlite:///{data / 'onnx-bisect.sqlite'}")
        with database.session() as reading:  # as the service does all the time
            reading.connection()
            assert "1 file, 1 of them new" in shell.call("backup", str(to)).out
        database.close()
        second = Files(data / "files", floor=0).put([b"second"]).sha256
        assert "2 files, 1 of them new" in shell.call("backup", str(to)).out
        assert token_of(to, text) is not None
        kept = Files(to / "files", floor=0)
        assert sorted(kept.names()) == sorted([first, second])
        assert (to / "onnx-bisect.sqlite").stat().st_mode & 0o777 == 0o600
        assert list(to.rglob("*.unfinished")) == []

    def test_what_cannot_be_backed_up_is_said(
        self, shell: Shell, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "There is no database" in shell.call("backup", str(tmp_path / "to")).sentence()
        assert not data.exists()
        shell.call("migrate")
        assert "the folder of the service itself" in shell.call("backup", str(data)).sentence()
        monkeypatch.setenv("ONNXBISECT_DATABASE_URL", "postgresql://x:hunter2@127.0.0.1:1/db")
        assert "pg_dump" in shell.call("backup", str(tmp_path / "to")).sentence()

    @pytest.mark.parametrize("command", [("migrate",), ("serve", "--port", "0")], ids=["migrate", "serve"])
    def test_an_older_database_is_copied_before_anything_else(
        self, shell: Shell, data: Path, command: tuple[str, ...]
    ) -> None:
        assert "onnx-bisect-" not in shell.call("migrate").out  # nothing to migrate, nothing to copy
        with closing(sqlite3.connect(data / "onnx-bisect.sqlite")) as database, database:
            database.execute("UPDATE alembic_version SET version_num = '0005'")
        done = shell.call(*command)
        copy = data / "onnx-bisect-0005.sqlite"
        assert copy.name in done.out
        assert "another version of onnx-bisect" in done.err  # until there is a revision that leads on
        with closing(sqlite3.connect(copy)) as before:
            assert before.execute("SELECT version_num FROM alembic_version").fetchall() == [("0005",)]
        assert copy.stat().st_mode & 0o777 == 0o600
