"""All culprits of a tenant: their cost, changes by compiler version, and trends by week."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from onnxbisect.verdict import Status
from onnxbisect_db import culprits
from onnxbisect_db.database import now
from onnxbisect_db.tables import CulpritVerdict, KnownCulprit


@dataclass(frozen=True, kw_only=True)
class Cost:
    """How often jobs found a culprit, counted once per target, and the compiler seconds for it."""

    found: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class VersionChanges:
    """The culprits that a version fixed and broke, compared with the one before; `first` is its first verdict."""

    backend: str
    tool: str
    version: str
    first: datetime
    fixed: list[KnownCulprit] = field(default_factory=list)
    broke: list[KnownCulprit] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Week:
    """Culprits found for the first time, culprits fixed since then, and compiler seconds for culprits."""

    begins: datetime
    new: int
    fixed: int
    seconds: float


def costs(session: Session, culprit_ids: Collection[str]) -> Mapping[str, Cost]:
    """The cost of each culprit."""
    mine = _COST.where(CulpritVerdict.culprit_id.in_(culprit_ids))
    return {culprit_id: Cost(found=found, seconds=seconds) for culprit_id, found, seconds in session.execute(mine)}


def costliest(session: Session, tenant: str, wanted: culprits.CulpritFilter, *, limit: int) -> list[KnownCulprit]:
    """The culprits with the most compiler seconds; ties by how often they were found."""
    mine = CulpritVerdict.culprit_id.in_(select(KnownCulprit.id).where(KnownCulprit.tenant == tenant))
    cost = _COST.where(mine).subquery()
    found = culprits.select_matching(tenant, wanted).join(cost, cost.c.culprit_id == KnownCulprit.id)
    return list(
        session.scalars(found.order_by(cost.c.seconds.desc(), cost.c.found.desc(), KnownCulprit.id).limit(limit))
    )


def changes(session: Session, tenant: str) -> list[VersionChanges]:
    """The changes of each version that fixed or broke a culprit, newest first."""
    several = func.count(CulpritVerdict.version.distinct()) > 1
    asked = select(CulpritVerdict.culprit_id).join(KnownCulprit, KnownCulprit.id == CulpritVerdict.culprit_id)
    changing = asked.where(KnownCulprit.tenant == tenant).group_by(CulpritVerdict.culprit_id).having(several)
    by_id = {
        culprit.id: culprit for culprit in session.scalars(select(KnownCulprit).where(KnownCulprit.id.in_(changing)))
    }
    changed: list[tuple[KnownCulprit, culprits.TargetVersion]] = []
    for culprit_id, versions in culprits.versions_of(session, changing).items():
        before: dict[tuple[str, str], Status] = {}
        for it in versions:
            if before.get(it.target, it.status) is not it.status:
                changed.append((by_id[culprit_id], it))
            before[it.target] = it.status
    found: dict[tuple[str, str, str], VersionChanges] = {}
    for culprit, it in sorted(changed, key=lambda each: each[1].first):
        new = VersionChanges(backend=it.backend, tool=it.tool, version=it.version, first=it.first)
        of_version = found.setdefault(it.tool_version, new)
        listed = of_version.fixed if it.status is Status.PASS else of_version.broke
        if culprit not in listed:  # already listed for another target with the same compiler
            listed.append(culprit)
    return list(reversed(found.values()))


def weeks(session: Session, tenant: str, *, count: int) -> list[Week]:
    """The last weeks of seven days each, newest first."""
    at = now(session)
    ends = [at - timedelta(weeks=number) for number in range(count + 1)]
    spans = list(zip(ends[1:], ends, strict=False))

    def in_each(
        moment: InstrumentedAttribute[datetime] | InstrumentedAttribute[datetime | None], value: Any
    ) -> list[ColumnElement[Any]]:
        return [func.sum(case((and_(moment > begins, moment <= end), value), else_=0)) for begins, end in spans]

    mine = KnownCulprit.tenant == tenant
    new = session.execute(select(*in_each(KnownCulprit.first_seen, 1)).where(mine)).one()
    fixed = session.execute(select(*in_each(KnownCulprit.fixed_at, 1)).where(mine)).one()
    spent = select(*in_each(CulpritVerdict.at, CulpritVerdict.seconds)).join(KnownCulprit).where(mine)
    seconds = session.execute(spent).one()
    return [
        Week(begins=begins, new=a or 0, fixed=b or 0, seconds=c or 0.0)
        for (begins, _), a, b, c in zip(spans, new, fixed, seconds, strict=True)
    ]


def backends(session: Session, tenant: str) -> list[str]:
    """The backends on which culprits were found."""
    found = select(CulpritVerdict.backend).join(KnownCulprit).where(KnownCulprit.tenant == tenant).distinct()
    return list(session.scalars(found.order_by(CulpritVerdict.backend)))


_COST = (
    select(CulpritVerdict.culprit_id, func.count().label("found"), func.sum(CulpritVerdict.seconds).label("seconds"))
    .where(CulpritVerdict.found)
    .group_by(CulpritVerdict.culprit_id)
)
