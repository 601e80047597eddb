"""Reports in every form, of one target and of several, and what a browser may do with them."""

from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from httpx2 import Response

from onnx_bisect import overview_schema, report_schema
from onnxbisect.report.files import FORMS
from onnxbisect_db import lifecycle, searches
from onnxbisect_db.errors import DamagedFileError
from onnxbisect_db.states import Stage
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import LOG, NET, ONNX, done, finish, refusing_exp, report_on, running
from support.db.scenes import new_job, prepare, read, take
from support.engine.report_factory import HOSTILE, chain, single


def test_every_form_is_what_run_writes(callers: Callers, service: Service) -> None:
    report = refusing_exp()
    url = f"/v1/jobs/{done(service, report).id}/report"
    client = callers.reader()
    forms = {"json": "report.json", "md": "report.md", "html": "report.html"}
    forms |= {"junit": "junit.xml", "sarif": "report.sarif", "gitlab": "gitlab-codequality.json"}
    for form, name in forms.items():
        response = client.get(f"{url}?format={form}")
        assert response.status_code == 200
        assert f'filename="{name}"' in response.headers["content-disposition"]
        if form == "json":
            assert response.json() == report
        else:
            assert response.text == FORMS[name](report)
    jsonschema.validate(client.get(url).json(), report_schema())
    ElementTree.fromstring(client.get(f"{url}?format=junit").text)  # noqa: S314 - our own
    assert client.get(f"{url}?format=pdf").status_code == 422


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
        ("text/markdown;q=0.5, application/sarif+json", "application/sarif+json"),
        ("application/pdf, text/*;q=0.1", "text/markdown"),
        ("application/xml;q=0, application/json;q=nonsense, */*;q=0.1", "application/json"),
    ],
)
def test_the_form_is_what_the_client_likes_best(
    callers: Callers, service: Service, accept: str | None, media_type: str
) -> None:
    url = f"/v1/jobs/{done(service, refusing_exp()).id}/report"
    response = callers.reader().get(url, headers={} if accept is None else {"Accept": accept})
    assert response.headers["content-type"].partition(";")[0] == media_type
    assert response.headers["vary"] == "Accept, Accept-Language, Cookie"


def test_a_client_that_takes_no_form_is_told_which_there_are(callers: Callers, service: Service) -> None:
    url = f"/v1/jobs/{done(service, refusing_exp()).id}/report"
    response = callers.reader().get(url, headers={"Accept": "image/png"})
    assert response.status_code == 406
    assert "sarif" in response.json()["detail"]


