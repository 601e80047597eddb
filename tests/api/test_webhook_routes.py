"""Webhooks over REST: an endpoint's life, its secrets, and what became of its messages."""

import pytest
from starlette.testclient import TestClient

from onnxbisect_db import deliveries, notices
from onnxbisect_db.deliveries import Try
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.fixtures import Notified

URL = "https://ci.example.com/hook?for=us"


@pytest.fixture
def admin(callers: Callers) -> TestClient:
    return callers.admin("a")


def test_a_secret_is_shown_when_it_is_new(admin: TestClient) -> None:
    made = admin.post("/v1/webhooks", json={"url": URL, "events": ["job.finished"]})
    assert made.status_code == 201
    endpoint = made.json()
    first = endpoint["secret"]
    assert first.startswith("whsec_")
    assert (endpoint["url"], endpoint["events"], endpoint["secrets"]) == (URL, ["job.finished"], 1)
    address = f"/v1/webhooks/{endpoint['id']}"
    turned = admin.post(f"{address}/rotate").json()
    assert turned["secret"] != first
    assert turned["secrets"] == 2
    assert admin.post(f"{address}/retire").json()["secrets"] == 1
    for shown in (admin.get("/v1/webhooks").text, admin.get(address).text):
        assert "whsec_" not in shown
        assert URL in shown
    assert admin.delete(address).status_code == 204
    assert admin.get(address).status_code == 404


def test_a_chats_webhook_has_the_secret_of_its_robot_or_none(admin: TestClient) -> None:
    wanted = {"url": URL, "format": "dingtalk", "secret": "SEC0123"}
    endpoint = admin.post("/v1/webhooks", json=wanted).json()
    assert (endpoint["format"], endpoint["secret"], endpoint["secrets"]) == ("dingtalk", None, 1)
    assert endpoint["events"] == ["culprit.fixed", "culprit.returned", "job.failed", "job.finished"]
    address = f"/v1/webhooks/{endpoint['id']}"
    turned = admin.post(f"{address}/rotate")
    assert (turned.status_code, "made by the chat" in turned.json()["detail"]) == (422, True)
    assert "SEC0123" not in admin.get("/v1/webhooks").text + admin.get(address).text
    slack = admin.post("/v1/webhooks", json={"url": URL, "format": "slack", "events": ["culprit.found"]}).json()
    assert (slack["secrets"], slack["events"]) == (0, ["culprit.found"])
    assert admin.post("/v1/webhooks", json={"url": URL}).json()["format"] == "json"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": URL, "format": "irc"}, "body.format"),
        ({"url": URL, "format": "slack", "secret": "x"}, "only robots of Feishu"),
        ({"url": URL, "secret": "x"}, "only robots of Feishu"),
        ({"url": URL, "format": "feishu", "secret": "a\nb"}, "body.secret"),
        ({"url": "http://127.0.0.1/x"}, "public internet"),
        ({"url": "http://0x7f.1:8080/x"}, "public internet"),
        ({"url": "file:///etc/passwd"}, "https://"),
        ({"url": "https://me:secret@ci.example.com"}, "user name"),
        ({"url": URL, "events": ["probe.asked"]}, "body.events.0"),
        ({}, "body.url"),
    ],
)
def test_where_no_webhook_goes(admin: TestClient, wrong: dict[str, object], said: str) -> None:
    response = admin.post("/v1/webhooks", json=wrong)
    assert response.status_code == 422
    assert said in response.json()["detail"]
    assert admin.get("/v1/webhooks").json() == []


