"""A job that comes with its model, in one form: the job that a SHA-256 makes, or nothing at all."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from onnxbisect_api.submission.job_form import JobDocument
from onnxbisect_api.uploads.model_form import ModelForm
from onnxbisect_api.uploads.receiving import UploadQuota
from onnxbisect_db import jobs, retention
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.fixtures import Notified
from support.api.given import uploaded
from support.api.model_bytes import model

ONNXRUNTIME = {"backend": "onnxruntime"}
ONNX = model(b"a file")
SHA256 = hashlib.sha256(ONNX).hexdigest()
#: With the data that most forms here bring.
NAMED = hashlib.sha256(ONNX + b"w").hexdigest()


def ask(model: str, **wanted: Any) -> dict[str, Any]:
    return {"model": model, "targets": [ONNXRUNTIME], **wanted}


def form(*targets: dict[str, Any], data: dict[str, bytes] | None = None, **wanted: Any) -> list[tuple[str, Any]]:
    """A job with its model."""
    terms = json.dumps({"targets": list(targets) or [ONNXRUNTIME], **wanted}).encode()
    files = [("data", (location, content)) for location, content in (data or {}).items()]
    return [("job", (None, terms)), ("model", ("net.onnx", ONNX)), *files]


def left_over(service: Service) -> list[Path]:
    return [path for path in service.settings.files_folder.rglob("*") if path.is_file()]


def test_a_form_makes_the_job_that_a_sha256_makes(callers: Callers, service: Service, notified: Notified) -> None:
    client = callers.submitter()
    response = client.post("/v1/jobs", files=form(labels={"repo": "net"}, data={"weights/a.bin": b"w"}))
    assert response.status_code == 202, response.text
    made = response.json()
    assert response.headers["location"] == made["url"]
    assert (made["state"], made["labels"], made["model"]["sha256"]) == (
        "queued",
        {"repo": "net"},
        NAMED,
    )
    assert len(notified) == 1
    kept = client.get(f"/v1/models/{NAMED}").json()
    assert kept["name"] == "net.onnx"
    assert kept["files"] == {"weights/a.bin": hashlib.sha256(b"w").hexdigest()}
    with service.database.session() as session:
        one = jobs.get(session, made["id"], "")
    again = client.post("/v1/jobs", json=ask(NAMED, labels={"repo": "net"})).json()
    with service.database.session() as session:
        other = jobs.get(session, again["id"], "")
    assert one is not None
    assert other is not None
    assert one.idempotency_sha256 == other.idempotency_sha256


def test_an_idempotent_form_makes_one_job(callers: Callers, service: Service, notified: Notified) -> None:
    client, key = callers.submitter(), {"Idempotency-Key": "k-1"}
    first, again = (client.post("/v1/jobs", files=form(data={"w": b"w"}), headers=key) for _ in range(2))
    assert (first.status_code, first.json()) == (202, again.json())
    assert client.post("/v1/jobs", json=ask(NAMED), headers=key).json() == first.json()
    assert len(notified) == 1
    assert len(left_over(service)) == 2
    assert first.json()["id"] in client.post("/v1/jobs", files=form(recheck=True), headers=key).json()["detail"]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([("job", (None, b"{")), *form()[1:]], "body.job: This is no JSON"),
        ([("job", (None, b'{"targets": "\xff"}')), *form()[1:]], "body.job: This is no JSON"),
        (form(seconds=0), "body.job.seconds"),
        (form(model=SHA256), "body.job.model"),
        (form({"backend": "onnxruntme"}), "did you mean 'onnxruntime'"),
        (form(webhook="http://169.254.169.254/meta"), "public"),
        (form(calibration={"0.npz": "a" * 64}), "upload"),
        (form()[:1], "'model'"),
        (form()[1:], "no field 'job'"),
        ([*form(), form()[0]], "two fields 'job'"),
        ([*form()[1:], ("job", (None, b"{}"))], "body.job.targets"),
        ([*form(), ("other", (None, b"x"))], "a document in 'job'"),
        (form(data={"../w": b"w"}), "data file"),
    ],
)
def test_what_is_wrong_with_a_form_is_said_and_nothing_is_kept(
    callers: Callers, service: Service, notified: Notified, parts: list[tuple[str, Any]], says: str
) -> None:
    client = callers.submitter()
    response = client.post("/v1/jobs", files=parts)
    assert response.status_code == 422, response.text
    assert says in response.json()["detail"]
    assert client.get("/v1/models").json() == client.get("/v1/jobs").json() == notified == []
    with service.database.session() as session:
        assert retention.needed(session) == set()


def test_a_wrong_document_leaves_no_file(callers: Callers, service: Service) -> None:
    for parts in (form(seconds=0), [*form(data={"w": b"w"})[1:], ("job", (None, b"{}"))], form()[1:]):
        assert callers.submitter().post("/v1/jobs", files=parts).status_code == 422
        assert left_over(service) == []


def test_a_wrong_document_ends_the_upload() -> None:
    """A model that comes after it need not be sent."""

    def never(*_: object) -> Any:
        pytest.fail("nothing is written, and no terms are looked at")

    coming = ModelForm("multipart/form-data; boundary=b", never, UploadQuota(largest=1, left=1), JobDocument(never))
    with pytest.raises(RequestValidationError) as refused:
        coming.write(memoryview(b'--b\r\nContent-Disposition: form-data; name="job"\r\n\r\n{"targets": []}\r\n--b\r\n'))
    assert refused.value.errors()[0]["loc"] == ("body", "job", "targets")


def test_a_document_is_small(callers: Callers, service: Service) -> None:
    client, large = callers.submitter(), b" " * (1 << 20) + b"{}"
    response = client.post("/v1/jobs", files=[*form()[1:], ("job", (None, large))])
    assert response.status_code == 413
    assert "'job'" in response.json()["detail"]
    assert left_over(service) == []
    plain = client.post("/v1/jobs", content=large, headers={"Content-Type": "application/json"})
    assert plain.status_code == 413


def test_a_reader_brings_nothing(callers: Callers, service: Service) -> None:
    assert callers.reader().post("/v1/jobs", files=form()).status_code == 403
    assert callers.nobody().post("/v1/jobs", files=form()).status_code == 401
    assert left_over(service) == []


class TestLimits:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"upload_bytes": 1000, "tenant_bytes": 1500, "tenant_jobs": 1})

    @pytest.mark.parametrize(("data", "status"), [({"w": b"x" * 1001}, 413), ({"v": b"x" * 900, "w": b"x" * 900}, 507)])
    def test_what_is_too_large_leaves_nothing(
        self, callers: Callers, service: Service, data: dict[str, bytes], status: int
    ) -> None:
        response = callers.submitter().post("/v1/jobs", files=form(data=data))
        assert response.status_code == status
        assert left_over(service) == []

    def test_a_job_too_many_brings_no_model(self, callers: Callers, service: Service) -> None:
        client = callers.submitter()
        assert client.post("/v1/jobs", json=ask(uploaded(service))).status_code == 202
        response = client.post("/v1/jobs", files=form())
        assert response.status_code == 429
        assert "retry-after" in response.headers
        assert client.head(f"/v1/models/{SHA256}").status_code == 404
