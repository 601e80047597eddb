"""Jobs over REST: what is taken, what is refused and why, and what a client is told."""

import os
import threading
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxbisect_api.submission.job_request import JobRequest
from onnxbisect_db import jobs, notices, probes, queues, searches, workers
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.states import Fault, JobState, Stage
from onnxbisect_db.tables import Search
from onnxbisect_db.tables.base import new_id
from onnxbisect_db.workers import Presence
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.fixtures import Notified
from support.api.given import done, finish, refusing_exp, running, uploaded
from support.db.scenes import NPU, new_job, prepare, take

ONNXRUNTIME = {"backend": "onnxruntime"}


def ask(model: str, *targets: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    return {"model": model, "targets": list(targets) or [ONNXRUNTIME], **wanted}


def refused(client: TestClient, body: dict[str, Any], status: int = 422) -> str:
    response = client.post("/v1/jobs", json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return str(response.json()["detail"])


def test_a_job_is_made_and_workers_are_notified(callers: Callers, service: Service, notified: Notified) -> None:
    model = uploaded(service)
    response = callers.submitter().post(
        "/v1/jobs",
        json=ask(
            model,
            ONNXRUNTIME,
            {"backend": "whitelist", "options": {"profile": "edgesam", "folds": True, "max_nodes": 9}},
            input_shapes={"x": [1, 3, 224, 224]},
            input_values={"sr": 16000, "low": 0.5, "fast": True, "starts": [0, 1]},
            budget={"calls": 100, "seconds": 60},
            seconds=30,
            recheck=True,
            priority=-1,
            labels={"repo": "net", "branch": "feature/x"},
        ),
    )
    assert response.status_code == 202
    made = response.json()
    assert response.headers["location"] == made["url"] == f"/v1/jobs/{made['id']}"
    assert (made["state"], made["verdict"]) == ("queued", None)
    assert made["targets"][1]["options"] == {"profile": "edgesam", "folds": "true", "max_nodes": "9"}
    assert made["webhook_secret"] is None
    with service.database.session() as session:
        job = jobs.get(session, made["id"], "")
    assert job is not None
    spec = SearchSpec(
        input_shapes={"x": (1, 3, 224, 224)},
        input_values={"sr": 16000, "low": 0.5, "fast": True, "starts": [0, 1]},
        timeout=30,
        budget_calls=100,
        budget_seconds=60,
        recheck=True,
    )
    assert SearchSpec.from_json(job.request) == spec
    assert notified == [{notices.backend("onnxruntime"), notices.backend("whitelist")}]


def test_an_idempotent_request_makes_one_job(callers: Callers, service: Service, notified: Notified) -> None:
    client, body = callers.submitter(), ask(uploaded(service), webhook="https://ci.example.com/hook")
    first, again = (client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k-1"}) for _ in range(2))
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()
    assert len(notified) == 1
    other = client.post("/v1/jobs", json={**body, "priority": -1}, headers={"Idempotency-Key": "k-1"})
    assert other.status_code == 422
    assert first.json()["id"] in other.json()["detail"]
    assert callers.submitter("other").get(first.json()["url"]).status_code == 404


def test_the_secret_of_a_job_s_webhook_is_told_to_its_maker_only(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    webhook = {"url": "https://ci.example.com/hook", "events": ["job.finished"]}
    made = client.post("/v1/jobs", json=ask(uploaded(service), webhook=webhook)).json()
    assert made["webhook_secret"].startswith("whsec_")
    assert made["webhook_secret"] not in client.get(made["url"]).text


def test_a_job_s_own_webhook_may_be_a_chat_s(callers: Callers, service: Service) -> None:
    client, model = callers.submitter(), uploaded(service)
    webhook = {"url": "https://open.feishu.cn/hook", "format": "feishu", "secret": "robot"}
    made = client.post("/v1/jobs", json=ask(model, webhook=webhook)).json()
    assert made["webhook_secret"] is None
    endpoint = callers.admin().get(made["webhook"]["url"]).json()
    assert (endpoint["format"], endpoint["secrets"]) == ("feishu", 1)
    assert "robot" not in client.get(made["url"]).text + str(endpoint)
    wrong = client.post("/v1/jobs", json=ask(model, webhook={**webhook, "format": "slack"}))
    assert (wrong.status_code, "only robots of Feishu" in wrong.json()["detail"]) == (422, True)


def test_the_messages_of_a_job_s_own_webhook_are_found_through_the_job(callers: Callers, service: Service) -> None:
    client, admin = callers.submitter(), callers.admin()
    made = client.post("/v1/jobs", json=ask(uploaded(service), webhook="https://ci.example.com/hook")).json()
    plain = client.post("/v1/jobs", json=ask(uploaded(service))).json()
    webhook = made["webhook"]
    assert webhook["url"] == f"/v1/webhooks/{webhook['id']}"
    assert client.get(made["url"]).json()["webhook"] == webhook
    assert [each["webhook"] for each in client.get("/v1/jobs").json()] == [plain["webhook"], webhook]
    assert plain["webhook"] is None
    client.post(f"{made['url']}/cancel")
    [message] = admin.get(webhook["deliveries"]).json()
    assert (message["type"], message["job"], message["webhook"]) == ("job.failed", made["id"], webhook["id"])
    assert admin.post(f"/v1/deliveries/{message['id']}/redeliver").status_code == 202
    assert admin.get(webhook["url"]).json()["job"] == made["id"]
    assert admin.get("/v1/webhooks").json() == []
    stranger = callers.admin("other")
    assert stranger.get(webhook["url"]).status_code == stranger.get(webhook["deliveries"]).status_code == 404


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"backend": "onnxruntme"}, "did you mean 'onnxruntime'? Valid: "),
        ({"backend": "onnxruntime", "options": {"optimisation": "x"}}, "did you mean 'optimization'"),
        ({"backend": "onnxruntime", "options": {"optimization": "x"}}, "cannot be 'x'"),
        ({"backend": "vela", "options": {"converter": "/bin/sh"}}, "for the command line"),
        ({"backend": "whitelist", "options": {"profile": "/etc/passwd.toml"}}, "choose among"),
        ({"backend": "hailo", "options": {"hw_arch": "--help"}}, "begins like a flag"),
        ({"backend": "./mine.toml"}, "body.targets.0.backend"),
        ({"backend": "mine.toml"}, "command line"),
        ({"backend": "onnxruntime", "options": {"optimization": "a\x00"}}, "body.targets.0.options"),
        ({"backend": "onnxruntime", "command": ["sh"]}, "body.targets.0.command"),
    ],
)
def test_a_target_that_cannot_be_is_refused_in_a_sentence(
    callers: Callers, service: Service, target: dict[str, Any], says: str
) -> None:
    assert says in refused(callers.submitter(), ask(uploaded(service), target))


