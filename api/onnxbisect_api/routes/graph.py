"""A job's model as a picture, the whole or the neighbourhood of some units, the state of every unit, and both as files
for Google's Model Explorer.
"""

import gzip
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from onnxbisect.drawing import model_explorer
from onnxbisect.drawing.network import Network, drawing, dumped
from onnxbisect.language import english
from onnxbisect.report.text import clip
from onnxbisect.unitset import chosen
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.errors.problems import Problem, missing
from onnxbisect_api.headers import tag_of, unchanged
from onnxbisect_api.parameters import RowId, TheService, weighed
from onnxbisect_api.routes.reports import TargetNumber
from onnxbisect_api.views.found import document_of, job_of, report_of, search_of
from onnxbisect_api.views.units import Networks, PassedUnitsCache, StatesView, of_report, packed, so_far
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Search

router = APIRouter(tags=["reports"])

#: Most units of a partial picture, which is laid out during the request.
MOST_AROUND = 6000
#: The largest unit number.
_HIGHEST = 9_999_999

_EDGE = "[node, node, index into tensors, [x, y, x, y, …]], the bends between the lower and the upper side"
_END = "[name, type, nodes that {}, x, y, bends of each edge]"


class Drawing(BaseModel):
    """Nodes of 150 x 34 pixels, laid out from top to bottom. Names are safe to show, and shortened if very long."""

    format: str = Field(description="onnx-bisect/graph@1")
    total: int = Field(description="units of the model")
    units: list[int] = Field(description="by node: the unit's number in the report")
    names: list[str]
    ops: list[str]
    x: list[int] = Field(description="centres, in pixels")
    y: list[int]
    width: int
    height: int
    edges: list[list[Any]] = Field(description=_EDGE)
    tensors: list[list[str]] = Field(description="[name, type]")
    inputs: list[list[Any]] = Field(description=_END.format("read it"))
    outputs: list[list[Any]] = Field(description=_END.format("make it, one or none"))


class ReadTensor(BaseModel):
    """An input of a unit."""

    tensor: str
    type: str = Field(description="such as float[1,3,8,8]; empty where it is not known")
    source: int | None = Field(alias="from", description="the unit that makes it; none for weights and inputs")


class MadeTensor(BaseModel):
    """An output of a unit."""

    tensor: str
    type: str
    to: list[int] = Field(description="the units that read it")


class UnitView(BaseModel):
    """A unit with everything known about it before any compile."""

    unit: int
    name: str
    op: str
    facts: dict[str, str] = Field(description="attributes, types and small constants, by what they are")
    inputs: list[ReadTensor]
    outputs: list[MadeTensor]


_NOT_AGAIN: dict[int | str, dict[str, Any]] = {304: {"description": "The client has it"}}


@router.get(
    "/jobs/{job_id}/graph",
    summary="The model's graph, laid out for drawing",
    response_model=Drawing,
    responses=_NOT_AGAIN,
    dependencies=[IN_TURN],
)
def get_graph(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
    around: Annotated[
        str | None,
        Query(
            pattern=r"^\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*$",
            max_length=20_000,
            description="units as ranges, such as `3,5-7`; else the whole model",
        ),
    ] = None,
    hops: Annotated[int, Query(ge=0, le=50, description="how many edges away from these")] = 2,
) -> Response:
    """The drawing is available once a worker has read the model for the target. A part may have up to 6000 units."""
    with service.database.session() as session:
        sha256 = graph_of(search_of(job_of(session, job_id, caller), target))
    encodings = dict(weighed(request.headers.get("accept-encoding", "")))
    is_packed = encodings.get("gzip", encodings.get("*", 0)) > 0
    headers = {"ETag": tag_of("graph", sha256, around, hops, is_packed), "Vary": "Accept-Encoding"}
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    if (same := unchanged(request, headers)) is not None:
        return same
    networks: Networks = request.app.state.networks
    try:
        if around is None:
            content = networks.drawing(sha256)
        else:
            content = packed(_around(networks.network(sha256), around, hops))
    except FileNotFoundError:  # the job was deleted during this request
        raise missing(english("job")) from None
    return Response(content if is_packed else gzip.decompress(content), media_type="application/json", headers=headers)


@router.get(
    "/jobs/{job_id}/graph/{unit}",
    summary="A unit with its facts",
    response_model=UnitView,
    responses=_NOT_AGAIN,
    dependencies=[IN_TURN],
)
def get_unit(
    job_id: RowId,
    unit: Annotated[int, Path(ge=0, le=_HIGHEST)],
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
) -> Response:
    """The unit has the facts that reports show about it."""
    with service.database.session() as session:
        sha256 = graph_of(search_of(job_of(session, job_id, caller), target))
    headers = {"ETag": tag_of("unit", sha256, unit)}
    if (same := unchanged(request, headers)) is not None:
        return same
    networks: Networks = request.app.state.networks
    try:
        network = networks.network(sha256)
    except FileNotFoundError:
        raise missing(english("job")) from None
    if unit >= len(network):
        raise missing(english("unit of this model"))
    return Response(dumped(network.unit(unit)), media_type="application/json", headers=headers)


