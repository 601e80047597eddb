"""Nodes that must stay precise: asked for with a job, told with it, and fetched."""

from typing import Any

import pytest

from onnxbisect.precision.wanted import Low
from onnxbisect.terms import PrecisionTerms
from onnxbisect_db import lifecycle, measurements, searches
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import SVG, done, measured, precision_document, refusing_exp, to_measure, uploaded
from support.db.scenes import read, take

SAMPLE = b"a sample"


def ask(callers: Callers, service: Service, precision: object, *, sampled: bool = True, **more: Any) -> Any:
    client = callers.submitter()
    sample = client.put("/v1/files", content=SAMPLE).json()["sha256"]
    body = {
        "model": uploaded(service),
        "targets": [{"backend": "onnxruntime"}],
        "precision": precision,
        **({"calibration": {"0.npz": sample}} if sampled else {}),
        **more,
    }
    return client.post("/v1/jobs", json={name: it for name, it in body.items() if it is not None})


def told(callers: Callers, job: Job) -> Any:
    return callers.reader().get(f"/v1/jobs/{job.id}").json()["targets"][0]["precision"]


def test_what_is_wanted_is_kept_with_the_job(callers: Callers, service: Service) -> None:
    wanted = {"low": "float16", "metric": "maxabs", "at_most": 0.5, "budget": {"calls": 50, "seconds": 600}}
    made = ask(callers, service, wanted)
    assert made.status_code == 202, made.text
    assert made.json()["request"]["precision"] == wanted
    assert SearchSpec.from_json(made.json()["request"]).precision == PrecisionTerms(
        low=Low.FLOAT16, metric="maxabs", at_most=0.5, calls=50, seconds=600.0
    )
    assert made.json()["targets"][0]["precision"]["state"] == "queued"
    plain = ask(callers, service, {})
    assert plain.json()["request"]["precision"] == {"low": "int8", "metric": "sqnr"}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"metric": "masks.py:iou", "at_least": 0.9},
            "There is no metric 'masks.py:iou' on a server, which runs no code of yours: give sqnr, cosine, maxabs, or "
            "run `onnx-bisect precision` yourself",
        ),
        ({"metric": "psnr"}, "There is no metric 'psnr' on a server"),
        ({"metric": "sqnr", "at_most": 3}, "sqnr is the better the larger it is: give at_least"),
        ({"metric": "maxabs"}, "maxabs is the better the smaller it is: give at_most"),
        ({"low": "int4"}, "This must be 'int8' or 'float16'"),
        ({"at_least": "much"}, "This must be a number"),
        ({"budget": {"calls": 0}}, "This must be greater than or equal to 1"),
        ({"samples": {}}, "Nothing of this name is known here"),
        (True, "This must be an object"),
    ],
)
def test_what_cannot_be_wanted_is_refused_in_one_sentence(
    callers: Callers, service: Service, wrong: object, sentence: str
) -> None:
    answer = ask(callers, service, wrong)
    assert answer.status_code == 422
    assert sentence in answer.text


def test_without_samples_nothing_can_be_measured(callers: Callers, service: Service) -> None:
    answer = ask(callers, service, {}, sampled=False)
    assert answer.status_code == 422
    assert "upload some, and name them in calibration" in answer.text
    sample = callers.submitter().put("/v1/files", content=SAMPLE).json()["sha256"]
    part = {"model": uploaded(service), "calibration": {"0.npz": sample}}
    assert ask(callers, service, {}, sampled=False, model=None, models=[part]).status_code == 202


def test_a_job_that_asks_for_none_has_none(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    assert told(callers, job) is None
    answer = callers.reader().get(f"/v1/jobs/{job.id}/precision/precision.json")
    assert (answer.status_code, "Precision was not asked for" in answer.json()["detail"]) == (409, True)


def test_it_is_told_with_its_job_and_its_files_are_fetched(callers: Callers, service: Service) -> None:
    document = precision_document()
    job, client = measured(service, document), callers.reader()
    url = f"/v1/jobs/{job.id}/precision"
    assert told(callers, job) == {
        "state": "done",
        "ending": "minimal",
        "headline": "1 node has to stay.",
        "problem": "",
        "keep": 1,
        "asks": 2,
        "url": f"{url}/precision.json?target=1",
    }
    assert client.get(f"{url}/precision.json").json() == document
    picture = client.get(f"{url}/precision.svg")
    assert (picture.content, picture.headers["content-type"]) == (SVG, "image/svg+xml")
    assert "sandbox" in picture.headers["content-security-policy"]
    table = client.get(f"{url}/tpu_mlir.qtable")
    assert table.headers["content-disposition"] == 'attachment; filename="tpu_mlir.qtable"'
    assert client.get(f"{url}/tpu_mlir.qtable", headers={"If-None-Match": table.headers["etag"]}).status_code == 304
    assert client.get(f"{url}/rknn.hybrid.yaml").status_code == 404
    assert client.get(f"{url}/..%2Frepair.json").status_code in (404, 422)
    for path, address in client.get(f"/v1/jobs/{job.id}").json()["targets"][0]["files"].items():
        assert client.get(address).status_code == 200, path


def test_before_its_end_what_was_measured_is_told_as_events(callers: Callers, service: Service) -> None:
    job = to_measure(service)
    claimed = take(service.database, job.searches[0].id, Stage.PRECISION)
    one = MeasuredSet(arithmetic="npu", keep=("a",), work=0.1, value=float("nan"), shown="none", why="first")
    service.database.run(lambda session: measurements.add(session, claimed, "q", one))
    assert told(callers, job)["state"] == "running"
    answer = callers.reader().get(f"/v1/jobs/{job.id}/precision/precision.json")
    assert (answer.status_code, "There is nothing on precision yet" in answer.json()["detail"]) == (409, True)
    with service.database.session() as session:
        (row,) = measurements.latest(session, claimed.search, 5)
    assert (row.number, row.value, row.keep) == (1, None, ["a"])


def test_one_that_failed_says_why_and_is_retried(callers: Callers, service: Service) -> None:
    job = to_measure(service)
    claimed = take(service.database, job.searches[0].id, Stage.PRECISION)
    service.database.run(lambda session: searches.fail(session, claimed, "It does not run."))
    assert told(callers, job)["state"] == "failed"
    assert "It does not run." in callers.reader().get(f"/v1/jobs/{job.id}/precision/precision.json").json()["detail"]
    assert read(service.database, job).state == JobState.DONE
    service.database.run(lambda session: lifecycle.retry(session, job.id, ""))
    assert read(service.database, job).searches[0].stage == Stage.PRECISION
