"""What the service's compiles see of the service: line 10 of the security checklist."""

import os
from pathlib import Path

import pytest

from onnxbisect.errors import OptionError
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_service.settings import Settings
from onnxbisect_worker.model_processes import confinement
from onnxbisect_worker.tools import isolated
from support.worker.hosted import MODELS, Place

#: Fails with what it finds of the service: its folder, environment and processes.
SPY = """
name = "spy"
summary = "Fails with what it finds."
dynamic_shapes = true
command = ["{python}", "{here}/spy.py", "{model}", "{data}", "{pid}"]
[options]
data = {default = "/"}
pid = {default = "1"}
"""
AWAY = """
name = "away"
isolated = false
dynamic_shapes = true
command = ["touch", "{here}/ran", "{model}"]
"""
LOOK = """
import os, sys
model, data, pid = sys.argv[1:]
found = sorted(str(os.path.join(at, name))[len(data) + 1:] for at, _, names in os.walk(data) for name in names)
mine = [name for name in found if "probe-" in name]
print("error: strangers", [name for name in found if name not in mine], "process", os.path.exists(f"/proc/{pid}"))
print("reads", len(open(model, "rb").read()) > 0, "writes", open("out", "w").write("x"))
sys.exit(1)
"""


@pytest.fixture
def namespaces() -> None:
    if isolation.available() is Isolation.NONE:
        pytest.skip("the kernel allows no namespaces here")


def spied(tmp_path: Path, **settings: object) -> str:
    folder = tmp_path / "compiler"
    folder.mkdir()
    (folder / "spy.toml").write_text(SPY)
    (folder / "spy.py").write_text(LOOK)
    data = tmp_path / "data"
    place = Place.at(data, **settings)
    (data / "token").write_text("obk_secret")
    options = {"data": str(data), "pid": str(os.getpid())}
    case = place.case(MODELS / "computed_shape.onnx", str(folder / "spy.toml"), options=options)
    with place.hosts() as hosts, hosts.acquire(case) as host:
        prepared = host.prepare()
        asked = host.ask(prepared.universe.everything, seconds_left=None)
    assert asked.answer is not None
    assert asked.answer.verdict.status is Status.FAIL, asked.answer
    return asked.answer.log


@pytest.mark.usefixtures("namespaces")
def test_10_a_compile_sees_nothing_of_the_service(tmp_path: Path) -> None:
    log = spied(tmp_path, isolation="required", work=tmp_path / "work")
    assert log.splitlines() == ["error: strangers [] process False", "reads True writes 1"]


@pytest.mark.usefixtures("namespaces")
def test_10_nor_where_its_own_folder_is_in_that_of_the_service(tmp_path: Path) -> None:
    assert "strangers [] process False" in spied(tmp_path, isolation="auto")


def test_10_without_isolation_it_sees_what_its_user_sees(tmp_path: Path) -> None:
    """What SECURITY.md says, so that the tests above are known to look at the right thing."""
    log = spied(tmp_path, isolation="none")
    assert "'token'" in log
    assert "process True" in log


@pytest.mark.usefixtures("namespaces")
def test_10_a_backend_that_cannot_be_isolated_is_not_run_where_it_has_to_be(tmp_path: Path) -> None:
    folder = tmp_path / "compiler"
    folder.mkdir()
    (folder / "away.toml").write_text(AWAY)
    place = Place.at(tmp_path / "data", isolation="required")
    case = place.case(MODELS / "computed_shape.onnx", str(folder / "away.toml"), options={})
    with place.hosts() as hosts, hosts.acquire(case) as host:
        asked = host.ask(host.prepare().universe.everything, seconds_left=None)
    assert asked.answer is not None
    assert (asked.answer.verdict.status, asked.answer.verdict.kind) == (Status.UNRESOLVED, Kind.ERROR)
    assert "cannot be isolated" in asked.answer.verdict.message
    assert not (folder / "ran").exists()


def test_10_what_is_required_and_cannot_be_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "available", lambda: Isolation.NONE)
    with pytest.raises(OptionError, match="ONNXBISECT_ISOLATION"):
        confinement.level(Settings(data=tmp_path, isolation="required"))
    assert confinement.confinement(Settings(data=tmp_path, isolation="auto")) is None


def test_10_compilers_are_told_apart_by_whether_they_bear_it() -> None:

    assert isolated("onnxruntime", Isolation.NAMESPACES) is Isolation.NAMESPACES
    assert isolated("openvino", Isolation.NAMESPACES) is Isolation.NAMESPACES
    assert isolated("pulsar2", Isolation.NAMESPACES) is Isolation.NONE, "its container, or its licence, is outside"
    assert isolated("onnxruntime", Isolation.NONE) is Isolation.NONE
