"""What `pip install onnx-bisect` alone can do, and what its other commands say."""

import re
import subprocess
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from onnxbisect_cli.main import OF_THE_SERVICE

ROOT = Path(__file__).parents[2]
UV = ROOT / ".uv" / "bin" / "uv"


def of_extra(extra: str) -> set[str]:
    """The distributions that only this extra installs."""
    found = (re.match(r"([\w.-]+)", line) for line in requires("onnx-bisect") or () if f"extra == '{extra}'" in line)
    return {match[1].lower() for match in found if match}


def test_every_package_of_the_extra_is_one_whose_absence_is_explained() -> None:
    found = packages_distributions()
    names = {name.lower().replace("_", "-") for module in OF_THE_SERVICE for name in found.get(module, ())}
    assert len(of_extra("service")) > 10
    assert of_extra("service") <= names


@pytest.mark.long
@pytest.mark.skipif(not UV.exists(), reason="make setup has not installed uv here")
def test_a_bare_environment_diagnoses_without_the_packages_of_the_service(tmp_path: Path) -> None:
    def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=False, timeout=200)

    assert call(UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    assert call(UV, "venv", "--quiet", "bare", "--python", ROOT / ".venv" / "bin" / "python").returncode == 0
    python, program = tmp_path / "bare" / "bin" / "python", tmp_path / "bare" / "bin" / "onnx-bisect"
    installed = call(UV, "pip", "install", "--quiet", "--python", python, wheel)
    assert installed.returncode == 0, installed.stderr
    listed = {line.split("==")[0] for line in call(UV, "pip", "freeze", "--python", python).stdout.splitlines()}
    assert listed.isdisjoint(
        (of_extra("service") | of_extra("mcp")) - {"httpcore2"}
    )  # which the client of `submit` brings along
    model = ROOT / "examples" / "sam_decoder.onnx"
    done = call(program, "run", model, "--backend", "whitelist", "--option", "profile=edgesam", "--no-cache")
    assert done.returncode == 1, done.stderr
    assert "4 ops at 12 places" in done.stdout
    assert call(python, "-c", "import onnx_bisect; onnx_bisect.Client, onnx_bisect.diagnose").returncode == 0
    refused = call(program, "mcp")
    assert refused.stderr == "onnx-bisect: this command needs mcp, which comes with pip install 'onnx-bisect[mcp]'.\n"
    for command in (["serve"], ["token", "list"]):
        refused = call(program, *command)
        assert refused.returncode == 2
        assert re.fullmatch(
            r"onnx-bisect: this command needs \w+, which comes with pip install 'onnx-bisect\[service\]'\.\n",
            refused.stderr,
        )