def test_a_message_is_followed_to_its_end_and_sent_again(
    admin: TestClient, service: Service, notified: Notified
) -> None:
    endpoint = admin.post("/v1/webhooks", json={"url": URL}).json()["id"]
    sent = admin.post(f"/v1/webhooks/{endpoint}/ping")
    assert sent.status_code == 202
    message = sent.json()
    assert (message["type"], message["state"], message["tries"]) == ("webhook.ping", "pending", [])
    assert notified == [{notices.WEBHOOKS}]
    with service.database.transaction() as session:
        sending = deliveries.claim(session, seconds=30)
        assert sending is not None
        deliveries.record(session, sending, Try(status=410, milliseconds=3, answer="<b>gone</b>"))
    shown = admin.get(f"/v1/deliveries/{message['id']}").json()
    assert shown["state"] == "failed"
    assert [(each["status"], each["answer"]) for each in shown["tries"]] == [(410, "<b>gone</b>")]
    disabled = admin.get(f"/v1/webhooks/{endpoint}").json()
    assert "410" in disabled["disabled_because"]
    assert admin.post(f"/v1/webhooks/{endpoint}/enable").json()["disabled_at"] is None
    again = admin.post(f"/v1/deliveries/{message['id']}/redeliver")
    assert again.status_code == 202
    assert (again.json()["id"], again.json()["state"], len(again.json()["tries"])) == (message["id"], "pending", 1)
    assert notified.count(frozenset({notices.WEBHOOKS})) == 2


def test_messages_are_listed_in_pages(admin: TestClient) -> None:
    endpoint = admin.post("/v1/webhooks", json={"url": URL}).json()["id"]
    sent = [admin.post(f"/v1/webhooks/{endpoint}/ping").json()["id"] for _ in range(4)]
    found: list[str] = []
    url = f"/v1/webhooks/{endpoint}/deliveries?limit=2"
    pages = 0
    while url:
        page = admin.get(url)
        found += [each["id"] for each in page.json()]
        url = page.links.get("next", {}).get("url", "")
        pages += 1
    assert (sorted(found, reverse=True), pages) == (found, 2)
    assert set(found) == set(sent)


def test_another_tenants_webhooks_are_not_there(admin: TestClient, callers: Callers, notified: Notified) -> None:
    endpoint = admin.post("/v1/webhooks", json={"url": URL}).json()["id"]
    message = admin.post(f"/v1/webhooks/{endpoint}/ping").json()["id"]
    stranger = callers.admin("b")
    assert stranger.get("/v1/webhooks").json() == []
    for webhook in (endpoint, new_id()):
        for response in (
            stranger.get(f"/v1/webhooks/{webhook}"),
            stranger.get(f"/v1/webhooks/{webhook}/deliveries"),
            stranger.delete(f"/v1/webhooks/{webhook}"),
            *(stranger.post(f"/v1/webhooks/{webhook}/{act}") for act in ("rotate", "retire", "enable", "ping")),
        ):
            assert response.status_code == 404
    for delivery in (message, new_id()):
        assert stranger.get(f"/v1/deliveries/{delivery}").status_code == 404
        assert stranger.post(f"/v1/deliveries/{delivery}/redeliver").status_code == 404
    assert notified == [{notices.WEBHOOKS}]
    assert admin.get(f"/v1/webhooks/{endpoint}").json()["secrets"] == 1


@pytest.mark.parametrize("page", [False, True])
def test_a_tenant_has_so_many_webhooks(callers: Callers, page: bool) -> None:
    """Each is told of everything that happens to each job: 2000 of them made a small job take 27 s."""
    admin, address = callers.admin("a"), {"url": "https://ci.example/hook"}
    statuses = [admin.post("/v1/webhooks", json=address).status_code for _ in range(21)]
    assert statuses == [201] * 20 + [507]
    origin = {"Origin": "http://service.test"}
    refused = (
        admin.post("/webhooks", data=address, headers=origin) if page else admin.post("/v1/webhooks", json=address)
    )
    assert refused.status_code == 507
    assert "20 webhooks already" in refused.text
    assert callers.admin("b").post("/v1/webhooks", json=address).status_code == 201
    first = admin.get("/v1/webhooks").json()[0]["id"]
    assert admin.delete(f"/v1/webhooks/{first}").status_code == 204
    assert admin.post("/v1/webhooks", json=address).status_code == 201
