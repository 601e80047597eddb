"""Culprits on pages: what costs us most, what versions changed, and where one of them occurs."""

import re
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect
from starlette.testclient import TestClient

from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import NET, done, refusing_exp, report_on
from support.engine.report_factory import single
from support.site.browser import Installation, log_in, serving
from support.site.scenery import NET as PROMPT_ENCODER
from support.site.scenery import ended, submit
from support.worker.process_tree import within


@pytest.fixture
def client(callers: Callers) -> TestClient:
    client = callers.submitter()
    client.headers["accept"] = "text/html"
    client.follow_redirects = False
    return client


def test_the_culprit_that_cost_the_most_comes_first(client: TestClient, service: Service) -> None:
    assert "No job has found a culprit yet." in client.get("/culprits").text
    done(service, report_on(single(NET, [2], "no Tanh"), single(NET, [1], "no Exp")))
    done(service, refusing_exp())
    page = client.get("/culprits").text
    assert page.index(">Exp<") < page.index(">Tanh<")
    assert ">Exp<" not in client.get("/culprits?text=tanh&state=&target=npu0").text
    assert "No culprit matches." in client.get("/culprits?state=fixed").text


def test_one_op_is_one_row_with_its_variants_inside(client: TestClient, service: Service) -> None:
    done(service, report_on(single(NET, [2], "no Tanh"), single(NET, [1], "no Exp")))
    done(service, report_on(single(NET, [1], "Exp of rank 6 is too much")))
    page = client.get("/culprits").text
    assert "2 ops with 3 culprits" in page
    row = page.split('<tr><th scope="row"><code>Exp</code>')[1].split("</tr>")[0]
    assert "2 variants" in row
    said = re.findall('<a href="/culprits/[^"]+">([^<]*)</a>', row)
    assert sorted(said) == ["Exp of rank 6 is too much", "no Exp"]
    assert page.count("no Exp") == 1


def test_variants_that_are_refused_alike_say_what_tells_them_apart(client: TestClient, service: Service) -> None:
    for axis in ("0", "2"):
        document = report_on(single(NET, [1], "no Exp"))
        (culprit,) = document["culprits"]
        culprit["id"] = f"{culprit['id']}-{axis}"
        culprit["variant"] = [
            {"what": "input 1", "value": f"constant int64 = {axis}"},
            {"what": "a <b>", "value": None},
        ]
        done(service, document)
    page = client.get("/culprits").text
    shown = re.findall('<a href="(/culprits/[^"]+)">(input 1[^<]*)</a>', page)
    assert sorted(said for _, said in shown) == [
        f"input 1: constant int64 = {axis}; a &lt;b&gt;: absent" for axis in "02"
    ]
    assert "input 1: constant int64 = " in client.get(shown[0][0]).text


def test_one_that_is_known_is_marked_on_its_page(client: TestClient, service: Service) -> None:
    done(service, refusing_exp(), labels={"repo": "<b>net</b>"})
    address = re.findall('href="(/culprits/[^"]+)"', client.get("/culprits").text)[0]
    page = client.get(address).text
    assert "&lt;b&gt;net&lt;/b&gt;" in page
    assert "no Exp" in page
    assert f"/v1{address}/model.onnx" in page
    answer = client.post(address, data={"state": "known"})
    assert (answer.status_code, answer.headers["location"]) == (303, address)
    assert "Reopen" in client.get(address).text


@pytest.mark.browser
@pytest.mark.long
def test_what_a_new_version_fixed_and_broke_is_seen(chromium: Browser, tmp_path: Path) -> None:
    """The compiler of the service is updated: its second version takes Sin and refuses Cos."""
    told = {"ONNXBISECT_COMPILER_ENV": "SIMULATED_VERSION"}
    with serving(tmp_path, **told, SIMULATED_VERSION="1") as installation, installation.client() as client:
        ended(client, submit(client, PROMPT_ENCODER, ("versioned", {})))
    with serving(tmp_path, **told, SIMULATED_VERSION="2") as installation, installation.client() as client:
        ended(client, submit(client, PROMPT_ENCODER, ("versioned", {})))
        assert within(120, lambda: fixed(client) == [["Sin"]])
        look(chromium, installation)


def fixed(client: httpx2.Client) -> list[list[str]]:
    return [each["ops"] for each in client.get("/v1/culprits?state=fixed").json()]


def look(chromium: Browser, installation: Installation) -> None:
    context = chromium.new_context(base_url=installation.url)
    log_in(context, installation.url, installation.token)
    page = context.new_page()
    page.goto("/jobs")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Culprits").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="simulated 2"))
    expect(row.get_by_role("cell").nth(0)).to_have_text("Sin")
    expect(row.get_by_role("cell").nth(1)).to_have_text("Cos")
    row.get_by_role("link", name="Sin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sin fixed")
    says = page.get_by_role("table").get_by_role("row")
    expect(says.nth(1)).to_contain_text("pass")
    expect(says.nth(2)).to_contain_text("fail")
    context.close()
