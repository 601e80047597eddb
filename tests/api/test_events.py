"""What happens to a job, streamed by a real server."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from httpx2 import Client, Response, TimeoutException

from onnxbisect_api.limits import AtATime
from onnxbisect_api.routes import events as route
from onnxbisect_api.routes.events import Watch
from onnxbisect_api.site import job as page
from onnxbisect_db import events
from onnxbisect_db.states import Scope
from onnxbisect_service.service import Service
from onnxbisect_worker.coordinating import findings_of
from support.api.callers import Callers
from support.api.given import done, finish, refusing_exp, report_on, running
from support.api.live import served
from support.db.scenes import answer, claimed
from support.engine.report_factory import chain, single


@pytest.fixture
def client(callers: Callers) -> Iterator[Client]:
    with served(callers.app, callers.token(Scope.READ)) as client:
        yield client


def told(response: Response) -> Iterator[dict[str, Any]]:
    """The events of a stream; comments have the type `comment`."""
    event: dict[str, Any] = {}
    for line in response.iter_lines():
        name, _, value = line.partition(":")
        if line and not name:
            yield {"type": "comment"}
        elif line:
            event[name] = value.removeprefix(" ")
        elif "data" in event:
            assert json.loads(event["data"])["number"] == int(event["id"])
            assert json.loads(event["data"])["type"] == event["event"]
            yield json.loads(event["data"])
            event = {}


def numbers(client: Client, url: str, **headers: str) -> list[int]:
    with client.stream("GET", url, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-cache"
        return [event["number"] for event in told(response)]


def test_a_job_that_has_ended_is_told_from_its_beginning(client: Client, service: Service) -> None:
    job = done(service, refusing_exp())
    with client.stream("GET", f"/v1/jobs/{job.id}/events") as response:
        found = list(told(response))
    assert [event["number"] for event in found] == list(range(1, job.events + 1))
    assert found[0]["type"] == "job.queued"
    assert found[-1]["type"] == "job.finished"
    culprit = next(event for event in found if event["type"] == "culprit.found")
    assert culprit["data"]["culprit"] == {"ops": ["Exp"]}


def test_the_end_of_a_job_says_for_each_target_what_came_out(client: Client, service: Service) -> None:
    job = done(service, refusing_exp(), report_on(), backends=("npu", "other"))
    with client.stream("GET", f"/v1/jobs/{job.id}/events") as response:
        refusing, taking = list(told(response))[-1]["data"]["targets"]
    assert (refusing["backend"], refusing["verdict"], taking["backend"]) == ("npu", "fail", "other")
    assert refusing["headline"].startswith("decoder.onnx does not compile for ")
    assert refusing["refused"] == [{"ops": ["Exp"], "places": 1, "message": "no Exp", "cause": ""}]
    assert (taking["refused"], taking["more"]) == ([], 0)


def test_what_the_end_of_a_job_says_is_short() -> None:
    kinds = ["Relu", "Exp", "Tanh", "Erf", "Sin", "Cos", "Abs", "Neg", "Sqrt", "Floor", "Ceil", "Round"]
    net = chain(kinds)
    report = report_on(*(single(net, [unit], f"no {op}\nand \u202e more") for unit, op in enumerate(kinds)), model=net)
    report["culprits"][0]["ops"] = ["O" * 1000] * 50
    findings = findings_of(report)
    assert (len(findings.refused), findings.more) == (10, 2)
    first, second, *_ = findings.refused
    assert (second.ops, second.message) == (("Exp",), "no Exp")
    assert (len(first.ops), len(first.ops[0])) == (10, 120)


def test_whoever_comes_again_hears_what_came_since(client: Client, service: Service) -> None:
    job = done(service, refusing_exp())
    url = f"/v1/jobs/{job.id}/events"
    rest = list(range(3, job.events + 1))
    assert numbers(client, url, **{"Last-Event-ID": "2"}) == rest
    assert numbers(client, f"{url}?after=2") == rest
    for known in (job.events, job.events + 7, 2**31 - 1):
        response = client.get(url, headers={"Last-Event-ID": str(known)})
        assert (response.status_code, response.content) == (204, b"")
    for wrong in ("x", "-1", "99999999999999999999", f"{2**99:060}", "1.5"):
        assert client.get(url, headers={"Last-Event-ID": wrong}).status_code == 422


def test_what_happens_is_told_at_once_until_the_job_has_ended(client: Client, service: Service) -> None:
    job = running(service)
    with client.stream("GET", f"/v1/jobs/{job.id}/events?after={job_events(service, job.id)}") as response:
        stream = told(response)
        took = []
        for act in (
            lambda: claimed(service.database),
            lambda: finish(service, job.searches[0].id, refusing_exp()),
        ):
            began = time.monotonic()
            threading.Thread(target=act).start()
            next(stream)
            took.append(time.monotonic() - began)
        rest = [event["type"] for event in stream]
    assert rest[-1] == "job.finished"
    assert max(took) < 10  # not a heartbeat's time: it was told, not found by chance


def test_a_silent_stream_is_kept_open(client: Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "_HEARTBEAT_SECONDS", 0.2)
    job = running(service)
    with client.stream("GET", f"/v1/jobs/{job.id}/events?after={job_events(service, job.id)}") as response:
        stream = told(response)
        assert [next(stream)["type"] for _ in range(2)] == ["comment", "comment"]


def test_a_stream_of_a_deleted_job_ends(client: Client, callers: Callers, service: Service) -> None:
    job = running(service)
    with client.stream("GET", f"/v1/jobs/{job.id}/events") as response:
        stream = told(response)
        next(stream)
        assert callers.submitter().delete(f"/v1/jobs/{job.id}").status_code == 204
        assert [event for event in stream if event["type"] == "job.finished"] == []


def test_listeners_hold_no_thread(client: Client, callers: Callers, service: Service) -> None:
    """More than the server has threads, and it still answers."""
    job = running(service)
    url = f"/v1/jobs/{job.id}/events?after={job_events(service, job.id)}"
    streams = [client.stream("GET", url) for _ in range(60)]
    responses = [stream.__enter__() for stream in streams]
    try:
        waiting = threading.Thread(target=lambda: client.get(f"/v1/jobs/{job.id}?wait=5"))
        waiting.start()
        assert client.get(f"/v1/jobs/{job.id}").json()["state"] == "running"
        answer(service.database, claimed(service.database))
        first = [next(it for it in told(response) if it["type"] != "comment") for response in responses]
        assert {it["type"] for it in first} == {"probe.asked"}
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)
        waiting.join()


@pytest.mark.long
def test_whoever_has_gone_is_not_waited_for(client: Client, callers: Callers, service: Service) -> None:
    job = running(service)
    watch: Watch = callers.app.state.watch
    with client.stream("GET", f"/v1/jobs/{job.id}/events") as response:
        next(told(response))
        with pytest.raises(TimeoutException):
            client.get(f"/v1/jobs/{job.id}?wait=60", timeout=1)
    until = time.monotonic() + 30
    while watch.listeners and time.monotonic() < until:
        time.sleep(0.1)
    assert watch.listeners == 0


def test_a_service_that_ends_lets_go_of_all_that_listen(callers: Callers, service: Service) -> None:
    job = running(service)
    with (
        served(callers.app, callers.token(Scope.READ)) as client,
        client.stream("GET", f"/v1/jobs/{job.id}/events") as response,
    ):
        stream = told(response)
        next(stream)
        callers.app.state.watch.end()
        assert all(event["type"] != "job.finished" for event in stream)
        assert client.get(f"/v1/jobs/{job.id}?wait=60").json()["state"] == "running"


@pytest.mark.parametrize("address", ["/v1/jobs/{}/events", "/jobs/{}/stream?shape=asking"])
def test_a_revoked_token_s_streams_end_at_once(
    client: Client, callers: Callers, service: Service, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Not with the next heartbeat, which may come late."""
    for module in (route, page):
        monkeypatch.setattr(module, "_HEARTBEAT_SECONDS", 60.0)
    job = running(service)
    with client.stream("GET", address.format(job.id)) as silent:
        chunks = silent.iter_raw()
        next(chunks)
        mine = client.get("/v1/jobs").request.headers["authorization"]
        token_id = str(uuid.UUID(mine.split("_")[1]))
        assert callers.admin().delete(f"/v1/tokens/{token_id}").status_code == 204
        began = time.monotonic()
        finish(service, job.searches[0].id, refusing_exp())
        assert b"job.finished" not in b"".join(chunks)
        assert time.monotonic() - began < 5
    assert client.get("/v1/jobs").status_code == 401


