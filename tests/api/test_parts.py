"""Several models over REST: a job for each, made at once, and the table of what came of them."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxbisect.report.contents import Report
from onnxbisect_db import jobs, lifecycle
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.fixtures import Notified
from support.api.given import NET, finish, refusing_exp, report_on, uploaded
from support.db.scenes import prepare
from support.engine.report_factory import HOSTILE, chain, single

TARGETS = [{"backend": "onnxruntime"}, {"backend": "whitelist", "options": {"profile": "edgesam"}}]


def three(service: Service, tenant: str = "") -> list[str]:
    return [
        uploaded(service, name.encode(), tenant=tenant, name=f"{name}.onnx")
        for name in ("encoder", "prompt", "decoder")
    ]


def submitted(client: TestClient, models: list[Any], key: str | None = None, **wanted: Any) -> dict[str, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    response = client.post("/v1/jobs", json={"models": models, "targets": TARGETS[:1], **wanted}, headers=headers)
    assert response.status_code == 202, response.text
    found: dict[str, Any] = response.json()
    assert response.headers["location"] == found["report"]
    return found


def end(service: Service, job: dict[str, Any], *reports: Report) -> None:
    with service.database.session() as session:
        row = jobs.get(session, job["id"], "")
    assert row is not None
    for search, report in zip(row.searches, reports, strict=True):
        prepare(service.database, search.id)
        finish(service, search.id, report)


def test_each_model_gets_a_job_with_its_own_terms(callers: Callers, service: Service, notified: Notified) -> None:
    first, second, third = three(service)
    parts = [first, {"model": second, "input_shapes": {"tokens": [1, 7]}, "input_values": {"k": 2}}, third]
    shared: dict[str, Any] = {"input_shapes": {"x": [3]}, "input_values": {"sr": 1}, "labels": {"net": "sam"}}
    made = submitted(callers.submitter(), parts, targets=TARGETS, **shared)
    assert [job["model"]["name"] for job in made["jobs"]] == ["encoder.onnx", "prompt.onnx", "decoder.onnx"]
    assert len(notified) == 1
    with service.database.session() as session:
        rows = [jobs.get(session, job["id"], "") for job in made["jobs"]]
    shapes = [dict(SearchSpec.from_json(row.request).input_shapes) for row in rows if row is not None]
    assert shapes == [{"x": (3,)}, {"x": (3,), "tokens": (1, 7)}, {"x": (3,)}]
    values = [dict(SearchSpec.from_json(row.request).input_values) for row in rows if row is not None]
    assert values == [{"sr": 1}, {"sr": 1, "k": 2}, {"sr": 1}]
    listed = callers.reader().get(f"/v1/jobs?label={made['label']}&label=net:sam").json()
    assert {job["id"] for job in listed} == {job["id"] for job in made["jobs"]}


def test_the_table_has_every_model_and_the_causes_they_share(callers: Callers, service: Service) -> None:
    made = submitted(callers.submitter(), three(service))
    client = callers.reader()
    waiting = client.get(made["report"])
    assert (waiting.status_code, "3 of 3 jobs" in waiting.json()["detail"]) == (409, True)
    for job, report in zip(made["jobs"], [refusing_exp(), report_on(), refusing_exp()], strict=True):
        end(service, job, report)
    found = client.get(made["report"]).json()
    assert found["format"] == "onnx-bisect/parts@1"
    assert [(row["label"], row["cells"]["onnxruntime"]["state"]) for row in found["models"]] == [
        ("encoder", "fail"),
        ("prompt", "pass"),
        ("decoder", "fail"),
    ]
    [cause] = found["causes"]
    assert [share["model"] for share in cause["shares"]] == ["encoder", "decoder"]
    page = client.get(f"{made['report']}&format=html")
    assert f"jobs/{made['jobs'][0]['id']}/report?target=1&amp;format=html" in page.text
    assert "sandbox" in page.headers["content-security-policy"]
    assert f"(jobs/{made['jobs'][1]['id']}/report?target=1&format=md)" in client.get(f"{made['report']}&format=md").text
    assert client.get(f"{made['report']}&format=sarif").status_code == 422
    again = client.get(f"{made['report']}&format=html", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304


def test_all_jobs_are_made_or_none(callers: Callers, service: Service, notified: Notified) -> None:
    client = callers.submitter()
    models = [*three(service), "f" * 64]
    response = client.post("/v1/jobs", json={"models": models, "targets": TARGETS})
    assert (response.status_code, "f" * 64 in response.json()["detail"]) == (422, True)
    assert client.get("/v1/jobs").json() == []
    assert notified == []


def test_the_same_key_makes_the_same_jobs(callers: Callers, service: Service, notified: Notified) -> None:
    client, models = callers.submitter(), three(service)
    first, again = (submitted(client, models, key="k", webhook="https://ci.example.com/hook") for _ in range(2))
    assert first == again
    assert len(notified) == 1
    assert len({job["webhook_secret"] for job in first["jobs"]}) == 3
    other = client.post(
        "/v1/jobs", json={"models": models[:2], "targets": TARGETS[:1]}, headers={"Idempotency-Key": "k"}
    )
    assert other.status_code == 422


def test_a_later_job_on_a_model_takes_the_place_of_the_earlier(callers: Callers, service: Service) -> None:
    client, models = callers.submitter(), three(service)
    made = submitted(client, models, labels={"parts": "sam"})
    assert made["label"] == "parts:sam"
    for job in made["jobs"]:
        end(service, job, refusing_exp())
    labels = {"parts": "sam", "part": "1"}
    later = client.post("/v1/jobs", json={"model": models[0], "targets": TARGETS[:1], "labels": labels}).json()
    end(service, later, report_on())
    found = client.get("/v1/parts?label=parts:sam").json()
    assert [(row["label"], row["cells"]["onnxruntime"]["state"]) for row in found["models"]] == [
        ("encoder", "pass"),
        ("prompt", "fail"),
        ("decoder", "fail"),
    ]


def test_a_model_has_the_name_of_its_file(callers: Callers, service: Service) -> None:
    names = ["sam_part1__ts11", "模型", "解码器"]
    made = submitted(callers.submitter(), [uploaded(service, name.encode(), name=f"{name}.onnx") for name in names])
    for job in made["jobs"]:
        end(service, job, report_on())
    assert [row["label"] for row in callers.reader().get(made["report"]).json()["models"]] == names


def test_models_of_one_name_and_cancelled_jobs_have_their_rows(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    made = submitted(client, [uploaded(service, text) for text in (b"one", b"two")])
    end(service, made["jobs"][0], report_on(single(NET, [3], "no Erf")))
    with service.database.transaction() as session:
        lifecycle.cancel(session, made["jobs"][1]["id"], "")
    found = client.get(made["report"]).json()
    assert [(row["label"], row["cells"]["onnxruntime"]["state"]) for row in found["models"]] == [
        ("net", "fail"),
        ("net-2", "not_asked"),
    ]


def test_one_compiler_with_other_options_has_a_column_of_its_own(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    for model, deny, report in zip(
        three(service), ("Exp", "Sin", "Exp"), (refusing_exp(), report_on()) * 2, strict=False
    ):
        asked = {
            "model": model,
            "targets": [{"backend": "whitelist", "options": {"deny": deny}}],
            "labels": {"net": "x"},
        }
        end(service, client.post("/v1/jobs", json=asked).json(), report)
    found = client.get("/v1/parts?label=net:x").json()
    assert [[row["cells"][target]["state"] for target in found["targets"]] for row in found["models"]] == [
        ["fail", "not_asked"],
        ["not_asked", "pass"],
        ["fail", "not_asked"],
    ]
    assert [row["cells"]["whitelist-1"]["state"] for row in found["models"]] == ["fail", "not_asked", "fail"]


def test_nobody_sees_the_jobs_of_others(callers: Callers, service: Service) -> None:
    made = submitted(callers.submitter(), three(service))
    for job in made["jobs"]:
        end(service, job, report_on())
    assert callers.reader("other").get(made["report"]).status_code == 404
    assert callers.nobody().get(made["report"]).status_code == 401
    assert callers.reader().get("/v1/parts").status_code == 422


def test_names_from_models_do_nothing_in_a_browser(callers: Callers, service: Service) -> None:
    model = chain(["Relu", "Exp"], {1: HOSTILE})
    made = submitted(callers.submitter(), [uploaded(service, b"x", name=f"{HOSTILE}.onnx"), *three(service)[:1]])
    for job in made["jobs"]:
        end(service, job, report_on(single(model, [1], HOSTILE), model=model))
    page = callers.reader().get(f"{made['report']}&format=html")
    assert page.status_code == 200
    assert "<img" not in page.text


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"targets": TARGETS}, "either model or models"),
        ({"targets": TARGETS, "model": "a" * 64, "models": ["a" * 64]}, "either model or models"),
        ({"targets": TARGETS, "models": ["a" * 64, "a" * 64]}, "named twice"),
        ({"targets": TARGETS, "models": ["nonsense"]}, "models"),
        ({"targets": TARGETS, "models": "a" * 64}, "models"),
    ],
)
def test_what_is_wrong_is_said(callers: Callers, wanted: dict[str, Any], words: str) -> None:
    response = callers.submitter().post("/v1/jobs", json=wanted)
    assert response.status_code == 422
    assert words in response.text