def test_a_backend_that_only_workers_have_can_be_asked_without_options(callers: Callers, service: Service) -> None:
    client, model = callers.submitter(), uploaded(service)
    unknown = refused(client, ask(model, {"backend": "house-npu"}))
    assert "is no backend" in unknown
    assert "'--'" not in unknown  # what a command line could do about it
    with service.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="w", backends=("house-npu",), slots=2))
    assert "beside the API" in refused(client, ask(model, {"backend": "house-npu", "options": {"tool": "/bin/sh"}}))
    assert client.post("/v1/jobs", json=ask(model, {"backend": "house-npu"})).status_code == 202


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"targets": []}, "body.targets: At least 1 must be given."),
        ({"priority": 101}, "body.priority"),
        ({"seconds": 0}, "body.seconds"),
        ({"seconds": 1e9}, "600 seconds here at most"),
        ({"budget": {"calls": 0}}, "body.budget.calls"),
        ({"input_shapes": {"x": [-1]}}, "body.input_shapes.x.0"),
        ({"input_shapes": {"x": [2**63]}}, "body.input_shapes.x.0"),
        ({"input_values": {"sr": "16000"}}, "body.input_values.sr"),
        ({"input_values": {"sr": [[1]]}}, "body.input_values.sr"),
        ({"labels": {"a:b": "x"}}, "body.labels.a:b: "),
        ({"labels": {"a": "x" * 256}}, "body.labels.a"),
        ({"labels": {"a": "\x00"}}, "body.labels.a"),
        ({"calibration": {"../0.npz": "a" * 64}}, "body.calibration"),
        ({"calibration": {"0.npz": "a" * 64}}, "upload"),
        ({"webhook": "http://169.254.169.254/meta"}, "public"),
        ({"webhook": "file:///etc/passwd"}, "https://"),
        (
            {"webhook": {"url": "https://ci.example.com", "events": ["webhook.ping"]}},
            "body.webhook.events.0: This must",
        ),
        ({"webhook": "https://ci.example.com/" + "x" * 2000}, "body.webhook.url: This may have 2000 characters"),
        ({"webhook": 5}, "body.webhook: This must be an object"),
        ({"hello": 1}, "body.hello"),
        ({"model": "b" * 64}, "upload it first"),
        ({"model": "B" * 64}, "body.model: This must be a SHA-256 of 64 digits, 0 to 9 and a to f."),
    ],
)
def test_what_is_wrong_with_a_request_is_said(
    callers: Callers, service: Service, wanted: dict[str, Any], says: str
) -> None:
    assert says in refused(callers.submitter(), {**ask(uploaded(service)), **wanted})


