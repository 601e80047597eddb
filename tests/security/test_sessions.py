"""Lines 6 and 11 of the security checklist: what a model makes of onnxruntime, and what a log tells of the worker."""

import json
from pathlib import Path

import onnx
import pytest

from onnxbisect.answer import Answer
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.testing import conv_net, with_op
from onnxbisect_backends.vendors.ort.backend import OnnxRuntimeBackend
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import running, uploaded
from support.db.scenes import answer, claimed


def compiled(model: onnx.ModelProto, folder: Path) -> Outcome:
    """What onnxruntime makes of it."""
    probe, workdir = folder / "probe.onnx", folder / "work"
    onnx.save(model, probe)
    workdir.mkdir()
    return OnnxRuntimeBackend({}).compile(probe, workdir, Limits(seconds=60))


def test_6_a_model_does_not_configure_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime heeds the metadata where this variable says so, which a worker may have in its environment."""
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    model = conv_net()
    onnx.helper.set_model_props(model, {"ort_config": json.dumps({"session_options": {"enable_profiling": 1}})})
    outcome = compiled(model, tmp_path)
    assert outcome.exit_code == 0
    assert outcome.artifacts == (), "the model asks for a profile"
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("option", ["custom_ops", "register_custom_ops_library", "session.load_model_format"])
def test_6_no_library_of_ops_is_loaded_for_a_stranger(callers: Callers, service: Service, option: str) -> None:
    target = {"backend": "onnxruntime", "options": {option: "evil.so"}}
    response = callers.submitter().post("/v1/jobs", json={"model": uploaded(service), "targets": [target]})
    assert response.status_code == 422
    assert option in response.json()["detail"]


def test_11_a_log_does_not_tell_where_the_worker_works(callers: Callers, service: Service, tmp_path: Path) -> None:
    outcome = compiled(with_op("FancyAct", "vendor.npu"), tmp_path)
    verdict = OnnxRuntimeBackend({}).judge(outcome)
    assert verdict.status is Status.FAIL
    job = running(service, [1])
    probe = claimed(service.database)
    answer(service.database, probe, Answer(verdict=verdict, log=outcome.log))
    client = callers.reader()
    said = client.get(f"/v1/jobs/{job.id}/probes/{probe.probe.id}/log").text
    assert "model.onnx" in said, "onnxruntime says which file it was"
    assert str(tmp_path) not in said
    assert str(tmp_path) not in client.get(f"/v1/jobs/{job.id}/probes").text