def test_what_a_client_has_is_not_sent_again(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    client = callers.reader()
    tags = set()
    for path in ("report", "report?format=html", "culprits/1/model.onnx", "culprits/1/compiler.log"):
        first = client.get(f"/v1/jobs/{job.id}/{path}")
        tag = first.headers["etag"]
        assert tag.startswith('"')
        tags.add(tag)
        for said in (tag, f'"other", W/{tag}', "*"):
            again = client.get(f"/v1/jobs/{job.id}/{path}", headers={"If-None-Match": said})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert client.get(f"/v1/jobs/{job.id}/{path}", headers={"If-None-Match": '"other"'}).status_code == 200
    assert len(tags) == 4


def test_names_from_the_model_do_nothing_in_a_browser(callers: Callers, service: Service) -> None:
    model = chain(["Relu", "Exp"], {1: HOSTILE})
    url = f"/v1/jobs/{done(service, report_on(single(model, [1], HOSTILE), model=model)).id}/report"
    response = callers.reader().get(f"{url}?format=html")
    assert "<img" not in response.text
    policy = response.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    for form in ("junit", "sarif", "gitlab"):
        assert callers.reader().get(f"{url}?format={form}").headers["content-disposition"].startswith("attachment")


def test_a_culprit_s_files(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    client = callers.reader()
    model = client.get(f"/v1/jobs/{job.id}/culprits/1/model.onnx")
    assert model.content == ONNX
    assert model.headers["content-disposition"] == 'attachment; filename="model.onnx"'
    assert model.headers["content-type"] == "application/octet-stream"
    log = client.get(f"/v1/jobs/{job.id}/culprits/1/compiler.log")
    assert log.content == LOG
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    for missing in ("2/model.onnx", "1/model.data", "0/model.onnx", "1/secret", "x/model.onnx", "1/..%2fmodel.onnx"):
        assert client.get(f"/v1/jobs/{job.id}/culprits/{missing}").status_code == 404


def test_what_somebody_changed_in_the_bucket_is_said_and_not_shown(
    callers: Callers, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = done(service, refusing_exp())

    def damaged(sha256: str) -> None:
        raise DamagedFileError(f"The file store s3://b has other bytes than it was given for {sha256}: …")

    monkeypatch.setattr(service.files, "open", damaged)
    monkeypatch.setattr(service.files, "path", damaged)
    client = callers.reader()
    for address in ("report", "report?format=md", "culprits/1/model.onnx"):
        response = client.get(f"/v1/jobs/{job.id}/{address}")
        assert (response.status_code, "other bytes" in response.json()["detail"]) == (502, True), address
    page = client.get(f"/jobs/{job.id}", headers={"Accept": "text/html"})
    assert (page.status_code, "other bytes" in page.text) == (502, True)


def test_a_part_of_a_file_is_sent_where_the_client_says_which(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp())
    client = callers.reader()

    def asked(part: str) -> Response:
        return client.get(f"/v1/jobs/{job.id}/culprits/1/compiler.log", headers={"Range": part})

    some = asked("bytes=0-4")
    assert (some.status_code, some.content) == (206, b"ERROR")
    for unread in ("lines=1-2", "bytes=5-2", "bytes=", "nonsense"):
        assert (asked(unread).status_code, asked(unread).content) == (200, LOG)
    beyond = asked(f"bytes={len(LOG)}-")
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(LOG)}")
    assert beyond.headers["content-type"] == "application/problem+json"


def test_a_report_that_is_not_there_yet_says_so(callers: Callers, service: Service) -> None:
    job = running(service)
    client = callers.reader()
    for path in ("report", "culprits/1/model.onnx"):
        response = client.get(f"/v1/jobs/{job.id}/{path}")
        assert response.status_code == 409
        assert "is running" in response.json()["detail"]
    with service.database.transaction() as session:
        lifecycle.cancel(session, job.id, "")
    assert "retry" in client.get(f"/v1/jobs/{job.id}/report").json()["detail"]


class TestSeveralTargets:
    def test_each_has_its_report(self, callers: Callers, service: Service) -> None:
        other = report_on(single(NET, [3], "no Erf"))
        job = done(service, refusing_exp(), other)
        client = callers.reader()
        assert client.get(f"/v1/jobs/{job.id}/report?target=2").json() == other
        assert client.get(f"/v1/jobs/{job.id}/report?target=3").status_code == 404
        assert client.get(f"/v1/jobs/{job.id}/report?target=0").status_code == 422
        assert client.get(f"/v1/jobs/{job.id}/culprits/1/model.onnx?target=2").status_code == 200
        assert "?target" in client.get(f"/v1/jobs/{job.id}/culprits/1/model.onnx").json()["detail"]

    def test_without_a_number_there_is_the_overview(self, callers: Callers, service: Service) -> None:
        job = done(service, refusing_exp(), report_on(), backends=("npu", "npu"))
        client = callers.reader()
        found = self.overview(client.get(f"/v1/jobs/{job.id}/report").json())
        assert [(target["label"], target["state"]) for target in found["targets"]] == [
            ("npu-1", "fail"),
            ("npu-2", "pass"),
        ]
        assert found["culprits"][0]["places"] == [["/net/block.1/Exp"]]
        page = client.get(f"/v1/jobs/{job.id}/report?format=html")
        assert 'href="report?target=2&amp;format=html"' in page.text
        assert "sandbox" in page.headers["content-security-policy"]
        assert "(report?target=1&format=md)" in client.get(f"/v1/jobs/{job.id}/report?format=md").text
        again = client.get(f"/v1/jobs/{job.id}/report", headers={"If-None-Match": page.headers["etag"]})
        assert again.status_code == 200
        refused = client.get(f"/v1/jobs/{job.id}/report?format=sarif")
        assert (refused.status_code, "?target" in refused.json()["detail"]) == (422, True)

    def test_a_target_that_failed_has_its_line(self, callers: Callers, service: Service) -> None:
        job = new_job(service.database, "npu", "gone")
        fail(service, job.searches[1].id, "gone is not installed.")
        client = callers.reader()
        assert client.get(f"/v1/jobs/{job.id}/report").status_code == 409
        prepare(service.database, job.searches[0].id)
        finish(service, job.searches[0].id, refusing_exp())
        assert read(service.database, job).state == "done"
        found = self.overview(client.get(f"/v1/jobs/{job.id}/report").json())
        assert found["targets"][1]["sentence"] == "gone is not installed."
        assert "gone is not installed." in client.get(f"/v1/jobs/{job.id}/report?target=2").json()["detail"]

    def test_where_none_has_a_report_it_is_said_why(self, callers: Callers, service: Service) -> None:
        job = new_job(service.database, "npu", "gone")
        for search in job.searches:
            fail(service, search.id, "the model is cyclic")
        response = callers.reader().get(f"/v1/jobs/{job.id}/report")
        assert response.status_code == 409
        assert "the model is cyclic" in response.json()["detail"]

    @staticmethod
    def overview(found: dict[str, Any]) -> dict[str, Any]:
        jsonschema.validate(found, overview_schema())
        return found


def fail(service: Service, search_id: str, problem: str) -> None:
    claimed = take(service.database, search_id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.fail(session, claimed, problem)
