"""A service whose disk is full: what is there can be read and deleted, and it says why nothing else is done."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from httpx2 import Client
from onnx import TensorProto, helper
from sqlalchemy import select

from onnxbisect_api import health
from onnxbisect_db.tables import StoredModel
from onnxbisect_service.service import Service, open_service
from onnxbisect_service.settings import Settings
from support.api import given
from support.api.callers import Callers

MEGABYTE = 1 << 20
TARGET = {"backend": "whitelist", "options": {"deny": "Sin"}}


@pytest.fixture
def settings(small_disk: Callable[[int], Path]) -> Settings:
    return Settings(data=small_disk(64 << 10) / "data", disk_floor=0)


@pytest.fixture
def full(service: Service, settings: Settings, fill: Callable[[Path], Path]) -> Iterator[Callable[[], Path]]:
    """Fills the disk with something else. Somebody reads meanwhile, so SQLite cannot write over its log."""
    with ExitStack() as stack:

        def filled() -> Path:
            stack.enter_context(service.database.session()).scalars(select(StoredModel)).all()
            return fill(settings.data)

        yield filled


def test_a_full_disk_is_told_and_is_over_when_there_is_room(
    callers: Callers, full: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_FRESH", 0.0)
    nobody = callers.nobody()
    assert nobody.get("/readyz").status_code == 200
    other = full()
    answer = nobody.get("/readyz")
    assert answer.status_code == 503
    assert "The disk is full" in answer.json()["detail"]
    assert nobody.get("/livez").status_code == 200
    other.unlink()
    assert nobody.get("/readyz").status_code == 200


def test_an_upload_that_meets_the_end_of_the_disk_is_507(callers: Callers, full: Callable[[], Path]) -> None:
    client = callers.submitter()
    other = full()
    with other.open("rb+") as file:
        file.truncate(other.stat().st_size - 3 * MEGABYTE)
    weights = helper.make_tensor("w", TensorProto.UINT8, [4 * MEGABYTE], os.urandom(4 * MEGABYTE), raw=True)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [], [weights])
    answer = client.put("/v1/models", content=helper.make_model(graph).SerializeToString())
    assert answer.status_code == 507, answer.text
    assert "The disk is full" in answer.json()["detail"]


def test_what_is_there_can_be_read(callers: Callers, service: Service, full: Callable[[], Path]) -> None:
    """With a token, too, whose use would be noted."""
    job = given.done(service, given.refusing_exp())
    client = callers.reader()
    full()
    for path in (f"/v1/jobs/{job.id}", "/v1/jobs", f"/v1/jobs/{job.id}/report", "/v1/models"):
        assert client.get(path).status_code == 200, path


def test_no_job_is_taken_while_the_log_has_room_for_its_row(
    callers: Callers, service: Service, settings: Settings, fill: Callable[[Path], Path]
) -> None:
    """Nobody reads meanwhile, so SQLite writes over its log."""
    client = callers.submitter()
    model, failed = given.uploaded(service, b"model"), given.running(service)
    assert client.post(f"/v1/jobs/{failed.id}/cancel").status_code == 200
    asked: list[tuple[str, dict[str, object] | None]] = [
        ("/v1/jobs", {"model": model, "targets": [TARGET]}),
        ("/v1/jobs", {"models": [{"model": model}], "targets": [TARGET]}),
        (f"/v1/jobs/{failed.id}/retry", None),
    ]
    other = fill(settings.data)
    for path, body in asked * 2:
        answer = client.post(path, json=body)
        assert answer.status_code == 507, (path, answer.text)
        assert "disk" in answer.json()["detail"]
    other.unlink()
    assert [client.post(path, json=body).status_code for path, body in asked] == [202] * 3


@pytest.mark.parametrize("way", ["delete", "cancel", "model"])
def test_what_makes_room_works(
    callers: Callers, service: Service, settings: Settings, full: Callable[[], Path], way: str
) -> None:
    job = given.running(service)
    model = given.uploaded(service, os.urandom(2 * MEGABYTE))
    client: Client = callers.submitter()
    client.get("/v1/jobs")
    service.reserve.keep()
    full()
    assert client.post("/v1/jobs", json={"model": model, "targets": [TARGET]}).status_code == 507
    if way == "delete":
        assert client.delete(f"/v1/jobs/{job.id}").status_code == 204
        assert client.get(f"/v1/jobs/{job.id}").status_code == 404
    elif way == "cancel":
        assert client.post(f"/v1/jobs/{job.id}/cancel").json()["state"] == "cancelled"
    else:
        assert client.delete(f"/v1/models/{model}").status_code == 204
        with service.database.session() as session:
            assert session.get(StoredModel, ("", model)) is None


def test_what_was_given_up_is_held_again_when_there_is_room(
    callers: Callers, service: Service, settings: Settings, full: Callable[[], Path]
) -> None:
    job = given.running(service)
    client = callers.submitter()
    client.get("/v1/jobs")
    service.reserve.keep()
    reserve = settings.data / "reserve"
    assert reserve.stat().st_blocks * 512 == 16 * MEGABYTE
    other = full()
    assert client.delete(f"/v1/jobs/{job.id}").status_code == 204
    assert not reserve.exists()
    service.reserve.keep()
    assert not reserve.exists()
    other.unlink()
    service.reserve.keep()
    assert reserve.exists()


def test_it_starts_on_a_full_disk(
    callers: Callers, service: Service, settings: Settings, full: Callable[[], Path], fill: Callable[[Path], Path]
) -> None:
    """SQLite needs some room to begin, even if it only reads."""
    job = given.running(service)
    client = callers.reader()
    service.reserve.keep()
    service.database.close()
    fill(settings.data)
    with closing(open_service(settings)):
        assert client.get(f"/v1/jobs/{job.id}").status_code == 200
