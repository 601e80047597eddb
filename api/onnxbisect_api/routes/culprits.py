"""Culprits over all jobs of a tenant."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from onnxbisect.language import english
from onnxbisect.report.text import clip, code, fence, table
from onnxbisect.verdict import Status
from onnxbisect_api.access import IN_TURN, Caller, Reader, Submitter
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import (
    ONE_LINE,
    SHA256_PATTERN,
    Addresses,
    BackendName,
    RowId,
    RowView,
    TheAddresses,
    TheService,
)
from onnxbisect_api.routes.reports import FILE
from onnxbisect_api.views.found import CulpritFileName, answered
from onnxbisect_api.views.listing import PagedRows, TheLabels
from onnxbisect_db import culprits
from onnxbisect_db.culprit_overview import Cost, costs
from onnxbisect_db.culprits import CulpritFilter, TargetVersion, versions_of
from onnxbisect_db.states import CulpritState
from onnxbisect_db.tables import CulpritVerdict, KnownCulprit
from onnxbisect_service.service import Service

#: The number of newest jobs whose models and labels are shown for a culprit.
_LATELY = 200
_JOBS = 20


class CulpritView(RowView):
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


class VersionView(RowView):
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
    return [
        CulpritView.of_row(culprit, url=addresses.culprit(culprit.id), found=cost.found, seconds=cost.seconds)
        for culprit in found
        for cost in [paid.get(culprit.id, Cost())]
    ]


def culprit_details(session: Session, culprit: KnownCulprit, addresses: Addresses) -> CulpritDetails:
    """One culprit, with the places where it occurs."""
    (brief,) = culprit_views(session, [culprit], addresses)
    lately = culprits.latest_findings(session, culprit.id, limit=_LATELY)
    kept = culprits.reproducing(session, culprit.id)
    labels: dict[str, set[str]] = {}
    for verdict in lately:
        for name, value in verdict.labels.items():
            labels.setdefault(name, set()).add(value)
    names = {verdict.model_sha256: verdict.model_name for verdict in reversed(lately)}
    jobs = dict.fromkeys(verdict.job_id for verdict in lately if verdict.job_id is not None)
    files = {} if kept is None or kept.files is None else kept.files
    found: dict[tuple[str, str], CulpritTarget] = {}
    for it in versions_of(session, [culprit.id])[culprit.id]:
        target = found.setdefault(
            it.target, CulpritTarget(backend=it.backend, options=json.loads(it.options), versions=[])
        )
        target.versions.append(VersionView.of_row(it))
    return CulpritDetails(
        **dict(brief),
        targets=list(found.values()),
        models=[CulpritModel(sha256=sha256, name=name) for sha256, name in names.items()],
        labels={name: sorted(values) for name, values in sorted(labels.items())},
        jobs=[addresses.job(job) for job in list(jobs)[:_JOBS]],
        files={name: f"{brief.url}/{name}" for name in files if name in get_args(CulpritFileName)},
        issue=f"{brief.url}/issue.md",
    )


#: The quoted end of a log, where the error is: most lines, and most characters of each line.
_LINES, _WIDTH = 100, 400
#: Most bytes of a log file that are read, because a model process wrote it.
_LARGEST = 1 << 20


def issue(service: Service, culprit: KnownCulprit, refused: CulpritVerdict, versions: Sequence[TargetVersion]) -> str:
    """The issue in Markdown. `refused` is the verdict that it reports, `versions` are all versions with a verdict."""
    ops = " + ".join(code(op) for op in culprit.ops[:8])
    tool = code(f"{refused.tool} {refused.version}")
    same = [it for it in versions if it.target == (refused.backend, refused.options)]
    rows = [(code(name, cell=True), code(str(value), cell=True)) for name, value in refused.given.items()]
    files = refused.files or {}
    reproduce, log = "No file that reproduces it alone has been compiled.", ["It is not kept."]
    if "model.onnx" in files:
        data = ", with its weights in `model.data`" if "model.data" in files else ""
        reproduce = (
            f"The attached `model.onnx`{data}, SHA-256 {code(files['model.onnx'])}, is the smallest part that is "
            f"refused. Compile it with {'the options above' if refused.options != '{}' else 'no options'}."
        )
    if "compiler.log" in files:
        with service.files.open(files["compiler.log"]) as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
        lines = [clip(line, _WIDTH) for line in text.rstrip("\n").split("\n")]
        cut = [f"The last {_LINES} of {len(lines)} lines:"] if len(lines) > _LINES else []
        log = [*cut, fence(*lines[-_LINES:], language="text")]
    blocks = [
        f"# {ops} is refused by {tool}",
        f"The compiler says {code(culprit.message)}. What is refused: {code(culprit.cause)}.",
        "## Environment",
        table(
            ("version", "says"),
            [(code(f"{it.tool} {it.version}", cell=True), it.status.value) for it in same],
        ),
        *([table(("option", "value"), rows)] if rows else []),
        "## Reproduce",
        reproduce,
        "## Log",
        *log,
    ]
    return "\n\n".join(blocks) + "\n"


router = APIRouter(tags=["culprits"])


#: Literals, because errors about `CulpritState` would name Python members.
OpenOrKnown = Literal["open", "known"]


class CulpritChange(BaseModel):
    """The settable state of a culprit that is not fixed."""

    model_config = ConfigDict(extra="forbid")

    state: OpenOrKnown


@router.get("/culprits", summary="List the culprits of all jobs, the newest first")
def list_culprits(
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    paged: PagedRows,
    labels: TheLabels,
    state: CulpritState | None = None,
    text: Annotated[
        str | None, Query(max_length=200, pattern=ONE_LINE, description="in the identity, the message or the cause")
    ] = None,
    model: Annotated[str | None, Query(pattern=SHA256_PATTERN, description="SHA-256 of a model that has it")] = None,
    target: Annotated[BackendName | None, Query(description="a backend that it was found on")] = None,
) -> list[CulpritView]:
    """The list is paginated: the `Link` header has the URL of the next page. Only labels of existing jobs match."""
    wanted = CulpritFilter(state=state, text=text or None, model_sha256=model, backend=target, labels=labels)
    with service.database.session() as session:
        page = culprits.list_page(session, caller.tenant, wanted, after=paged.after, limit=paged.limit)
        views = culprit_views(session, page.rows, addresses)
    paged.next_is(page.after)
    return views


@router.get("/culprits/{culprit_id}", summary="A culprit with its occurrences")
def get_known_culprit(
    culprit_id: RowId, service: TheService, caller: Reader, addresses: TheAddresses
) -> CulpritDetails:
    """The culprit contains the latest verdict of each version of each target."""
    with service.database.session() as session:
        return culprit_details(session, found(session, culprit_id, caller), addresses)


@router.patch("/culprits/{culprit_id}", summary="Mark a culprit as known or open")
def change_culprit(
    culprit_id: RowId, wanted: CulpritChange, service: TheService, caller: Submitter, addresses: TheAddresses
) -> CulpritDetails:
    """Marks a culprit as known or open. A fixed culprit is opened again automatically when a job finds it again."""
    known = wanted.state == "known"
    service.database.run(lambda session: culprits.set_known(session, culprit_id, caller.tenant, known=known))
    return get_known_culprit(culprit_id, service, caller, addresses)


@router.get(
    "/culprits/{culprit_id}/issue.md",
    summary="The text of an issue for the compiler's vendor",
    response_class=Response,
    responses={200: {"description": "The text", "content": {"text/markdown": {"schema": {"type": "string"}}}}},
    dependencies=[IN_TURN],
)
def get_issue_text(culprit_id: RowId, service: TheService, caller: Reader) -> Response:
    """Steps to reproduce, environment, and the end of the log, without names of models. The log may name nodes."""
    with service.database.session() as session:
        culprit = found(session, culprit_id, caller)
        refused = culprits.reproducing(session, culprit.id) or culprits.latest_findings(session, culprit.id, limit=1)[0]
        versions = versions_of(session, [culprit.id])[culprit.id]
    try:
        text = issue(service, culprit, refused, versions)
    except FileNotFoundError:  # its job was deleted during this request
        raise missing(english("culprit")) from None
    return Response(text.encode("utf-8", "backslashreplace"), media_type="text/markdown")


@router.get(
    "/culprits/{culprit_id}/{name}",
    summary="A file of a culprit: model, data or compiler log",
    response_class=Response,
    responses=FILE,
    dependencies=[IN_TURN],
)
def get_known_culprit_file(
    culprit_id: RowId, name: CulpritFileName, request: Request, service: TheService, caller: Reader
) -> Response:
    """The file comes from the newest version of a compiler that refused the culprit in a job."""
    with service.database.session() as session:
        kept = culprits.reproducing(session, found(session, culprit_id, caller).id)
    sha256 = None if kept is None else (kept.files or {}).get(name)
    if sha256 is None:
        raise missing(english("file of this culprit"))
    return answered(request, service, sha256, name)


def found(session: Session, culprit_id: str, caller: Caller) -> KnownCulprit:
    """The culprit; a 404 if the caller's tenant has no such culprit."""
    culprit = culprits.get(session, culprit_id, caller.tenant)
    if culprit is None:
        raise missing(english("culprit"))
    return culprit
