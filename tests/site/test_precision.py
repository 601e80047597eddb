"""Precision on the page of its job: under way, ended in each way; and in a browser."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from starlette.testclient import TestClient

from onnxbisect_db import measurements, searches
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import measured, precision_document, to_measure, uploaded
from support.db.scenes import take
from support.precision import planted_pair
from support.site import hostile
from support.site.browser import Installation, Look


def page_of(client: TestClient, job: Job, language: str = "en") -> str:
    answered = client.get(f"/jobs/{job.id}", headers={"accept": "text/html", "accept-language": language})
    assert answered.status_code == 200
    return answered.text


def section(text: str) -> str:
    return text[text.index('<section id="precision"') :].partition("</section>")[0]


def test_each_node_is_shown_with_why_and_what_to_do(callers: Callers, service: Service) -> None:
    job = measured(service, precision_document())
    shown = section(page_of(callers.reader(), job))
    assert "1 node of 6 has to stay in high precision for sqnr of at least 30.0 dB" in shown
    assert "<code>Mul</code>" in shown
    assert "Channel 5 of &#39;Mul&#39; reaches 317." in shown
    assert "fold the scale of &#39;Mul&#39; into that of &#39;Div&#39;" in shown
    url = f"/v1/jobs/{job.id}/precision"
    for name in ("precision.json", "precision.md", "pulsar2.json", "tpu_mlir.qtable"):
        assert f'href="{url}/{name}?target=1"' in shown
    assert f'src="{url}/precision.svg?target=1"' in shown


def test_it_is_in_chinese(callers: Callers, service: Service) -> None:
    shown = section(page_of(callers.reader(), measured(service, precision_document()), "zh"))
    assert "精度" in shown
    assert "What to do" not in shown


def test_names_are_text(callers: Callers, service: Service) -> None:
    shown = section(page_of(callers.reader(), measured(service, precision_document(hostile.LINE))))
    assert "<img src=x" not in shown
    assert "&lt;img" in shown


@pytest.mark.parametrize("wrong", [{"members": 5}, {"ending": "<b>"}, {"members": [{"node": 1}]}])
def test_a_document_of_a_process_that_was_taken_over_breaks_nothing(
    callers: Callers, service: Service, wrong: dict[str, Any]
) -> None:
    job = measured(service, precision_document())
    broken = service.files.put([json.dumps({**precision_document(), **wrong}).encode()]).sha256
    with service.database.transaction() as session:
        search = session.get_one(type(job.searches[0]), job.searches[0].id)
        search.files = {**search.files, "precision/precision.json": broken}
    assert '<section id="precision"' not in page_of(callers.reader(), job)


def test_under_way_it_shows_what_was_measured(callers: Callers, service: Service) -> None:
    job = to_measure(service)
    claimed = take(service.database, job.searches[0].id, Stage.PRECISION)
    one = MeasuredSet(
        arithmetic="npu", keep=("a", "b"), work=0.1, value=14.4, shown="14.4 dB", why="without one member"
    )
    service.database.run(lambda session: measurements.add(session, claimed, "q", one))
    shown = section(page_of(callers.reader(), job))
    assert "<b>1 ask</b>" in shown
    assert "14.4 dB" in shown
    assert "without one member" in shown


def test_one_that_failed_says_why_and_can_be_retried(callers: Callers, service: Service) -> None:
    job = to_measure(service)
    claimed = take(service.database, job.searches[0].id, Stage.PRECISION)
    service.database.run(lambda session: searches.fail(session, claimed, "It does not run <it>."))
    text = page_of(callers.submitter(), job)
    assert "It does not run &lt;it&gt;." in section(text)
    assert f'action="/jobs/{job.id}/retry"' in text


ORIGIN = {"origin": "http://service.test"}


def sent(client: TestClient, samples: dict[str, bytes], **fields: str) -> Any:
    """What a browser sends for a form with samples."""
    texts = {"backend": "onnxruntime", "precision_metric": "sqnr", **fields}
    files = [("calibration", (name, content)) for name, content in (samples or {"": b""}).items()]
    parts = [("model", ("", b"")), *files, *((name, (None, text.encode())) for name, text in texts.items())]
    return client.post("/new", files=parts, headers=ORIGIN, follow_redirects=False)


def request_of(client: TestClient, made: Any) -> Any:
    assert made.status_code == 303, made.text
    return client.get(f"/v1{made.headers['location']}").json()["request"]


def test_the_form_asks_for_precision_on_samples(callers: Callers, service: Service) -> None:
    client, model = callers.submitter(), uploaded(service)
    low = {"model": model, "precision_low": "int8"}
    request = request_of(client, sent(client, {"0.npz": b"zero", "1.npz": b"one"}, precision_at_least="25", **low))
    assert request["precision"] == {"low": "int8", "metric": "sqnr", "at_least": 25.0}
    assert request["calibration"] == {
        name: hashlib.sha256(it).hexdigest() for name, it in {"0.npz": b"zero", "1.npz": b"one"}.items()
    }
    most = sent(client, {"0.npz": b"zero"}, precision_metric="maxabs", precision_at_least="0.5", **low)
    assert request_of(client, most)["precision"] == {"low": "int8", "metric": "maxabs", "at_most": 0.5}
    none = request_of(client, sent(client, {"0.npz": b"zero"}, model=model, precision_low=""))
    assert ("precision" in none, list(none["calibration"])) == (False, ["0.npz"])


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"precision_metric": "maxabs"}, "precision_at_least", "Say what maxabs may be at most."),
        ({"precision_metric": "psnr"}, "precision_metric", "There is no metric"),
        ({"precision_low": "int4"}, "precision_low", "int8"),
        ({"precision_at_least": "much"}, "precision_at_least", "This must be a number"),
        ({"precision_metric": "maxabs", "precision_at_least": "much"}, "precision_at_least", "This must be a number"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_samples_are_not_lost(
    callers: Callers, service: Service, fields: dict[str, str], field: str, sentence: str
) -> None:
    client = callers.submitter()
    wrong = sent(client, {"0.npz": b"zero"}, **{"model": uploaded(service), "precision_low": "int8", **fields})
    assert wrong.status_code == 422
    assert sentence in wrong.text.partition(f'id="wrong-{field}"')[2][:300]
    kept = re.findall('name="sample" value="([^"]*)"', wrong.text)
    assert kept == [f"{hashlib.sha256(b'zero').hexdigest()}:0.npz"]
    assert "1 sample uploaded." in wrong.text
    again = sent(client, {}, model=uploaded(service), precision_low="int8", sample=kept[0])
    assert list(request_of(client, again)["calibration"]) == ["0.npz"]


def test_without_samples_or_with_ones_of_another_tenant_nothing_is_made(callers: Callers, service: Service) -> None:
    client, low = callers.submitter(), {"model": uploaded(service), "precision_low": "int8"}
    none = sent(client, {}, **low)
    assert "found on samples of the inputs" in none.text.partition('id="wrong-calibration"')[2][:300]
    alien = service.files.put([b"another's"]).sha256
    refused = sent(client, {}, sample=f"{alien}:0.npz", **low)
    assert (refused.status_code, f"There is no file {alien}" in refused.text) == (422, True)
    named = sent(client, {"../0.npz": b"zero"}, **low)
    assert named.status_code == 422
    assert 'id="wrong-calibration"' in named.text


def test_a_repeated_job_keeps_its_precision_and_samples(callers: Callers, service: Service) -> None:
    client, model = callers.submitter(), uploaded(service)
    sample = client.put("/v1/files", content=b"zero").json()["sha256"]
    wanted = {
        "model": model,
        "targets": [{"backend": "onnxruntime"}],
        "calibration": {"0.npz": sample},
        "precision": {"metric": "maxabs", "at_most": 0.5, "budget": {"calls": 9}},
    }
    job = client.post("/v1/jobs", json=wanted).json()
    page = client.get(f"/new?job={job['id']}", headers={"accept": "text/html"}).text
    assert re.search(r"<option selected>int8</option>", page)
    assert re.search(r"<option selected>maxabs</option>", page)
    assert re.search(r'name="precision_at_least"[^>]* value="0.5"', page)
    fields = {"model": model, "again": job["id"], "precision_low": "int8", "precision_metric": "maxabs"}
    request = request_of(client, sent(client, {}, precision_at_least="0.25", **fields))
    assert request["precision"] == {"low": "int8", "metric": "maxabs", "at_most": 0.25, "budget": {"calls": 9}}
    assert request["calibration"] == {"0.npz": sample}


@pytest.mark.parametrize(
    ("width", "language", "scripts"), [(1280, "en", True), (390, "zh-CN", True), (1280, "en", False)]
)
def test_the_form_finds_a_pair(look: Look, tmp_path: Path, width: int, language: str, scripts: bool) -> None:
    page = look("/new", width=width, scripts=scripts, locale=language)
    model, chinese = planted_pair(tmp_path), language == "zh-CN"
    page.locator("#file").set_input_files(model)
    page.get_by_role("checkbox", name=re.compile("^onnxruntime ")).check()
    page.get_by_label("找出必须保持高精度的节点" if chinese else "Find the nodes that must stay precise").select_option(
        "int8"
    )
    page.get_by_label("达到多少即可" if chinese else "Enough is").fill("25")
    page.get_by_label("输入样本" if chinese else "Samples of the inputs").set_input_files(
        sorted((tmp_path / "samples").iterdir())
    )
    if scripts:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#submit").click()
    page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}"))
    precision = page.locator("section#precision")
    for _ in range(0 if scripts else 60):  # without scripts, it is looked at again
        if precision.locator("table.precise").count():
            break
        page.wait_for_timeout(1000)
        page.reload()
    expect(precision.locator("table.precise tbody tr")).to_have_count(2)
    if scripts:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_pair_is_found_and_shown(installation: Installation, look: Look, tmp_path: Path, width: int) -> None:
    model = planted_pair(tmp_path)
    with installation.client() as client:
        samples = {
            path.name: client.put("/v1/files", content=path.read_bytes()).json()["sha256"]
            for path in (tmp_path / "samples").iterdir()
        }
        sent = client.put("/v1/models", params={"name": "net.onnx"}, content=model.read_bytes()).json()["sha256"]
        wanted = {
            "model": sent,
            "targets": [{"backend": "onnxruntime"}],
            "calibration": samples,
            "precision": {"at_least": 25},
        }
        job = client.post("/v1/jobs", json=wanted).json()
    page = look(f"/jobs/{job['id']}", width=width)
    precision = page.locator("section#precision")
    expect(precision.locator("table.precise tbody tr")).to_have_count(2)
    expect(precision.locator(".sentence")).to_contain_text("2 nodes of 9 have to stay in high precision")
    picture = precision.get_by_role("img", name=re.compile("The metric of each measurement"))
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("complete", True)
    assert picture.evaluate("it => it.naturalWidth") > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    with page.expect_download() as downloaded:
        precision.get_by_role("link", name="tpu_mlir.qtable").click()
    assert "F16" in downloaded.value.path().read_text()
