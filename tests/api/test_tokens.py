"""Tokens over REST: made by admins for their own tenant, shown once, and good for what their scopes say."""

from datetime import UTC, datetime, timedelta

import pytest

from onnxbisect_db.states import Scope
from onnxbisect_db.tables.base import new_id
from support.api.callers import Callers

SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def test_a_token_is_shown_once_and_works(callers: Callers) -> None:
    admin = callers.admin("a")
    made = admin.post("/v1/tokens", json={"name": "ci", "scopes": ["submit"], "expires_at": SOON})
    assert made.status_code == 201
    token = made.json()
    assert (token["name"], token["scopes"], token["revoked_at"]) == ("ci", ["submit"], None)
    user = callers.nobody(f"Bearer {token['token']}")
    assert user.get("/v1/models").status_code == 200
    assert user.get("/v1/tokens").status_code == 403
    shown = admin.get("/v1/tokens")
    assert token["token"] not in shown.text
    assert shown.json()[0]["id"] == token["id"]
    assert shown.json()[0]["used_at"] is not None
    assert admin.delete(f"/v1/tokens/{token['id']}").status_code == 204
    assert user.get("/v1/models").status_code == 401
    assert admin.get("/v1/tokens").json()[0]["revoked_at"] is not None


def test_an_admin_has_his_own_tenant_only(callers: Callers) -> None:
    mine, stranger = callers.admin("a"), callers.admin("b")
    token = mine.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}).json()
    assert token["id"] not in stranger.get("/v1/tokens").text
    assert stranger.delete(f"/v1/tokens/{token['id']}").status_code == 404
    assert stranger.delete(f"/v1/tokens/{new_id()}").status_code == 404
    assert callers.nobody(f"Bearer {token['token']}").get("/v1/models").status_code == 200


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"scopes": []}, "body.scopes"),
        ({"scopes": ["root"]}, "body.scopes.0"),
        ({"name": ""}, "body.name"),
        ({"name": "a\nb"}, "body.name"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "body.expires_at"),
        ({"expires_at": "2099-01-01T00:00:00"}, "body.expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-14:00"}, "body.expires_at"),
        ({"tenant": "other"}, "body.tenant"),
    ],
)
def test_a_token_that_cannot_be_is_refused(callers: Callers, wrong: dict[str, object], where: str) -> None:
    response = callers.admin().post("/v1/tokens", json={"name": "ci", "scopes": ["read"], **wrong})
    assert response.status_code == 422
    assert response.json()["errors"][0]["where"] == where


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer obk_x_y", "Bearer é"])
def test_without_a_token_there_is_nothing(callers: Callers, authorization: str | None) -> None:
    client = callers.nobody()
    headers = {b"Authorization": authorization.encode()} if authorization is not None else {}
    response = client.get("/v1/models", headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT])
def test_only_admins_have_tokens_and_webhooks(callers: Callers, scope: Scope) -> None:
    client = callers.nobody(f"Bearer {callers.token(scope)}")
    for url in ("/v1/tokens", "/v1/webhooks"):
        assert client.get(url).status_code == 403
        assert client.post(url, json={}).status_code in (403, 422)
    assert client.post("/v1/tokens", json={"name": "me", "scopes": ["admin"]}).status_code == 403


def test_using_a_token_writes_once_a_minute(callers: Callers) -> None:
    admin = callers.admin()
    admin.get("/v1/tokens")
    first = admin.get("/v1/tokens").json()[0]["used_at"]
    assert admin.get("/v1/tokens").json()[0]["used_at"] == first is not None
