"""Rates: counted for each tenant and each address, in redis where there is one, and never in the way of the rest."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from onnxbisect.errors import OptionError
from onnxbisect_api import limits as api_limits
from onnxbisect_api.limits import counted_address, rate
from onnxbisect_db.states import Scope
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.model_bytes import model
from support.worker import redis_server
from support.worker.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server.running() as server:
        yield server


@pytest.fixture
def limits() -> dict[str, Any]:
    """Settings of the service, for tests to override."""
    return {}


@pytest.fixture
def settings(tmp_path: Path, limits: dict[str, Any]) -> Settings:
    return Settings(data=tmp_path / "data", disk_floor=0, **limits)


class TestRequests:
    """Of one tenant."""

    @pytest.fixture
    def limits(self) -> dict[str, Any]:
        return {"requests": "3/day", "uploads": "2/day"}

    def test_all_tokens_of_a_tenant_have_so_many(self, callers: Callers) -> None:
        busy, other = callers.reader(), callers.reader("other")
        assert [callers.reader().get("/v1/models").status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = busy.get("/v1/models")
        assert refused.headers["content-type"] == "application/problem+json"
        assert 0 < int(refused.headers["retry-after"]) <= 86400
        assert "3 per 1 day" in refused.json()["detail"]
        assert other.get("/v1/models").status_code == 200

    def test_uploads_and_jobs_have_fewer(self, callers: Callers) -> None:
        client = callers.submitter()
        assert client.put("/v1/models", content=model()).status_code == 201
        assert client.post("/v1/jobs", json={"model": "0" * 64, "targets": [{"backend": "npu"}]}).status_code == 422
        assert callers.submitter().put("/v1/files", content=b"b").status_code == 429
        assert callers.submitter("other").put("/v1/files", content=b"b").status_code == 200


class TestFailures:
    """Of one address."""

    @pytest.fixture
    def limits(self) -> dict[str, Any]:
        return {"failures": "3/day"}

    def test_who_guesses_is_stopped_and_who_works_is_not(self, callers: Callers) -> None:
        guess = callers.nobody("Bearer obk_x_y")
        assert [guess.get("/v1/models").status_code for _ in range(4)] == [401, 401, 401, 429]
        assert "retry-after" in guess.get("/v1/models").headers
        # behind a proxy that is not trusted, all clients have one address
        assert callers.reader().get("/v1/models").status_code == 200

    def test_no_token_is_no_guess(self, callers: Callers) -> None:
        assert {callers.nobody().get("/v1/models").status_code for _ in range(5)} == {401}
        assert callers.reader().get("/v1/models").status_code == 200

    def test_a_revoked_token_is_wrong_although_it_was_right(self, callers: Callers) -> None:
        admin = callers.admin()
        token = admin.post("/v1/tokens", json={"name": "x", "scopes": ["read"]}).json()
        user = callers.nobody(f"Bearer {token['token']}")
        assert user.get("/v1/models").status_code == 200
        admin.delete(f"/v1/tokens/{token['id']}")
        assert [user.get("/v1/models").status_code for _ in range(4)] == [401, 401, 401, 429]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2a00:1::1", "2a00:1::ffff:1", True),
        ("2a00:1::1", "2a00:1:0:1::1", False),
        ("testclient", "other", False),
    ],
)
def test_a_network_that_one_person_has_counts_as_one_address(first: str, second: str, same: bool) -> None:
    assert (counted_address(first) == counted_address(second)) is same


def test_what_is_no_rate_is_said() -> None:
    with pytest.raises(OptionError, match="20/minute"):
        rate("requests", "many")


class TestRedis:
    """All processes count together, and none of them waits for a redis that is not well."""

    @pytest.fixture
    def limits(self, redis: RedisServer) -> dict[str, Any]:
        redis.client().flushall()
        return {"requests": "3/day", "redis_url": SecretStr(redis.url)}

    def test_two_processes_count_together(self, service: Service, redis: RedisServer) -> None:
        one, other = Callers(service), Callers(service)
        token = f"Bearer {one.token(Scope.READ)}"
        statuses = [each.nobody(token).get("/v1/models").status_code for each in (one, other) * 2]
        assert statuses == [200, 200, 200, 429]
        assert all(key.startswith(b"onnxbisect:limits") for key in redis.client().scan_iter())

    def test_without_redis_every_process_counts_for_itself(
        self, service: Service, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api_limits, "_PAUSE_SECONDS", 0.0)
        callers = Callers(service)
        client = callers.reader()
        assert client.get("/v1/models").status_code == 200
        redis.stop()
        try:
            assert [client.get("/v1/models").status_code for _ in range(4)] == [200, 200, 200, 429]
        finally:
            redis.start()
        assert client.get("/v1/models").status_code == 200  # counted anew, in a redis that has forgotten

    def test_a_redis_that_hangs_holds_up_one_request_for_a_moment(self, service: Service, redis: RedisServer) -> None:
        callers = Callers(service)
        client = callers.reader()
        assert client.get("/v1/models").status_code == 200
        assert redis.process is not None
        redis.process.send_signal(signal.SIGSTOP)
        try:
            assert client.get("/v1/models").status_code == 200
            assert client.get("/v1/models").status_code == 200
        finally:
            redis.process.send_signal(signal.SIGCONT)
