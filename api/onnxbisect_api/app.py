"""The application: routes, errors and headers."""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import Lifespan, Receive, Scope, Send

from onnxbisect_api import problems
from onnxbisect_api.access import AccessControl
from onnxbisect_api.body import BodyLimit
from onnxbisect_api.headers import SecurityHeaders
from onnxbisect_api.inspecting import InspectModel
from onnxbisect_api.methods import Methods
from onnxbisect_api.metrics import MeasuredRequests, Metrics
from onnxbisect_api.networks import Networks
from onnxbisect_api.problems import Mistake, ProblemDocument
from onnxbisect_api.readiness import Readiness
from onnxbisect_api.routes import (
    backends,
    badge,
    compare,
    culprits,
    events,
    files,
    graph,
    health,
    inspect,
    job_forms,
    jobs,
    model_explorer,
    models,
    parts,
    probes,
    repairs,
    reports,
    shared,
    states,
    tokens,
    webhooks,
)
from onnxbisect_api.site.problem_page import problem_page
from onnxbisect_api.site.routers import ROUTERS as PAGES
from onnxbisect_api.unit_names import Names
from onnxbisect_api.unit_states import PassedUnitsCache
from onnxbisect_api.watch import Watch
from onnxbisect_service.service import Service

_UPLOADS = frozenset({"/v1/models", "/v1/files"})
_HEALTH = frozenset({"/livez", "/readyz"})
#: Paths where multipart forms contain files, with limits of their own; other bodies have the limits of documents.
_FORMS = frozenset({"/v1/jobs", "/new", "/inspect"})
_DESCRIPTION = "Finds every part of an ONNX model that an NPU compiler refuses, and proves that nothing else is wrong."


def create_app(service: Service, *, inspect_model: InspectModel, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """An application for `service`, which the caller opens and closes. `lifespan` runs the process's own tasks."""
    app = FastAPI(
        title="onnx-bisect",
        version=version("onnx-bisect"),
        description=_DESCRIPTION,
        docs_url=None,  # its scripts are external, which the headers forbid
        redoc_url=None,
        lifespan=lifespan,
        responses=problems.responses(),
    )
    app.state.service = service
    app.state.inspect_model = inspect_model
    app.state.access_control = AccessControl(service)
    app.state.readiness = Readiness(service)
    app.state.metrics = Metrics(service.database)
    app.state.watch = Watch(service.database)
    app.state.passed_units = PassedUnitsCache()
    app.state.names = Names(service.files)
    app.state.networks = Networks(service.files)
    problems.install(app, problem_page)
    for module in (
        models,
        files,
        job_forms,
        jobs,
        reports,
        repairs,
        shared,
        probes,
        states,
        graph,
        model_explorer,
        events,
        backends,
        compare,
        culprits,
        inspect,
        parts,
        badge,
        tokens,
        webhooks,
    ):
        app.include_router(module.router, prefix="/v1")
    app.include_router(health.router)
    for router in PAGES:
        app.include_router(router, include_in_schema=False)
    app.add_middleware(BodyLimit, uploads=_UPLOADS, forms=_FORMS)
    app.add_middleware(Methods, routes=app.router.routes)
    if service.settings.allowed_hosts:
        hosts = list(service.settings.allowed_hosts)
        app.add_middleware(_KnownHosts, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(SecurityHeaders, https=service.settings.is_https)
    app.add_middleware(MeasuredRequests, metrics=app.state.metrics)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign] # the documented way to extend it
    return app


class _KnownHosts(TrustedHostMiddleware):
    """Refuses requests that name other hosts, except those of health checks, which go to an address."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in _HEALTH:
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description, with the schemas that all errors refer to."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = described.setdefault("components", {}).setdefault("schemas", {})
        for model in (Mistake, ProblemDocument):
            schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas[model.__name__].pop("$defs", None)
        app.openapi_schema = described
    return app.openapi_schema