def test_the_model_of_another_tenant_is_not_there(callers: Callers, service: Service) -> None:
    assert "upload it first" in refused(callers.submitter("b"), ask(uploaded(service, tenant="a")))


def test_only_an_admin_puts_a_job_before_the_others(callers: Callers, service: Service) -> None:
    body = ask(uploaded(service), priority=1)
    assert "'admin'" in refused(callers.submitter(), body, 403)
    assert callers.admin().post("/v1/jobs", json=body).json()["priority"] == 1


def test_a_reader_makes_and_ends_nothing(callers: Callers, service: Service) -> None:
    job = running(service)
    client = callers.reader()
    refused(client, ask(uploaded(service)), 403)
    assert client.post(f"/v1/jobs/{job.id}/cancel").status_code == 403
    assert client.delete(f"/v1/jobs/{job.id}").status_code == 403
    assert client.get(f"/v1/jobs/{job.id}").status_code == 200


class TestQuota:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"tenant_jobs": 2})

    def test_a_tenant_has_so_many_jobs_at_a_time(self, callers: Callers, service: Service, notified: Notified) -> None:
        client, model = callers.submitter(), uploaded(service)
        made = [client.post("/v1/jobs", json=ask(model, labels={"n": str(n)})) for n in range(3)]
        assert [response.status_code for response in made] == [202, 202, 429]
        assert "retry-after" in made[2].headers
        assert len(notified) == 2
        uploaded(service, tenant="other")
        assert callers.submitter("other").post("/v1/jobs", json=ask(model)).status_code == 202
        client.post(f"{made[0].json()['url']}/cancel")
        assert client.post("/v1/jobs", json=ask(model)).status_code == 202

    def test_a_retry_counts_like_a_new_job(self, callers: Callers, service: Service, notified: Notified) -> None:
        client, model = callers.submitter(), uploaded(service)
        urls = []
        for _ in range(3):
            urls.append(client.post("/v1/jobs", json=ask(model)).json()["url"])
            client.post(f"{urls[-1]}/cancel")
        notified.clear()
        again = [client.post(f"{url}/retry") for url in urls]
        assert [response.status_code for response in again] == [202, 202, 429]
        assert "retry-after" in again[2].headers
        assert client.get(urls[2]).json()["state"] == "cancelled"
        assert len(notified) == 2


def test_jobs_are_listed_in_pages_and_found_by_what_they_are_about(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    one, two = uploaded(service), uploaded(service, b"another")
    urls = [
        client.post("/v1/jobs", json=ask(model, target, labels={"repo": repo, "n": "1"})).json()["url"]
        for model, target, repo in (
            (one, ONNXRUNTIME, "net"),
            (two, ONNXRUNTIME, "net"),
            (two, {"backend": "iree"}, "other"),
        )
    ]
    client.post(f"{urls[0]}/cancel")

    def found(query: str) -> list[int]:
        response = client.get(f"/v1/jobs?{query}")
        assert response.status_code == 200, response.text
        return [urls.index(job["url"]) for job in response.json()]

    assert found("") == [2, 1, 0]
    assert found("label=repo:net") == [1, 0]
    assert found("label=repo:net&label=n:1&state=queued") == [1]
    assert found(f"model={two}") == [2, 1]
    assert found("target=iree") == [2]
    assert found(f"text={two[:9]}") == [2, 1]
    assert found("text=NET.on") == [2, 1, 0]
    assert found("text=_") == found("verdict=pass") == []
    first = client.get("/v1/jobs?limit=2&label=n:1")
    assert [urls.index(job["url"]) for job in client.get(first.links["next"]["url"]).json()] == [0]
    assert callers.reader("other").get("/v1/jobs").json() == []
    for wrong in (
        "label=repo",
        "label=repo:",
        "label=:net",
        "label=repo:a&label=repo:b",
        "state=none",
        "model=x",
        "label=a:%00",
    ):
        assert client.get(f"/v1/jobs?{wrong}").status_code == 422


def test_a_job_tells_how_far_it_is(callers: Callers, service: Service) -> None:
    job = running(service)
    client = callers.reader()
    [target] = client.get(f"/v1/jobs/{job.id}").json()["targets"]
    assert (target["number"], target["state"], target["tool"], target["units"]) == (1, "running", "t", 9)
    assert target["expected"] == 5.0
    assert "No worker" in target["problem"]
    with service.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="w", backends=("npu",), slots=1))
    assert client.get(f"/v1/jobs/{job.id}").json()["targets"][0]["problem"] == ""
    service.database.run(lambda session: queues.limit(session, "npu", 0))
    assert "paused" in client.get(f"/v1/jobs/{job.id}").json()["targets"][0]["problem"]
    with service.database.transaction() as session:
        session.get_one(Search, job.searches[0].id).stage = Stage.REPAIR
    assert "paused" in client.get(f"/v1/jobs/{job.id}").json()["targets"][0]["problem"]
    with service.database.transaction() as session:
        session.get_one(Search, job.searches[0].id).stage = Stage.SEARCH
    service.database.run(lambda session: queues.limit(session, "npu", None))
    assert client.get(f"/v1/jobs/{job.id}").json()["targets"][0]["problem"] == ""
    finish(service, job.searches[0].id, refusing_exp())
    shown = client.get(f"/v1/jobs/{job.id}").json()
    assert (shown["state"], shown["verdict"]) == ("done", "fail")
    [target] = shown["targets"]
    assert target["culprits"] == [{"ops": ["Exp"]}]
    assert client.get(target["report"]).json()["verdict"] == "fail"
    assert client.get(target["files"]["culprits/01-Exp/model.onnx"]).status_code == 200


