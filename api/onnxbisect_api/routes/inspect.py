"""Known problems of a model for a target, before any compile.

The API's process itself never reads a model, because models are untrusted.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.concurrency import run_in_threadpool

from onnxbisect import input_value
from onnxbisect.language import english
from onnxbisect_api.access import AccessControl, Inspector
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import SHA256_PATTERN, TheService
from onnxbisect_api.submission.job_request import InputShapes, InputValues, TargetRequest
from onnxbisect_backends import remote
from onnxbisect_db import models
from onnxbisect_db.tables import StoredModel
from onnxbisect_service.service import Service


class InspectModel(Protocol):
    """Inspects a stored model in a separate process; an empty `backend` means no target."""

    def __call__(
        self,
        service: Service,
        model: StoredModel,
        *,
        backend: str,
        options: Mapping[str, str],
        shapes: Mapping[str, Sequence[int]],
        values: input_value.InputValues,
    ) -> dict[str, Any]:
        """A document `onnx-bisect/inspection@1`; raises OnnxBisectError with a sentence for the user."""


router = APIRouter(tags=["models"])


class InspectRequest(BaseModel):
    """An uploaded model, and a target."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, StringConstraints(pattern=SHA256_PATTERN)]
    target: TargetRequest | None = Field(default=None, description="without it, general limits of compilers")
    input_shapes: InputShapes = Field(default={}, max_length=256, description="as of a job")
    input_values: InputValues = Field(default={}, max_length=256, description="likewise")


@router.post("/inspect", summary="Known problems of a model for a target, before any compile")
async def inspect_model(
    wanted: InspectRequest, request: Request, service: TheService, caller: Inspector
) -> dict[str, Any]:
    """The response is a document `onnx-bisect/inspection@1`, as `onnx-bisect inspect --format json` prints it: the
    findings, worst first, components and ops. Nothing is compiled or stored. For a compiler that is not installed on
    the API's machine, its profile is used, or the status is 422 without one. One model of a tenant is inspected at a
    time; a few more requests wait, and others get 429.
    """
    access_control: AccessControl = request.app.state.access_control
    inspect_model: InspectModel = request.app.state.inspect_model

    def find_problems() -> dict[str, Any]:
        with service.database.session() as session:
            model = models.get(session, wanted.model, caller.tenant)
            if model is None:
                raise missing(english("model"))
            session.expunge(model)
        target = wanted.target
        if target is not None:
            remote.make(target.backend, target.options)
        return inspect_model(
            service,
            model,
            backend="" if target is None else target.backend,
            options={} if target is None else target.options,
            shapes=wanted.input_shapes,
            values=wanted.input_values,
        )

    async with access_control.inspection_turns.turn(caller.tenant):
        return await run_in_threadpool(find_problems)
