"""What every process of the service holds in its hands: settings, database, files, and the bell."""

from dataclasses import dataclass

from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_worker.bell import Bell
from onnxbisect_worker.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Service:
    """Threads may share it; a process opens its own (connections do not survive a fork)."""

    settings: Settings
    database: Database
    files: Files
    bell: Bell

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()


def open_service(settings: Settings, bell: Bell) -> Service:
    """Make folders and connect; touches the tables of nothing. OptionError where the database's URL is wrong."""
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)  # models and secrets are nobody else's
    return Service(
        settings=settings,
        database=Database(settings.database),
        files=Files(settings.files, floor=settings.disk_floor),
        bell=bell,
    )
