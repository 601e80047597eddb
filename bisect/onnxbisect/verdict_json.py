"""Verdicts as JSON objects, with the field names of `Verdict`: what every verdict base keeps."""

from dataclasses import asdict
from typing import Any

from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict


def to_json(verdict: Verdict) -> dict[str, Any]:
    """What `from_json` reads."""
    return asdict(verdict)


def from_json(fields: dict[str, Any]) -> Verdict:
    """The verdict that `to_json` wrote; ValueError, TypeError or KeyError for anything else."""
    kind = fields["kind"]
    return Verdict(
        status=Status(fields["status"]),
        kind=None if kind is None else Kind(kind),
        fingerprint=fields["fingerprint"],
        message=fields["message"],
        hints=Hints(**{name: tuple(values) for name, values in fields["hints"].items()}),
        seconds=fields["seconds"],
        # not in answers that were kept before compilers' tables were
        tables=tuple(_table(table) for table in fields.get("tables", ())),
    )


def _table(fields: dict[str, Any]) -> Table:
    rows = tuple(tuple(row) for row in fields["rows"])
    return Table(title=fields["title"], columns=tuple(fields["columns"]), rows=rows, counted=fields["counted"])
