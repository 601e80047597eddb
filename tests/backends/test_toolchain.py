"""Toolchains: environments that are made once, wholly, from pins, and into which nothing else is installed.

The compiler here is a wheel of a few lines that each test builds; pip is real and has no network.
"""

import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.sandbox.process import run
from onnxbisect_backends.testing import processes_in
from onnxbisect_backends.toolchains import toolchain as module
from onnxbisect_backends.toolchains.toolchain import Toolchain, find_python, toolchain_named, toolchains

HERE = "{}.{}".format(*sys.version_info)

TINY = Toolchain(
    name="tiny",
    version="1.5",
    pythons=("3.99", HERE),
    requirements=("tiny-compiler==1.5",),
    elsewhere={},
    set_aside=("tiny_compiler/libc.so", "tiny_compiler/not_there.so"),
    gigabytes=0.1,
    digest="d",
)

#: Installs in a process of its own, which says what it does and ends with its complaint.
INSTALL = f"""
import sys
sys.path[:] = {sys.path!r}
from onnxbisect.errors import OnnxBisectError
from onnxbisect_backends.toolchains.toolchain import Toolchain
try:
    {TINY!r}.install(lambda line: print(line, flush=True))
except OnnxBisectError as error:
    sys.exit(str(error))
"""


def wheel(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    info = "tiny_compiler-1.5.dist-info"
    files = {
        "tiny_compiler/__init__.py": "print('tiny')\n",
        "tiny_compiler/libc.so": "of another system",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-compiler\nVersion: 1.5\nRequires-Dist: not-to-be-had\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / "tiny_compiler-1.5-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))


def only(folder: Path, set_variable: Callable[[str, str], None]) -> None:
    """A cache of its own, and a pip that knows of the wheels there and of no others."""
    (folder / "wheels").mkdir()
    set_variable("ONNXBISECT_CACHE_DIR", str(folder / "cache"))
    set_variable("PIP_CONFIG_FILE", os.devnull)
    set_variable("PIP_NO_INDEX", "1")
    set_variable("PIP_FIND_LINKS", str(folder / "wheels"))
    # settings of a user who develops Python
    set_variable("PIP_TARGET", str(folder / "target"))
    set_variable("PYTHONPATH", str(folder / "wheels"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    only(tmp_path, monkeypatch.setenv)
    return tmp_path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which it is installed, made once for the tests that only look."""
    folder = tmp_path_factory.mktemp("installed")
    with pytest.MonkeyPatch.context() as patch:
        only(folder, patch.setenv)
        wheel(folder / "wheels")
        TINY.install(lambda _: None)
    return folder


@pytest.fixture
def tiny(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(installed / "cache"))
    return TINY


def inside(tiny: Toolchain, workdir: Path, *argv: str) -> Outcome:
    return run(argv, cwd=workdir, env=tiny.environment(workdir), limits=Limits(seconds=30))


def start() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", INSTALL], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_compiler_runs_in_its_environment(tiny: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "tiny_compiler.py").write_text("print('shadowed')")

    outcome = inside(tiny, Path("/"), "python", "-c", "import sys, tiny_compiler; print(sys.prefix)")

    assert tiny.installed
    assert tiny.missing is None
    assert outcome.log.split() == ["tiny", str(tiny.folder)]


def test_a_second_install_does_nothing(tiny: Toolchain) -> None:
    before = tiny.python.lstat()
    said: list[str] = []

    tiny.install(said.append)

    assert said == []
    assert tiny.python.lstat() == before


@pytest.mark.parametrize("pip", [["pip"], ["pip3"], [f"pip{HERE}"], ["python3", "-m", "pip"]], ids=" ".join)
def test_nothing_is_installed_into_it(tiny: Toolchain, tmp_path: Path, pip: list[str]) -> None:
    outcome = inside(tiny, tmp_path, *pip, "install", "anything")

    assert outcome.exit_code == 1
    assert "nothing is installed into it" in outcome.log or "No module named pip" in outcome.log


def test_what_keeps_it_from_starting_is_set_aside(tiny: Toolchain) -> None:
    package = tiny.site_packages / "tiny_compiler"

    assert sorted(path.name for path in package.glob("libc*")) == ["libc.so.set-aside"]


def test_it_is_not_installed_when_its_interpreter_is_gone(tiny: Toolchain, place: Path) -> None:
    folder = tiny.folder
    folder.mkdir(parents=True)
    (folder / "onnx-bisect-complete").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(place / "python-that-was-removed")

    assert "onnx-bisect backends install tiny==1.5" in str(tiny.missing)


@pytest.mark.long
def test_a_failure_leaves_nothing_and_can_be_tried_again(place: Path) -> None:
    with pytest.raises(BackendUnusableError, match=r"^tiny 1\.5 could not be .*No matching .* for tiny-compiler==1\.5"):
        TINY.install(lambda _: None)

    assert not TINY.folder.exists()
    assert TINY.missing

    wheel(place / "wheels")
    older = TINY.folder.with_name("tiny-1.5-a")
    older.mkdir()
    said: list[str] = []
    TINY.install(said.append)
    assert said[-1] == f"tiny 1.5: no longer used by this version of onnx-bisect, and may be removed: {older}"
    assert TINY.installed
    assert (TINY.site_packages / "tiny_compiler").is_dir()


@pytest.mark.long
def test_two_at_once_make_one(place: Path) -> None:
    wheel(place / "wheels")

    with start() as one, start() as other:
        said = [process.communicate(timeout=120) for process in (one, other)]

    assert [one.returncode, other.returncode] == [0, 0], said
    lines = "".join(out for out, _ in said)
    assert lines.count("a new environment") == lines.count("installed in") == 1
    assert lines.count("waiting for another process") == 1
    assert TINY.installed


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_was_interrupted_is_not_believed(place: Path, number: signal.Signals) -> None:
    wheel(place / "wheels")
    with start() as process:
        assert process.stdout is not None
        assert "a new environment" in process.stdout.readline()
        process.send_signal(number)

    assert not TINY.installed
    deadline = time.monotonic() + 60
    while number is signal.SIGINT and processes_in(TINY.folder):
        assert time.monotonic() < deadline, "what Ctrl-C interrupted goes on"
        time.sleep(0.02)

    TINY.install(lambda _: None)  # waits for what a killed process has left at work
    assert TINY.installed


def test_an_interpreter_that_is_not_there_is_named(place: Path) -> None:
    with pytest.raises(BackendUnusableError, match=r"CPython 3\.98 or 3\.99, which was not found.*uv python install"):
        replace(TINY, pythons=("3.98", "3.99")).install(lambda _: None)


def test_a_cache_that_cannot_be_written_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").touch()
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(place / "file"))

    with pytest.raises(BackendUnusableError, match="Not a directory; ONNXBISECT_CACHE_DIR names another place"):
        TINY.install(lambda _: None)


def test_interpreters_that_refuse_to_run_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = {"shim": "exit 127", "other": "echo 3.97", "real": "echo 3.98"}
    for name, script in says.items():
        (tmp_path / name).mkdir()
        python = tmp_path / name / "python3.98"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in says))

    assert find_python("3.98") == tmp_path / "real" / "python3.98"
    assert find_python("3.96") is None


DEFINITION = """
name = "tiny"
version = "1.10"
pythons = ["3.11"]
gigabytes = 1
requirements = ["tiny==1.10"]
"""


def test_a_changed_definition_is_another_environment() -> None:
    folders = {module.read_definition(text).folder for text in (DEFINITION, DEFINITION.replace('"3.11"', '"3.12"'))}

    assert len(folders) == 2


def test_the_newest_version_is_meant_where_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = tuple(replace(TINY, version=version) for version in ("1.9", "1.10"))
    monkeypatch.setattr(module, "toolchains", lambda: {"tiny": versions})

    assert toolchain_named("tiny").version == "1.10"
    assert toolchain_named("tiny==1.9").version == "1.9"
    with pytest.raises(OptionError, match=r"'1\.8' is no version of tiny that can be installed.*1\.10, 1\.9"):
        toolchain_named("tiny==1.8")
    with pytest.raises(OptionError, match="did you mean 'tiny'"):
        toolchain_named("tinny")


def test_versions_are_in_order_and_pins_are_exact() -> None:
    there = resources.files("onnxbisect_backends.toolchains").iterdir()
    files = sorted(it.name for it in there if it.name.endswith(".toml"))
    known = [one for versions in toolchains().values() for one in versions if not one.made]

    assert sorted(f"{one.name}-{one.version}.toml" for one in known) == files
    for one in known:
        pins = [*one.requirements, *(pin for pins in one.elsewhere.values() for pin in pins)]
        assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==\d[\w.+]*", pin)] == []
        assert one.pythons
