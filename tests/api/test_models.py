"""Uploads: whole or not at all, there for whoever uploaded them, and within what is allowed."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxbisect_db import jobs, models
from onnxbisect_db.files import Files
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.model_bytes import model

ONNX = model(b"a file")
SHA256 = hashlib.sha256(ONNX).hexdigest()
WEIGHTS = b"w" * 3_000_000  # several blocks


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def left_over(service: Service) -> list[Path]:
    return [path for path in service.settings.files_folder.rglob("*") if path.is_file()]


def aged(service: Service, seconds: float = 7200) -> None:
    """Make all files old."""
    for path in left_over(service):
        os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def client(callers: Callers) -> TestClient:
    return callers.submitter()


def test_a_model_is_uploaded_once(client: TestClient, service: Service) -> None:
    first = client.put("/v1/models?name=net.onnx", content=ONNX)
    assert first.status_code == 201
    told = first.json()
    assert {key: told[key] for key in ("sha256", "size", "name", "files", "new")} == {
        "sha256": SHA256,
        "size": len(ONNX),
        "name": "net.onnx",
        "files": {},
        "new": True,
    }
    assert first.headers["location"] == told["url"] == f"/v1/models/{SHA256}"
    again = client.put("/v1/models", content=iter([ONNX[:5], b"", ONNX[5:]]))
    assert (again.status_code, again.json()["new"], again.json()["name"]) == (200, False, "model.onnx")
    assert len(left_over(service)) == 1
    with service.files.open(SHA256) as file:
        assert file.read() == ONNX


def test_a_model_is_known_to_its_tenant_only(callers: Callers) -> None:
    mine, reader, stranger = callers.submitter("a"), callers.reader("a"), callers.submitter("b")
    assert reader.head(f"/v1/models/{SHA256}").status_code == 404
    mine.put("/v1/models", content=ONNX)
    assert reader.head(f"/v1/models/{SHA256}").status_code == 200
    assert reader.get(f"/v1/models/{SHA256}").json()["size"] == len(ONNX)
    for tell in (stranger.head, stranger.get, stranger.delete):
        assert tell(f"/v1/models/{SHA256}").status_code == 404
    assert stranger.get("/v1/models").json() == []
    assert stranger.put("/v1/models", content=ONNX).json()["new"] is True
    assert mine.delete(f"/v1/models/{SHA256}").status_code == 204
    assert stranger.head(f"/v1/models/{SHA256}").status_code == 200


def test_a_model_whose_file_is_lost_must_be_uploaded_again(client: TestClient, service: Service) -> None:
    client.put("/v1/models", content=ONNX)
    service.files.path(SHA256).unlink()
    assert client.head(f"/v1/models/{SHA256}").status_code == 404
    assert client.put("/v1/models", content=ONNX).status_code == 200
    assert client.head(f"/v1/models/{SHA256}").status_code == 200


def test_who_is_told_that_a_model_is_here_has_time_to_name_it(client: TestClient, service: Service) -> None:
    client.put("/v1/models", content=ONNX)
    aged(service)
    client.head(f"/v1/models/{SHA256}")
    assert not service.files.discard(SHA256, older_than=3600)


@pytest.mark.parametrize(
    ("query", "header", "name"),
    [
        ("?name=net.onnx", None, "net.onnx"),
        ("?name=..%2F..%2Fetc%2Fpasswd", None, "passwd"),
        ("?name=C:%5Cmodels%5Cnet.onnx", None, "net.onnx"),
        ("?name=a%0Ab%E2%80%AEc%1B[31m", None, r"a\nb\u202ec\x1b[31m"),
        ("?name=" + "x" * 300, None, "x" * 199 + "…"),
        ("", 'attachment; filename="my net.onnx"', "my net.onnx"),
        ("", "attachment; filename*=UTF-8''n%C3%A9t.onnx", "nét.onnx"),
        ("?name=a.onnx", 'attachment; filename="b.onnx"', "a.onnx"),
        ("?name=", None, "model.onnx"),
        ("?name=%2F", "attachment", "model.onnx"),
    ],
)
def test_the_name_is_for_reading_only(client: TestClient, query: str, header: str | None, name: str) -> None:
    headers = {"Content-Disposition": header} if header is not None else {}
    assert client.put(f"/v1/models{query}", content=ONNX, headers=headers).json()["name"] == name


def test_models_are_listed_in_pages(client: TestClient) -> None:
    uploaded = [client.put("/v1/models", content=model(bytes([number]))).json()["sha256"] for number in range(5)]
    found: list[str] = []
    url = "/v1/models?limit=2"
    while url:
        page = client.get(url)
        found += [model["sha256"] for model in page.json()]
        url = page.links.get("next", {}).get("url", "")
    assert found == uploaded[::-1]
    for wrong in ("-", "f" * 40 + "-", "ffffffffffffffff-a"):
        assert client.get(f"/v1/models?after={wrong}").status_code == 422


def test_a_model_with_external_data(client: TestClient, service: Service) -> None:
    form = [
        ("data", ("weights/a.bin", WEIGHTS)),
        ("model", ("net.onnx", ONNX)),
        ("data", ("b.bin", b"")),
        ("data", ("ünï code.bin", b"b")),
    ]
    response = client.post("/v1/models", files=form)
    assert response.status_code == 201
    told = response.json()
    assert told["files"] == {"weights/a.bin": sha256(WEIGHTS), "b.bin": sha256(b""), "ünï code.bin": sha256(b"b")}
    named = sha256(ONNX + WEIGHTS + b"b")  # the data by location: b.bin is empty, weights/a.bin, and the last one
    assert (told["sha256"], told["name"], told["size"]) == (named, "net.onnx", len(ONNX) + len(WEIGHTS) + 1)
    with service.files.open(sha256(WEIGHTS)) as file:
        assert file.read() == WEIGHTS
    assert len(left_over(service)) == 4
    assert client.head(f"/v1/models/{named}").status_code == 200
    in_order = [form[1], form[2], form[0], form[3]]
    for order in (form[::-1], in_order, [*in_order[:2], *in_order[:1:-1]]):
        again = client.post("/v1/models", files=order)
        assert (again.status_code, again.json()["sha256"]) == (200, named)


def test_one_graph_with_other_weights_is_another_model(client: TestClient, service: Service) -> None:
    first, second = (
        client.post("/v1/models", files=[("model", ("net.onnx", ONNX)), ("data", ("w", weights))]).json()
        for weights in (b"v", b"w")
    )
    job = new_job(service, model=first["sha256"])
    aged(service)
    assert client.delete(f"/v1/models/{second['sha256']}").status_code == 204
    assert client.head(f"/v1/models/{first['sha256']}").status_code == 200  # the graph is the other one's, too
    assert client.delete(f"/v1/models/{first['sha256']}").status_code == 409
    with service.database.session() as session:
        model = jobs.get(session, job, "")
        assert model is not None
        assert model.model_sha256 == first["sha256"]
    assert client.head(f"/v1/models/{SHA256}").status_code == 404


def test_the_same_bytes_in_other_files_wait_for_the_job_that_reads_them(client: TestClient, service: Service) -> None:
    def cut(first: bytes, second: bytes) -> Any:
        form = [("model", ("net.onnx", ONNX)), ("data", ("a", first)), ("data", ("b", second))]
        return client.post("/v1/models", files=form)

    model = cut(b"xy", b"z").json()["sha256"]
    new_job(service, model=model)
    assert cut(b"xy", b"z").status_code == 200
    assert cut(b"x", b"yz").status_code == 409


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 422),
        (b"--x", {"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ],
)
def test_what_is_no_file_is_not_taken_for_one(
    client: TestClient, service: Service, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert client.put("/v1/models", content=body, headers=headers).status_code == status
    assert left_over(service) == []


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../w.bin",
        "a/../w.bin",
        "a//b",
        "a/",
        "./a",
        "",
        ".",
        "a\\b",
        "a\x7fb",
        "x" * 256,
        "é" * 128,
        "x/" * 600 + "x",
    ],
)
def test_data_lies_below_the_model(client: TestClient, service: Service, location: str) -> None:
    form = [("model", ("net.onnx", ONNX)), ("data", (location or "x", b"w"))]
    if location:
        response = client.post("/v1/models", files=form)
    else:
        body = b'--b\r\nContent-Disposition: form-data; name="data"; filename=""\r\n\r\nw\r\n--b--\r\n'
        response = client.post("/v1/models", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert response.status_code == 422
    assert "data file" in response.json()["detail"]
    assert left_over(service) == []


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ([("data", ("w", b"w"))], "'model'"),
        ([("model", ("a", ONNX)), ("model", ("b", ONNX))], "two files"),
        ([("model", ("a", ONNX)), ("data", ("w", b"w")), ("data", ("w", b"v"))], "two files"),
        ([("model", ("a", ONNX)), ("data", ("w", b"w")), ("data", ("w/v", b"v"))], "folder"),
        ([("model", ("a", ONNX)), ("other", ("w", b"w"))], "'other'"),
    ],
)
def test_a_form_that_makes_no_model_leaves_nothing(
    client: TestClient, service: Service, form: list[tuple[str, tuple[str, bytes]]], said: str
) -> None:
    response = client.post("/v1/models", files=form)
    assert response.status_code == 422
    assert said in response.json()["detail"]
    assert left_over(service) == []


@pytest.mark.parametrize("body", [b"", b"junk", b"--b\r\nContent-Disp", b"--b--\r\n", b"--b\r\n\r\nx\r\n--b--\r\n"])
def test_a_broken_form_leaves_nothing(client: TestClient, service: Service, body: bytes) -> None:
    whole = b'--b\r\nContent-Disposition: form-data; name="model"; filename="a"\r\n\r\nonnx\r\n'
    for content in (body, whole + body, whole):
        if content == whole + b"--b--\r\n":
            continue
        response = client.post(
            "/v1/models", content=content, headers={"Content-Type": "multipart/form-data; boundary=b"}
        )
        assert response.status_code == 422
        assert response.json()["detail"]
        assert left_over(service) == []


def test_what_is_no_form_is_said_to_be_none(client: TestClient) -> None:
    assert client.post("/v1/models", content=ONNX).status_code == 415
    wrong = {"Content-Type": "multipart/form-data; boundary=" + "b" * 300}
    assert client.post("/v1/models", content=ONNX, headers=wrong).status_code == 422


def new_job(service: Service, files: tuple[str, ...] = (), tenant: str = "", model: str = SHA256) -> str:
    with service.database.transaction() as session:
        wanted = NewJob(model_sha256=model, targets=(NewTarget(backend="npu"),), files=files)
        return jobs.create(session, wanted, tenant=tenant).job.id


def test_a_model_that_a_job_needs_is_not_deleted(client: TestClient, service: Service) -> None:
    client.put("/v1/models", content=ONNX)
    job = new_job(service)
    aged(service)
    response = client.delete(f"/v1/models/{SHA256}")
    assert response.status_code == 409
    assert job in response.json()["detail"]
    assert client.head(f"/v1/models/{SHA256}").status_code == 200


def test_a_deleted_model_is_gone_from_the_disk(client: TestClient, service: Service) -> None:
    form = [("model", ("net.onnx", ONNX)), ("data", ("w", b"w"))]
    model = client.post("/v1/models", files=form).json()["sha256"]
    aged(service)
    assert client.delete(f"/v1/models/{model}").status_code == 204
    assert left_over(service) == []
    assert client.delete(f"/v1/models/{model}").status_code == 404


def test_a_reader_may_look_and_not_touch(callers: Callers) -> None:
    reader = callers.reader()
    assert reader.get("/v1/models").status_code == 200
    for refused in (
        reader.put("/v1/models", content=ONNX),
        reader.put("/v1/files", content=ONNX),
        reader.post("/v1/models", files=[("model", ("net.onnx", ONNX))]),
        reader.delete(f"/v1/models/{SHA256}"),
        reader.delete(f"/v1/files/{SHA256}"),
    ):
        assert refused.status_code == 403
        assert "'submit'" in refused.json()["detail"]


def test_a_file_for_jobs_is_its_uploaders(callers: Callers, service: Service) -> None:
    mine, stranger = callers.submitter("a"), callers.submitter("b")
    told = mine.put("/v1/files", content=WEIGHTS).json()
    assert told == {"sha256": sha256(WEIGHTS), "size": len(WEIGHTS), "url": f"/v1/files/{sha256(WEIGHTS)}"}
    assert mine.get(told["url"]).json() == told
    assert mine.head(told["url"]).status_code == 200
    for tell in (stranger.head, stranger.get, stranger.delete):
        assert tell(told["url"]).status_code == 404
    mine.put("/v1/models", content=ONNX)
    new_job(service, (told["sha256"],), "a")
    aged(service)
    assert mine.delete(told["url"]).status_code == 204
    assert mine.head(told["url"]).status_code == 404
    assert service.files.size(told["sha256"]) == len(WEIGHTS)  # the job's


class TestLimits:
    """What is too much is refused, whether its length is told or not, and leaves nothing."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return Settings(data=tmp_path / "data", disk_floor=0, upload_bytes=1000, tenant_bytes=1500)

    @pytest.mark.parametrize("url", ["/v1/models", "/v1/files"])
    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_file_has_a_limit(self, client: TestClient, service: Service, url: str, chunked: bool) -> None:
        content = model(size=1001)
        response = client.put(url, content=iter([content[:500], content[500:]]) if chunked else content)
        assert response.status_code == 413
        assert "1,000 bytes" in response.json()["detail"]
        assert left_over(service) == []
        assert client.put(url, content=model(size=1000)).status_code in (200, 201)

    def test_a_file_of_a_form_has_the_same_limit(self, client: TestClient, service: Service) -> None:
        response = client.post("/v1/models", files=[("model", ("a", ONNX)), ("data", ("w", b"x" * 1001))])
        assert response.status_code == 413
        assert left_over(service) == []

    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_tenant_has_a_quota_of_all_that_it_keeps(self, callers: Callers, service: Service, chunked: bool) -> None:
        client = callers.submitter()
        client.put("/v1/models", content=model(size=700))
        client.put("/v1/files", content=b"f" * 300)
        content = model(size=501)
        response = client.put("/v1/models", content=iter([content]) if chunked else content)
        assert response.status_code == 507
        assert "500 bytes left" in response.json()["detail"]
        form = client.post("/v1/models", files=[("model", ("a", model(size=300))), ("data", ("w", b"x" * 300))])
        assert form.status_code == 507
        assert len(left_over(service)) == 2
        assert client.put("/v1/models", content=model(size=500)).status_code == 201
        assert callers.submitter("other").put("/v1/models", content=content).status_code == 201

    def test_of_two_uploads_at_once_one_may_find_the_quota_used(self, callers: Callers, service: Service) -> None:
        client, other = callers.submitter(), callers.submitter()

        def body() -> object:
            yield model(size=400)
            assert other.put("/v1/models", content=model(b"y", size=1000)).status_code == 201
            yield b"x" * 400

        assert client.put("/v1/models", content=body()).status_code == 507  # type: ignore[arg-type]
        assert len(left_over(service)) == 1


def test_a_full_disk_is_said(callers: Callers, service: Service) -> None:
    full = Files(service.settings.files_folder, floor=1 << 62)
    object.__setattr__(service, "files", full)
    response = callers.submitter().put("/v1/models", content=ONNX)
    assert response.status_code == 507
    assert "kept free" in response.json()["detail"]
    assert left_over(service) == []


def test_the_model_row_is_of_the_callers_tenant(callers: Callers, service: Service) -> None:
    callers.submitter("a").put("/v1/models", content=ONNX)
    with service.database.session() as session:
        assert models.get(session, SHA256, "a") is not None
        assert models.get(session, SHA256, "") is None
