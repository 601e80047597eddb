"""The verdict of each version of each target on culprits."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from onnxbisect.verdict import Status
from onnxbisect_db.tables import CulpritVerdict


@dataclass(frozen=True, kw_only=True)
class TargetVersion:
    """A version of a target with its latest verdict on a culprit; `first` and `last` are times of its verdicts."""

    backend: str
    options: str
    tool: str
    version: str
    status: Status
    first: datetime
    last: datetime

    @property
    def target(self) -> tuple[str, str]:
        """Backend and options, which identify the target across versions."""
        return self.backend, self.options

    def is_of(self, verdict: CulpritVerdict) -> bool:
        """Whether the verdict is of this version of the target."""
        same = (self.backend, self.options, self.tool, self.version)
        return same == (verdict.backend, verdict.options, verdict.tool, verdict.version)

    @property
    def given(self) -> dict[str, str]:
        """The options."""
        options: dict[str, str] = json.loads(self.options)
        return options


def versions_of(session: Session, culprit_ids: Collection[str] | Select[str]) -> dict[str, list[TargetVersion]]:
    """By culprit, the versions in the order of their first verdicts; later ones count as newer.

    Databases limit the length of lists: for many culprits, pass a query of their ids.
    """
    it = CulpritVerdict
    columns = (it.culprit_id, it.backend, it.options, it.tool, it.version, it.status)
    last_at = func.max(it.at)
    counted = select(*columns, func.min(it.at), last_at).where(it.culprit_id.in_(culprit_ids))
    found: defaultdict[str, dict[tuple[str, ...], TargetVersion]] = defaultdict(dict)
    for row in session.execute(counted.group_by(*columns).order_by(last_at)):
        culprit_id, *place, status, first, last = row
        backend, options, tool, version = place
        before = found[culprit_id].get(tuple(place))  # an earlier verdict with another status
        found[culprit_id][tuple(place)] = TargetVersion(
            backend=backend,
            options=options,
            tool=tool,
            version=version,
            status=Status(status),
            first=first if before is None else min(first, before.first),
            last=last,
        )
    ordered = {culprit_id: sorted(them.values(), key=lambda it: it.first) for culprit_id, them in found.items()}
    return defaultdict(list, ordered)


def passes_now(versions: Iterable[TargetVersion]) -> bool:
    """Whether the newest version of every target accepts it."""
    newest = {it.target: it for it in versions}
    return all(it.status is Status.PASS for it in newest.values())
