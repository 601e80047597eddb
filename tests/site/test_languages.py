"""Who reads the page in which language."""

import json

import pytest
from starlette.testclient import TestClient

from onnxbisect.language import CHINESE, within
from onnxbisect_api.site.rendering import messages
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import done, report_on
from support.site.text import english_left

OWN = {"accept": "text/html", "origin": "http://service.test"}


@pytest.fixture
def client(callers: Callers) -> TestClient:
    client = callers.submitter()
    client.headers.update(OWN)
    return client


@pytest.mark.parametrize(
    ("accepted", "shown"), [("zh-CN,zh;q=0.9,en;q=0.8", "zh-CN"), ("en-GB,zh;q=0.5", "en"), ("fr", "en"), ("", "en")]
)
def test_a_browser_gets_the_language_that_it_prefers(client: TestClient, accepted: str, shown: str) -> None:
    assert f'<html lang="{shown}">' in client.get("/new", headers={"accept-language": accepted}).text


def test_a_reader_chooses_another_language_and_stays_where_they_are(client: TestClient) -> None:
    client.headers["accept-language"] = "zh"
    assert 'lang="en">English</button>' in client.get("/jobs?text=net").text
    answer = client.post("/language", data={"language": "en", "next": "/jobs?text=net"}, follow_redirects=False)
    assert answer.headers["location"] == "/jobs?text=net"
    assert '<html lang="en">' in client.get("/jobs").text
    client.post("/language", data={"language": "zh_CN"})
    assert '<html lang="zh-CN">' in client.get("/jobs").text


@pytest.mark.parametrize("onward", ["https://evil.test", "//evil.test", "/\\evil.test", "/%2f%2fevil.test"])
def test_the_choice_leads_to_no_other_site(client: TestClient, onward: str) -> None:
    answer = client.post("/language", data={"language": "zh", "next": onward}, follow_redirects=False)
    assert "evil.test" not in answer.headers["location"] or answer.headers["location"].startswith("/%2f") is False


def test_an_unknown_language_is_that_of_the_browser_and_other_sites_cannot_choose(client: TestClient) -> None:
    client.post("/language", data={"language": "tlh"})
    assert '<html lang="en">' in client.get("/jobs").text
    refused = client.post("/language", data={"language": "zh"}, headers={"origin": "https://evil.test"})
    assert refused.status_code == 403


def test_mistakes_and_reports_are_chinese_and_what_programs_get_is_english(
    client: TestClient, service: Service
) -> None:
    job = done(service, report_on())
    client.headers["accept-language"] = "zh"
    wrong = client.post("/new", data={"input_shapes": "x"})
    assert wrong.status_code == 422
    assert "请选择模型。" in wrong.text
    assert "形状单独写一行" in wrong.text
    assert "/language" not in wrong.text  # what is typed would be lost
    shown = client.get(f"/jobs/{job.id}").text
    assert "未找到" in client.get("/jobs/00000000-0000-7000-8000-000000000000").text
    assert "问题算子" in shown
    assert "No such" not in client.get("/v1/jobs/00000000-0000-7000-8000-000000000000").text
    assert client.get(f"/v1/jobs/{job.id}/report?format=json").text.isascii()
    assert "编译通过" in client.get(f"/v1/jobs/{job.id}/report?format=md").text
    assert not list(english_left(client.get("/new").text))


def test_scripts_find_each_of_their_messages_in_the_page(client: TestClient) -> None:
    with within(CHINESE):
        said = messages()
    assert len(said) > 40
    assert not [message for message, translation in said.items() if message == translation and message.isascii()]
    assert 'id="messages"' not in client.get("/jobs").text
    page = client.get("/jobs", headers={"accept-language": "zh"}).text
    assert json.loads(page.split('id="messages">')[1].split("<")[0]) == said
