"""What the operator of a service does: its settings, its database and the backup of it, tokens and webhook messages."""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import SecretStr
from sqlalchemy.exc import SQLAlchemyError

from onnxbisect.errors import OptionError
from onnxbisect.report.files import put
from onnxbisect.report.text import clean, plural
from onnxbisect_cli.speech import show_table
from onnxbisect_db import deliveries, schema, tokens
from onnxbisect_db.database import Database
from onnxbisect_db.errors import SchemaError
from onnxbisect_db.states import Scope
from onnxbisect_service.settings import Settings, load_settings

_NAME = "onnx-bisect.sqlite"


@contextmanager
def own_database(data: Path | None) -> Iterator[Database]:
    """The database of the settings, with `data` as their folder; SchemaError if its tables have another version."""
    with closing(Database(load_settings(data=data).database)) as database:
        if not is_current(database):
            raise SchemaError(
                "The database has no tables of this version: give the --data that 'onnx-bisect serve' has, or run "
                "'onnx-bisect migrate' first."
            )
        yield database


def migrate(data: Path | None) -> None:
    """Upgrade the tables to this version, and print it."""
    with closing(Database(load_settings(data=data).database)) as database:
        if not is_current(database):
            upgrade(database)
        print(f"The database is at version {database.revision()}.")


def upgrade(database: Database) -> None:
    """Upgrade the tables to this version. An SQLite file with tables is copied first."""
    found = revision_of(database)
    if database.file is not None and found is not None and found < schema.head():
        source = Path(database.file)
        backup = source.with_name(f"{source.stem}-{found}{source.suffix}")
        schema.copy_sqlite(source, backup)
        print(clean(f"The database is migrated from version {found}; a copy of it as it was is {backup}"), flush=True)
    database.upgrade()


def is_current(database: Database) -> bool:
    """Whether the tables have this program's version; OptionError if the database cannot be reached."""
    return revision_of(database) == schema.head()


def revision_of(database: Database) -> str | None:
    """The version of the tables, None if there are none; OptionError if the database cannot be reached."""
    try:
        return database.revision()
    except SQLAlchemyError as error:  # its text may contain the password
        if database.file is not None:
            raise OptionError(
                f"The database {database.file} cannot be read ({type(error).__name__}): is it onnx-bisect's, and are "
                f"you the user that 'onnx-bisect serve' runs as?"
            ) from None
        raise OptionError(
            f"The database cannot be reached ({type(error).__name__}): is ONNXBISECT_DATABASE_URL right?"
        ) from None


def back_up(data: Path | None, to: Path) -> None:
    """Copy the database first, then the files that it names; later uploads are in the next backup.

    Files are named by their content, so those of an earlier backup in the same folder stay as they are.
    """
    settings = load_settings(data=data)
    if settings.files is not None:
        raise OptionError(
            f"The files are in {settings.files}: back the bucket up with its own means, and the database before it."
        )
    if not settings.database.startswith("sqlite"):
        raise OptionError(
            f"The database is PostgreSQL: back it up with 'pg_dump --format=custom', then copy {settings.files_folder}."
        )
    source = Path(settings.database.partition("///")[2])
    if not source.is_file():
        raise OptionError(f"There is no database {source}: give the --data that 'onnx-bisect serve' has.")
    if to.resolve() in (settings.data.resolve(), source.resolve().parent):
        raise OptionError(f"{to} is the folder of the service itself: name another one, best on another disk.")
    with closing(Database(settings.database)) as database:
        version = revision_of(database)
    if version is None:
        raise OptionError(f"{source} has no tables: give the --data that 'onnx-bisect serve' has.")
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    schema.copy_sqlite(source, to / _NAME)
    files = sorted(settings.files_folder.glob("??/*"))
    new = sum(_copied(path, to / "files" / path.relative_to(settings.files_folder)) for path in files)
    print(clean(f"{to} has the database (version {version}) and {plural(len(files), 'file')}, {new} of them new."))


def _copied(path: Path, to: Path) -> bool:
    """Whether the file was copied; False if it already exists there, or was deleted since it was listed."""
    if to.exists():
        return False
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        put(to, path)
    except FileNotFoundError:
        return False
    return True


def show_settings() -> None:
    """Print every setting with its value and purpose; of secrets only whether they are set."""
    settings = load_settings()
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"ONNXBISECT_{name.upper()}"
        given = "set" if variable in os.environ else "default"
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            shown = "(a secret)"
        elif value is None or value == ():
            shown = "-"
        else:
            shown = ",".join(value) if isinstance(value, tuple) else str(value)
        rows.append((variable, shown, given, field.description or ""))
    show_table(("variable", "value", "", "what it is"), rows)


def create_token(data: Path | None, name: str, *, tenant: str, scopes: Iterable[Scope], days: float | None) -> None:
    """Print a new token to standard output; it is stored nowhere else."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with own_database(data) as database:
        issued = database.run(
            lambda session: tokens.issue(session, tenant=tenant, name=name, scopes=scopes, expires_at=expires_at)
        )
    print(issued.text)


def show_tokens(data: Path | None, tenant: str) -> None:
    """Print the tenant's tokens, without their secrets."""
    with own_database(data) as database, database.session() as session:
        found = tokens.list_all(session, tenant)
    rows = []
    for token in found:
        made, used = f"{token.created_at:%Y-%m-%d}", "never" if token.used_at is None else f"{token.used_at:%Y-%m-%d}"
        state = "good"
        if token.revoked_at is not None:
            state = "revoked"
        elif token.expires_at is not None:
            over = token.expires_at <= datetime.now(UTC)
            state = f"{'expired on' if over else 'good until'} {token.expires_at:%Y-%m-%d}"
        rows.append((token.id, token.name, ", ".join(token.scopes), made, used, state))
    show_table(("id", "name", "scopes", "made", "last used", "state"), rows)


def revoke_token(data: Path | None, token_id: str, *, tenant: str) -> None:
    """Revoke the token at once; OptionError if the id is unknown."""
    with own_database(data) as database:
        revoked = database.run(lambda session: tokens.revoke(session, token_id, tenant))
    if revoked is None:
        raise OptionError(f"There is no token {token_id}: 'onnx-bisect token list' shows them.")


def show_webhooks(data: Path | None, tenant: str, limit: int) -> None:
    """Print the newest messages to the tenant's endpoints and job webhooks, with the outcome of the last attempt."""
    with own_database(data) as database, database.session() as session:
        rows = [
            (
                delivery.id,
                endpoint.url,
                delivery.type,
                f"{delivery.created_at:%Y-%m-%d %H:%M}",
                delivery.state,
                str(len(delivery.tries)),
                next((it["problem"] or str(it["status"]) for it in reversed(delivery.tries)), ""),
            )
            for endpoint, delivery in deliveries.newest(session, tenant, limit=limit)
        ]
    show_table(("message", "to", "of", "made", "state", "tries", "last"), rows)


def redeliver_message(data: Path | None, delivery_id: str, *, tenant: str) -> None:
    """Make the message due now, with its own id; OptionError if the id is unknown."""
    with own_database(data) as database:
        found = database.run(lambda session: deliveries.redeliver(session, delivery_id, tenant))
    if found is None:
        raise OptionError(f"There is no message {delivery_id}: 'onnx-bisect webhook log' shows them.")
