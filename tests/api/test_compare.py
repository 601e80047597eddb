"""Two jobs beside each other, over REST."""

from typing import Any

from onnxbisect_db import searches
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Search
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import NET, done, finish, refusing_exp, report_on, running
from support.db.scenes import new_job, prepare, take
from support.engine.report_factory import single


def compared(callers: Callers, a: str, b: str) -> dict[str, Any]:
    response = callers.reader().get(f"/v1/compare?a={a}&b={b}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_two_jobs_with_one_target_each(callers: Callers, service: Service) -> None:
    before, after = done(service, refusing_exp()), done(service, report_on(), backends=["another"])
    found = compared(callers, before.id, after.id)
    assert (found["only_a"], found["only_b"]) == ([], [])
    [target] = found["targets"]
    assert target["comparison"]["headline"] == "1 fixed, 0 new, 0 unchanged"
    assert target["comparison"]["fixed"][0]["nodes"] == ["/net/block.1/Exp"]


def test_targets_are_compared_with_their_like(callers: Callers, service: Service) -> None:
    erf = report_on(single(NET, [3], "no Erf"))
    before = done(service, refusing_exp(), erf, backends=["x", "y"])
    after = done(service, erf, refusing_exp(), erf, backends=["y", "x", "z"])
    found = compared(callers, before.id, after.id)
    assert [(target["a"], target["b"]) for target in found["targets"]] == [(1, 2), (2, 1)]
    assert {target["comparison"]["headline"] for target in found["targets"]} == {"0 fixed, 0 new, 1 unchanged"}
    assert (found["only_a"], found["only_b"]) == ([], [3])


def test_targets_that_differ_in_options_are_compared_where_none_is_alike(callers: Callers, service: Service) -> None:
    before = done(service, refusing_exp(), refusing_exp(), backends=["x", "y"])
    after = done(service, refusing_exp(), report_on(), backends=["y", "x"])
    with service.database.transaction() as session:
        session.get_one(Search, before.searches[0].id).options = {"chip": "a"}
    found = compared(callers, before.id, after.id)
    assert [(target["a"], target["b"]) for target in found["targets"]] == [(1, 2), (2, 1)]
    assert found["targets"][0]["comparison"]["headline"] == "1 fixed, 0 new, 0 unchanged"
    assert (found["only_a"], found["only_b"]) == ([], [])


def test_a_target_that_failed_keeps_no_other_from_being_compared(callers: Callers, service: Service) -> None:
    before = done(service, refusing_exp(), refusing_exp(), backends=["x", "y"])
    after = new_job(service.database, "x", "y")
    prepare(service.database, after.searches[0].id)
    finish(service, after.searches[0].id, report_on())
    claimed = take(service.database, after.searches[1].id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.fail(session, claimed, "y is not installed.")
    fine, failed = compared(callers, before.id, after.id)["targets"]
    assert fine["comparison"]["headline"] == "1 fixed, 0 new, 0 unchanged"
    assert failed["comparison"] is None
    assert "y is not installed." in failed["problem"]


def test_both_must_be_there_and_have_ended(callers: Callers, service: Service) -> None:
    mine, theirs = done(service, refusing_exp()), done(service, refusing_exp(), tenant="other")
    client = callers.reader()
    for other in (theirs.id, new_id()):
        assert client.get(f"/v1/compare?a={mine.id}&b={other}").status_code == 404
    response = client.get(f"/v1/compare?a={mine.id}&b={running(service).id}")
    assert (response.status_code, "is running" in response.json()["detail"]) == (409, True)
    assert client.get(f"/v1/compare?a={mine.id}").status_code == 422
    wrong = client.get(f"/v1/compare?a={mine.id}&b=x")
    assert (wrong.status_code, "This must be an id, as in " in wrong.text) == (422, True)
