"""The lines of the security checklist that REST answers for, each as its number says.

What a line says of models, compilers, reports and webhooks is tested where that is.
"""

import hashlib
import json
import logging
import pickle
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import ContentDisallowed
from kombu.serialization import loads, prepare_accept_content
from sqlalchemy import select, text
from starlette.routing import Route
from starlette.testclient import TestClient

from onnxbisect_api.site.routers import ROUTERS
from onnxbisect_db import jobs, models, retention, tokens
from onnxbisect_db.files import Files
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import UnneededFile
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.notifying import make_app
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.model_bytes import model

ONNX = model(b"a file")
SHA256 = hashlib.sha256(ONNX).hexdigest()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data=tmp_path / "data",
        disk_floor=0,
        upload_bytes=100_000,
        tenant_bytes=150_000,
        uploads="20/day",
        failures="5/day",
    )


def everything(service: Service) -> bytes:
    """All bytes that the service keeps, outside of its database."""
    return b"".join(path.read_bytes() for path in sorted(service.settings.files_folder.rglob("*")) if path.is_file())


def names(service: Service) -> set[str]:
    root = service.settings.files_folder
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def new_job(service: Service, tenant: str, model: str = SHA256) -> str:
    with service.database.transaction() as session:
        wanted = NewJob(model_sha256=model, targets=(NewTarget(backend="npu"),))
        return jobs.create(session, wanted, tenant=tenant).job.id


@pytest.mark.parametrize("url", ["/v1/models", "/v1/files"])
@pytest.mark.parametrize("chunked", [False, True])
def test_1_bodies_are_limited(callers: Callers, service: Service, url: str, chunked: bool) -> None:
    large = model(size=100_001)
    client = callers.submitter()
    assert client.put(url, content=iter([large]) if chunked else large).status_code == 413
    assert everything(service) == b""


@pytest.mark.parametrize("chunked", [False, True])
def test_1_documents_are_small(callers: Callers, chunked: bool) -> None:
    large = json.dumps({"name": "x" * (2 << 20), "scopes": ["read"]}).encode()
    content = iter([large[:100], large[100:]]) if chunked else large
    assert callers.admin().post("/v1/tokens", content=content).status_code == 413


def test_1_the_disk_does_not_fill_up(callers: Callers, service: Service) -> None:
    object.__setattr__(service, "files", Files(service.settings.files_folder, floor=1 << 62))
    assert callers.submitter().put("/v1/models", content=ONNX).status_code == 507
    assert everything(service) == b""


def test_1_a_tenant_has_a_quota(callers: Callers) -> None:
    client = callers.submitter("a")
    assert client.put("/v1/models", content=model(b"1", size=90_000)).status_code == 201
    assert client.put("/v1/models", content=model(b"2", size=90_000)).status_code == 507
    assert callers.submitter("b").put("/v1/models", content=model(b"2", size=90_000)).status_code == 201


def test_2_archives_are_files_like_any_other(callers: Callers, service: Service) -> None:
    """Nothing is unpacked."""
    archive = b"PK\x03\x04" + b"\0" * 100
    callers.submitter().put("/v1/files", content=archive)
    assert everything(service) == archive


@pytest.mark.parametrize("location", ["../../evil", "/etc/cron.d/evil", "a/../../evil", "..\\evil", "a\\evil", "a\x7f"])
def test_4_external_data_lies_below_the_model(callers: Callers, service: Service, location: str) -> None:
    form = [("model", ("net.onnx", ONNX)), ("data", (location, b"evil"))]
    assert callers.submitter().post("/v1/models", files=form).status_code == 422
    assert everything(service) == b""


def test_4_external_data_is_what_came_with_the_model(callers: Callers, service: Service) -> None:
    """Another tenant's file cannot be named: only bytes that are sent are stored."""
    callers.submitter("a").put("/v1/files", content=b"secret weights")
    sha256 = hashlib.sha256(b"secret weights").hexdigest()
    form = [("model", ("net.onnx", ONNX)), ("data", (sha256, b"mine"))]
    files = callers.submitter("b").post("/v1/models", files=form).json()["files"]
    assert files == {sha256: hashlib.sha256(b"mine").hexdigest()}


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "a\0b", "<img src=x onerror=alert(1)>", "x" * 2000, "\u202e\x1b[31m"]
)
def test_7_no_file_is_named_by_a_stranger(callers: Callers, service: Service, name: str) -> None:
    client = callers.submitter()
    assert client.put("/v1/models", params={"name": name}, content=ONNX).status_code == 201
    form = [("model", (name.replace("\0", ""), ONNX)), ("data", ("evil.bin", b"evil"))]
    assert client.post("/v1/models", files=form).status_code == 201
    evil = hashlib.sha256(b"evil").hexdigest()
    assert names(service) == {f"{each[:2]}/{each[2:]}" for each in (SHA256, evil)}