def test_what_belongs_to_another_tenant_is_not_there(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp(), tenant="a")
    other = callers.admin("b")
    for method, path in (
        ("GET", ""),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("DELETE", ""),
        ("GET", "/report"),
        ("GET", "/culprits/1/model.onnx"),
        ("GET", "/probes"),
        ("GET", "/events"),
    ):
        mine, theirs = (other.request(method, f"/v1/jobs/{row}{path}") for row in (job.id, new_id()))
        assert mine.status_code == theirs.status_code == 404, path
        assert mine.json() == theirs.json()


def test_a_job_is_cancelled_once_and_can_begin_anew(callers: Callers, service: Service, notified: Notified) -> None:
    client, url = callers.submitter(), f"/v1/jobs/{running(service).id}"
    assert client.post(f"{url}/retry").status_code == 409
    assert client.post(f"{url}/cancel").json()["state"] == "cancelled"
    assert client.post(f"{url}/cancel").status_code == 200
    again = client.post(f"{url}/retry")
    assert (again.status_code, again.json()["state"]) == (202, "queued")
    assert notified[-1] == {notices.backend(NPU)}


def test_a_target_that_failed_can_be_retried_alone(callers: Callers, service: Service, notified: Notified) -> None:
    job = new_job(service.database, "x", "y", model_sha256=uploaded(service))
    good, bad = job.searches
    prepare(service.database, good.id)
    finish(service, good.id, refusing_exp())
    claimed = take(service.database, bad.id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.fail(session, claimed, "the compiler is away")
    client = callers.submitter()
    assert f'action="/jobs/{job.id}/retry"' in client.get(f"/jobs/{job.id}").text
    again = client.post(f"/v1/jobs/{job.id}/retry")
    assert (again.status_code, again.json()["state"]) == (202, "queued")
    assert [target["state"] for target in again.json()["targets"]] == ["done", "queued"]
    assert notified[-1] == {notices.backend("y")}
    assert client.get(f"/v1/jobs/{job.id}/report?target=1").json()["verdict"] == "fail"
    assert client.post(f"/v1/jobs/{job.id}/retry").status_code == 409


def test_a_job_that_failed_says_why(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    made = client.post("/v1/jobs", json=ask(uploaded(service))).json()
    with service.database.session() as session:
        job = jobs.get(session, made["id"], "")
    assert job is not None
    claimed = take(service.database, job.searches[0].id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.fail(session, claimed, "The model is cyclic.")
    shown = client.get(made["url"]).json()
    assert (shown["state"], shown["verdict"], shown["problem"]) == ("failed", None, "The model is cyclic.")
    assert client.post(f"{made['url']}/cancel").status_code == 409
    assert "The model is cyclic." in client.get(f"{made['url']}/report").json()["detail"]


@pytest.mark.parametrize(
    ("faults", "of_job"),
    [
        ((Fault.REQUEST, Fault.REQUEST), "request"),
        ((Fault.REQUEST, Fault.SERVICE), "service"),  # the client's to mend, and still no answer
    ],
)
def test_a_job_that_failed_says_whose_it_is(
    callers: Callers, service: Service, faults: tuple[Fault, ...], of_job: str
) -> None:
    job = new_job(service.database, "x", "y", model_sha256=uploaded(service))
    client = callers.submitter()
    assert client.get(f"/v1/jobs/{job.id}").json()["fault"] is None
    for search, fault in zip(job.searches, faults, strict=True):
        assert client.get(f"/v1/jobs/{job.id}").json()["fault"] is None
        claimed = take(service.database, search.id, Stage.PREPARE)
        with service.database.transaction() as session:
            searches.fail(session, claimed, "it was not to be", fault)
    shown = client.get(f"/v1/jobs/{job.id}").json()
    assert (shown["state"], shown["fault"]) == ("failed", of_job)
    assert [target["fault"] for target in shown["targets"]] == list(faults)


def test_a_deleted_job_is_gone_with_its_files(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    [search] = job.searches
    names = [search.report, *search.files.values(), job.model_sha256]
    assert all(service.files.size(name) for name in names if name)
    age(service, [name for name in names if name])
    client = callers.submitter()
    assert client.delete(f"/v1/jobs/{job.id}").status_code == 204
    assert client.get(f"/v1/jobs/{job.id}").status_code == 404
    assert client.delete(f"/v1/jobs/{job.id}").status_code == 404
    assert [service.files.size(name) for name in names if name] == [None] * len(names)


def age(service: Service, names: list[str]) -> None:
    """As if they had been stored two minutes ago."""
    then = time.time() - 120
    for name in names:
        os.utime(service.files.path(name), (then, then))


def test_waiting_ends_with_the_job(callers: Callers, service: Service) -> None:
    job = running(service)
    ending = threading.Timer(0.5, finish, (service, job.searches[0].id, refusing_exp()))
    ending.start()
    shown = callers.reader().get(f"/v1/jobs/{job.id}?wait=60").json()
    assert shown["state"] == JobState.DONE
    ending.join()


def test_waiting_ends_with_time_or_with_the_row(callers: Callers, service: Service) -> None:
    job = running(service)
    client = callers.submitter()
    assert client.get(f"/v1/jobs/{job.id}?wait=0.3").json()["state"] == "running"
    gone = threading.Timer(0.5, lambda: callers.submitter().delete(f"/v1/jobs/{job.id}"))
    gone.start()
    assert client.get(f"/v1/jobs/{job.id}?wait=60").status_code == 404
    gone.join()
    for wrong in ("61", "-1", "nan", "inf"):
        assert client.get(f"/v1/jobs/{job.id}?wait={wrong}").status_code == 422


def test_a_job_that_has_ended_is_told_at_once(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    assert callers.reader().get(f"/v1/jobs/{job.id}?wait=60").json()["state"] == "done"


def test_requests_are_read_without_the_network() -> None:
    body = {"model": "a" * 64, "targets": [{"backend": "x", "options": {"a": 1.5, "b": False, "c": "text"}}]}
    assert JobRequest.model_validate(body).targets[0].options == {"a": "1.5", "b": "false", "c": "text"}


def test_a_job_says_what_it_waits_for_when_a_question_was_lost(callers: Callers, service: Service) -> None:
    job = running(service, [1])
    with service.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="w", backends=("npu",), slots=1))
    hand = ClaimRequest(backend="npu", worker="w", seconds=30)
    client = callers.reader()
    for _ in range(4):
        while (mine := service.database.run(lambda session: probes.claim(session, hand))) is None:
            time.sleep(0.1)
        with service.database.transaction() as session:
            probes.record_loss(session, mine, "A worker has no room to go on. The disk is full.")
    [target] = client.get(f"/v1/jobs/{job.id}").json()["targets"]
    assert (target["state"], target["verdict"]) == ("running", None)
    assert "The disk is full. This says nothing about the model; it is tried again at" in target["problem"]
    assert callers.submitter().post(f"/v1/jobs/{job.id}/cancel").json()["state"] == "cancelled"


def test_a_job_says_what_it_waits_for_when_a_turn_was_lost(callers: Callers, service: Service) -> None:
    job = new_job(service.database, "npu", model_sha256=uploaded(service))
    with service.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="w", backends=("npu",), slots=1))
    claimed = take(service.database, job.searches[0].id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.record_loss(session, claimed, "The process that had the model was killed by SIGKILL.")
    [target] = callers.reader().get(f"/v1/jobs/{job.id}").json()["targets"]
    assert "was killed by SIGKILL. This says nothing about the model" in target["problem"]
    claimed = take(service.database, job.searches[0].id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.record_crash(session, claimed, "The process that had the model was killed by SIGSEGV.")
    [target] = callers.reader().get(f"/v1/jobs/{job.id}").json()["targets"]
    assert "was killed by SIGSEGV. It is tried once more, alone in a new process" in target["problem"]
