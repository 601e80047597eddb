"""A job's model and verdicts as files for Google's Model Explorer."""

from typing import Any

from fastapi import APIRouter, Request, Response

from onnxbisect.drawing import model_explorer
from onnxbisect.drawing.network import Network, dumped
from onnxbisect.language import english
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.headers import tag_of, unchanged
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes.graph import graph_of
from onnxbisect_api.routes.reports import TargetNumber
from onnxbisect_api.views.found import document_of, job_of, report_of, search_of
from onnxbisect_api.views.units import Networks

router = APIRouter(tags=["reports"])

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {"application/json": {"schema": {"type": ["object", "array"]}}}},
    304: {"description": "The client has it"},
}


@router.get(
    "/jobs/{job_id}/model-explorer/graph.json",
    summary="The model for Google's Model Explorer",
    response_class=Response,
    responses=_RESPONSES,
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
    headers = _headers("graph", sha256)
    if (same := unchanged(request, headers)) is not None:
        return same
    return _file(model_explorer.graph(_network(request, sha256)), headers)


@router.get(
    "/jobs/{job_id}/model-explorer/verdicts.json",
    summary="The verdict on each node, for Google's Model Explorer",
    response_class=Response,
    responses=_RESPONSES,
    dependencies=[IN_TURN],
)
def get_model_explorer_verdicts(
    job_id: RowId, request: Request, service: TheService, caller: Reader, target: TargetNumber = None
) -> Response:
    """The verdicts in the target's report. They also fit the ONNX file itself if its nodes have names."""
    with service.database.session() as session:
        search = search_of(job_of(session, job_id, caller), target)
        sha256, report = graph_of(search), report_of(search)
    headers = _headers("verdicts", sha256, report)
    if (same := unchanged(request, headers)) is not None:
        return same
    return _file(model_explorer.verdicts(_network(request, sha256), document_of(service, report)), headers)


def _headers(name: str, *made_of: str) -> dict[str, str]:
    placed = f'attachment; filename="{name}.json"'
    return {"ETag": tag_of("model-explorer", name, *made_of), "Content-Disposition": placed}


def _network(request: Request, sha256: str) -> Network:
    networks: Networks = request.app.state.networks
    try:
        return networks.network(sha256)
    except FileNotFoundError:  # the job was deleted during this request
        raise missing(english("job")) from None


def _file(content: Any, headers: dict[str, str]) -> Response:
    return Response(dumped(content), media_type="application/json", headers=headers)
