"""Which TPU-MLIR is asked: one that was installed, an SDK with its `envsetup.sh`, a tool on PATH, or none.

The SDK and the tool on PATH are the real one here, found in another way.
"""

import os
from pathlib import Path

import onnx
import pytest

from onnxbisect.errors import OptionError
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.registry import make
from onnxbisect_backends.testing import with_op
from onnxbisect_backends.toolchains.toolchain import toolchain


@pytest.fixture
def programs() -> Path:
    """The folder of the real tool's programs."""
    installed = toolchain("tpu-mlir", "1.8.1")
    if complaint := installed.missing:
        pytest.skip(complaint)
    return installed.folder / "bin"


def refuses_an_op(backend: Backend, folder: Path) -> None:
    probe, workdir = folder / "model.onnx", folder / "work"
    workdir.mkdir()
    onnx.save(with_op("Selu"), probe)

    verdict = backend.judge(backend.compile(probe, workdir, Limits(seconds=250)))

    assert (verdict.status, verdict.kind, verdict.hints.ops) == (Status.FAIL, Kind.UNSUPPORTED, ("Selu",))


@pytest.mark.compiler
def test_an_sdk_is_asked_in_the_environment_that_it_sets_up(tmp_path: Path, programs: Path) -> None:
    home = tmp_path / "an sdk"
    home.mkdir()
    (home / "envsetup.sh").write_text(f'echo "setting up"\nexport PATH="{programs}:$PATH"\n')
    backend = make("tpu-mlir", {"home": str(home)})

    assert backend.check() is None
    assert backend.describe().version.startswith("1.8.1")
    refuses_an_op(backend, tmp_path)


@pytest.mark.compiler
def test_a_tool_on_path_is_used_where_none_was_installed(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    backend = make("tpu-mlir", {})

    assert backend.check() is None
    assert backend.describe().version.startswith("1.8.1")
    refuses_an_op(backend, tmp_path)


def test_without_any_tool_it_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    complaint = make("tpu-mlir", {}).check()

    assert complaint is not None
    assert "onnx-bisect backends install tpu-mlir" in complaint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"processor": "bm1684y"}, "processor"),
        ({"quantize": "INT8"}, "needs a 'processor'"),
        ({"version": "1.8.1", "home": "/sdk"}, "not both"),
        ({"version": "1.8.2"}, "1.8.1"),
        ({"tolerance": "high"}, "tolerance"),
        ({"tolerance": "0.9"}, "two numbers from 0 to 1"),
        ({"tolerance": "2,2"}, "two numbers from 0 to 1"),
        ({"chip": "bm1684x"}, "chip"),
    ],
)
def test_wrong_options_are_told_in_a_sentence(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make("tpu-mlir", options)


def test_a_folder_without_an_sdk_is_not_usable(tmp_path: Path) -> None:
    complaint = make("tpu-mlir", {"home": str(tmp_path)}).check()

    assert complaint is not None
    assert "envsetup.sh" in complaint
