"""Precision on the page of its job: under way, ended in each way; and in a browser."""

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
from support.api.given import measured, precision_document, to_measure
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
