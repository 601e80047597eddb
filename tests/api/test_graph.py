"""Pictures of models over REST: what is sent, what is sent again, and what there is no picture of."""

import gzip
import json
import subprocess
import sys
from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxbisect_api.routes import graph
from onnxbisect_db import lifecycle
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import done, pictured, refusing_exp, running, uploaded
from support.db.scenes import new_job, prepare
from support.engine.report_factory import HOSTILE, chain


def drawn(caller: TestClient, job: Job, **asked: Any) -> dict[str, Any]:
    response = caller.get(f"/v1/jobs/{job.id}/graph", params=asked)
    assert response.status_code == 200, response.text
    drawing: dict[str, Any] = response.json()
    return drawing


def refused(caller: TestClient, job: Job, status: int, path: str = "graph", **asked: Any) -> str:
    response = caller.get(f"/v1/jobs/{job.id}/{path}", params=asked)
    assert response.status_code == status, response.text
    return str(response.json()["detail"])


def of_model(service: Service, model: Any) -> Job:
    """A job whose model was read."""
    job = new_job(service.database, "npu", model_sha256=uploaded(service))
    prepare(service.database, job.searches[0].id, graph=pictured(service, model))
    return job


def test_the_whole_model(callers: Callers, service: Service) -> None:
    whole = drawn(callers.reader(), running(service))
    assert whole["format"] == "onnx-bisect/graph@1"
    assert (whole["total"], whole["units"], whole["ops"]) == (4, [0, 1, 2, 3], ["Relu", "Exp", "Tanh", "Erf"])
    assert whole["names"][1] == "/net/block.1/Exp"
    assert [edge[:2] for edge in whole["edges"]] == [[0, 1], [1, 2], [2, 3]]
    assert whole["tensors"][whole["edges"][0][2]] == ["t0", "float[1,4]"]
    assert whole["y"] == sorted(set(whole["y"]))
    assert whole["height"] >= max(whole["y"]) + 17
    [[name, kind, readers, x, y, bends]] = whole["inputs"]
    assert (name, kind, readers, x, bends) == ("x", "float[1,4]", [0], whole["x"][0], [[]])
    assert y < whole["y"][0]
    [[name, kind, makers, x, y, bends]] = whole["outputs"]
    assert (name, kind, makers, x, bends) == ("t3", "float[1,4]", [3], whole["x"][3], [[]])
    assert y > whole["y"][3]


def test_what_is_around_some_units(callers: Callers, service: Service) -> None:
    job = of_model(service, chain(["Relu"] * 9))
    part = drawn(callers.reader(), job, around="3,3-4", hops=1)
    assert (part["total"], part["units"]) == (9, [2, 3, 4, 5])
    assert [edge[:2] for edge in part["edges"]] == [[0, 1], [1, 2], [2, 3]]
    assert (part["inputs"], part["outputs"]) == ([], [])
    assert drawn(callers.reader(), job, around="8", hops=0)["outputs"][0][2] == [0]
    assert drawn(callers.reader(), job, around="0-8", hops=50)["units"] == list(range(9))


def test_what_is_known_of_a_unit(callers: Callers, service: Service) -> None:
    job = running(service)
    caller = callers.reader()
    assert caller.get(f"/v1/jobs/{job.id}/graph/1").json() == {
        "unit": 1,
        "name": "/net/block.1/Exp",
        "op": "Exp",
        "facts": {"input 0": "float[1,4]"},
        "inputs": [{"tensor": "t0", "type": "float[1,4]", "from": 0}],
        "outputs": [{"tensor": "t1", "type": "float[1,4]", "to": [2]}],
    }
    assert caller.get(f"/v1/jobs/{job.id}/graph/0").json()["inputs"][0]["from"] is None
    assert refused(caller, job, 404, "graph/4") == "There is no such unit of this model."


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip, deflate, br", True),
        ("*", True),
        ("gzip;q=0.5", True),
        ("", False),
        ("br", False),
        ("gzip;q=0, *", False),
    ],
)
@pytest.mark.parametrize("asked", [{}, {"around": "1"}])
def test_it_is_packed_for_whoever_takes_it(
    callers: Callers, service: Service, accepted: str, packed: bool, asked: dict[str, str]
) -> None:
    job = running(service)
    request = callers.reader().build_request(
        "GET", f"/v1/jobs/{job.id}/graph", params=asked, headers={"accept-encoding": accepted}
    )
    response = callers.reader().send(request, stream=True)
    raw = b"".join(response.iter_raw())
    assert (response.headers.get("content-encoding") == "gzip") is packed
    assert response.headers["vary"] == "Accept-Encoding"
    assert json.loads(gzip.decompress(raw) if packed else raw)["total"] == 4


