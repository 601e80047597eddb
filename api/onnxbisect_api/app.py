"""The application: routes, errors and headers, and the server with limits that apply before the application."""

import resource
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address, ip_network
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from onnxbisect_api import health
from onnxbisect_api.access import AccessControl
from onnxbisect_api.errors import problems
from onnxbisect_api.headers import SecurityHeaders
from onnxbisect_api.limits import BoundedProtocol, Connections
from onnxbisect_api.routes import (
    backends,
    badge,
    compare,
    culprits,
    events,
    graph,
    inspect,
    jobs,
    models,
    parts,
    probes,
    reports,
    shared,
    tokens,
    webhooks,
)
from onnxbisect_api.site.routers import ROUTERS as PAGES
from onnxbisect_api.site.routers import problem_page
from onnxbisect_api.uploads.receiving import BodyLimit
from onnxbisect_api.views.units import Names, Networks, PassedUnitsCache
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings

#: Seconds that open requests, such as event streams, have to end when the server stops.
_GRACE = 2
#: Connections that asyncio accepts before it handles the first of them.
_BACKLOG = 128


def server_config(app: FastAPI, settings: Settings, **more: Any) -> uvicorn.Config:
    """The configuration of a server for `app`."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # half of the descriptors are for files, the database and model processes
    most = settings.connections if files == resource.RLIM_INFINITY else min(settings.connections, files // 2)
    proxies = settings.trusted_proxies
    networks = [ip_network(proxy) for proxy in proxies]
    connections = Connections(
        most=most,
        most_of_address=min(settings.address_connections, most),
        is_proxy=lambda address: any(ip_address(address) in network for network in networks),
    )
    return uvicorn.Config(
        app,
        # h11 limits the head of a request; httptools would read without limit
        http=cast("Any", partial(BoundedProtocol, connections=connections)),
        ws="none",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
        **more,
    )


_ROUTED = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE")


class Methods:
    """Middleware that answers OPTIONS and HEAD, and completes the `Allow` header of 405.

    FastAPI adds no HEAD to GET, and its `Allow` names only the method of one route.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and (allow := self._allow(scope)):
            await Response(status_code=204, headers={"Allow": allow})(scope, receive, send)
        elif scope["method"] == "HEAD" and not self._has(scope, "HEAD") and self._has(scope, "GET"):
            await self._answer_head(scope, receive, send)
        else:

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] == 405:
                    MutableHeaders(scope=message)["Allow"] = self._allow(scope)
                await send(message)

            await self._app(scope, receive, sent)

    def _has(self, scope: Scope, method: str) -> bool:
        return any(route.matches({**scope, "method": method})[0] is Match.FULL for route in self._routes)

    def _allow(self, scope: Scope) -> str:
        """The value of `Allow` for the request's path; empty if there is no route."""
        found = {method for method in _ROUTED if self._has(scope, method)}
        if "GET" in found:
            found.add("HEAD")
        return ", ".join(sorted({*found, "OPTIONS"})) if found else ""

    async def _answer_head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the head of the GET response and no body; a stream ends after its head."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["method"] = "HEAD"  # so that the server expects no body
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        scope["method"] = "GET"
        await self._app(scope, receive, sent)


_UPLOADS = frozenset({"/v1/models", "/v1/files"})
_HEALTH = frozenset({"/livez", "/readyz"})
#: Paths where multipart forms contain files, with limits of their own; other bodies have the limits of documents.
_FORMS = frozenset({"/v1/jobs", "/new", "/inspect"})
_DESCRIPTION = "Finds every part of an ONNX model that an NPU compiler refuses, and proves that nothing else is wrong."


def create_app(
    service: Service, *, inspect_model: inspect.InspectModel, lifespan: Lifespan[FastAPI] | None = None
) -> FastAPI:
    """An application for `service`, which the caller opens and closes. `lifespan` runs the process's own tasks."""
    app = FastAPI(
        title="onnx-bisect",
        version=version("onnx-bisect"),
        description=_DESCRIPTION,
        docs_url=None,  # its scripts are external, which the headers forbid
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,  # generated clients call operations as the handlers here
        lifespan=lifespan,
        responses=problems.responses(),
    )
    app.state.service = service
    app.state.inspect_model = inspect_model
    app.state.access_control = AccessControl(service)
    app.state.readiness = health.Readiness(service)
    app.state.metrics = health.Metrics(service.database)
    app.state.watch = events.Watch(service.database)
    app.state.passed_units = PassedUnitsCache()
    app.state.names = Names(service.files)
    app.state.networks = Networks(service.files)
    problems.install(app, problem_page)
    app.include_router(jobs.forms_router, prefix="/v1")
    for router in (models.router, models.files_router, jobs.router, reports.router):
        app.include_router(router, prefix="/v1")
    app.include_router(reports.repairs_router, prefix="/v1")
    app.include_router(reports.precision_router, prefix="/v1")
    for module in (
        shared,
        probes,
        graph,
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
    app.add_middleware(health.MeasuredRequests, metrics=app.state.metrics)
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
        for model in (problems.Mistake, problems.ProblemDocument):
            schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas[model.__name__].pop("$defs", None)
        app.openapi_schema = described
    return app.openapi_schema
