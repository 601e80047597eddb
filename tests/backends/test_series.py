"""Versions of a compiler that only the package index has: resolved once, written down, and installed from that.

The index is a folder of wheels that the test builds; pip is real and has no network.
"""

from pathlib import Path

import pytest

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends.toolchains.series import SERIES, Series, opened
from onnxbisect_backends.toolchains.toolchain import (
    Toolchain,
    in_use,
    made_folder,
    read_definition,
    toolchain_named,
    toolchains,
)
from support.backends.tiny_index import TINY


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index with three versions of a compiler, of which one is known."""
    return TINY.put_up(tmp_path, monkeypatch)


def quiet(line: str) -> None:
    """Say nothing."""


def pretend(one: Toolchain) -> None:
    """Let it pass for installed."""
    one.python.parent.mkdir(parents=True)
    one.python.touch()
    (one.folder / "onnx-bisect-complete").touch()


@pytest.mark.long
def test_versions_are_resolved_and_written_down(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("tiny", quiet) as there:
        assert there.versions() == ("1.0", "1.2", "1.10")
        with pytest.raises(OptionError, match=r"'1\.11' is no version of tiny on the package index"):
            there.define("1.11")

        made = there.define("1.10")

        assert made.requirements == ("tiny-compiler==1.10", "tiny-needs==2.0")  # and not tiny-reports-home
        assert made.pythons == (TINY.minor,)
        written = made_folder() / "tiny-1.10.toml"
        assert read_definition(written.read_text(), made=True) == made == toolchain_named("tiny==1.10")
        assert [it.version for it in toolchains()["tiny"]] == ["1.0", "1.10"]

        written.write_text("name = [")
        assert [it.version for it in toolchains()["tiny"]] == ["1.0"]
        assert there.define("1.10") == made

    monkeypatch.setitem(SERIES, "tiny", Series(package="tiny_compiler", pinned=True))
    for path in (index / "wheels").glob("tiny_needs-2*.whl"):
        path.unlink()
    with opened("tiny", quiet) as there:
        assert there.define("1.2").requirements == ("tiny_compiler==1.2", "tiny-needs==1.0")
    for path in (index / "wheels").glob("*.whl"):
        path.unlink()
    with (
        pytest.raises(BackendUnusableError, match="could not be asked about tiny: No matching"),
        opened("tiny", quiet) as there,
    ):
        there.versions()


def test_a_version_that_comes_with_the_program_goes_before_newer_ones(index: Path) -> None:
    known = made_folder() / "tiny-1.0.toml"
    (made_folder() / "tiny-1.10.toml").write_text(known.read_text().replace("1.0", "1.10"))
    shipped, newer = toolchain_named("tiny==1.0"), toolchain_named("tiny==1.10")
    pretend(newer)
    assert in_use("tiny") == newer  # nothing else is installed
    pretend(shipped)
    assert in_use("tiny") == newer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "onnxbisect_backends.toolchains.toolchain.toolchains",
            lambda: {"tiny": (read_definition(known.read_text()), newer)},
        )
        assert in_use("tiny").version == "1.0"
        assert in_use("tiny", "1.10") == newer
        assert toolchain_named("tiny").version == "1.0"
        with pytest.raises(
            OptionError, match=r"'1\.7' is no version of tiny that is here.*backends install tiny==1\.7"
        ):
            in_use("tiny", "1.7")


def test_every_compiler_on_an_index_is_one_that_can_be_installed() -> None:
    assert set(SERIES) <= {it.name for versions in toolchains().values() for it in versions}
