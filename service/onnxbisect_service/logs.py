"""Log lines of the service. Quoted text is hostile: no line can look like two, or colour a terminal."""

import json
import logging
import sys
from datetime import UTC, datetime

from onnxbisect.report.text import clean
from onnxbisect_service.settings import Settings

#: Libraries that log every message or step.
_CHATTY = ("celery.worker.strategy", "celery.app.trace", "alembic", "rust-sugiyama", "connected_components")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        first, *traceback = super().format(record).split("\n")
        # Indented, because lines of an exception's text would otherwise look like log lines.
        return "\n".join([first, *(f"    {clean(line)}" for line in traceback)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 # logging's own name
        return clean(super().formatMessage(record))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": clean(record.getMessage()),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure(settings: Settings) -> None:
    """Log to standard error with the level and form of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    text = _Text("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")
    handler.setFormatter(_Json() if settings.log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
