"""Hosts that share a bucket and no disk: the processes of docker-compose.yml, each with folders of its own."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import onnx
import pytest

from onnx_bisect import Client
from support import TESTS
from support.db import s3_server
from support.db.s3_server import BUCKET, S3Server
from support.production import topology
from support.production.topology import PROGRAM, Topology

pytestmark = pytest.mark.long

MODEL = TESTS / "cases" / "c2_chain100_3bad.onnx"
OTHER = TESTS / "cases" / "c4_chain100_adjpair.onnx"
DENY = {"deny": "Asinh,Cosh,Atan", "report": "none"}


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with s3_server.running() as server:
        yield server


@pytest.fixture
def service(store: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Topology]:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    with topology.running(tmp_path / "topology", files=f"s3://{BUCKET}/{tmp_path.name}") as running:
        yield running


def culprits_of_run(tmp_path: Path) -> str:
    options = [word for key, value in DENY.items() for word in ("--option", f"{key}={value}")]
    argv = [
        str(PROGRAM),
        "run",
        str(MODEL),
        "--backend",
        "whitelist",
        *options,
        "--no-cache",
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return json.dumps(json.loads((tmp_path / "run" / "report.json").read_bytes())["culprits"])


def test_nothing_is_lost_while_the_store_is_away_and_readyz_names_it(
    service: Topology, store: S3Server, tmp_path: Path
) -> None:
    with Client(service.url, service.token()) as client:
        job = client.submit(MODEL, backend="whitelist", options=DENY)
        time.sleep(1)
        store.stop()
        back_at = time.monotonic() + 20
        try:
            demand_that_it_is_named(service.client())
            time.sleep(max(back_at - time.monotonic(), 0))
        finally:
            store.start()
        result = job.result()
        result.culprits[0].save(tmp_path / "culprit.onnx")
        onnx.checker.check_model(tmp_path / "culprit.onnx")
        assert json.dumps(client.report(job.id, 1)["culprits"]) == culprits_of_run(tmp_path)
    assert service.client().put("/v1/models", content=OTHER.read_bytes()).status_code == 201
    assert not list(service.folder.rglob("data/*/files/??"))


def demand_that_it_is_named(client: httpx2.Client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "file store cannot be reached" in answer.json()["detail"]
    refused = client.put("/v1/models", content=MODEL.read_bytes())
    assert refused.status_code == 503, refused.text
    assert "cannot be used at the moment" in refused.json()["detail"]