def test_13_tokens_are_kept_as_hashes(callers: Callers, service: Service) -> None:
    token = callers.token(Scope.ADMIN)
    callers.nobody(f"Bearer {token}").get("/v1/tokens")
    with service.database.session() as session:
        kept = str(session.execute(text("SELECT * FROM token")).all())
    assert token.rpartition("_")[2] not in kept
    database = b"".join(path.read_bytes() for path in service.settings.data.glob("*.sqlite*"))
    assert token.rpartition("_")[2].encode() not in database


def test_13_a_token_that_is_nearly_right_is_refused(callers: Callers, service: Service) -> None:
    token = callers.token(Scope.ADMIN)
    name, _, secret = token.rpartition("_")
    changed = [f"{secret[:at]}{'b' if it == 'a' else 'a'}{secret[at + 1 :]}" for at, it in enumerate(secret)]
    with service.database.session() as session:
        assert tokens.check(session, token) is not None
        for wrong in (*changed, "", secret[:-1], f"{secret}a", secret.upper(), f" {secret}"):
            assert tokens.check(session, f"{name}_{wrong}") is None, wrong


@pytest.mark.parametrize("place", ["query", "cookie", "basic"])
def test_13_tokens_are_taken_from_one_header_only(callers: Callers, place: str) -> None:
    """An address is in logs, histories and `Referer`; a cookie is sent by whichever page asks."""
    token = callers.token(Scope.ADMIN)
    client = callers.nobody()
    if place == "query":
        response = client.get(f"/v1/models?token={token}&access_token={token}&key={token}")
    elif place == "cookie":
        response = client.get("/v1/models", headers={"Cookie": f"token={token}; session={token}"})
    else:
        response = client.get("/v1/models", auth=("token", token))
    assert response.status_code == 401