@pytest.mark.parametrize("path", ["graph", "graph?around=1", "graph?around=1&hops=0", "graph/1"])
def test_what_a_client_has_is_not_sent_again(callers: Callers, service: Service, path: str) -> None:
    job = running(service)
    caller = callers.reader()
    first = caller.get(f"/v1/jobs/{job.id}/{path}")
    again = caller.get(f"/v1/jobs/{job.id}/{path}", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = caller.get(f"/v1/jobs/{job.id}/graph?around=2", headers={"if-none-match": first.headers["etag"]})
    assert other.status_code == 200


def test_where_there_is_no_picture_it_is_said_why(callers: Callers, service: Service) -> None:
    caller = callers.reader()
    job = new_job(service.database, "npu", model_sha256=uploaded(service))
    for path in ("graph", "graph/0"):
        assert "the model is not read" in refused(caller, job, 409, path)
    prepare(service.database, job.searches[0].id, graph=None)
    assert "Make the job again" in refused(caller, job, 409)
    cancelled = new_job(service.database, "npu", model_sha256=uploaded(service))
    with service.database.transaction() as session:
        lifecycle.cancel(session, cancelled.id, "")
    assert "cancelled" in refused(caller, cancelled, 409)


def test_one_of_several_targets_is_to_be_named(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp(), refusing_exp())
    assert "?target=" in refused(callers.reader(), job, 422)
    assert drawn(callers.reader(), job, target=2)["total"] == 4


def test_pictures_belong_to_a_tenant(callers: Callers, service: Service) -> None:
    job = running(service)
    for path in ("graph", "graph/0"):
        refused(callers.reader("other"), job, 404, path)
        assert callers.nobody().get(f"/v1/jobs/{job.id}/{path}").status_code == 401


@pytest.mark.parametrize("ranges", ["", "a", "1-", "-1", "1,,2", "1;2", "99999999", "1 ", "1-2-3"])
def test_only_ranges_are_ranges(callers: Callers, service: Service, ranges: str) -> None:
    refused(callers.reader(), running(service), 422, around=ranges)


def test_units_that_are_not_there_are_told(callers: Callers, service: Service) -> None:
    told = refused(callers.reader(), running(service), 422, around="1-7")
    assert told == "The model has units 0 to 3, and there is no unit 7."
    backwards = refused(callers.reader(), running(service), 422, around="3-1")
    assert backwards == "'3-1' names no unit: a range goes from the lower number to the higher, as 3-5."


def test_a_part_is_drawn_while_somebody_waits_so_it_has_a_bound(
    callers: Callers, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "MOST_AROUND", 4)
    job = of_model(service, chain(["Relu"] * 9))
    assert len(drawn(callers.reader(), job, around="1", hops=2)["units"]) == 4
    assert "5 of 9 units" in refused(callers.reader(), job, 422, around="2", hops=2)
    refused(callers.reader(), job, 422, around="2", hops=51)


def test_names_are_fit_to_be_shown(callers: Callers, service: Service) -> None:
    job = of_model(service, chain(["Relu", "Exp"], {0: HOSTILE, 1: "long/" * 1000}))
    for text in (callers.reader().get(f"/v1/jobs/{job.id}/{path}").text for path in ("graph", "graph/0", "graph/1")):
        assert not {"\x1b", "\u202e", "\x00", "\ufffe"} & set(text)
        assert len(text) < 3000


def test_it_is_made_without_onnx() -> None:
    """The service's memory: a process that draws parts of models has neither library."""
    code = "import sys, onnxbisect.drawing.network; print(sorted({'onnx', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_files_for_model_explorer(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp(), refusing_exp())
    caller = callers.reader()
    address = f"/v1/jobs/{job.id}/model-explorer"
    [graph] = caller.get(f"{address}/graph.json").json()
    verdicts = caller.get(f"{address}/verdicts.json?target=2")
    assert verdicts.headers["content-disposition"] == 'attachment; filename="verdicts.json"'
    assert verdicts.json()[graph["id"]]["results"]["/net/block.1/Exp"]["value"] == "culprit 1: no Exp"
    same = caller.get(f"{address}/verdicts.json?target=2", headers={"if-none-match": verdicts.headers["etag"]})
    assert same.status_code == 304
    assert caller.get(f"{address}/verdicts.json").status_code == 422
    assert caller.get(f"{address}/else.json").status_code == 404
    assert callers.reader("other").get(f"{address}/graph.json").status_code == 404


def test_the_model_is_there_for_model_explorer_before_its_verdicts(callers: Callers, service: Service) -> None:
    job = running(service)
    address = f"/v1/jobs/{job.id}/model-explorer"
    assert callers.reader().get(f"{address}/graph.json").status_code == 200
    assert "no report yet" in refused(callers.reader(), job, 409, "model-explorer/verdicts.json")


def test_drawing_logs_nothing() -> None:
    program = """
from pathlib import Path
from onnxbisect.drawing.layout import layout
from onnxbisect_service.logs import configure
from onnxbisect_service.settings import Settings

configure(Settings(data=Path()))
layout(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
