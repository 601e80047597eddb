"""The processes of docker-compose.yml, end to end: upload, wait, report, webhook, cancel; and the culprits of `run`."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

import onnx_bisect
from support import TESTS
from support.cli.command_line import Shell
from support.production import topology
from support.production.topology import PROGRAM, Part, Topology
from support.worker.webhook_receiver import Receiver

pytestmark = pytest.mark.long

CASES = TESTS / "cases"
MODELS = TESTS / "models"
SAM = MODELS / "sam_part1_prompt__ts11.onnx"

#: Models with culprits of one op and of two, of logs that say all, little, or nothing; and what ONNX files may have in
#: them: weights beside the file, bodies that read outer values, functions, odd names, quantised weights.
TARGETS = {
    "sam_decoder": (TESTS.parent / "examples" / "sam_decoder.onnx", {"profile": "edgesam"}),
    "adjacent pair": (CASES / "c4_chain100_adjpair.onnx", {"fail_patterns": "Sinh>Cosh", "report": "none"}),
    "pair far apart": (CASES / "c5_chain100_farpair.onnx", {"fail_patterns": "Asinh&Cosh", "report": "none"}),
    "three ops, no words": (CASES / "c2_chain100_3bad.onnx", {"deny": "Asinh,Cosh,Atan", "report": "none"}),
    "external data": (MODELS / "external" / "external_data.onnx", {"deny": "Relu"}),
    "bodies": (MODELS / "control_captures.onnx", {"deny": "Mul"}),
    "functions": (MODELS / "local_functions.onnx", {"deny": "Erf"}),
    "names": (MODELS / "names_weird.onnx", {"deny": "Abs"}),
    "quantised": (MODELS / "quantized.onnx", {"deny": "Conv"}),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    with topology.running(tmp_path_factory.mktemp("topology"), workers=4) as running:
        yield running


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """URL and token of `onnx-bisect serve` as it is started on a laptop."""
    folder = tmp_path_factory.mktemp("alone")
    others = {name: value for name, value in os.environ.items() if not name.startswith("ONNXBISECT_")}
    # without vendors' compilers, of which each would be tried
    environment = {**others, "ONNXBISECT_CACHE_DIR": str(folder / "cache")}
    arguments = ("serve", "--data", str(folder / "data"), "--port", "0")
    part = Part(name="serve", arguments=arguments, environment=environment, log=folder / "log")
    part.start()
    try:
        give_up = time.monotonic() + 120
        while "the token is in " not in (said := part.log.read_text()):
            assert time.monotonic() < give_up, said
            time.sleep(0.1)
        words = said.split()
        yield words[words.index("at") + 1], (folder / "data" / "token").read_text().strip()
    finally:
        assert part.stop() == 0


@pytest.mark.timeout(900)
def test_culprits_are_the_same_bytes_in_run_in_python_in_serve_and_with_four_workers(
    service: Topology,
    alone: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    subtests: pytest.Subtests,
) -> None:
    """One test, since each process of pytest that had some of them would start all that is compared."""
    servers = {"serve": alone, "workers": (service.url, service.token("the same"))}
    with ExitStack() as stack:
        clients = {where: stack.enter_context(onnx_bisect.Client(*server)) for where, server in servers.items()}
        jobs = {
            (name, where): client.submit(model, backend="whitelist", options=options)
            for name, (model, options) in TARGETS.items()
            for where, client in clients.items()
        }
        for name, (model, options) in TARGETS.items():
            with subtests.test(name):
                folder = tmp_path / name
                folder.mkdir()
                shell = Shell(folder=folder, monkeypatch=monkeypatch, capture=capfd)
                words = [word for key, value in options.items() for word in ("--option", f"{key}={value}")]
                done = shell.call("run", "--no-cache", str(model), "-b", "whitelist", *words, "-o", str(folder / "run"))
                assert done.code == 1, done.err
                local = onnx_bisect.diagnose(model, backend="whitelist", options=options, cache=False)
                local.write(folder / "python")
                for where in servers:
                    jobs[name, where].result().write(folder / where)

                found = [culprits(folder / where) for where in ("run", "python", *servers)]
                assert found[1:] == found[:1] * 3


def culprits(folder: Path) -> bytes:
    """What the report says of them, and their models."""
    files = sorted(folder.glob("culprits/*/model.onnx"))
    assert files
    found = json.loads((folder / "report.json").read_bytes())["culprits"]
    return b"\n".join([json.dumps(found).encode(), *(file.read_bytes() for file in files)])


def test_from_upload_to_report_and_webhook(service: Topology) -> None:
    receiver = Receiver()
    receiver.up()
    try:
        client = service.client("end to end")
        sha256 = client.put("/v1/models", params={"name": "sam.onnx"}, content=SAM.read_bytes()).json()["sha256"]
        targets: list[dict[str, Any]] = [
            {"backend": "whitelist", "options": {"profile": "edgesam"}},
            {"backend": "stand-in", "options": {"deny": "Sin-Cos"}},
            {"backend": "onnxruntime"},
            {"backend": "own-chip"},
        ]
        made = client.post("/v1/jobs", json={"model": sha256, "targets": targets, "webhook": receiver.url})
        assert made.status_code == 202, made.text
        job = ended(client, made.json()["id"])
        assert (job["state"], job["verdict"]) == ("done", "fail"), job["problem"]
        assert [target["verdict"] for target in job["targets"]] == ["fail", "fail", "pass", "fail"]
        own = client.get(f"/v1/jobs/{job['id']}/report", params={"target": 4, "format": "json"}).json()
        assert [culprit["ops"] for culprit in own["culprits"]] == [["Cos"]]
        assert own["target"]["tool"] == "own chip's compiler"
        report = client.get(f"/v1/jobs/{job['id']}/report", params={"target": 2, "format": "json"}).json()
        assert sorted(culprit["ops"] for culprit in report["culprits"]) == [["Cos"], ["Sin"]]
        model = client.get(f"/v1/jobs/{job['id']}/culprits/1/model.onnx", params={"target": 2}).content
        assert report["culprits"][0]["ops"][0].encode() in model
        for form, mark in (("html", "<html"), ("junit", "<testsuite"), ("sarif", '"2.1.0"')):
            assert mark in client.get(f"/v1/jobs/{job['id']}/report", params={"target": 1, "format": form}).text

        told = job["targets"]
        wanted = {"job.started": 1, "job.finished": 1, "culprit.found": sum(len(each["culprits"]) for each in told)}
        give_up = time.monotonic() + 60
        while len({message.id for message in receiver.messages}) < sum(wanted.values()):
            assert time.monotonic() < give_up, receiver.messages
            time.sleep(0.1)
        payloads = [message.verified(made.json()["webhook_secret"]) for message in receiver.messages]
        assert {kind: sum(it["type"] == kind for it in payloads) for kind in wanted} == wanted
        assert {it["data"]["job"] for it in payloads} == {job["id"]}
    finally:
        receiver.down()


def test_cancelling_kills_the_compiler_within_two_seconds(service: Topology) -> None:
    client = service.client("in a hurry")
    sha256 = client.put("/v1/models", content=SAM.read_bytes()).json()["sha256"]
    target = {"backend": "stand-in", "options": {"deny": "Sin", "delay": "600"}}
    job = client.post("/v1/jobs", json={"model": sha256, "targets": [target]}).json()["id"]
    until(lambda: bool(compilers(service)), seconds=90)
    began = time.monotonic()
    assert client.post(f"/v1/jobs/{job}/cancel").json()["state"] == "cancelled"
    until(lambda: not compilers(service), seconds=30)
    assert time.monotonic() - began < 2


def test_a_worker_of_a_container_says_that_it_is_alive(service: Topology) -> None:
    argv = [str(PROGRAM), "worker", "--alive"]
    assert subprocess.run(argv, env=dict(service.environment), check=False).returncode == 0


def compilers(service: Topology) -> list[str]:
    return [command for command in service.processes().values() if "stand_in_compiler.py" in command]


def ended(client: httpx2.Client, job: str, seconds: float = 200) -> dict[str, Any]:
    give_up = time.monotonic() + seconds
    while (found := client.get(f"/v1/jobs/{job}", params={"wait": 30}).json())["state"] in ("queued", "running"):
        assert time.monotonic() < give_up, found
    return dict(found)


def until(true: Any, *, seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.02)