def graph_of(search: Search) -> str:
    """SHA-256 of the file with a target's network, from which pictures are drawn; a 409 if there is none."""
    if search.graph is not None:
        return search.graph
    if search.universe is not None:
        raise Problem(
            409,
            "There is no picture of this job's model: it could not be drawn, or was read by a version of onnx-bisect "
            "that drew none. Make the job again.",
        )
    if search.state == JobState.FAILED:
        raise Problem(409, f"There is no picture of the model, since the target failed: {search.problem}")
    if search.state == JobState.CANCELLED:
        raise Problem(
            409, "There is no picture of the model, since the job was cancelled before it was read: retry it."
        )
    raise Problem(409, "There is no picture yet: the model is not read. Ask again in a few seconds.")


def _around(network: Network, ranges: str, hops: int) -> bytes:
    count = len(network)
    highest = max(int(number) for part in ranges.split(",") for number in part.split("-"))
    if highest >= count:
        raise Problem(422, f"The model has units 0 to {count - 1}, and there is no unit {highest}.")
    wanted = chosen(ranges, count)
    if not wanted:
        raise Problem(
            422, f"'{clip(ranges, 40)}' names no unit: a range goes from the lower number to the higher, as 3-5."
        )
    units = network.around(wanted, hops)
    if len(units) > MOST_AROUND:
        raise Problem(
            422,
            f"These are {len(units)} of {count} units, and a picture of a part may have at most {MOST_AROUND}: ask for "
            f"fewer units or hops, or for the whole without `around`.",
        )
    return dumped(drawing(network, units))


@router.get(
    "/jobs/{job_id}/states",
    summary="The state of every unit of a target",
    response_model=StatesView,
    responses={304: {"description": "The client has it"}},
    dependencies=[IN_TURN],
)
def get_states(
    job_id: RowId, request: Request, service: TheService, caller: Reader, target: TargetNumber = None
) -> Response:
    """The states come from the probes answered so far while the search runs, and from the report afterwards."""
    known: PassedUnitsCache = request.app.state.passed_units
    with service.database.session() as session:
        search = search_of(job_of(session, job_id, caller), target)
        passed = known.passed(session, search) if search.report is None else 0
    view = so_far(search, passed) if search.report is None else of_report(document_of(service, search.report))
    text = view.model_dump_json()
    headers = {"ETag": tag_of(text)}
    return unchanged(request, headers) or Response(text, media_type="application/json", headers=headers)


_MODEL_EXPLORER: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {"application/json": {"schema": {"type": ["object", "array"]}}}},
    304: {"description": "The client has it"},
}


@router.get(
    "/jobs/{job_id}/model-explorer/graph.json",
    summary="The model for Google's Model Explorer",
    response_class=Response,
    responses=_MODEL_EXPLORER,
    dependencies=[IN_TURN],
)
def get_model_explorer_graph(
    job_id: RowId, request: Request, service: TheService, caller: Reader, target: TargetNumber = None
) -> Response:
    """`model-explorer graph.json --node_data_paths=verdicts.json` shows the model with the verdicts. The graph is the
    same for all targets; `target` is 1 by default.
    """
    with service.database.session() as session:
        sha256 = graph_of(search_of(job_of(session, job_id, caller), target or 1))
    headers = _placed("graph", sha256)
    if (same := unchanged(request, headers)) is not None:
        return same
    return _written(model_explorer.graph(_network(request, sha256)), headers)


@router.get(
    "/jobs/{job_id}/model-explorer/verdicts.json",
    summary="The verdict on each node, for Google's Model Explorer",
    response_class=Response,
    responses=_MODEL_EXPLORER,
    dependencies=[IN_TURN],
)
def get_model_explorer_verdicts(
    job_id: RowId, request: Request, service: TheService, caller: Reader, target: TargetNumber = None
) -> Response:
    """The verdicts in the target's report. They also fit the ONNX file itself if its nodes have names."""
    with service.database.session() as session:
        search = search_of(job_of(session, job_id, caller), target)
        sha256, report = graph_of(search), report_of(search)
    headers = _placed("verdicts", sha256, report)
    if (same := unchanged(request, headers)) is not None:
        return same
    return _written(model_explorer.verdicts(_network(request, sha256), document_of(service, report)), headers)


def _placed(name: str, *made_of: str) -> dict[str, str]:
    placed = f'attachment; filename="{name}.json"'
    return {"ETag": tag_of("model-explorer", name, *made_of), "Content-Disposition": placed}


def _network(request: Request, sha256: str) -> Network:
    networks: Networks = request.app.state.networks
    try:
        return networks.network(sha256)
    except FileNotFoundError:  # the job was deleted during this request
        raise missing(english("job")) from None


def _written(content: Any, headers: dict[str, str]) -> Response:
    return Response(dumped(content), media_type="application/json", headers=headers)
