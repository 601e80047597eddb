"""What orchestrators and Prometheus are told."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from onnxbisect_db import jobs, models, reconcile, workers
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.workers import Presence
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api import given
from support.api.callers import Callers

SHA256 = "a" * 64


def test_it_lives_and_is_ready(callers: Callers) -> None:
    client = callers.nobody()
    assert client.get("/livez").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}
    assert client.head("/livez").status_code == client.head("/readyz").status_code == 200


def test_tables_of_another_version_are_not_ready(callers: Callers, service: Service) -> None:
    with service.database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    response = callers.nobody().get("/readyz")
    assert response.status_code == callers.nobody().head("/readyz").status_code == 503
    assert "onnx-bisect migrate" in response.json()["detail"]
    assert callers.nobody().get("/livez").status_code == 200


@pytest.mark.parametrize("revision", ["0001", "9999"])
def test_no_job_is_taken_with_tables_of_another_version(callers: Callers, service: Service, revision: str) -> None:
    """As during an upgrade, while processes of the earlier version are still there."""
    client = callers.submitter()
    model, failed = given.uploaded(service, b"model"), given.running(service)
    assert client.post(f"/v1/jobs/{failed.id}/cancel").status_code == 200
    before = len(client.get("/v1/jobs").json())
    with service.database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    target = {"backend": "whitelist", "options": {"deny": "Sin"}}
    for path, body in (
        ("/v1/jobs", {"model": model, "targets": [target]}),
        ("/v1/jobs", {"models": [{"model": model}], "targets": [target]}),
        (f"/v1/jobs/{failed.id}/retry", None),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 503, (path, answer.text)
        assert "onnx-bisect migrate" in answer.json()["detail"]
    assert len(client.get("/v1/jobs").json()) == before


class TestWithoutRedis:
    """Everybody may ask what is wrong, so it is said without a password."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return Settings(
            data=tmp_path / "data", disk_floor=0, redis_url=SecretStr(f"unix://user:hunter2@{tmp_path}/no.sock")
        )

    def test_a_queue_that_is_gone_is_not_ready(self, callers: Callers) -> None:
        response = callers.nobody().get("/readyz")
        assert response.status_code == 503
        assert "redis" in response.json()["detail"]
        assert "hunter2" not in response.text

    def test_requests_are_answered_all_the_same(self, callers: Callers) -> None:
        assert callers.reader().get("/v1/models").status_code == 200


def shown(callers: Callers) -> dict[str, float]:
    response = callers.operator().get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_are_for_an_operator(callers: Callers) -> None:
    """They show the whole service, which is no business of a tenant."""
    assert callers.nobody().get("/metrics").status_code == 401
    for client in (callers.reader(), callers.submitter("another"), callers.admin()):
        refused = client.get("/metrics")
        assert (refused.status_code, "'operator'" in refused.json()["detail"]) == (403, True)
    shown(callers)


def test_an_operator_s_token_is_for_metrics_alone(callers: Callers) -> None:
    operator = callers.operator()
    for path in ("/v1/jobs", "/v1/models", "/v1/backends", "/v1/tokens", "/v1/culprits"):
        assert operator.get(path).status_code == 403, path


def test_an_admin_makes_no_operator(callers: Callers) -> None:
    admin = callers.admin()
    answer = admin.post("/v1/tokens", json={"name": "mine", "scopes": ["read", "operator"]})
    assert answer.status_code == 422
    assert "on the server" in answer.json()["detail"]


def test_metrics_say_what_waits_and_who_works(callers: Callers, service: Service) -> None:
    reconcile.reconcile(service.database, "me")
    with service.database.transaction() as session:
        models.keep(session, tenant="secret-tenant", sha256=SHA256, name="secret.onnx", size=1)
        target = NewTarget(backend="npu")
        wanted = NewJob(model_sha256=SHA256, targets=(target, target), labels={"repo": "secret"})
        jobs.create(session, wanted, tenant="secret-tenant")
        workers.record_heartbeat(session, Presence(id="w", backends=("npu", "dsp"), slots=3))
    found = shown(callers)
    assert found['onnxbisect_jobs{state="queued"}'] == 1
    assert found['onnxbisect_jobs{state="done"}'] == 0
    assert found['onnxbisect_searches{backend="npu",stage="prepare"}'] == 2
    assert found['onnxbisect_slots{backend="dsp"}'] == 3
    assert found["onnxbisect_workers"] == 1
    assert found["onnxbisect_lease_overdue_seconds"] == 0
    assert 0 <= found["onnxbisect_reconciler_lag_seconds"] < 60
    assert "secret" not in callers.operator().get("/metrics").text


def test_requests_are_counted_by_route_and_not_by_what_strangers_type(callers: Callers) -> None:
    callers.reader().get(f"/v1/models/{SHA256}")
    for number in range(3):
        callers.nobody().get(f"/no/such/{number}")
    callers.nobody().request("BREW", "/livez")
    found = shown(callers)

    def count(method: str, route: str, status: int) -> float:
        return found[f'onnxbisect_http_seconds_count{{method="{method}",route="{route}",status="{status}"}}']

    assert count("GET", "/models/{sha256}", 404) == 1
    assert count("GET", "none", 404) == 3
    assert not [name for name in found if re.search("BREW|/no/such", name)]
