"""Errors, whoever raised them, are problems with a sentence; and what every answer's headers say."""

from typing import Annotated, Any

import pytest
from fastapi import Body, Query
from httpx2 import Response
from sqlalchemy import text
from starlette.testclient import TestClient

from onnxbisect.errors import ModelError, OptionError
from onnxbisect_api.access import Admin, Reader, Submitter
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.views.listing import PagedRows
from onnxbisect_db.errors import DiskFullError, IdempotencyError, JobStateError, TooLargeError, UnknownModelError
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.db.scenes import new_job

_ERRORS: dict[str, Exception] = {
    "option": OptionError("no such option: try --help"),
    "model": ModelError("it is cyclic"),
    "unknown": UnknownModelError("upload it first"),
    "idempotency": IdempotencyError("use a new key"),
    "state": JobStateError("it has ended"),
    "large": TooLargeError("too large"),
    "full": DiskFullError("the disk is full"),
    "missing": missing("job"),
    "secret": RuntimeError("password=hunter2"),
}


@pytest.fixture
def client(callers: Callers) -> TestClient:
    app = callers.app

    @app.get("/raise/{name}")
    def raise_(name: str) -> None:
        raise _ERRORS[name]

    @app.get("/row/{row_id}")
    def row(row_id: RowId) -> str:
        return row_id

    @app.post("/body")
    def body(name: Annotated[str, Body()], count: Annotated[int, Body()], secret: Annotated[int, Query()] = 0) -> str:
        return name * count

    @app.get("/page")
    def page(paged: PagedRows) -> int:
        paged.next_is(new_id() if paged.after is None else None)
        return paged.limit

    @app.get("/database")
    def database(service: TheService) -> None:
        with service.database.session() as session:
            session.execute(text("SELECT * FROM password_hunter2"))

    return callers.nobody()