def test_13_tokens_are_in_no_log_and_no_answer(callers: Callers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = callers.token(Scope.READ)
    client = callers.nobody(f"Bearer {token}")
    said = [
        client.get("/v1/models"),
        client.post("/v1/tokens", json={}),
        client.get("/nowhere"),
        callers.nobody(f"Bearer {token[:-1]}x").get("/v1/models"),
    ]
    secret = token.rpartition("_")[2][:-1]
    assert not [response for response in said if secret in response.text or secret in str(response.headers)]
    assert secret not in caplog.text


def operations(callers: Callers) -> Iterator[tuple[str, str]]:
    for path, methods in callers.nobody().get("/openapi.json").json()["paths"].items():
        for method in methods:
            yield method.upper(), path


#: What is there for everybody, and why.
_OPEN = {
    "/livez",  # orchestrators have no tokens
    "/readyz",  # neither
    "/v1/badge.svg",  # pictures in pages: signed addresses (tests/api/test_badge.py)
    "/v1/jobs/{job_id}/culprits/{number}/shared/model.onnx",  # for Netron: signed too (tests/site/test_netron.py)
}


def test_13_every_operation_needs_a_token(callers: Callers) -> None:
    client = callers.nobody()
    found = list(operations(callers))
    assert len(found) > 20
    for method, path in found:
        address = path.replace("{sha256}", SHA256)
        while "{" in address:
            address = address[: address.index("{")] + new_id() + address[address.index("}") + 1 :]
        if path not in _OPEN:
            assert client.request(method, address, json={}).status_code == 401, (method, path)
    routes = {route.path for route in callers.app.routes if isinstance(route, Route)}
    assert routes <= {"/openapi.json", "/livez", "/readyz", "/metrics"}, "not in the description, so not tested here"


#: Pages for those who have not logged in, and what these pages are made of.
_OPEN_PAGES = {"/", "/language", "/login", "/logout", "/static/{version}/{name:path}"}


def test_13_every_page_needs_a_token(callers: Callers) -> None:
    """Those of the status page are not in the description."""
    client = callers.nobody()
    pages = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    hidden = {(method, page.path) for page in pages for method in page.methods or () if page.path not in _OPEN_PAGES}
    assert len(hidden) > 10
    for method, path in hidden:
        address = re.sub(r"{[^}]*}", new_id(), path)
        answer = client.request(method, address, headers={"Origin": "http://service.test"})
        assert answer.status_code == 401, (method, path)


def test_13_what_is_anothers_is_not_there(callers: Callers, service: Service) -> None:
    """The same answer as for what does not exist: not even that it is there may be learnt."""
    callers.submitter("a").put("/v1/models", content=ONNX)
    job = new_job(service, "a")
    token = callers.admin("a").post("/v1/tokens", json={"name": "x", "scopes": ["read"]}).json()["id"]
    stranger = callers.admin("b")
    nothing = "0" * 64
    for method, mine, missing in (
        ("GET", f"/v1/models/{SHA256}", f"/v1/models/{nothing}"),
        ("DELETE", f"/v1/models/{SHA256}", f"/v1/models/{nothing}"),
        ("GET", f"/v1/jobs/{job}", f"/v1/jobs/{new_id()}"),
        ("DELETE", f"/v1/jobs/{job}", f"/v1/jobs/{new_id()}"),
        ("POST", f"/v1/jobs/{job}/cancel", f"/v1/jobs/{new_id()}/cancel"),
        ("GET", f"/v1/jobs/{job}/events", f"/v1/jobs/{new_id()}/events"),
        ("DELETE", f"/v1/tokens/{token}", f"/v1/tokens/{new_id()}"),
    ):
        one, other = stranger.request(method, mine), stranger.request(method, missing)
        assert one.status_code == other.status_code == 404, mine
        assert one.json() == other.json()
    wanted = {"targets": [{"backend": "onnxruntime"}]}
    one = stranger.post("/v1/jobs", json={"model": SHA256, **wanted})
    other = stranger.post("/v1/jobs", json={"model": nothing, **wanted})
    assert one.status_code == other.status_code == 422
    assert one.text.replace(SHA256, "") == other.text.replace(nothing, "")


def test_13_ids_cannot_be_counted_up() -> None:
    ids = [uuid.UUID(new_id()) for _ in range(3)]
    assert {each.version for each in ids} == {7}
    assert len({each.int & (1 << 62) - 1 for each in ids}) == 3


def test_14_no_other_page_may_speak_for_a_user(callers: Callers) -> None:
    client = callers.admin()
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
    preflight = client.options("/v1/models", headers=asked)
    assert preflight.status_code == 204
    answer = client.get("/v1/models", headers={"Origin": "https://evil.example"})
    for response in (preflight, answer):
        assert not [name for name in response.headers if name.startswith("access-control-")]
        assert "set-cookie" not in response.headers


def test_15_answers_are_not_guessed_at_framed_or_kept(callers: Callers) -> None:
    client = callers.admin()
    for url in ("/v1/models", "/v1/nothing", "/openapi.json", "/metrics", "/livez"):
        headers = client.get(url).headers
        assert headers["x-content-type-options"] == "nosniff", url
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'", url
        assert headers["cache-control"] == "no-store", url
        assert headers["referrer-policy"] == "no-referrer", url


class _Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))


def test_16_the_queue_takes_json_only(settings: Settings, tmp_path: Path) -> None:
    app = make_app(settings)
    assert app.conf.task_serializer == "json"
    assert app.conf.result_backend is None
    accepted = prepare_accept_content(app.conf.accept_content)
    message = pickle.dumps(_Evil(str(tmp_path / "evil")))
    with pytest.raises(ContentDisallowed):
        loads(message, "application/x-python-serialize", "binary", accept=accepted)
    assert not (tmp_path / "evil").exists()
    assert loads('["probe"]', "application/json", "utf-8", accept=accepted) == ["probe"]


def test_17_a_deleted_job_takes_its_model_with_it(callers: Callers, service: Service) -> None:
    client = callers.submitter("a")
    form = [("model", ("net.onnx", ONNX)), ("data", ("w.bin", b"secret weights"))]
    model = client.post("/v1/models", files=form).json()["sha256"]
    job = new_job(service, "a", model)
    assert client.delete(f"/v1/jobs/{job}").status_code == 204
    assert client.head(f"/v1/models/{model}").status_code == 404
    with service.database.session() as session:
        assert models.get(session, model, "a") is None
        unneeded = set(service.files.names()) - retention.needed(session)
        remembered = set(session.scalars(select(UnneededFile.sha256)))
    assert {SHA256, hashlib.sha256(b"secret weights").hexdigest()} == unneeded == remembered, "young: gone in a minute"


def test_20_uploads_are_counted(callers: Callers) -> None:
    client = callers.submitter()
    statuses = [client.put("/v1/models", content=ONNX).status_code for _ in range(21)]
    assert statuses[19:] == [200, 429]


def test_20_wrong_tokens_are_counted(callers: Callers) -> None:
    client: TestClient = callers.nobody("Bearer obk_wrong_token")
    assert [client.get("/v1/models").status_code for _ in range(6)][4:] == [401, 429]
