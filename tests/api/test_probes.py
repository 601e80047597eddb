"""What was asked, over REST."""

from starlette.testclient import TestClient

from onnxbisect.answer import Answer
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import refusing_exp, running
from support.db.scenes import FAIL, answer, claimed


def test_probes_are_listed_as_reports_have_them(callers: Callers, service: Service) -> None:
    job = running(service, [0b1, 0b110, 0b11101])
    answer(service.database, claimed(service.database, worker="host-1"), FAIL, key="e" * 64)
    claimed(service.database, worker="host-2")
    client = callers.reader()
    url = f"/v1/jobs/{job.id}/probes"
    listed = client.get(url).json()
    first, second, third = (next(it for it in listed if it["size"] == size) for size in (1, 2, 4))
    assert (
        first.items()
        >= {
            "target": 1,
            "state": "done",
            "size": 1,
            "units": "0",
            "verdict": "fail",
            "kind": "unsupported",
            "message": "no Sin",
            "key": "e" * 64,
            "worker": "host-1",
            "round": 1,
            "cached": False,
        }.items()
    )
    assert (second["state"], second["units"], second["worker"], second["verdict"]) == ("running", "1-2", "host-2", None)
    assert (third["state"], third["units"], third["started_at"]) == ("queued", "0,2-4", None)
    assert [probe["id"] for probe in client.get(f"{url}?state=queued").json()] == [third["id"]]
    assert client.get(f"{url}?target=2").status_code == 404
    page = client.get(f"{url}?limit=2")
    rest = client.get(page.links["next"]["url"]).json()
    assert [probe["id"] for probe in page.json() + rest] == [probe["id"] for probe in listed]
    report = refusing_exp()["probes"][0]
    assert report.keys() - first.keys() == {"nodes"}


def log(client: TestClient, job_id: str, probe_id: str) -> str | None:
    response = client.get(f"/v1/jobs/{job_id}/probes/{probe_id}/log")
    if response.status_code == 404:
        return None
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    return response.text


def test_a_log_is_text_and_nothing_else(callers: Callers, service: Service) -> None:
    job = running(service, [1, 2])
    said = "\x1b[31merror:\x1b[0m <b>\u202eno</b>\r\nSin\n"
    refused = Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message="no Sin")
    probe = claimed(service.database)
    answer(service.database, probe, Answer(verdict=refused, log=said))
    unanswered = claimed(service.database)
    other = running(service, [1])
    client = callers.reader()
    assert log(client, job.id, probe.probe.id) == "error: <b>no</b>\nSin\n"
    assert log(client, job.id, unanswered.probe.id) == ""
    assert log(client, other.id, probe.probe.id) is None
    assert log(client, job.id, new_id()) is None
    assert log(callers.reader("other"), job.id, probe.probe.id) is None
