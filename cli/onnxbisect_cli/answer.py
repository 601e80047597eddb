"""A verdict together with what proves it, and both as text."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict

#: Bytes of compiler log kept with a verdict: enough to show a culprit's failure again without compiling it.
LOG_BYTES = 64_000


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A verdict and the compiler's log, cut to `LOG_BYTES`.

    For a failure `file_sha256` is that of the bytes that were compiled: whoever cuts the same bytes again knows how
    the compiler answers them.
    """

    verdict: Verdict
    file_sha256: str = ""
    log: str = field(default="", repr=False)


def verdict_to_json(verdict: Verdict) -> str:
    """A verdict as a JSON object with the field names of `Verdict`."""
    return json.dumps(asdict(verdict))


def verdict_from_json(text: str) -> Verdict:
    """The verdict that `verdict_to_json` wrote; ValueError, TypeError or KeyError for any other text."""
    fields: dict[str, Any] = json.loads(text)
    hints = {name: tuple(values) for name, values in fields.pop("hints").items()}
    kind = fields.pop("kind")
    status = Status(fields.pop("status"))
    # not in answers that were kept before compilers' tables were
    tables = tuple(map(_table, fields.pop("tables", ())))
    kind = None if kind is None else Kind(kind)
    return Verdict(status=status, kind=kind, hints=Hints(**hints), tables=tables, **fields)


def _table(fields: dict[str, Any]) -> Table:
    columns, rows = fields.pop("columns"), fields.pop("rows")
    return Table(columns=tuple(columns), rows=tuple(map(tuple, rows)), **fields)


def shorten_log(log: str) -> str:
    """A log cut to `LOG_BYTES`: errors stand at the end, the command and versions at the beginning."""
    raw = log.encode("utf-8", "replace")
    if len(raw) <= LOG_BYTES:
        return raw.decode("utf-8")
    head, tail = raw[: LOG_BYTES // 4], raw[-(LOG_BYTES * 3 // 4) :]
    cut = f"\n[onnx-bisect: {len(raw) - len(head) - len(tail)} bytes left out]\n"
    return head.decode("utf-8", "ignore") + cut + tail.decode("utf-8", "ignore")
