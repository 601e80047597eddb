"""Temporary folders: what a killed process leaves, the next one clears, and nothing else."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from onnxbisect_backends.folders import working_folder

#: Makes a folder, says where, and waits to be killed.
WAITING = """
from onnxbisect_backends.folders import working_folder
with working_folder() as folder:
    (folder / "probe").mkdir()
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def waiting() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_is_private_and_goes_away() -> None:
    with working_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_what_a_killed_process_left_is_cleared_and_what_a_living_one_uses_is_not() -> None:
    killed, abandoned = waiting()
    alive, used = waiting()
    killed.kill()
    killed.communicate()
    assert (abandoned / "probe").is_dir()
    with working_folder():
        assert not abandoned.exists()
        assert (used / "probe").is_dir()
    alive.communicate("\n")
    assert not used.exists()


def test_what_is_not_a_folder_of_ours_stays(temporary: Path) -> None:
    (temporary / "onnx-bisect-notes").mkdir()
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "lock").touch()
    (temporary / "onnx-bisect-link").symlink_to(temporary / "elsewhere")
    (temporary / "onnx-bisect-file").touch()
    with working_folder():
        pass
    assert (temporary / "onnx-bisect-notes").is_dir()
    assert (temporary / "elsewhere" / "lock").exists()
    assert (temporary / "onnx-bisect-link").is_symlink()
    assert (temporary / "onnx-bisect-file").exists()
