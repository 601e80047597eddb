"""The list of jobs: what it says of each, how one is found, how it keeps itself up to date."""

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxbisect_db import jobs, lifecycle, workers
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.tables import Job
from onnxbisect_db.workers import Presence
from onnxbisect_service.service import Service
from support.api import model_bytes
from support.api.callers import Callers
from support.api.given import done, refusing_exp, report_on, running, uploaded
from support.db.scenes import answer, claimed
from support.site.browser import Installation, Look


@pytest.fixture
def client(callers: Callers) -> TestClient:
    client = callers.reader()
    client.headers["accept"] = "text/html"
    return client


def named(service: Service, name: str, *backends: str, **wanted: Any) -> Job:
    """A job on a model of this name."""
    tenant = wanted.pop("tenant", "")
    model = uploaded(service, name.encode(), name=name, tenant=tenant)
    targets = tuple(NewTarget(backend=backend) for backend in backends or ("npu",))
    new = NewJob(model_sha256=model, targets=targets, **wanted)
    return service.database.run(lambda session: jobs.create(session, new, tenant=tenant).job)


def models(client: TestClient, **query: Any) -> list[str]:
    """The names of the models in the list, as they are shown."""
    answered = client.get("/jobs", params=query)
    assert answered.status_code == 200, answered.text
    return re.findall(r'<a href="/jobs/[0-9a-f-]{36}">([^<]*)</a>', answered.text)


def row(client: TestClient, job: Job) -> str:
    return client.get("/jobs").text.split(f'<tr id="job-{job.id}">')[1].split("</tr>")[0]


def test_who_has_no_jobs_learns_how_to_begin(client: TestClient, callers: Callers) -> None:
    text = callers.submitter().get("/jobs").text
    assert 'href="/new">Upload a model' in text
    assert "onnx-bisect submit model.onnx --server http://service.test" in text
    assert "http://service.test/v1/jobs" in text
    assert "Upload a model" not in client.get("/jobs").text  # a reader cannot
    assert "No job matches" in client.get("/jobs?text=net").text


def test_every_backend_that_is_offered_can_be_asked_for_when_all_jobs_have_ended(
    client: TestClient, service: Service
) -> None:
    done(service, report_on())
    with service.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="host-1", backends=("offered",), slots=1))
    assert "<option>offered</option>" in client.get("/jobs").text


def test_a_job_is_shown_with_its_verdict_and_its_culprits(client: TestClient, service: Service) -> None:
    job = done(service, refusing_exp(), refusing_exp(), report_on(), labels={"repo": "net"}, priority=-3)
    text = row(client, job)
    assert f'href="/jobs/{job.id}"' in text
    assert "Does not compile" in text
    assert re.search("<b>2</b> <code>Exp</code> <span[^>]*>\N{MULTIPLICATION SIGN}2<", text)
    assert re.findall(r'class="target (\w+)"', text) == ["fail", "fail", "pass"]
    assert "priority -3" in text
    assert 'href="/jobs?label=repo%3Anet"' in text


def test_a_job_that_runs_says_how_far_it_is(client: TestClient, service: Service) -> None:
    job = running(service)
    answer(service.database, claimed(service.database))
    assert re.search(r'1 <span class="dim">of about 6</span><progress max="6" value="1"', row(client, job))
    assert '<noscript><meta http-equiv="refresh"' in client.get("/jobs").text
    service.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
    assert "Cancelled" in row(client, job)
    assert "http-equiv" not in client.get("/jobs").text


def test_jobs_are_found_by_the_name_of_the_model_as_it_is_written(client: TestClient, service: Service) -> None:
    for name in ("Net_50%.onnx", "net_500.onnx", "netx50.onnx"):
        named(service, name)
    assert models(client, text="NET_50") == ["net_500.onnx", "Net_50%.onnx"]
    assert models(client, text="50%") == ["Net_50%.onnx"]
    assert models(client, text="t_5") == ["net_500.onnx", "Net_50%.onnx"]
    assert models(client, text="/") == models(client, text="\\") == []