def test_a_request_that_waits_ends_when_its_token_is_revoked(
    client: Client, callers: Callers, service: Service
) -> None:
    job = running(service)
    mine = client.get("/v1/jobs").request.headers["authorization"]
    token_id = str(uuid.UUID(mine.split("_")[1]))
    admin = callers.admin()
    revoking = threading.Timer(0.5, lambda: admin.delete(f"/v1/tokens/{token_id}"))
    revoking.start()
    began = time.monotonic()
    assert client.get(f"/v1/jobs/{job.id}?wait=30").status_code == 401
    assert time.monotonic() - began < 10
    revoking.join()


@pytest.mark.parametrize("page", [False, True])
def test_a_tenant_has_so_many_streams_at_a_time(callers: Callers, service: Service, page: bool) -> None:
    callers.app.state.access_control.open_streams = AtATime("streams", of_tenant=2, most=3)
    job = running(service)
    url = f"/jobs/{job.id}/stream?shape=asking" if page else f"/v1/jobs/{job.id}/events"
    mine, also_mine = callers.token(Scope.READ), callers.token(Scope.READ)
    with served(callers.app, mine) as client:
        with client.stream("GET", url) as one, client.stream("GET", url) as two:
            assert (one.status_code, two.status_code) == (200, 200)
            for address in (url, f"/v1/jobs/{job.id}?wait=60"):
                refused = client.get(address, headers={"Authorization": f"Bearer {also_mine}"})
                assert (refused.status_code, "2 open at a time" in refused.text) == (429, True)
        until = time.monotonic() + 30
        while refused.status_code == 429:
            with client.stream("GET", url) as refused:
                pass
            assert time.monotonic() < until
            time.sleep(0.1)


def job_events(service: Service, job_id: str) -> int:
    with service.database.session() as session:
        return events.progress(session, [job_id])[job_id].events
