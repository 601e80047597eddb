"""What must be there before this process can answer."""

import redis

from onnxbisect_db.database import Database
from onnxbisect_worker.service import Service
from onnxbisect_worker.settings import Settings

_PATIENCE = 2.0


def complaints(service: Service) -> list[str]:
    """What is wrong, as sentences that anybody may read."""
    return [said for said in (_database(service.database), _queue(service.settings)) if said is not None]


def _database(database: Database) -> str | None:
    try:
        current = database.is_current()
    except Exception:
        # a driver's texts can hold addresses and user names
        return "The database cannot be reached."
    return None if current else "The database's tables are not those of this version: run `onnx-bisect migrate`."


def _queue(settings: Settings) -> str | None:
    if settings.redis_url is None:
        return None
    # celery spells sockets its own way
    url = settings.redis_url.get_secret_value().replace("redis+socket://", "unix://", 1)
    try:
        with redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE) as client:
            client.ping()
    except Exception:
        return "The queue (redis) cannot be reached: work goes on, slowly, when it can be again."
    return None
