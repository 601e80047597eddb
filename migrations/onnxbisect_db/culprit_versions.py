"""What each version of each target says of culprits."""

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
    """One version of a target and what it said last of a culprit: `first` and `last` are when it said anything."""

    backend: str
    options: str
    tool: str
    version: str
    status: Status
    first: datetime
    last: datetime

    @property
    def target(self) -> tuple[str, str]:
        """Backend and options, the same in all versions."""
        return self.backend, self.options

    def is_of(self, verdict: CulpritVerdict) -> bool:
        """Whether it is the version of the target that this verdict is of."""
        same = (self.backend, self.options, self.tool, self.version)
        return same == (verdict.backend, verdict.options, verdict.tool, verdict.version)

    @property
    def given(self) -> dict[str, str]:
        """The options."""
        options: dict[str, str] = json.loads(self.options)
        return options


def versions_of(session: Session, culprit_ids: Collection[str] | Select[str]) -> dict[str, list[TargetVersion]]:
    """By culprit, in the order in which the versions first said something of it: a later one counts as newer.
    Databases bound the length of a list: for many culprits give a query of their ids.
    """
    it = CulpritVerdict
    said = (it.culprit_id, it.backend, it.options, it.tool, it.version, it.status)
    last_said = func.max(it.at)
    counted = select(*said, func.min(it.at), last_said).where(it.culprit_id.in_(culprit_ids))
    found: defaultdict[str, dict[tuple[str, ...], TargetVersion]] = defaultdict(dict)
    for row in session.execute(counted.group_by(*said).order_by(last_said)):
        culprit_id, *place, status, first, last = row
        backend, options, tool, version = place
        before = found[culprit_id].get(tuple(place))  # with another status, which it said earlier
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
    """Whether the newest version of every target takes it."""
    newest = {it.target: it for it in versions}
    return all(it.status is Status.PASS for it in newest.values())
