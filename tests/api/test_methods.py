"""OPTIONS, HEAD and 405 at every address, as the OpenAPI description and the pages' routers have them."""

import re
from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from onnxbisect_api.site.routers import ROUTERS
from onnxbisect_db.states import Scope
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import done, refusing_exp, running
from support.api.live import served


def addresses(callers: Callers) -> Iterator[tuple[str, set[str]]]:
    """Each with the methods that its routes have."""
    found: dict[str, set[str]] = {}
    for path, methods in callers.nobody().get("/openapi.json").json()["paths"].items():
        found.setdefault(path, set()).update(method.upper() for method in methods)
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute):
                found.setdefault(route.path.replace(":path}", "}"), set()).update(route.methods or ())
    for path, methods in found.items():
        yield re.sub(r"{sha256}", "0" * 64, re.sub(r"{(?!sha256)[^}]*}", new_id(), path)), methods


def test_every_address_tells_its_methods(callers: Callers) -> None:
    client = callers.nobody()
    found = list(addresses(callers))
    assert len(found) > 50
    for address, methods in found:
        expected = methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
        answer = client.options(address)
        assert (answer.status_code, answer.content) == (204, b""), address
        assert set(answer.headers["allow"].split(", ")) == expected, address
        assert answer.headers["x-content-type-options"] == "nosniff"
        wrong = next(method for method in ("PATCH", "PUT", "DELETE", "POST") if method not in expected)
        refused = client.request(wrong, address)
        assert refused.status_code == 405, (wrong, address)
        assert set(refused.headers["allow"].split(", ")) == expected, address


def test_nothing_has_no_methods(callers: Callers) -> None:
    for method in ("OPTIONS", "HEAD", "GET", "PATCH"):
        assert callers.nobody().request(method, "/nowhere").status_code == 404


def test_head_is_get_without_a_body(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    asked = (
        "/livez", "/readyz", "/metrics", "/openapi.json", "/login", "/jobs", f"/jobs/{job.id}", "/v1/jobs",
        f"/v1/jobs/{job.id}", f"/v1/jobs/{job.id}/report?format=md", f"/v1/jobs/{job.id}/culprits/1/model.onnx",
        f"/v1/jobs/{new_id()}", "/v1/models?limit=x",
    )  # fmt: skip
    client = callers.reader()
    for address in asked:
        whole, head = client.get(address), client.head(address)
        assert head.status_code == whole.status_code, address
        assert head.content == b""
        for name in ("content-type", "etag", "content-disposition"):
            assert head.headers.get(name) == whole.headers.get(name), address
        if address not in ("/metrics", "/readyz"):  # whose numbers change with each request
            # pages say how long ago something was, which may change in between
            around = {str(len(whole.content)), str(len(client.get(address).content))}
            assert head.headers["content-length"] in around, address


def test_head_without_a_token_is_401(callers: Callers) -> None:
    assert callers.nobody().head("/v1/jobs").status_code == 401


@pytest.mark.parametrize("stream", ["/v1/jobs/{}/events", "/jobs/{}/stream?shape=asking"])
def test_the_head_of_a_stream_is_its_end(callers: Callers, service: Service, stream: str) -> None:
    """On one connection, which a body that goes on would keep busy."""
    job = running(service)
    with served(callers.app, callers.token(Scope.READ)) as client:
        for _ in range(3):
            answer = client.head(stream.format(job.id))
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
        assert client.get("/livez").json() == {"status": "ok"}
