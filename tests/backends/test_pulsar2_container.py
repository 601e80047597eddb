"""pulsar2 through docker: how it is called, and that no container outlives its compile."""

import ast
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import onnx
import pytest

from onnxbisect.errors import BackendUnusableError
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Limits
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.testing import conv_net, processes_in
from onnxbisect_backends.vendors.pulsar2 import Pulsar2Backend
from support.backends import pulsar2_tools

IMAGE = {"image": "pulsar2:5.1"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the stand-ins are."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pulsar2_tools.docker(folder):
        yield folder


def calls(folder: Path) -> list[list[str]]:
    return [ast.literal_eval(line) for line in (folder / "docker.calls").read_text().splitlines()]


def ask(tmp_path: Path, limits: Limits, **options: str) -> Verdict:
    probe, workdir = tmp_path / "probe.onnx", tmp_path / 'work, "it": x'
    onnx.save(conv_net(), probe)
    workdir.mkdir()
    backend = Pulsar2Backend({**IMAGE, **options})
    verdict = backend.judge(backend.compile(probe, workdir, limits))
    assert processes_in(workdir) == []
    return verdict


def test_the_command_names_image_place_and_bounds(tmp_path: Path, folder: Path) -> None:
    pulsar2_tools.stand_in(folder)

    verdict = ask(tmp_path, Limits(seconds=60, memory_bytes=1 << 30, file_bytes=1 << 20), target_hardware="AX615")

    assert verdict.status is Status.PASS
    (words,) = calls(folder)
    at = words.index("pulsar2:5.1")
    assert words[at + 1 : at + 5] == ["pulsar2", "build", "--target_hardware", "AX615"]
    assert words[at + 5 :] == ["--config", "config.json", "--input", "model.onnx", "--output_dir", "output"]
    assert {"--rm", f"--memory={1 << 30}b", f"--ulimit=fsize={1 << 20}"} <= set(words[:at])
    assert words[words.index("--workdir") + 1] == "/data"


@pytest.mark.long
def test_a_container_that_hangs_is_killed_with_its_compiler(tmp_path: Path, folder: Path) -> None:
    pulsar2_tools.stand_in(folder, "--hang")
    began = time.monotonic()

    verdict = ask(tmp_path, Limits(seconds=8))

    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.TIMEOUT)
    assert time.monotonic() - began < 10
    assert pulsar2_tools.containers(folder) == []
    run, kill = calls(folder)
    assert kill == ["rm", "--force", run[run.index("--name") + 1]]


def test_a_search_that_is_interrupted_leaves_no_container(tmp_path: Path, folder: Path) -> None:
    pulsar2_tools.stand_in(folder, "--hang")

    def interrupt() -> None:
        while not pulsar2_tools.containers(folder):
            time.sleep(0.05)
        kill_running()

    Thread(target=interrupt).start()
    verdict = ask(tmp_path, Limits(seconds=60))

    assert verdict.status is Status.UNRESOLVED
    assert "stopped before it ended" in verdict.message
    assert pulsar2_tools.containers(folder) == []


def test_a_compile_that_ended_by_itself_is_not_killed(tmp_path: Path, folder: Path) -> None:
    pulsar2_tools.stand_in(folder, "--abort")

    verdict = ask(tmp_path, Limits(seconds=60))

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.CRASH)
    assert [words[0] for words in calls(folder)] == ["run"]


def test_trouble_of_dockers_own_is_no_failure_of_the_model(tmp_path: Path, folder: Path) -> None:
    pulsar2_tools.stand_in(folder)

    verdict = ask(tmp_path, Limits(seconds=60), image="pulsar2:gone")

    assert verdict.status is Status.UNRESOLVED
    assert "Unable to find image 'pulsar2:gone'" in verdict.message


def test_a_container_that_was_killed_for_memory_is_a_matter_of_resources(tmp_path: Path, folder: Path) -> None:
    (folder / "pulsar2").write_text("#!/bin/sh\nkill -KILL $$\n")
    (folder / "pulsar2").chmod(0o755)

    verdict = ask(tmp_path, Limits(seconds=60, memory_bytes=1 << 30))

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.RESOURCE)


def test_what_root_wrote_is_handed_over(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pulsar2_tools.stand_in(folder)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # to whom nothing here belongs

    ask(tmp_path, Limits(seconds=60))

    change = calls(folder)[-1]
    assert change[change.index("--entrypoint") + 1] == "chown"
    assert change[-4:] == ["pulsar2:5.1", "-R", f"54321:{os.getgid()}", "/data"]


def test_a_container_sees_the_gpus_where_the_device_is_one(tmp_path: Path, folder: Path) -> None:
    pulsar2_tools.stand_in(folder)

    ask(tmp_path, Limits(seconds=60), **{"quant.device": "cuda:1"})
    (tmp_path / "again").mkdir()
    ask(tmp_path / "again", Limits(seconds=60), **{"quant.device": "cpu"})

    first, second = (words for words in calls(folder) if words[0] == "run")
    assert "--gpus=all" in first
    assert "--gpus=all" not in second


def test_the_version_comes_from_the_image(folder: Path) -> None:
    pulsar2_tools.stand_in(folder)

    description = Pulsar2Backend({**IMAGE, "target_hardware": "M76H"}).describe()

    assert description.version == "5.1-stand-in (0badcafe)"
    assert description.ops == Pulsar2Backend({}).describe().ops
    assert description.samples == 4


def test_a_missing_image_and_a_silent_version_are_sentences(folder: Path) -> None:
    (folder / "pulsar2").write_text("#!/bin/sh\necho licence expired\n")
    (folder / "pulsar2").chmod(0o755)

    complaint = Pulsar2Backend({"image": "pulsar2:9"}).check()

    assert complaint is not None
    assert "no image 'pulsar2:9'" in complaint
    assert Pulsar2Backend(IMAGE).check() is None
    with pytest.raises(BackendUnusableError, match="licence expired"):
        Pulsar2Backend(IMAGE).describe()
