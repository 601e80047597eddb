"""Tokens on a page: made and shown once, revoked, and for admins only."""

import re

import pytest
from starlette.testclient import TestClient

from support.api.callers import Callers


@pytest.fixture
def client(callers: Callers) -> TestClient:
    client = callers.admin()
    client.headers["accept"] = "text/html"
    client.follow_redirects = False
    return client


def test_a_token_is_shown_once_and_good(client: TestClient, callers: Callers) -> None:
    made = client.post("/tokens", data={"name": "ci of net", "scope": "submit", "days": "30"})
    found = re.search(r"obk_[0-9a-f_]+", made.text)
    assert found is not None
    text = found[0]
    assert f"data-copy>{text}<" in made.text
    assert text not in client.get("/tokens").text
    user = callers.nobody(f"Bearer {text}")
    assert user.get("/v1/jobs").status_code == 200
    assert user.get("/v1/tokens").status_code == 403
    newest = client.get("/v1/tokens").json()[0]
    assert (newest["name"], newest["scopes"]) == ("ci of net", ["submit"])
    assert newest["expires_at"] is not None


def test_a_revoked_token_is_good_for_nothing_and_stays_in_the_list(client: TestClient, callers: Callers) -> None:
    text = re.search(r"obk_[0-9a-f_]+", client.post("/tokens", data={"name": "old", "scope": "read"}).text)
    assert text is not None
    token_id = client.get("/v1/tokens").json()[0]["id"]
    answer = client.post(f"/tokens/{token_id}/revoke")
    assert (answer.status_code, answer.headers["location"]) == (303, "/tokens")
    assert callers.nobody(f"Bearer {text[0]}").get("/v1/jobs").status_code == 401
    row = client.get("/tokens").text.split(">old</th>")[1].split("</tr>")[0]
    assert "revoked" in row
    assert f"/tokens/{token_id}/revoke" not in row


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201])
def test_a_name_that_cannot_be_is_said_beside_it(client: TestClient, name: str) -> None:
    answer = client.post("/tokens", data={"name": name, "scope": "read"})
    assert answer.status_code == 422
    assert 'aria-describedby="complaint"' in answer.text
    assert "in one line" in answer.text
    assert len(client.get("/v1/tokens").json()) == 1


def test_names_are_text(client: TestClient) -> None:
    client.post("/tokens", data={"name": "<img src=x onerror=alert(1)>\u202e", "scope": "read"})
    text = client.get("/tokens").text
    assert "&lt;img src=x" in text
    assert "\\u202e" in text


def test_others_are_told_what_it_takes(callers: Callers) -> None:
    for client in (callers.reader(), callers.submitter()):
        for answer in (
            client.get("/tokens", headers={"accept": "text/html"}),
            client.post("/tokens", data={"name": "x", "scope": "admin"}, headers={"accept": "text/html"}),
        ):
            assert answer.status_code == 403
            assert "admin" in answer.text
            assert "<h1>" in answer.text


def test_another_tenant_s_token_is_not_there(client: TestClient, callers: Callers) -> None:
    other = callers.admin("b")
    token_id = other.get("/v1/tokens").json()[0]["id"]
    assert client.post(f"/tokens/{token_id}/revoke").status_code == 404
    assert other.get("/v1/jobs").status_code == 200
