"""Culprits over all jobs of a tenant, as REST shows them."""

from collections.abc import Sequence
from datetime import datetime
from typing import get_args

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from onnxbisect.verdict import Status
from onnxbisect_api.addresses import Addresses
from onnxbisect_api.stored_files import CulpritFileName
from onnxbisect_db import culprits
from onnxbisect_db.culprit_overview import Cost, costs
from onnxbisect_db.culprit_versions import TargetVersion, versions_of
from onnxbisect_db.states import CulpritState
from onnxbisect_db.tables import KnownCulprit

#: The number of newest jobs whose models and labels are shown for a culprit.
_LATELY = 200
_JOBS = 20


class CulpritView(BaseModel):
    """A culprit. Its texts are from the latest report that has it."""

    id: str
    url: str
    identity: str = Field(description="what reports call it: its ops, what they are given, and the complaint")
    state: CulpritState
    kind: str
    ops: list[str] = Field(description="the first 64")
    failure: str
    message: str
    cause: str
    variant: str = Field(description="what it is given that other variants of its op are given differently; else empty")
    remedy: str = Field(description="the rules by which a repair has replaced it; empty where none has")
    found: int = Field(description="how often jobs found it, once for each target")
    seconds: float = Field(description="compiler seconds of these searches, each split evenly among its culprits")
    first_seen: datetime
    last_seen: datetime = Field(description="when a job last found it")
    fixed_at: datetime | None


class VersionView(BaseModel):
    """The latest verdict of one version of a compiler."""

    tool: str
    version: str
    status: Status
    first: datetime = Field(description="when it was first asked; of two versions the one that came later is newer")
    last: datetime


class CulpritTarget(BaseModel):
    """A target, with its versions from oldest to newest."""

    backend: str
    options: dict[str, str]
    versions: list[VersionView]


class CulpritModel(BaseModel):
    """A model that contains the culprit."""

    sha256: str
    name: str


class CulpritDetails(CulpritView):
    """A culprit with the places where it occurs."""

    targets: list[CulpritTarget]
    models: list[CulpritModel]
    labels: dict[str, list[str]] = Field(description="values of each label of the jobs that found it")
    jobs: list[str] = Field(description="where the newest of these jobs are")
    files: dict[str, str] = Field(description="what reproduces it, and where each file is")
    issue: str = Field(description="where the text of an issue for the compiler's vendor is")


def culprit_views(session: Session, found: Sequence[KnownCulprit], addresses: Addresses) -> list[CulpritView]:
    """Several culprits, without the places where they occur."""
    paid = costs(session, [culprit.id for culprit in found])
    return [_view(culprit, paid.get(culprit.id, Cost()), addresses) for culprit in found]


def culprit_details(session: Session, culprit: KnownCulprit, addresses: Addresses) -> CulpritDetails:
    """One culprit, with the places where it occurs."""
    (brief,) = culprit_views(session, [culprit], addresses)
    lately = culprits.lately(session, culprit.id, limit=_LATELY)
    kept = culprits.reproducing(session, culprit.id)
    labels: dict[str, set[str]] = {}
    for verdict in lately:
        for name, value in verdict.labels.items():
            labels.setdefault(name, set()).add(value)
    names = {verdict.model_sha256: verdict.model_name for verdict in reversed(lately)}
    jobs = dict.fromkeys(verdict.job_id for verdict in lately if verdict.job_id is not None)
    files = {} if kept is None or kept.files is None else kept.files
    return CulpritDetails(
        **dict(brief),
        targets=_targets(versions_of(session, [culprit.id])[culprit.id]),
        models=[CulpritModel(sha256=sha256, name=name) for sha256, name in names.items()],
        labels={name: sorted(values) for name, values in sorted(labels.items())},
        jobs=[addresses.job(job) for job in list(jobs)[:_JOBS]],
        files={name: f"{brief.url}/{name}" for name in files if name in get_args(CulpritFileName)},
        issue=f"{brief.url}/issue.md",
    )


def _targets(versions: Sequence[TargetVersion]) -> list[CulpritTarget]:
    found: dict[tuple[str, str], CulpritTarget] = {}
    for it in versions:
        target = found.setdefault(it.target, CulpritTarget(backend=it.backend, options=it.given, versions=[]))
        version = VersionView(tool=it.tool, version=it.version, status=it.status, first=it.first, last=it.last)
        target.versions.append(version)
    return list(found.values())


def _view(culprit: KnownCulprit, cost: Cost, addresses: Addresses) -> CulpritView:
    return CulpritView(
        id=culprit.id,
        url=addresses.culprit(culprit.id),
        identity=culprit.identity,
        state=CulpritState(culprit.state),
        kind=culprit.kind,
        ops=culprit.ops,
        failure=culprit.failure,
        message=culprit.message,
        cause=culprit.cause,
        variant=culprit.variant,
        remedy=culprit.remedy,
        found=cost.found,
        seconds=cost.seconds,
        first_seen=culprit.first_seen,
        last_seen=culprit.last_seen,
        fixed_at=culprit.fixed_at,
    )
