"""Causes are confirmed before a report is written: as `run` does it."""

from contextlib import closing
from pathlib import Path

import pytest

import onnx_bisect
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.running import embedded
from support.engine.refusals import model_of
from support.worker.installation import Installation

#: Gathers of one place, which the target below takes with lists of indices only.
BODY = """(float[4,4,8] x) => (float[4,8] y) {
    i = Constant<value_int = 0>() j = Constant<value_int = 1>()
    a = Gather<axis = 1>(x, i) b = Gather<axis = 1>(x, j) c = Add(a, b) y = Relu(c)
}"""
PROFILE = """
profile = "lists"
tool = "lists"
version = "1"
source = "made up"
[ops.Add]
[ops.Relu]
[ops.Gather]
constraints = [{ kind = "input", name = "indices", rule = "rank_in", value = [1] }]
"""


@pytest.mark.long
def test_a_job_says_what_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "lists.toml").write_text(PROFILE)
    options = {"profile": str(tmp_path / "lists.toml")}
    path = model_of(tmp_path, BODY).path
    local = onnx_bisect.diagnose(path, backend="whitelist", options=options, as_is=True, confirm_causes=3)

    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            job = it.submit(path, options, spec=SearchSpec(as_is=True, confirm_causes=3))
            ended = it.ended(job)
        finally:
            running.stop()
        report = it.report(job)
    (cause,) = report["causes"]
    assert cause["state"] == "confirmed"
    assert [one["passes"] for one in cause["contrast"]] == ["Gather with indices of rank 1"]
    assert [report[key] for key in ("causes", "culprits", "certificate")] == [
        local.report[key] for key in ("causes", "culprits", "certificate")
    ]
    assert report["stats"]["compiler_calls"] == ended.searches[0].calls + 1  # of one neighbour