def test_jobs_are_found_by_what_else_is_known_of_them(client: TestClient, service: Service) -> None:
    failing = done(service, refusing_exp(), labels={"repo": "net", "ref": "a=b:c"})
    waiting = named(service, "waits.onnx", "vela", labels={"repo": "net"})
    named(service, "other.onnx", tenant="stranger")
    assert models(client) == ["waits.onnx", "net.onnx"]
    assert models(client, state="fail") == ["net.onnx"]
    assert models(client, state="queued") == ["waits.onnx"]
    assert models(client, state="pass") == []
    assert models(client, target="vela") == ["waits.onnx"]
    assert models(client, label="repo:net") == ["waits.onnx", "net.onnx"]
    assert models(client, label=["repo=net", "ref:a=b:c", ""]) == ["net.onnx"]
    assert models(client, text=failing.model_sha256[:12].upper()) == ["net.onnx"]
    assert models(client, text=waiting.id) == ["waits.onnx"]
    # As a form sends it of which nothing is filled in.
    assert models(client, text="", state="", target="", label="") == ["waits.onnx", "net.onnx"]


def test_filters_are_kept_and_taken_away_one_by_one(client: TestClient, service: Service) -> None:
    named(service, "net.onnx", labels={"repo": "net", "branch": "main"})
    text = client.get("/jobs", params={"label": ["repo:net", "branch:main"], "state": "queued", "text": 'a"b'}).text
    assert '<option value="queued" selected>' in text
    assert 'value="a&#34;b"' in text
    assert 'type="hidden" name="label" value="branch:main"' in text
    assert 'href="/jobs?text=a%22b&amp;state=queued&amp;label=branch%3Amain"' in text


def test_a_label_that_is_none_is_said_beside_the_field(client: TestClient, service: Service) -> None:
    named(service, "net.onnx")
    text = client.get("/jobs?label=net").text
    assert "A label is written as name:value" in text
    assert 'value="net" placeholder="repo:net" maxlength="400" aria-invalid="true"' in text


def test_jobs_come_in_pages_that_keep_the_filters(client: TestClient, service: Service) -> None:
    for number in range(3):
        named(service, f"net{number}.onnx", labels={"repo": "net"})
    first = client.get("/jobs?limit=2&label=repo:net").text
    onward = re.search('rel="next" href="([^"]+)"', first)
    assert onward is not None
    address = onward[1].replace("&amp;", "&")
    assert "label=repo" in address
    rest = client.get(address).text
    assert "net0.onnx" in rest
    assert "net1.onnx" not in rest
    assert 'rel="next"' not in rest


def test_two_ticked_jobs_are_compared_the_older_one_first(client: TestClient, service: Service) -> None:
    older, newer = named(service, "a.onnx").id, named(service, "b.onnx").id
    answered = client.get("/jobs/compare", params={"job": [newer, older]}, follow_redirects=False)
    assert (answered.status_code, answered.headers["location"]) == (303, f"/compare?a={older}&b={newer}")
    alone = client.get("/jobs/compare", params={"job": [newer]})
    assert (alone.status_code, "Tick two jobs" in alone.text) == (422, True)


def test_names_are_text(client: TestClient, service: Service) -> None:
    named(service, "<img src=x onerror=alert(1)>\u202e.onnx", labels={"repo": "<script>"})
    text = client.get("/jobs").text
    assert "&lt;img src=x onerror" in text
    assert "\\u202e" in text
    assert "<script>" not in text.replace('<script src="', "")


# In a browser.


def test_the_list_follows_a_job_to_its_end_and_keeps_ticks_and_focus(look: Look, installation: Installation) -> None:
    with installation.client() as client:
        model = client.put("/v1/models?name=followed.onnx", content=model_bytes.model(b"no model at all")).json()[
            "sha256"
        ]
        page = look("/jobs?text=followed.onnx")
        assert page.get_by_text("No job matches").is_visible()
        terms = {"model": model, "targets": [{"backend": "vela"}]}
        first = client.post("/v1/jobs", json=terms).json()["id"]
        page = look("/jobs?text=followed.onnx")
        tick = page.locator(f"#tick-{first}")
        tick.check()
        assert page.get_by_role("button", name="Compare two").is_disabled()
        other = client.post("/v1/jobs", json=terms).json()["id"]
        client.post(f"/v1/jobs/{first}/cancel")
        page.locator(f"#tick-{other}").wait_for()  # nobody reloads the page
        page.locator(f"#job-{first}").get_by_text(re.compile("Cancelled|No answer")).wait_for()
        assert tick.is_checked()
        assert tick.evaluate("it => it === document.activeElement")
        page.locator(f"#tick-{other}").check()
        with page.expect_request(re.compile(r"/compare\?a=")) as asked:
            page.get_by_role("button", name="Compare two").click()
    assert asked.value.url.endswith(f"/compare?a={first}&b={other}")
