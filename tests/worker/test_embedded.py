"""Everything in one process: what `onnx-bisect serve` starts."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from onnxbisect.errors import OptionError
from onnxbisect_backends.sandbox import isolation
from onnxbisect_db import lifecycle, workers
from onnxbisect_db.states import JobState, ProbeState
from onnxbisect_db.tables import Probe
from onnxbisect_worker.running import Running, embedded
from onnxbisect_worker.working import work
from support.worker.installation import Installation
from support.worker.small_models import chain

MODEL = Path(__file__).parent.parent / "cases" / "c2_chain100_3bad.onnx"
DENY = {"deny": "Asinh,Cosh,Atan", "report": "none"}


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    # without vendors' compilers, of which each would be tried when it starts
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    with closing(Installation.at(tmp_path)) as made:
        yield made


@contextmanager
def serving(it: Installation) -> Iterator[Running]:
    running = embedded(it.service)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.mark.long
def test_a_job_is_done_and_its_culprits_are_those_of_run(it: Installation, tmp_path: Path) -> None:
    with serving(it):
        job = it.submit(MODEL, DENY)
        ended = it.ended(job)
        assert (ended.state, ended.verdict) == (JobState.DONE, "fail")
        again = it.submit(MODEL, DENY)
        it.ended(again)
    options = [part for name, value in DENY.items() for part in ("--option", f"{name}={value}")]
    out, program = tmp_path / "run", Path(sys.executable).with_name("onnx-bisect")
    argv = [str(program), "run", str(MODEL), "--backend", "whitelist", *options, "--no-cache", "--out", str(out)]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    local = json.loads((out / "report.json").read_text())
    assert json.dumps(it.report(job)["culprits"]) == json.dumps(local["culprits"])
    assert json.dumps(it.report(again)["culprits"]) == json.dumps(it.report(job)["culprits"])
    assert it.report(again)["stats"]["compiler_calls"] == 0
    for name, sha256 in ended.searches[0].files.items():
        if name.endswith(".onnx"):
            assert it.service.files.path(sha256).read_bytes() == (out / name).read_bytes()
    assert len([name for name in ended.searches[0].files if name.endswith(".onnx")]) == 3


def test_cancelling_ends_the_compiler_within_two_seconds(tmp_path: Path) -> None:
    # with one slot there is one host, that which compiles: a second one may be idle, and would stay warm
    with closing(Installation.at(tmp_path, slots="1")) as it, serving(it):
        job = it.submit(MODEL, {**DENY, "delay": "600"})
        while not compiling(it):
            time.sleep(0.05)
        assert it.hosts()
        it.service.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
        assert it.gone(2, it.hosts)
        assert it.read(job).state == JobState.CANCELLED


@pytest.mark.long
def test_what_was_in_hand_when_it_stopped_goes_on_when_it_starts_again(it: Installation) -> None:
    with serving(it):
        job = it.submit(MODEL, {**DENY, "delay": "0.1"})
        it.until_asked(job, 2)
    assert it.gone(0)
    assert not running_probes(it)
    with it.service.database.session() as session:
        assert [row.losses for row in session.scalars(select(Probe)) if row.losses] == []
        assert workers.list_all(session) == []
    with serving(it):
        assert it.ended(job).state == JobState.DONE
    assert len(it.report(job)["culprits"]) == 3


@pytest.mark.long
def test_it_tells_what_compilers_it_has(it: Installation) -> None:
    with serving(it):
        give_up = time.monotonic() + 60
        tools: dict[str, str] = {}
        unusable: list[str] = []
        levels: dict[str, str] = {}
        while not tools:
            assert time.monotonic() < give_up
            with it.service.database.session() as session:
                for row in workers.list_all(session):
                    tools, unusable, levels = row.tools, row.unusable or [], row.isolation or {}
            time.sleep(0.05)
    assert tools["onnxruntime"].startswith("onnxruntime 1.")
    assert tools["whitelist"] != ""
    assert tools.keys() >= {"pulsar2", "tpu-mlir", "qnn", "rknn"}
    assert not {"onnxruntime", "whitelist"} & set(unusable)
    assert (levels["onnxruntime"], levels["pulsar2"]) == (isolation.available(), "none")
    assert ("acuity" in unusable) == (shutil.which("pegasus") is None)


def test_a_queue_in_memory_is_for_one_process_alone(it: Installation, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="ONNXBISECT_REDIS_URL"):
        work(it.settings, backends=["whitelist"])
    shared = Installation.at(tmp_path / "shared", redis_url="redis://127.0.0.1:1/0")
    with closing(shared), pytest.raises(OptionError, match="onnx-bisect worker"):
        embedded(shared.service)


def compiling(it: Installation) -> bool:
    """Whether a host has read the model, cut a probe and said what it is: the next that it does is to compile it."""
    named = (Probe.state == ProbeState.RUNNING, Probe.key.is_not(None))
    with it.service.database.session() as session:
        return session.scalars(select(Probe.id).where(*named)).first() is not None


def running_probes(it: Installation) -> int:
    with it.service.database.session() as session:
        return len(list(session.scalars(select(Probe.id).where(Probe.state == ProbeState.RUNNING))))


@pytest.mark.long
def test_a_job_is_not_slower_for_earlier_ones_with_the_same_refused_op(it: Installation, tmp_path: Path) -> None:
    def probes(number: int) -> int:
        model = tmp_path / f"{number}.onnx"
        model.write_bytes(chain(*["Relu"] * (number + 12), "Asinh", *["Tanh"] * 3))
        job = it.ended(it.submit(model, DENY))
        assert it.report(job)["culprits"][0]["ops"] == ["Asinh"]
        with it.service.database.session() as session:
            return session.query(Probe).where(Probe.search_id == job.searches[0].id).count()

    with serving(it):
        counts = [probes(number) for number in range(6)]
    # longer chains need a question more; each earlier culprit's file used to cost one as well
    assert max(counts) <= counts[0] + 3, counts
