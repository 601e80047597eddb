"""Encode verdicts as JSON objects with the field names of `Verdict`, for every verdict store."""

from dataclasses import asdict
from typing import Any

from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict


def to_json(verdict: Verdict) -> dict[str, Any]:
    """Encode a verdict as JSON data."""
    return asdict(verdict)


def from_json(fields: dict[str, Any]) -> Verdict:
    """Decode what `to_json` returned; raises ValueError, TypeError or KeyError for anything else."""
    kind = fields["kind"]
    return Verdict(
        status=Status(fields["status"]),
        kind=None if kind is None else Kind(kind),
        fingerprint=fields["fingerprint"],
        message=fields["message"],
        hints=Hints(**{name: tuple(values) for name, values in fields["hints"].items()}),
        seconds=fields["seconds"],
        # Verdicts stored by older versions have no tables.
        tables=tuple(_table(table) for table in fields.get("tables", ())),
    )


def _table(fields: dict[str, Any]) -> Table:
    rows = tuple(tuple(row) for row in fields["rows"])
    return Table(title=fields["title"], columns=tuple(fields["columns"]), rows=rows, counted=fields["counted"])
