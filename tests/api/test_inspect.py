"""`POST /v1/inspect`: what a target minds about a model, from a process of its own, without a job."""

import onnx
import pytest

from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import uploaded

NET = """<ir_version: 10, opset_import: ["" : 17]>
g (float[2,3] x) => (bool[2,3] y) <int64[2] i = {0, 1}> { a = Gather <axis = 0> (x, i)  y = IsNaN(a) }"""


@pytest.fixture
def model(service: Service) -> str:
    return uploaded(service, onnx.parser.parse_model(NET).SerializeToString())


def test_the_findings_are_those_of_the_target(callers: Callers, model: str) -> None:
    target = {"backend": "whitelist", "options": {"profile": "edgesam"}}
    answer = callers.submitter().post("/v1/inspect", json={"model": model, "target": target})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["format"] == "onnx-bisect/inspection@1"
    assert found["name"] == "net.onnx"
    details = {it["id"]: it["detail"] for it in found["findings"]}
    assert details["op-refused"] == "Gather: 1 node"
    assert details["op-not-known"] == "IsNaN: 1 node"


def test_without_a_target_they_are_general(callers: Callers, model: str) -> None:
    found = callers.submitter().post("/v1/inspect", json={"model": model}).json()
    assert found["target"] == ""
    assert "ir-version-too-new" in {it["id"] for it in found["findings"]}


def test_values_are_bound_as_in_a_job(callers: Callers, service: Service) -> None:
    net = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x, bool fast) => (float[4] y) {
            y = If (fast) <then_branch = a () => (float[4] t) { t = Relu (x) },
                           else_branch = b () => (float[4] e) { e = Neg (x) }>
        }"""
    )
    model = uploaded(service, net.SerializeToString())
    found = callers.submitter().post("/v1/inspect", json={"model": model, "input_values": {"fast": True}})
    assert [it["name"] for it in found.json()["inputs"]] == ["x"]
    wrong = callers.submitter().post("/v1/inspect", json={"model": model, "input_values": {"fast": 2}})
    assert (wrong.status_code, "bool" in wrong.json()["detail"]) == (422, True)


def test_nothing_is_kept_or_shown_to_others(callers: Callers, service: Service, model: str) -> None:
    assert callers.reader().post("/v1/inspect", json={"model": model}).status_code == 403
    assert callers.submitter(tenant="other").post("/v1/inspect", json={"model": model}).status_code == 404
    assert callers.reader().get("/v1/jobs").json() == []


def test_what_cannot_be_is_a_sentence(callers: Callers, service: Service, model: str) -> None:
    client = callers.submitter()
    wrong = client.post(
        "/v1/inspect", json={"model": model, "target": {"backend": "whitelist", "options": {"prof": "x"}}}
    )
    assert (wrong.status_code, "profile" in wrong.json()["detail"]) == (422, True)
    junk = client.post("/v1/inspect", json={"model": uploaded(service, b"junk")})
    assert (junk.status_code, "ONNX" in junk.json()["detail"]) == (422, True)
