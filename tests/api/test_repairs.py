"""Repairs: asked for with a job, told with it, and fetched."""

from typing import Any

import pytest
from fastapi import FastAPI

from onnxbisect.terms import made as terms_made
from onnxbisect_db import lifecycle, searches
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job
from onnxbisect_service.search_spec import RepairSpec, SearchSpec
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import REPAIRED, done, refusing_exp, repair_document, repaired, to_repair, uploaded
from support.db.scenes import read, take


def ask(callers: Callers, service: Service, repair: object) -> Any:
    body = {"model": uploaded(service), "targets": [{"backend": "onnxruntime"}], "repair": repair}
    return callers.submitter().post("/v1/jobs", json=body)


def told(callers: Callers, job: Job) -> Any:
    return callers.reader().get(f"/v1/jobs/{job.id}").json()["targets"][0]["repair"]


def test_what_a_repair_may_do_is_kept_with_the_job(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    sample = client.put("/v1/files", content=b"a sample").json()["sha256"]
    wanted: dict[str, Any] = {
        "allow": "approximate",
        "samples": {"0.npz": sample},
        "count": 2,
        "absolute": 0.0,
        "relative": 0.01,
        "alternatives": {"optimization": []},
    }
    made = ask(callers, service, wanted)
    assert made.status_code == 202
    assert made.json()["request"]["repair"] == wanted
    assert SearchSpec.from_json(made.json()["request"]).repair == terms_made(RepairSpec, wanted)
    assert made.json()["targets"][0]["repair"]["state"] == "queued"
    # the job keeps its sample, whoever deletes the upload
    assert client.delete(f"/v1/files/{sample}").status_code == 204
    assert service.files.path(sample).exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"allow": "anything"},
        {"samples": {"../0.npz": "a" * 64}},
        {"samples": {"0.npz": "b" * 64}},
        {"count": 0},
        {"relative": -1},
        {"alternatives": "some"},
        {"alternatives": {}},
        {"alternatives": {"no_such_option": []}},
        {"more": 1},
        True,
    ],
)
def test_what_no_repair_may_do_is_refused(callers: Callers, service: Service, wrong: object) -> None:
    assert ask(callers, service, wrong).status_code == 422


def test_other_options_name_no_file_of_the_server(callers: Callers, service: Service) -> None:
    wanted = {"alternatives": {"profile": ["/etc/passwd"]}}
    body = {
        "model": uploaded(service),
        "targets": [{"backend": "whitelist", "options": {"deny": "Abs"}}],
        "repair": wanted,
    }
    answer = callers.submitter().post("/v1/jobs", json=body)
    assert answer.status_code == 422
    assert "names a file or a program of the machine where it runs" in answer.json()["detail"]


def test_a_job_that_asks_for_none_has_none(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    assert told(callers, job) is None
    answer = callers.reader().get(f"/v1/jobs/{job.id}/repair")
    assert answer.status_code == 409
    assert "No repair was asked for" in answer.json()["detail"]


def test_a_repair_is_told_with_its_job_and_fetched_in_each_form(callers: Callers, service: Service) -> None:
    document = repair_document()
    job = repaired(service, document)
    url, client = f"/v1/jobs/{job.id}/repair", callers.reader()
    assert told(callers, job) == {
        "state": "done",
        "verdict": "fail",
        "problem": "",
        "changes": 1,
        "left": 1,
        "calls": 2,
        "url": f"{url}?target=1",
        "model": f"{url}/model.onnx?target=1",
    }
    assert client.get(url).json() == document
    markdown = client.get(url, params={"format": "md"})
    assert (markdown.text, markdown.headers["content-type"]) == ("# repaired\n", "text/markdown; charset=utf-8")
    model = client.get(f"{url}/model.onnx")
    assert model.content == REPAIRED
    assert model.headers["content-disposition"] == 'attachment; filename="repaired.onnx"'
    assert client.get(f"{url}/model.onnx", headers={"If-None-Match": model.headers["etag"]}).status_code == 304
    assert client.get(f"{url}/report.json").json() == {}
    assert client.get(f"{url}/culprits.json").status_code == 404
    for path, address in client.get(f"/v1/jobs/{job.id}").json()["targets"][0]["files"].items():
        assert client.get(address).status_code == 200, path


def test_of_several_targets_one_is_named(callers: Callers, service: Service) -> None:
    job = repaired(service, repair_document(), refusing_exp(), refusing_exp())
    client = callers.reader()
    assert client.get(f"/v1/jobs/{job.id}/repair").status_code == 422
    assert client.get(f"/v1/jobs/{job.id}/repair?target=2").status_code == 200
    assert client.get(f"/v1/jobs/{job.id}/repair?target=3").status_code == 404


def test_a_repair_is_nobody_elses(callers: Callers, service: Service) -> None:
    job = repaired(service, repair_document())
    for path in ("repair", "repair/model.onnx"):
        assert callers.reader("others").get(f"/v1/jobs/{job.id}/{path}").status_code == 404
        assert callers.nobody().get(f"/v1/jobs/{job.id}/{path}").status_code == 401


def test_before_its_end_there_is_the_report_and_no_repair(callers: Callers, service: Service) -> None:
    job = to_repair(service)
    client = callers.reader()
    assert client.get(f"/v1/jobs/{job.id}").json()["state"] == "running"
    assert client.get(f"/v1/jobs/{job.id}/report").status_code == 200
    assert told(callers, job)["state"] == "running"
    answer = client.get(f"/v1/jobs/{job.id}/repair")
    assert answer.status_code == 409
    assert "no repair yet" in answer.json()["detail"]


def test_one_that_failed_says_why_and_is_retried(callers: Callers, service: Service) -> None:
    job = to_repair(service)
    claimed = take(service.database, job.searches[0].id, Stage.REPAIR)
    service.database.run(lambda session: searches.fail(session, claimed, "It does not run."))
    assert (told(callers, job)["state"], told(callers, job)["problem"]) == ("failed", "It does not run.")
    client = callers.submitter()
    assert "It does not run." in client.get(f"/v1/jobs/{job.id}/repair").json()["detail"]
    assert read(service.database, job).state == JobState.DONE
    again = client.post(f"/v1/jobs/{job.id}/retry").json()
    assert (again["state"], again["targets"][0]["verdict"]) == ("queued", "fail")


def test_one_that_was_cancelled_says_so(callers: Callers, service: Service) -> None:
    job = to_repair(service)
    service.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
    assert told(callers, job)["state"] == "cancelled"
    assert "cancelled" in callers.reader().get(f"/v1/jobs/{job.id}/repair").json()["detail"]


def test_the_api_describes_repairs(callers: Callers) -> None:
    app = callers.app
    assert isinstance(app, FastAPI)
    assert {"/v1/jobs/{job_id}/repair", "/v1/jobs/{job_id}/repair/{name}"} <= app.openapi()["paths"].keys()
