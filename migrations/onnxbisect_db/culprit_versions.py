"""The verdict of each version of each target on culprits."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from onnxbisect.verdict import Status
from onnxbisect_db.database import insert_if_new
from onnxbisect_db.tables import CompilerVersion, CulpritVerdict, Search


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

    @property
    def tool_version(self) -> tuple[str, str, str]:
        """Backend, tool and version, whatever the options."""
        return self.backend, self.tool, self.version

    def is_of(self, verdict: CulpritVerdict) -> bool:
        """Whether the verdict is of this version of the target."""
        same = (self.backend, self.options, self.tool, self.version)
        return same == (verdict.backend, verdict.options, verdict.tool, verdict.version)

    @property
    def given(self) -> dict[str, str]:
        """The options."""
        options: dict[str, str] = json.loads(self.options)
        return options


def note_version(session: Session, search: Search, at: datetime) -> None:
    """Record when the version of a search's compiler is met first."""
    met = {"id": version_id(search.backend, search.tool, search.version), "first_seen": at}
    session.execute(insert_if_new(session, CompilerVersion), met)


def versions_of(session: Session, culprit_ids: Collection[str] | Select[str]) -> dict[str, list[TargetVersion]]:
    """By culprit, the versions from oldest to newest.

    First verdicts do not tell which is older: while workers are updated, an older version may answer later. Databases
    limit the length of lists: for many culprits, pass a query of their ids.
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
    met = _met(session, {it.tool_version for them in found.values() for it in them.values()})

    def age(it: TargetVersion) -> tuple[datetime, datetime]:
        return met.get(it.tool_version, it.first), it.first

    return defaultdict(list, {culprit_id: sorted(them.values(), key=age) for culprit_id, them in found.items()})


def _met(session: Session, versions: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], datetime]:
    """When each version was met first; without those met only by workers that did not record it."""
    by_id = {version_id(*version): version for version in versions}
    known = select(CompilerVersion.id, CompilerVersion.first_seen).where(CompilerVersion.id.in_(by_id))
    return {by_id[found]: first_seen for found, first_seen in session.execute(known)}


def version_id(backend: str, tool: str, version: str) -> str:
    """The id of a `CompilerVersion`."""
    return hashlib.sha256(json.dumps([backend, tool, version]).encode()).hexdigest()


def passes_now(versions: Iterable[TargetVersion]) -> bool:
    """Whether the newest version of every target accepts it."""
    newest = {it.target: it for it in versions}
    return all(it.status is Status.PASS for it in newest.values())
