"""Line 18 of the security checklist: what is installed is what was meant, and nothing is known against it."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PYPI = "https://files.pythonhosted.org/packages/"


def test_18_packages_are_pinned_by_their_bytes_and_come_from_one_index() -> None:
    packages = [package for package in LOCK["package"] if package["name"] != "onnx-bisect"]
    assert len(packages) > 50
    for package in packages:
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        assert files, package["name"]
        for file in files:
            assert re.fullmatch("sha256:[0-9a-f]{64}", file["hash"])
            assert file["url"].startswith(PYPI)


def test_18_nothing_is_locked_that_came_out_yesterday() -> None:
    assert LOCK["options"]["exclude-newer-span"] == "P3D"


def test_18_images_are_those_of_a_version() -> None:
    """What is behind a tag may change all the same; SECURITY.md says how to pin it."""
    files = ("docker-compose.yml", "api/Dockerfile", "worker/Dockerfile")
    text = "\n".join((ROOT / name).read_text() for name in files)
    images = re.findall(r"^\s*(?:FROM|image:) ([^\s$]+)", text, re.MULTILINE)
    assert len(images) >= 5
    for image in images:
        assert re.search(r":\d|:[\w.-]*\d", image), image
        assert not image.endswith(":latest")


def test_18_toolchains_are_pinned() -> None:
    files = list((ROOT / "backends/onnxbisect_backends/toolchains").glob("*.toml"))
    assert files
    for file in files:
        said = tomllib.loads(file.read_text())
        for requirement in (
            *said["requirements"],
            *(pin for pins in said.get("elsewhere", {}).values() for pin in pins),
        ):
            assert re.fullmatch(r"[\w.\[\]-]+==[\w.+!-]+", requirement), (file.name, requirement)


def test_18_nothing_is_known_against_what_is_locked() -> None:
    uv = ROOT / ".uv" / "bin" / "uv"
    if not uv.exists():
        pytest.skip("uv is not where make puts it")
    asked = [str(uv), "audit", "--preview-features", "audit", "--locked", "--no-dev", "--project", str(ROOT)]
    done = subprocess.run(asked, capture_output=True, text=True, env={**os.environ, "UV_HTTP_RETRIES": "0"})
    if done.returncode == 2:
        pytest.skip(f"osv.dev cannot be asked: {done.stderr.strip().splitlines()[-1].strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