def problem(response: Response, status: int) -> dict[str, Any]:
    """The answer is a whole problem."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "'none'" in response.headers["content-security-policy"]
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    assert found["type"] == "about:blank"
    assert found["title"]
    assert found["detail"].endswith(".") or found["detail"] in [str(error) for error in _ERRORS.values()]
    return found


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("option", 422),
        ("model", 422),
        ("unknown", 422),
        ("idempotency", 422),
        ("state", 409),
        ("large", 413),
        ("full", 507),
    ],
)
def test_our_own_errors_say_their_sentence(client: TestClient, name: str, status: int) -> None:
    assert problem(client.get(f"/raise/{name}"), status)["detail"] == str(_ERRORS[name])


def test_what_is_missing_is_said(client: TestClient) -> None:
    assert problem(client.get("/raise/missing"), 404)["detail"] == "There is no such job."
    problem(client.get("/nowhere"), 404)


def test_a_wrong_method_is_said_with_those_that_are_right(client: TestClient) -> None:
    response = client.patch("/body")
    assert "PATCH" in problem(response, 405)["detail"]
    assert response.headers["allow"] == "OPTIONS, POST"


def test_a_mistake_of_ours_tells_nothing(client: TestClient) -> None:
    response = client.get("/raise/secret")
    problem(response, 500)
    assert "hunter2" not in response.text


def test_a_database_that_fails_is_a_moment_later(client: TestClient) -> None:
    response = client.get("/database")
    problem(response, 503)
    assert "hunter2" not in response.text
    assert int(response.headers["retry-after"]) > 0


def test_what_cannot_be_an_id_is_not_there(client: TestClient) -> None:
    for wrong in ("x", "%00", "..%5c", "0" * 36, new_id().upper()):
        problem(client.get(f"/row/{wrong}"), 404)
    assert client.get(f"/row/{new_id()}").status_code == 200


def test_every_mistake_of_a_request_is_said_once_without_its_value(client: TestClient) -> None:
    response = client.post("/body?secret=hunter2", json={"count": "many"})
    said = problem(response, 422)
    assert [each["where"] for each in said["errors"]] == ["query.secret", "body.name", "body.count"]
    assert said["detail"].startswith("query.secret: ")
    assert "2 more" in said["detail"]
    assert "hunter2" not in response.text


def test_a_list_with_a_wrong_item_is_not_called_too_short(callers: Callers) -> None:
    wanted = {"model": "0" * 64, "targets": [{"backend": "./x.toml"}]}
    said = problem(callers.submitter().post("/v1/jobs", json=wanted), 422)
    assert [mistake["where"] for mistake in said["errors"]] == ["body.targets.0.backend"]
    said = problem(callers.submitter().post("/v1/jobs", json={**wanted, "targets": []}), 422)
    assert said["detail"] == "body.targets: At least 1 must be given."


def test_a_body_that_is_no_json_is_said(client: TestClient) -> None:
    json = {"Content-Type": "application/json"}
    said = problem(client.post("/body", content=b'{"name": x}', headers=json), 422)
    assert said["detail"] == "body: This is no JSON: Expecting value, at character 10."
    assert [each["where"] for each in said["errors"]] == ["body"]
    assert "UTF-8" in problem(client.post("/body", content=b'{"name": "\xff"}', headers=json), 400)["detail"]


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain"])
def test_a_body_that_is_not_said_to_be_json_is_refused_with_the_header(
    callers: Callers, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    for path in ("/v1/jobs", "/v1/tokens", "/v1/webhooks"):
        said = problem(callers.admin().post(path, content=b"{}", headers=headers), 415)
        assert "`Content-Type: application/json`" in said["detail"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_no_upload_is_small(client: TestClient, chunked: bool) -> None:
    large = b'{"count": 1, "name": "' + b"x" * (1 << 20) + b'"}'
    content = iter([large[:1000], large[1000:]]) if chunked else large
    problem(client.post("/body", content=content, headers={"Content-Type": "application/json"}), 413)


def test_pages_link_to_the_next_one(client: TestClient) -> None:
    first = client.get("/page?limit=7")
    assert first.json() == 7
    second = client.get(first.links["next"]["url"])
    assert second.json() == 7
    assert "next" not in second.links
    for wrong in ("limit=0", "limit=201"):
        problem(client.get(f"/page?{wrong}"), 422)


@pytest.mark.parametrize("wrong", ["x", "%00", "abc", "---", "f" * 16 + "-" + "a" * 64, ""])
def test_a_list_goes_on_from_where_a_page_ended_only(callers: Callers, service: Service, wrong: str) -> None:
    client, job = callers.admin(), new_job(service.database)
    webhook = client.post("/v1/webhooks", json={"url": "https://ci.example.com"}).json()["id"]
    for path in ("jobs", "models", f"jobs/{job.id}/probes", f"webhooks/{webhook}/deliveries"):
        assert client.get(f"/v1/{path}").status_code == 200
        said = problem(client.get(f"/v1/{path}?after={wrong}"), 422)["detail"]
        assert said == ("query.after: This is no place in the list: go on from the `Link` header of the page before.")


def test_a_filter_that_a_list_does_not_have_is_refused_with_those_that_it_has(callers: Callers) -> None:
    client = callers.reader()
    said = problem(client.get("/v1/jobs?backend=qnn"), 422)["detail"]
    assert said.startswith("'backend' is no parameter of this list")
    for name in ("after", "label", "limit", "model", "state", "target", "text", "verdict"):
        assert f" {name}" in said
    assert "did you mean 'limit'" in problem(client.get("/v1/models?limt=3"), 422)["detail"]
    assert client.get("/jobs?utm_source=x").status_code == 200


def test_every_answer_has_the_headers(client: TestClient) -> None:
    headers = client.get("/openapi.json").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


def test_the_description_tells_of_problems_and_tokens(callers: Callers, service: Service) -> None:
    app = callers.app

    @app.get("/read")
    def read(caller: Reader) -> str:
        return caller.tenant

    @app.post("/submit")
    def submit(caller: Submitter) -> str:
        return caller.tenant

    @app.post("/admin")
    def admin(caller: Admin) -> str:
        return caller.tenant

    described = callers.nobody().get("/openapi.json").json()
    operation = described["paths"]["/read"]["get"]
    assert operation["security"] == [{"token": []}]
    assert set(operation["responses"]) == {"200", "4XX", "5XX"}
    assert described["components"]["schemas"]["ProblemDocument"]["required"] == ["title", "status", "detail"]
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.parametrize(
    ("number", "detail"),
    [
        ("9" * 100_000, "a whole number of more than 4,300 digits"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
    ],
)
def test_json_that_python_refuses_is_told_as_what_it_is(callers: Callers, number: str, detail: str) -> None:
    headers = {"Content-Type": "application/json"}
    for address in ("/v1/tokens", "/v1/jobs"):
        answer = callers.admin().post(address, content=f'{{"priority": {number}}}', headers=headers)
        assert detail in problem(answer, 400)["detail"]
