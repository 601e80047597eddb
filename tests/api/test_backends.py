"""Compilers and workers over REST."""

from datetime import timedelta
from typing import Any

from sqlalchemy import update

from onnxbisect_db import workers
from onnxbisect_db.database import now
from onnxbisect_db.tables import Worker
from onnxbisect_db.workers import Presence
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import running
from support.db.scenes import answer, claimed


def backend(callers: Callers, name: str) -> dict[str, Any]:
    response = callers.reader().get("/v1/backends")
    assert response.status_code == 200
    found: dict[str, Any] = next(each for each in response.json() if each["name"] == name)
    return found


def test_what_is_installed_is_listed_with_its_options(callers: Callers) -> None:
    vela = backend(callers, "vela")
    assert (vela["queued"], vela["running"], vela["at_most"], vela["workers"]) == (0, 0, None, [])
    options = {option["name"]: option for option in vela["options"]}
    assert options["converter"]["local"]
    assert (options["fallback"]["default"], options["fallback"]["choices"]) == ("allow", ["allow", "forbid"])


def test_workers_tell_what_they_have_and_what_they_cannot_use(callers: Callers, service: Service) -> None:
    tools = {"onnxruntime": "onnxruntime 1.31.1", "vela": "vela is not on PATH."}
    mine = ("house-npu", "onnxruntime", "vela")
    here = Presence(
        id="host-1",
        backends=mine,
        slots=2,
        tools=tools,
        unusable=frozenset({"vela"}),
        isolation={"onnxruntime": "namespaces", "vela": "none"},
    )
    with service.database.transaction() as session:
        workers.record_heartbeat(session, here)
        workers.record_heartbeat(session, Presence(id="host-2", backends=("vela",), slots=1))
        past = now(session) - timedelta(minutes=5)
        session.execute(update(Worker).where(Worker.id == "host-2").values(seen_at=past))
    told = {"id": "host-1", "takes": True}
    assert backend(callers, "onnxruntime")["workers"] == [
        {**told, "usable": True, "says": "onnxruntime 1.31.1", "isolation": "namespaces"}
    ]
    assert backend(callers, "vela")["workers"] == [
        {**told, "usable": False, "says": "vela is not on PATH.", "isolation": "none"}
    ]
    assert backend(callers, "house-npu")["workers"] == [{**told, "usable": None, "says": "", "isolation": None}]
    present = callers.reader().get("/v1/workers").json()
    assert [(worker["id"], worker["alive"], worker["slots"]) for worker in present] == [
        ("host-1", True, 2),
        ("host-2", False, 1),
    ]


def test_a_worker_is_busy_with_what_it_has_in_hand(callers: Callers, service: Service) -> None:
    with service.database.transaction() as session:
        for name in ("host-1", "host-2"):
            workers.record_heartbeat(session, Presence(id=name, backends=("npu",), slots=4))
    running(service, [1, 2, 3])
    answer(service.database, claimed(service.database, worker="host-1"))
    claimed(service.database, worker="host-1")
    present = callers.reader().get("/v1/workers").json()
    assert [(worker["id"], worker["busy"]) for worker in present] == [("host-1", 1), ("host-2", 0)]


def test_an_admin_bounds_a_queue(callers: Callers, service: Service) -> None:
    running(service, [1, 2, 3])
    claimed(service.database)
    assert (backend(callers, "npu")["queued"], backend(callers, "npu")["running"]) == (2, 1)
    for at_most in (1, 0, None):
        response = callers.admin().patch("/v1/backends/npu", json={"at_most": at_most})
        assert response.status_code == 200
        assert response.json()["at_most"] == backend(callers, "npu")["at_most"] == at_most
    for wrong in ({}, {"at_most": -1}, {"at_most": "x"}, {"at_most": 1, "more": 2}):
        assert callers.admin().patch("/v1/backends/npu", json=wrong).status_code == 422
    assert callers.admin().patch("/v1/backends/nowhere", json={"at_most": 1}).status_code == 404
    assert callers.submitter().patch("/v1/backends/npu", json={"at_most": 1}).status_code == 403
