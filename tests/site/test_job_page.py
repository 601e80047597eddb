"""The page of a job: waiting, running, ended in each way; and in a browser, from the first question to the report."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from starlette.testclient import TestClient

from onnxbisect_api.routes.events import Watch
from onnxbisect_db import lifecycle, searches, workers
from onnxbisect_db.states import Fault, Scope, Stage
from onnxbisect_db.tables import Job
from onnxbisect_db.workers import Presence
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import done, finish, refusing_exp, report_on, running, uploaded
from support.api.live import served
from support.db.scenes import FAIL, PASS, answer, asks, claimed, new_job, plan, prepare, read, take
from support.site.browser import Installation, Look, log_in

CHAIN = Path(__file__).parents[1] / "cases" / "c2_chain100_3bad.onnx"
#: `watched(job, query="", cut=False)`: a page, whose stream may be cut.
Watched = Callable[..., Page]
EXP = {"ops": ["Exp"], "nodes": ["n1"], "size": 1, "units": "1", "places": "1,3", "certainty": "confirmed"}


def page_of(client: TestClient, job: Job, query: str = "") -> str:
    answered = client.get(f"/jobs/{job.id}{query}", headers={"accept": "text/html"})
    assert answered.status_code == 200
    return answered.text


def universe(service: Service, names: list[str]) -> str:
    """A stored universe as far as pages read it."""
    stored = {"universe": {"names": [[name] for name in names], "op": ["Relu"] * len(names)}}
    return service.files.put([json.dumps(stored).encode()]).sha256


def asking(service: Service, names: list[str], *questions: int, **found: Any) -> Job:
    """A job whose model has units of these names, and is asked about."""
    job = new_job(service.database, "npu", model_sha256=uploaded(service))
    prepared(service, job, names)
    plan(service.database, job.searches[0].id, asks(questions), **found)
    return job


def prepared(service: Service, job: Job, names: list[str]) -> None:
    """The model is read."""
    claimed = take(service.database, job.searches[0].id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.store_prepared(
            session,
            claimed,
            identity="c" * 64,
            tool="npucc",
            version="7",
            universe=universe(service, names),
            units=len(names),
        )


def present(service: Service) -> None:
    """A worker with the compiler."""
    with service.database.transaction() as session:
        workers.record_heartbeat(session, Presence(id="gpu-host", backends=("npu",), slots=2))


def fail(service: Service, job: Job, problem: str, fault: Fault) -> None:
    claimed = take(service.database, job.searches[0].id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.fail(session, claimed, problem, fault)


def test_a_sentence_that_begins_with_a_file_s_name_keeps_it(callers: Callers, service: Service) -> None:
    job = new_job(service.database, "npu")
    fail(service, job, "bad.onnx is not an ONNX model", Fault.REQUEST)
    assert "bad.onnx is not an ONNX model." in page_of(callers.reader(), job)


def test_a_job_that_waits_says_what_for(callers: Callers, service: Service) -> None:
    job = new_job(service.database, "npu", labels={"branch": "main"})
    text = page_of(callers.reader(), job)
    assert "No worker with the backend &#39;npu&#39; is there now" in text
    assert 'href="/jobs?label=branch%3Amain"' in text
    present(service)
    assert "It waits for a worker that is free." in page_of(callers.reader(), job)


def test_a_job_that_waits_says_how_many_of_its_tenant_come_first(callers: Callers, service: Service) -> None:
    present(service)
    first = new_job(service.database, "npu")
    take(service.database, first.searches[0].id, Stage.PREPARE)
    later = [new_job(service.database, "npu") for _ in range(2)]
    new_job(service.database, "another")
    urgent = new_job(service.database, "npu", priority=5)
    assert "It waits behind 3 other jobs with this backend." in page_of(callers.reader(), later[1])
    assert "It waits behind 1 other job with this backend." in page_of(callers.reader(), urgent)


def test_a_job_that_runs_says_how_far_it_is_without_scripts(callers: Callers, service: Service) -> None:
    job = asking(service, ["a", "b", "c", "d"], 0b0101, 0b1111, first=EXP)
    present(service)
    answer(service.database, claimed(service.database), PASS)
    claimed(service.database, worker="gpu-host")
    text = page_of(callers.reader(), job)
    assert "1 culprit found so far." in text
    assert "1 compiler call</b>, about 5 to go" in text
    assert "gpu-host" in text
    assert "<b>4 units</b>" in text
    assert '<meta http-equiv="refresh" content="5">' in text
    assert [text.count(f'class="u {state}" x') for state in ("culprit", "pass", "unknown")] == [
        3,
        3,
        1,
    ]  # one of each in the legend


def test_only_who_may_submit_is_offered_what_changes_a_job(callers: Callers, service: Service) -> None:
    job = running(service)
    assert "<button" not in page_of(callers.reader(), job).partition("</header>")[2]
    assert f'action="/jobs/{job.id}/cancel"' in page_of(callers.submitter(), job)


def test_a_repair_is_a_new_job_with_the_same_terms(callers: Callers, service: Service) -> None:
    request = {"budget_calls": 30, "input_values": {"sr": 16000}}
    labels = {"repo": "net", "parts": "a", "part": "1"}
    job = done(service, refusing_exp(), backends=["onnxruntime"], request=request, labels=labels)
    client = callers.submitter()
    assert f'action="/jobs/{job.id}/repair"' in page_of(client, job)
    assert f'action="/jobs/{job.id}/repair"' not in page_of(callers.reader(), job)
    answer = client.post(f"/jobs/{job.id}/repair", follow_redirects=False)
    assert answer.status_code == 303, answer.text
    made = client.get(f"/v1{answer.headers['location']}").json()
    assert made["id"] != job.id
    assert (made["model"]["sha256"], made["labels"]) == (job.model_sha256, {"repo": "net"})
    assert [it["backend"] for it in made["targets"]] == [it.backend for it in job.searches]
    assert made["request"]["repair"]["allow"] == "rounding"
    assert (made["request"]["budget_calls"], made["request"]["input_values"]) == (30, {"sr": 16000})
    other = callers.submitter("someone-else").post(f"/jobs/{job.id}/repair", follow_redirects=False)
    assert other.status_code == 404
    assert callers.reader().post(f"/jobs/{job.id}/repair", follow_redirects=False).status_code == 403


def test_a_job_is_cancelled_retried_and_deleted_by_plain_forms(callers: Callers, service: Service) -> None:
    job = running(service)
    client = callers.submitter()
    for action, state in (("cancel", "cancelled"), ("retry", "queued")):
        done = client.post(f"/jobs/{job.id}/{action}", follow_redirects=False)
        assert (done.status_code, done.headers["location"]) == (303, f"/jobs/{job.id}")
        assert read(service.database, job).state == state
    assert client.post(f"/jobs/{job.id}/retry", headers={"accept": "text/html"}).status_code == 409
    gone = client.post(f"/jobs/{job.id}/delete", follow_redirects=False)
    assert (gone.status_code, gone.headers["location"]) == (303, "/jobs")
    missing = client.get(f"/jobs/{job.id}", headers={"accept": "text/html"})
    assert missing.status_code == 404
    assert "There is no such job." in missing.text


def test_a_reader_and_another_tenant_change_nothing(callers: Callers, service: Service) -> None:
    job = running(service)
    assert callers.reader().post(f"/jobs/{job.id}/cancel").status_code == 403
    for action in ("cancel", "retry", "delete"):
        assert callers.submitter("other").post(f"/jobs/{job.id}/{action}").status_code == 404
    assert callers.reader("other").get(f"/jobs/{job.id}").status_code == 404
    assert callers.reader("other").get(f"/jobs/{job.id}/stream?shape=asking").status_code == 404
    assert callers.reader("other").get(f"/v1/jobs/{job.id}/states").status_code == 404
    assert read(service.database, job).state == "running"


@pytest.mark.parametrize(
    ("fault", "advice", "action"),
    [
        (Fault.REQUEST, "Change the model or the request", 'href="/new?job={}"'),
        (Fault.SERVICE, "the service got no answer", 'action="/jobs/{}/retry"'),
    ],
)
def test_a_job_that_failed_says_why_and_whose_it_is(
    callers: Callers, service: Service, fault: Fault, advice: str, action: str
) -> None:
    job = new_job(service.database, "npu")
    fail(service, job, "the input 'x' has no size", fault)
    text = page_of(callers.submitter(), job)
    assert "The input &#39;x&#39; has no size." in text
    assert advice in text
    assert action.format(job.id) in text
    assert (f'action="/jobs/{job.id}/retry"' in text) == (fault is Fault.SERVICE)
    assert "stream" not in text


def test_a_page_names_its_field_where_a_command_line_has_an_option(callers: Callers, service: Service) -> None:
    job = new_job(service.database, "npu")
    fail(service, job, "Bind it, for example with --input-shape x=1,3,224,224.", Fault.REQUEST)
    text = page_of(callers.submitter(), job)
    assert "Bind it, for example with x=1,3,224,224 under Input shapes." in text


def test_a_cancelled_job_offers_to_go_on(callers: Callers, service: Service) -> None:
    job = running(service)
    with service.database.transaction() as session:
        lifecycle.cancel(session, job.id, "")
    text = page_of(callers.submitter(), job)
    assert "It was cancelled after 0 compiler calls." in text
    assert f'action="/jobs/{job.id}/retry"' in text


def test_a_job_that_is_done_shows_its_report_and_asks_for_nothing_more(callers: Callers, service: Service) -> None:
    text = page_of(callers.reader(), done(service, refusing_exp()))
    assert "does not compile" in text
    assert 'id="c1"' in text
    assert "stream" not in text
    assert "refresh" not in text


def test_several_targets_have_a_tab_each_and_an_overview(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp(), report_on(), backends=["npu", "tpu"])
    text = page_of(callers.reader(), job)
    assert "net.onnx compiles for 1 of 2 targets." in text
    for number in (1, 2):
        assert f'href="/jobs/{job.id}?target={number}"' in text
    assert f'href="/v1/jobs/{job.id}/report?format=md"' in text
    assert "Ops by target" in text
    assert "does not compile" in page_of(callers.reader(), job, "?target=1")
    assert callers.reader().get(f"/jobs/{job.id}?target=3").status_code == 404


def test_states_are_what_is_known_so_far_and_then_the_reports(callers: Callers, service: Service) -> None:
    job = asking(service, list("abcdef"), 0b000101, 0b101100, 0b111111, first=EXP)
    client = callers.reader()
    url = f"/v1/jobs/{job.id}/states"
    known = client.get(url).json()
    assert known["states"] == {"culprit": "1,3", "suspected": "", "needs_context": "", "pass": "", "unknown": "0,2,4-5"}
    assert known["culprits"] == [{"number": 1, "units": "1", "places": "1,3", "name": "Exp"}]
    for given in (PASS, PASS, FAIL):
        answer(service.database, claimed(service.database), given)
    known = client.get(url).json()
    assert (known["states"]["pass"], known["states"]["unknown"], known["final"]) == ("0,2,5", "4", False)
    finish(service, job.searches[0].id, refusing_exp())
    last = client.get(url)
    assert last.json()["states"] == refusing_exp()["units"]["states"]
    assert last.json()["final"]
    assert client.get(url, headers={"if-none-match": last.headers["etag"]}).status_code == 304


def test_a_retry_forgets_what_had_passed(callers: Callers, service: Service) -> None:
    job = asking(service, ["a", "b"], 0b11)
    url = f"/v1/jobs/{job.id}/states"
    answer(service.database, claimed(service.database), PASS)
    assert callers.reader().get(url).json()["states"].get("pass") == "0-1"
    client = callers.submitter()
    client.post(f"/jobs/{job.id}/cancel")
    client.post(f"/jobs/{job.id}/retry")
    assert callers.reader().get(url).json() == {
        "units": 0,
        "states": dict.fromkeys(known_words(), ""),
        "culprits": [],
        "final": False,
    }


def known_words() -> tuple[str, ...]:
    return ("culprit", "suspected", "needs_context", "pass", "unknown")


def test_names_of_a_model_are_text(callers: Callers, service: Service) -> None:
    hostile = "<img src=x onerror=alert(1)>\u202e"
    job = asking(
        service, [hostile], 0b1, first={**EXP, "nodes": [hostile], "message": hostile, "ops": [hostile], "places": "0"}
    )
    text = page_of(callers.reader(), job)
    assert "<img" not in text
    assert "\u202e" not in text
    assert text.count("&lt;img src=x") >= 3


@pytest.mark.parametrize("kept", [True, False])
def test_a_page_says_what_it_can_of_a_target_that_has_no_report(callers: Callers, service: Service, kept: bool) -> None:
    """One of two is done; whether the other fails or goes on, neither page is an error."""
    job = new_job(service.database, "npu", "tpu", model_sha256=uploaded(service))
    if not kept:
        fail(service, job, "it died", Fault.SERVICE)
    for query in ("", "?target=1", "?target=2"):
        assert "net.onnx" in page_of(callers.reader(), job, query)
    assert ("It died." in page_of(callers.reader(), job, "?target=1")) is not kept


@pytest.fixture
def watched(callers: Callers, chromium: Browser) -> Iterator[Watched]:
    """Pages before an application whose job a test moves on by hand; whoever leaves goes back to the same address."""
    token = callers.token(Scope.SUBMIT)
    complaints: list[str] = []
    with served(callers.app, token) as client, chromium.new_context(base_url=str(client.base_url)) as context:
        log_in(context, str(client.base_url).rstrip("/"), token)

        def look(job: Job, query: str = "", *, cut: bool = False) -> Page:
            page = context.new_page()

            def complain(said: ConsoleMessage) -> None:
                # that the job itself is not there, or its stream is cut, is told as an error, too
                url = said.location["url"]
                expected = url.endswith(job.id) or (cut and "stream" in url + said.text)
                if said.type == "error" and not expected:
                    complaints.append(said.text)

            page.on("console", complain)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            # what happens before the stream is open is told in another way
            with page.expect_response(lambda response: "/stream" in response.url):
                page.goto(f"/jobs/{job.id}{query}")
            return page

        yield look
        callers.app.state.watch.end()
    assert complaints == []


def test_a_page_follows_its_job_from_reading_to_the_report(
    watched: Watched, callers: Callers, service: Service
) -> None:
    """Nobody loads it again, even where the stream is cut. What somebody has focused or selected stays so, while what
    is around it changes.
    """
    present(service)
    job = new_job(service.database, "npu", model_sha256=uploaded(service))
    page = watched(job)
    expect(page.locator(".badge.queued")).to_be_visible()
    prepared(service, job, ["a", "b", "c", "d"])
    expect(page.locator(".strip .u.unknown")).to_have_count(4)

    plan(service.database, job.searches[0].id, asks([0b0101, 0b1010]))
    first, second = claimed(service.database, worker="gpu-7"), claimed(service.database, worker="gpu-8")
    expect(page.locator("#live")).to_contain_text("gpu-7")
    page.locator("#delete summary").focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    answer(service.database, first, PASS)
    expect(page.locator(".answers .badge.pass")).to_have_count(1)
    expect(page.locator(".strip .u.pass")).to_have_count(2)
    watch: Watch = callers.app.state.watch
    watch.end()
    watch.ended = False  # the service is there again
    answer(service.database, second, FAIL)
    plan(service.database, job.searches[0].id, [], exp=EXP)
    expect(page.get_by_text("1 culprit found so far.")).to_be_visible()
    expect(page.locator(".strip a[href='#c1'] .u.culprit")).to_have_count(2)
    assert page.evaluate("[document.activeElement.textContent, String(getSelection())]") == ["Delete …", "net.onnx"]

    finish(service, job.searches[0].id, refusing_exp())
    expect(page.get_by_role("heading", level=1)).to_contain_text("does not compile")
    expect(page.locator("#c1")).to_be_visible()
    assert page.locator("#stream").count() == 0


def test_a_page_says_that_the_server_is_away_until_it_is_there_again(
    watched: Watched, callers: Callers, service: Service
) -> None:
    page = watched(asking(service, ["a"], 0b1), cut=True)
    page.route("**/stream*", lambda route: route.abort())
    watch: Watch = callers.app.state.watch
    watch.end()
    expect(page.get_by_role("status")).to_contain_text("The server does not answer.")
    watch.ended = False
    page.unroute("**/stream*")
    expect(page.get_by_role("status")).to_be_empty()


_CELLS = """[...document.querySelectorAll(".strip rect")].map(cell =>
    [...["class", "x", "width"].map(name => cell.getAttribute(name)), cell.closest("a")?.getAttribute("href")])"""


@pytest.mark.parametrize("units", [40, 700, 3000])
def test_the_strip_is_recoloured_to_what_a_new_page_would_draw(watched: Watched, service: Service, units: int) -> None:
    """Cells with numbers, cells without, and bars."""
    job = asking(service, [f"n{unit}" for unit in range(units)], (1 << units // 2) - 1)
    page = watched(job)
    expect(page.locator(".strip .u.pass")).to_have_count(0)
    answer(service.database, claimed(service.database), PASS)
    plan(service.database, job.searches[0].id, [], exp={**EXP, "places": "1,3-4,35"})
    expect(page.locator(".strip a .u.culprit")).to_have_count(4)
    assert page.evaluate(_CELLS) == watched(job).evaluate(_CELLS)


def test_a_page_of_a_deleted_job_says_so_but_takes_nothing_from_under_a_finger(
    watched: Watched, callers: Callers, service: Service
) -> None:
    job = asking(service, ["a"], 0b1)
    page = watched(job)
    page.evaluate("document.getElementById('stream').addEventListener('anew', () => document.title = 'told')")
    page.locator("#delete summary").click()
    callers.submitter().delete(f"/v1/jobs/{job.id}")
    expect(page).to_have_title("told")
    expect(page.get_by_role("button", name="Delete it")).to_be_visible()
    page.locator("#delete summary").click()
    expect(page.get_by_text("There is no such job.")).to_be_visible()


def test_a_real_job_is_watched_cancelled_and_retried(installation: Installation, look: Look, tmp_path: Path) -> None:
    """Upload, progress, cancel, retry, report; and who has no scripts sees the same."""
    with installation.client() as client:
        options = {"deny": "Asinh,Cosh", "gate": str(tmp_path)}
        asked = {"targets": [{"backend": "gated", "options": options}]}
        files = {"model": (CHAIN.name, CHAIN.read_bytes())}
        job = client.post("/v1/jobs", data={"job": json.dumps(asked)}, files=files).raise_for_status().json()["id"]
    page = look(f"/jobs/{job}", width=375)
    expect(page.locator(".answers tbody tr")).not_to_have_count(0)
    expect(look(f"/jobs/{job}", scripts=False).locator(".answers tbody tr")).not_to_have_count(0)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#sentence")).to_contain_text("It was cancelled after")
    (tmp_path / "open").touch()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("does not compile")
    expect(page.locator("article.culprit")).to_have_count(2)
    expect(look(f"/jobs/{job}", scripts=False).locator("article.culprit")).to_have_count(2)


def test_a_report_stays_as_it_is_while_other_targets_go_on(watched: Watched, service: Service) -> None:
    """Only the head is brought up to date: who reads is not thrown back."""
    job = new_job(service.database, "npu", "tpu", model_sha256=uploaded(service))
    for search in job.searches:
        prepare(service.database, search.id)
    finish(service, job.searches[0].id, refusing_exp())
    page = watched(job, "?target=1")
    page.evaluate("window.same = true")
    tabs = page.get_by_role("navigation", name="Targets")
    expect(tabs.get_by_title("Running")).to_have_count(1)
    finish(service, job.searches[1].id, report_on())
    expect(tabs.get_by_title("Running")).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    assert page.evaluate("window.same")


def test_a_job_on_one_of_several_models_leads_to_the_table(callers: Callers, service: Service) -> None:
    client = callers.reader()
    part = done(service, refusing_exp(), labels={"parts": "sam", "part": "1"})
    assert 'href="/v1/parts?label=parts%3Asam&amp;format=html"' in page_of(client, part)
    assert client.get("/v1/parts?label=parts%3Asam&format=html").status_code == 200
    assert "/v1/parts" not in page_of(client, done(service, refusing_exp()))
