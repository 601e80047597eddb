"""The request for a job: its description in OpenAPI, and how it is stored."""

import json
import re
from typing import Any

import pytest

from onnxbisect_db import jobs
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import uploaded
from support.golden import same_as_golden

SAMPLE = b"a sample"
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {
        "input_shapes": {"x": [1, 3, 224, 224]},
        "input_values": {"sr": 16000},
        "calibration": {"0.npz": "SAMPLE"},
        "budget": {"calls": 100, "seconds": 60},
        "seconds": 30,
        "recheck": True,
        "as_is": True,
        "confirm_causes": 3,
        "repair": {
            "allow": "approximate",
            "samples": {"0.npz": "SAMPLE"},
            "count": 2,
            "absolute": 0.0,
            "relative": 0.01,
            "alternatives": {"optimization": []},
        },
    },
    "repair": {"repair": {}, "budget": {"calls": 7}},
    "precision": {
        "calibration": {"0.npz": "SAMPLE"},
        "precision": {"low": "float16", "metric": "maxabs", "at_most": 0.5, "budget": {"calls": 9, "seconds": 60}},
    },
}


def test_the_description_of_the_request_stays(callers: Callers) -> None:
    schemas = callers.nobody().get("/openapi.json").json()["components"]["schemas"]
    wanted, found = ["JobRequest"], {}
    while wanted:
        if (name := wanted.pop()) not in found:
            found[name] = schemas[name]
            wanted += re.findall(r"#/components/schemas/(\w+)", json.dumps(schemas[name]))
    assert same_as_golden("job_request.json", json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_stored_of_a_request_stays(callers: Callers, service: Service, name: str) -> None:
    client = callers.submitter()
    sample = client.put("/v1/files", content=SAMPLE).json()["sha256"]
    request = json.loads(json.dumps(REQUESTS[name]).replace("SAMPLE", sample))
    request |= {"model": uploaded(service), "targets": [{"backend": "onnxruntime"}]}
    made = client.post("/v1/jobs", json=request).json()
    with service.database.session() as session:
        job = jobs.get(session, made["id"], "")
    assert job is not None
    assert SearchSpec.from_json(job.request).to_json() == job.request
    assert same_as_golden(f"stored_{name}.json", json.dumps(job.request, indent=1, sort_keys=True) + "\n")
