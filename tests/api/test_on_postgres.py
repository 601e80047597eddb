"""What PostgreSQL does otherwise than SQLite: the same requests, the same answers."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api import given
from support.api.callers import Callers
from support.api.model_bytes import model
from support.db import postgres_server, scenes

ONNX = model(b"a file")
SHA256 = hashlib.sha256(ONNX).hexdigest()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server.running() as folder:
        yield folder


@pytest.fixture(scope="module")
def database(server: str) -> Iterator[Database]:
    with psycopg.connect(host=server, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE api")
    database = Database(f"postgresql://postgres@/api?host={server}")
    database.upgrade()
    yield database
    database.close()


@pytest.fixture
def service(settings: Settings, database: Database) -> Service:
    return Service(settings=settings, database=database, files=Files(settings.files_folder, floor=0))


@pytest.fixture
def tenant() -> str:
    """The database is the same for all tests."""
    return new_id()


def test_uploads_are_kept_listed_and_deleted(callers: Callers, tenant: str) -> None:
    client = callers.submitter(tenant)
    first = client.put("/v1/models?name=net.onnx", content=ONNX)
    assert (first.status_code, first.json()["new"]) == (201, True)
    form = client.post("/v1/models", files=[("model", ("net.onnx", ONNX)), ("data", ("w/é.bin", b"w"))])
    assert (form.status_code, form.json()["new"]) == (201, True)  # with its data it is another model
    others = [client.put("/v1/models", content=model(bytes([number]))).json()["sha256"] for number in range(3)]
    found: list[str] = []
    url = "/v1/models?limit=2"
    while url:
        page = client.get(url)
        found += [model["sha256"] for model in page.json()]
        url = page.links.get("next", {}).get("url", "")
    assert found == [*others[::-1], form.json()["sha256"], SHA256]
    assert client.put("/v1/files", content=b"sample").status_code == 200
    assert client.delete(f"/v1/models/{SHA256}").status_code == 204
    assert client.head(f"/v1/models/{SHA256}").status_code == 404


def test_a_quota_is_counted(service: Service, tenant: str) -> None:
    bounded = replace(service, settings=service.settings.model_copy(update={"tenant_bytes": 10}))
    client = Callers(bounded).submitter(tenant)
    assert client.put("/v1/models", content=model(size=8)).status_code == 201
    assert client.put("/v1/files", content=b"123").status_code == 507
    assert client.put("/v1/files", content=b"12").status_code == 200


def test_tokens_webhooks_and_health(callers: Callers, tenant: str) -> None:
    admin = callers.admin(tenant)
    token = admin.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}).json()
    assert callers.nobody(f"Bearer {token['token']}").get("/v1/models").status_code == 200
    assert admin.delete(f"/v1/tokens/{token['id']}").status_code == 204
    webhook = admin.post("/v1/webhooks", json={"url": "https://ci.example.com/"}).json()["id"]
    message = admin.post(f"/v1/webhooks/{webhook}/ping").json()["id"]
    assert [each["id"] for each in admin.get(f"/v1/webhooks/{webhook}/deliveries").json()] == [message]
    assert admin.post(f"/v1/deliveries/{message}/redeliver").json()["state"] == "pending"
    assert admin.delete(f"/v1/webhooks/{webhook}").status_code == 204
    assert callers.nobody().get("/readyz").status_code == 200
    assert "onnxbisect_jobs" in callers.operator().get("/metrics").text


@pytest.mark.parametrize("hostile", ["a\0b", "\ud800", "x" * 100_000, "\U0001f600\u202e"])
def test_no_text_is_a_mistake_of_ours(callers: Callers, tenant: str, hostile: str) -> None:
    """PostgreSQL takes no NUL, and nobody takes half of a surrogate pair."""
    admin = callers.admin(tenant)
    url = f"https://ci.example.com/{hostile}"
    bodies: list[tuple[str, dict[str, object]]] = [
        ("/v1/tokens", {"name": hostile, "scopes": ["read"]}),
        ("/v1/tokens", {"name": "x", "scopes": [hostile]}),
        ("/v1/webhooks", {"url": url}),
        ("/v1/jobs", {"model": SHA256, "targets": [{"backend": hostile}]}),
        ("/v1/jobs", {"model": SHA256, "targets": [{"backend": "npu", "options": {"o": hostile}}]}),
        ("/v1/jobs", {"model": SHA256, "targets": [{"backend": "npu"}], "labels": {"repo": hostile}}),
        ("/v1/jobs", {"model": SHA256, "targets": [{"backend": "npu"}], "input_shapes": {hostile: [1]}}),
        ("/v1/jobs", {"model": SHA256, "targets": [{"backend": "npu"}], "webhook": url}),
        ("/v1/jobs", {hostile: 1}),
    ]
    admin.put("/v1/models", content=ONNX)
    kind = {"Content-Type": "application/json"}
    answers = [admin.post(address, content=json.dumps(body), headers=kind) for address, body in bodies]
    texts = hostile.encode("utf-8", "replace").decode()[:1000]
    answers.append(admin.put("/v1/models", params={"name": texts}, content=ONNX))
    answers += [admin.get("/v1/jobs", params={name: texts}) for name in ("label", "state", "model", "target", "after")]
    assert [answer.text for answer in answers if answer.status_code >= 500] == []


def test_what_is_known_of_a_running_job_is_read_and_shown(callers: Callers, service: Service, tenant: str) -> None:
    job = given.running(service, (0b011, 0b110), tenant=tenant)
    scenes.answer(service.database, scenes.claimed(service.database))
    client = callers.reader(tenant)
    assert client.get(f"/v1/jobs/{job.id}/states").json()["states"].get("pass") == "0-1"
    page = client.get(f"/jobs/{job.id}")
    assert page.status_code == 200
    assert "1 compiler call</b>" in page.text
