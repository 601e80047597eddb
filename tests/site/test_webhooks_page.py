"""Webhooks on a page: secrets that are shown once, and what came of each message."""

import re

import pytest
from starlette.testclient import TestClient

from onnxbisect_db import deliveries, notices
from onnxbisect_db.deliveries import Try
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.fixtures import Notified

URL = "https://hooks.example.com/a?b=<c>"


@pytest.fixture
def client(callers: Callers) -> TestClient:
    client = callers.admin()
    client.headers["accept"] = "text/html"
    client.follow_redirects = False
    return client


def made(client: TestClient, url: str = URL) -> tuple[str, str]:
    """A webhook's id, and its secret as the page shows it."""
    answer = client.post("/webhooks", data={"url": url, "events": ["job.failed"]})
    assert answer.status_code == 200, answer.text
    return client.get("/v1/webhooks").json()[0]["id"], secret(answer.text)


def secret(text: str) -> str:
    found = re.search(r"data-copy>(whsec_[^<]+)<", text)
    assert found is not None
    return found[1]


def tried(service: Service, came: Try) -> str:
    """What came of the message that is due, and its id."""
    with service.database.transaction() as session:
        sending = deliveries.claim(session, seconds=30)
        assert sending is not None
        assert deliveries.record(session, sending, came)
    return sending.delivery.id


def test_a_secret_is_shown_once(client: TestClient) -> None:
    webhook, first = made(client)
    page = client.get(f"/webhooks/{webhook}").text
    assert first not in page + client.get("/webhooks").text
    assert "hooks.example.com/a?b=&lt;c&gt;" in page
    second = secret(client.post(f"/webhooks/{webhook}/rotate").text)
    assert second != first
    assert "Signed with two secrets" in client.get(f"/webhooks/{webhook}").text
    client.post(f"/webhooks/{webhook}/retire")
    after = client.get(f"/webhooks/{webhook}").text
    assert "Signed with one secret" in after
    assert second not in after


@pytest.mark.parametrize(
    ("url", "says"),
    [("http://169.254.169.254/meta", "public"), ("", "URL"), ("https://a.example/" + "x" * 2000, "2000")],
)
def test_what_cannot_be_told_anything_is_said_beside_the_field(client: TestClient, url: str, says: str) -> None:
    answer = client.post("/webhooks", data={"url": url})
    assert answer.status_code == 422
    found = re.search('id="complaint" role="alert">([^<]*)<', answer.text)
    assert found is not None
    assert says in found[1]
    assert client.get("/v1/webhooks").json() == []


def test_every_try_is_shown_with_what_was_answered_as_text(
    client: TestClient, service: Service, notified: Notified
) -> None:
    webhook, _ = made(client)
    answer = client.post(f"/webhooks/{webhook}/ping")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/webhooks/{webhook}")
    assert notified == [{notices.WEBHOOKS}]
    assert "not tried yet" in client.get(f"/webhooks/{webhook}").text
    failed = Try(status=500, milliseconds=12, answer="<script>alert(1)</script>\x1b[2J")
    message = tried(service, failed)
    page = client.get(f"/webhooks/{webhook}").text
    assert "Status 500 after 12 ms" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J" in page
    assert "<script>alert" not in page
    assert "Tried next at" in page
    assert "failing" in page
    again = client.post(f"/deliveries/{message}/redeliver")
    assert again.headers["location"].startswith(f"/webhooks/{webhook}#delivery-")
    assert notified.count(frozenset({notices.WEBHOOKS})) == 2
    tried(service, Try(status=200, milliseconds=3))
    page = client.get(f"/webhooks/{webhook}").text
    assert "2 tries" in page
    assert "delivered" in page
    assert "in use" in page


def test_a_disabled_webhook_says_why_and_is_used_again(
    client: TestClient, service: Service, notified: Notified
) -> None:
    webhook, _ = made(client)
    client.post(f"/webhooks/{webhook}/ping")
    tried(service, Try(status=410, milliseconds=1))
    assert "it answered 410 Gone" in client.get("/webhooks").text
    client.post(f"/webhooks/{webhook}/enable")
    assert "410 Gone" not in client.get("/webhooks").text


def test_a_webhook_of_a_chat_shows_no_secret_and_makes_none(client: TestClient) -> None:
    fields = {"url": URL, "format": "feishu", "secret": " demo "}
    answer = client.post("/webhooks", data=fields)
    assert (answer.status_code, "whsec_" in answer.text, "demo" in answer.text) == (200, False, False)
    webhook = client.get("/v1/webhooks").json()[0]
    page = client.get(f"/webhooks/{webhook['id']}").text
    assert "Messages are those of Feishu or Lark, signed with the secret of its robot" in page
    assert "New secret" not in page
    wrong = client.post("/webhooks", data={**fields, "format": "slack"})
    assert wrong.status_code == 422
    assert "only robots of Feishu" in wrong.text
    assert '<option value="slack" selected>' in wrong.text
    assert "demo" not in wrong.text


def test_a_deleted_webhook_is_gone(client: TestClient) -> None:
    webhook, _ = made(client)
    assert client.post(f"/webhooks/{webhook}/delete").headers["location"] == "/webhooks"
    assert client.get("/v1/webhooks").json() == []
    assert client.get(f"/webhooks/{webhook}").status_code == 404


def test_messages_come_in_pages(client: TestClient) -> None:
    webhook, _ = made(client)
    for _ in range(3):
        client.post(f"/webhooks/{webhook}/ping")
    first = client.get(f"/webhooks/{webhook}?limit=2").text
    onward = re.search('rel="next" href="([^"]+)"', first)
    assert onward is not None
    rest = client.get(onward[1].replace("&amp;", "&")).text
    assert (first.count('<details class="card message"'), rest.count('<details class="card message"')) == (2, 1)


def test_it_is_for_admins(callers: Callers) -> None:
    client = callers.submitter()
    for answer in (client.get("/webhooks", headers={"accept": "text/html"}), client.post("/webhooks", data={})):
        assert answer.status_code == 403
        assert "admin" in answer.text
