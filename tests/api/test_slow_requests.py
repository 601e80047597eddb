"""Slow requests: whatever one tenant or a silent bucket makes of them, others are answered from the database."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from onnxbisect_api import health, limits
from onnxbisect_api.access import Caller
from onnxbisect_api.app import create_app
from onnxbisect_api.limits import Turns
from onnxbisect_api.routes.shared import issue_ticket, shared_file
from onnxbisect_db import tokens
from onnxbisect_db.states import Scope
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.given import done, refusing_exp, repair_document, repaired, running, uploaded
from support.api.live import served as live
from support.api.served import served

#: Requests that hang at a time: more than the forty threads of anyio.
_MANY = 45
#: Seconds for an answer from the database on a machine that runs other tests; what hangs does so for thirty.
_SOON = 15.0


def longest_wait(client: httpx2.Client, token: str) -> float:
    """The longest that a reader waits for an answer from the database."""
    longest = 0.0
    for _ in range(10):
        began = time.monotonic()
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        longest = max(longest, time.monotonic() - began)
    return longest


def test_inspections_of_one_tenant_hold_up_nobody_else(callers: Callers, service: Service) -> None:
    """A slow model, in place of which this inspection waits; each request has a token of its own."""
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def inspection(*_: object, **__: object) -> dict[str, Any]:
        begun.release()
        assert go_on.wait(30)
        return {}

    callers.app = create_app(service, inspect_model=inspection)
    model, other_model = uploaded(service), uploaded(service, tenant="other")
    senders = [callers.token(Scope.SUBMIT) for _ in range(_MANY)]
    others = callers.token(Scope.SUBMIT, "other")
    with live(callers.app, others) as client, ThreadPoolExecutor(_MANY + 1) as pool:

        def asked(token: str, sha256: str) -> httpx2.Response:
            return client.post(
                "/v1/inspect", json={"model": sha256}, headers={"Authorization": f"Bearer {token}"}, timeout=60
            )

        sent = [pool.submit(asked, token, model) for token in senders]
        try:
            assert begun.acquire(timeout=10)
            assert longest_wait(client, others) < _SOON
            not_mine = pool.submit(asked, others, other_model)
            assert begun.acquire(timeout=10), "another tenant's inspection does not wait for those of this one"
            assert not begun.acquire(blocking=False), "one model of a tenant is inspected at a time"
        finally:
            go_on.set()
        answers = [each.result() for each in sent]
    assert not_mine.result().status_code == 200
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == _MANY - 8
    assert {int(answer.headers["retry-after"]) for answer in refused} == {5}
    assert sum(answer.status_code == 200 for answer in answers) == 8


@contextmanager
def silent_server() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listening:
        yield int(listening.getsockname()[1])


def test_a_silent_bucket_holds_up_only_what_needs_it(
    callers: Callers, service: Service, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, model = done(service, refusing_exp()), uploaded(service)
    senders = [callers.token(Scope.SUBMIT) for _ in range(_MANY)]
    others = callers.token(Scope.SUBMIT, "other")
    needs = [
        ("POST", "/v1/inspect", {"model": model}),
        ("GET", f"/v1/jobs/{job.id}/report", None),
        ("GET", f"/jobs/{job.id}", None),
        ("HEAD", f"/v1/models/{model}", None),
    ]
    with silent_server() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("ONNXBISECT_FILES", "s3://bucket/here")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "test")
        with (
            served(settings.data) as server,
            ThreadPoolExecutor(2 * _MANY) as pool,
            httpx2.Client(base_url=server.url, timeout=60, limits=httpx2.Limits(max_connections=None)) as client,
        ):
            ready = [pool.submit(client.get, "/readyz") for _ in range(_MANY)]
            for number, token in enumerate(senders):
                method, path, body = needs[number % len(needs)]
                pool.submit(client.request, method, path, json=body, headers={"Authorization": f"Bearer {token}"})
            assert longest_wait(client, others) < _SOON
            answers = [each.result() for each in ready]
            assert {answer.status_code for answer in answers} == {503}
            assert "file store cannot be reached" in answers[0].json()["detail"]
            assert longest_wait(client, others) < _SOON
            os.kill(server.pid, signal.SIGKILL)  # it would finish the requests


def test_one_check_of_readiness_is_for_all(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = 0

    def check(_: object) -> None:
        nonlocal checked
        checked += 1

    monkeypatch.setattr(health, "disk", check)
    nobody = callers.nobody()
    assert [nobody.get("/readyz").status_code for _ in range(5)] == [200] * 5
    assert checked == 1
    monkeypatch.setattr(health, "_FRESH", 0.0)
    callers.app.state.readiness = health.Readiness(callers.app.state.service)
    assert [nobody.get("/readyz").status_code for _ in range(2)] == [200] * 2
    assert checked == 3


def test_a_check_that_does_not_end_is_a_failed_one(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    monkeypatch.setattr(health, "_LONGEST", 0.1)
    monkeypatch.setattr(callers.app.state.service.database, "is_current", lambda: ends.wait(30))
    try:
        answer = callers.nobody().get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("The database cannot be reached.")  # on a busy machine others, too
    finally:
        ends.set()


def test_whatever_needs_files_takes_turns(callers: Callers, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests for which there is no turn are the slow ones; no turn is free."""
    job = repaired(service, repair_document())
    going, model, token = running(service), uploaded(service, b"1"), callers.token(Scope.ADMIN)
    client = callers.nobody(f"Bearer {token}")
    sample = client.put("/v1/files", content=b"sample").json()["sha256"]
    culprit = client.get("/v1/culprits").json()[0]["id"]
    with service.database.session() as session:
        owner = tokens.list_all(session, "")[0]
        ticket = issue_ticket(
            session, Caller(tenant="", token_id=owner.id, scopes=frozenset()), shared_file(job.id, 1, 1)
        )
    monkeypatch.setattr(limits, "_PATIENCE", 0.01)
    control = callers.app.state.access_control
    control.file_turns = control.inspection_turns = Turns("requests", of_tenant=0, most=0)
    of_job = ("report", "repair", "repair/model.onnx", "states", "graph", "graph/0", "culprits/1/model.onnx")
    slow = [
        *(("GET", f"/v1/jobs/{job.id}/{it}") for it in of_job),
        *(("GET", f"/v1/jobs/{job.id}/model-explorer/{it}.json") for it in ("graph", "verdicts")),
        ("GET", f"/v1/jobs/{job.id}/culprits/1/shared/model.onnx?target=1&ticket={ticket}"),
        ("GET", "/v1/parts?label=a:b"),
        ("GET", f"/v1/compare?a={job.id}&b={job.id}"),
        *(("GET", f"/v1/culprits/{culprit}/{it}") for it in ("issue.md", "model.onnx")),
        *((method, f"/v1/models/{model}") for method in ("GET", "HEAD", "DELETE")),
        *((method, f"/v1/files/{sample}") for method in ("GET", "HEAD", "DELETE")),
        ("DELETE", f"/v1/jobs/{job.id}"),
        ("POST", f"/jobs/{job.id}/delete"),
        *(("GET", f"/jobs/{job.id}{it}") for it in ("", "/probes", f"/probes/{job.id}", "/culprits/1/netron")),
        ("GET", "/compare"),
        ("POST", "/v1/inspect"),
    ]
    for method, path in slow:
        answer = client.request(method, path, json={"model": model} if path == "/v1/inspect" else None)
        assert (path, answer.status_code, answer.headers.get("retry-after")) == (path, 503, "5")
    quick = ["/v1/jobs", f"/v1/jobs/{going.id}", "/v1/models", "/v1/backends", "/v1/culprits", "/readyz"]
    for path in [*quick, "/jobs", "/new", "/inspect", "/backends", "/culprits", "/tokens", "/webhooks"]:
        assert (path, client.get(path).status_code) == (path, 200)


def test_who_has_many_open_answers_gets_no_more(callers: Callers, service: Service) -> None:
    """Until they were sent, since a client may read slowly and the service holds them meanwhile."""
    job = done(service, refusing_exp())
    control = callers.app.state.access_control
    with control.open_files.one_more(""):
        control.open_files._of_tenant = 1
        answer = callers.reader().get(f"/v1/jobs/{job.id}/report")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert callers.reader().get(f"/v1/jobs/{job.id}/report").status_code == 200


def test_a_tenant_has_so_many_tokens(callers: Callers, service: Service) -> None:
    object.__setattr__(service, "settings", service.settings.model_copy(update={"tenant_tokens": 3}))
    admin, other, wanted = callers.admin(), callers.admin("other"), {"name": "ci", "scopes": ["read"]}
    made = [admin.post("/v1/tokens", json=wanted) for _ in range(3)]
    assert [it.status_code for it in made] == [201, 201, 507]
    assert "revoke" in made[2].json()["detail"]
    assert other.post("/v1/tokens", json=wanted).status_code == 201
    assert admin.delete(f"/v1/tokens/{made[0].json()['id']}").status_code == 204
    assert admin.post("/v1/tokens", json=wanted).status_code == 201
