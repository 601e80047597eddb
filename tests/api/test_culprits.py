"""Culprits over all jobs, over REST."""

import hashlib
from typing import Any

from sqlalchemy import update
from starlette.testclient import TestClient

from onnxbisect_db.states import CulpritState
from onnxbisect_db.tables import CulpritVerdict, KnownCulprit
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import LOG, NET, ONNX, done, refusing_exp, repair_document, repaired, report_on
from support.engine.report_factory import single


def one(client: TestClient) -> dict[str, Any]:
    (found,) = client.get("/v1/culprits").json()
    return dict(client.get(f"/v1/culprits/{found['id']}").json())


def test_a_culprit_of_two_jobs_is_told_once(callers: Callers, service: Service) -> None:
    jobs = [done(service, refusing_exp(), labels={"branch": name}) for name in ("main", "next")]
    done(service, refusing_exp(), tenant="other")
    client = callers.reader()
    found = one(client)
    assert (found["state"], found["ops"], found["message"], found["found"]) == ("open", ["Exp"], "no Exp", 2)
    assert found["identity"] == refusing_exp()["culprits"][0]["id"]
    assert found["cause"] == refusing_exp()["causes"][0]["text"]
    assert found["labels"] == {"branch": ["main", "next"]}
    assert [model["name"] for model in found["models"]] == ["net.onnx"]
    assert found["jobs"] == [f"/v1/jobs/{job.id}" for job in reversed(jobs)]
    (target,) = found["targets"]
    assert (target["backend"], target["options"]) == ("npu0", {})
    assert [(version["version"], version["status"]) for version in target["versions"]] == [("1", "fail")]
    assert client.get(found["files"]["model.onnx"]).content == ONNX
    log = client.get(found["files"]["compiler.log"])
    assert (log.content, log.headers["content-type"]) == (LOG, "text/plain; charset=utf-8")
    again = client.get(found["files"]["compiler.log"], headers={"If-None-Match": log.headers["etag"]})
    assert again.status_code == 304


def test_what_a_repair_has_replaced_has_a_remedy(callers: Callers, service: Service) -> None:
    report = report_on(single(NET, [1], "no Exp"), single(NET, [3], "no Erf"))
    (node,) = report["culprits"][0]["nodes"]
    document = repair_document(node)
    repaired(service, document, report)
    found = {each["ops"][0]: each["remedy"] for each in callers.reader().get("/v1/culprits").json()}
    assert found == {"Exp": document["changes"][0]["rules"][0]["id"], "Erf": ""}


def test_the_vendor_is_told_how_to_reproduce_it_and_nothing_of_the_model(callers: Callers, service: Service) -> None:
    done(service, report_on(single(NET, [1], "no ```Exp`|`\nat all")), labels={"repo": "secret"})
    client = callers.reader()
    answer = client.get(one(client)["issue"])
    assert answer.headers["content-type"].startswith("text/markdown")
    text = answer.text
    assert text.startswith("# `Exp` is refused by `t 1`\n")
    assert "| `t 1` | fail |" in text
    assert "Compile it with no options." in text
    assert hashlib.sha256(ONNX).hexdigest() in text
    assert f"```text\n{LOG.decode()}```\n" in text
    assert "at all`" in text, "the message stays in its code span"
    assert "net.onnx" not in text
    assert "secret" not in text
    with service.database.transaction() as session:
        session.execute(update(CulpritVerdict).values(files=None))
    assert "No file that reproduces it" in client.get(one(client)["issue"]).text


def test_of_a_large_culprit_the_first_ops_are_remembered(callers: Callers, service: Service) -> None:
    report = refusing_exp()
    report["culprits"][0]["ops"] = ["Exp"] * 1000
    done(service, report)
    assert one(callers.reader())["ops"] == ["Exp"] * 64


def test_lists_are_filtered_and_come_in_pages(callers: Callers, service: Service) -> None:
    done(service, report_on(single(NET, [1], "no Exp"), single(NET, [2], "no Tanh"), single(NET, [3], "no Erf")))
    client = callers.reader()
    first = client.get("/v1/culprits?limit=2&target=npu0")
    rest = client.get(first.links["next"]["url"])
    assert sorted(each["ops"][0] for each in first.json() + rest.json()) == ["Erf", "Exp", "Tanh"]
    assert [each["ops"] for each in client.get("/v1/culprits?text=TANH").json()] == [["Tanh"]]
    assert client.get("/v1/culprits?state=fixed").json() == []
    assert client.get("/v1/culprits?label=repo:net").json() == []
    assert "did you mean 'target'" in client.get("/v1/culprits?tarket=npu0").json()["detail"]


def test_somebody_sees_to_a_culprit(callers: Callers, service: Service) -> None:
    done(service, refusing_exp())
    client = callers.submitter()
    url = one(client)["url"]
    assert callers.reader().patch(url, json={"state": "known"}).status_code == 403
    assert client.patch(url, json={"state": "known"}).json()["state"] == "known"
    wrong = client.patch(url, json={"state": "fixed"})
    assert (wrong.status_code, wrong.json()["detail"]) == (422, "body.state: This must be 'open' or 'known'.")
    assert client.patch(url, json={"state": "open"}).json()["state"] == "open"
    with service.database.transaction() as session:
        session.get_one(KnownCulprit, one(client)["id"]).state = CulpritState.FIXED
    refused = client.patch(url, json={"state": "open"})
    assert (refused.status_code, "by itself" in refused.json()["detail"]) == (409, True)


def test_what_belongs_to_another_tenant_is_not_there(callers: Callers, service: Service) -> None:
    done(service, refusing_exp())
    url, stranger = one(callers.reader())["url"], callers.submitter("other")
    assert stranger.get("/v1/culprits").json() == []
    answers = [stranger.get(url), stranger.patch(url, json={"state": "known"}), stranger.get(f"{url}/model.onnx")]
    assert [answer.status_code for answer in answers] == [404, 404, 404]
