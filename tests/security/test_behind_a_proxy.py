"""What differs where a reverse proxy with TLS stands before the service: addresses, schemes, hosts, cookies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from onnxbisect_db.states import Scope
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.live import served

GUESS = {"Authorization": "Bearer obk_x_y"}


@pytest.fixture
def given() -> dict[str, Any]:
    """Settings of the service, for tests to override."""
    return {}


@pytest.fixture
def settings(tmp_path: Path, given: dict[str, Any]) -> Settings:
    return Settings(data=tmp_path / "data", disk_floor=0, failures="3/day", **given)


@pytest.fixture
def client(callers: Callers, settings: Settings) -> Iterator[httpx2.Client]:
    with served(callers.app, callers.token(Scope.ADMIN), settings) as client:
        yield client


def guesses(client: httpx2.Client) -> list[int]:
    """The statuses of wrong tokens, each from an address of its own as `X-Forwarded-For` says."""
    return [
        client.get("/v1/models", headers={**GUESS, "X-Forwarded-For": f"10.0.0.{number}"}).status_code
        for number in range(5)
    ]


def test_nobody_is_believed_about_addresses_unless_a_setting_says_so(client: httpx2.Client) -> None:
    assert guesses(client) == [401, 401, 401, 429, 429]


@pytest.mark.parametrize("given", [{"trusted_proxies": "127.0.0.0/8"}])
def test_a_trusted_proxy_is_believed(client: httpx2.Client) -> None:
    assert guesses(client) == [401] * 5
    again = {**GUESS, "X-Forwarded-For": "192.0.2.1, 10.0.0.1"}
    # the proxy appends the address that it saw; what stands before it is the client's own word
    assert [client.get("/v1/models", headers=again).status_code for _ in range(3)] == [401, 401, 429]


def test_wrong_tokens_do_not_refuse_good_ones_from_the_same_address(client: httpx2.Client) -> None:
    guesses(client)
    assert client.get("/v1/models").status_code == 200


@pytest.mark.parametrize("given", [{"allowed_hosts": "bisect.example.org,*.lan"}])
@pytest.mark.parametrize(
    ("host", "status"), [("bisect.example.org", 200), ("a.lan:8321", 200), ("evil.example", 400), ("127.0.0.1", 400)]
)
def test_other_hosts_are_refused_where_a_setting_names_those_allowed(
    client: httpx2.Client, host: str, status: int
) -> None:
    answer = client.get("/login", headers={"Host": host})
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    # health checks of containers and load balancers ask by address
    assert [client.get(path, headers={"Host": host}).status_code for path in ("/livez", "/readyz")] == [200, 200]


@pytest.mark.parametrize("wrong", ["https://x", "x:80", "a*b"])
def test_a_host_that_is_none_is_said(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        Settings(allowed_hosts=(wrong,))


@pytest.mark.parametrize(
    ("given", "scheme"),
    [
        ({}, "http"),
        ({"public_url": "https://service.test"}, "http"),
        ({"trusted_proxies": "127.0.0.1"}, "https"),
    ],
)
def test_redirects_keep_scheme_and_host(client: httpx2.Client, scheme: str) -> None:
    headers = {"X-Forwarded-Proto": scheme, "Host": "service.test"}
    for address in ("/jobs/", "/v1/jobs/?limit=1"):
        answer = client.get(address, headers=headers)
        assert answer.status_code == 307
        assert answer.headers["location"] == address.replace("/?", "?").removesuffix("/")


def login(client: httpx2.Client, **headers: str) -> httpx2.Response:
    token = client.headers["authorization"].removeprefix("Bearer ")
    return client.post("/login", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin", **headers})


@pytest.mark.parametrize("given", [{"public_url": "https://service.test"}])
def test_a_public_address_with_tls_makes_the_cookie_secure(client: httpx2.Client) -> None:
    answer = login(client)
    assert "; secure" in answer.headers["set-cookie"].lower()
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" in client.get("/livez").headers


@pytest.mark.parametrize("given", [{"trusted_proxies": "127.0.0.1"}])
def test_what_a_trusted_proxy_got_over_tls_makes_the_cookie_secure(client: httpx2.Client) -> None:
    assert "; secure" in login(client, **{"X-Forwarded-Proto": "https"}).headers["set-cookie"].lower()


def test_without_tls_the_cookie_is_not_secure_and_nobody_is_sent_to_https(client: httpx2.Client) -> None:
    answer = login(client)
    assert "secure" not in answer.headers["set-cookie"].lower()
    assert "strict-transport-security" not in answer.headers


def test_a_session_ends_on_the_server(client: httpx2.Client) -> None:
    answer = login(client)
    cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    token = client.headers.pop("authorization").removeprefix("Bearer ")
    assert token not in str(answer.headers)
    assert token.rpartition("_")[2] not in str(answer.headers)
    client.cookies.clear()
    assert client.get("/v1/models", headers=cookie).status_code == 200
    assert client.post("/logout", headers={**cookie, "Sec-Fetch-Site": "same-origin"}).status_code == 303
    client.cookies.clear()
    assert client.get("/v1/models", headers=cookie).status_code == 401
    assert client.get("/v1/models", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_session_ends_with_its_token(client: httpx2.Client) -> None:
    cookie = {"Cookie": login(client).headers["set-cookie"].partition(";")[0]}
    [token] = client.get("/v1/tokens").json()
    client.delete(f"/v1/tokens/{token['id']}")
    client.headers.pop("authorization")
    client.cookies.clear()
    assert client.get("/v1/models", headers=cookie).status_code == 401
