"""Pieces that are files already: compiled elsewhere, and what the device needs kept beside them."""

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from onnxbisect.verdict import Status
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend, Limits, products
from onnxbisect_backends.probing.prober import PieceCompiler
from onnxbisect_backends.testing import conv_net
from onnxbisect_backends.vendors.rknn.backend import RknnBackend

#: Writes what the device needs, and what nobody does.
SCRIPT = 'test -f "${1%.onnx}.data" && echo one > "$2".bin && mkdir d && echo two > d/a.npu && echo log > junk'


@pytest.fixture
def piece(tmp_path: Path) -> Path:
    folder = tmp_path / "split"
    folder.mkdir()
    onnx.save(conv_net(), folder / "01_npu.onnx")
    (folder / "01_npu.data").write_bytes(b"weights")
    return folder / "01_npu.onnx"


def compiler(tmp_path: Path, backend: Backend) -> PieceCompiler:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return PieceCompiler(backend=backend, folder=scratch, limits=Limits(seconds=30))


def toml(tmp_path: Path, script: str) -> TomlBackend:
    path = tmp_path / "t.toml"
    command = f"command = ['sh', '-c', '''{script}''', 'sh', '{{model}}', '{{out}}']"
    path.write_text(f"name = 't'\n{command}\n[success]\nfiles = ['d/*.npu']\n")
    return TomlBackend(path, {})


def kept(piece: Path) -> dict[str, str]:
    folder = piece.parent / "compiled" / piece.stem
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_the_device_needs_is_kept_and_nothing_else(tmp_path: Path, piece: Path) -> None:
    ask = compiler(tmp_path, toml(tmp_path, SCRIPT))
    assert ask(piece, {}).passed
    assert kept(piece) == {"out.bin": "one\n", "d/a.npu": "two\n"}
    assert list(ask.folder.iterdir()) == []


def test_of_a_backend_that_names_no_products_all_files_are_kept(tmp_path: Path, piece: Path) -> None:
    backend = CommandBackend(["sh", "-c", f"cd {{workdir}} && {SCRIPT}", "sh", "{model}", "{out}"])
    assert products(backend) == ("*",)
    assert compiler(tmp_path, backend)(piece, {}).passed
    assert set(kept(piece)) == {"out.bin", "d/a.npu", "junk"}


def test_nothing_is_kept_of_a_refusal(tmp_path: Path, piece: Path) -> None:
    verdict = compiler(tmp_path, toml(tmp_path, f"{SCRIPT}; exit 1"))(piece, {})
    assert verdict.status is Status.FAIL
    assert not (piece.parent / "compiled").exists()


def test_samples_lie_beside_the_copy_and_not_beside_the_piece(tmp_path: Path, piece: Path) -> None:
    asked: list[Mapping[str, str]] = []

    def samples(probe: Path, renamed: Mapping[str, str]) -> None:
        asked.append(renamed)
        probe.with_suffix(".samples").mkdir()

    ask = compiler(tmp_path, toml(tmp_path, f'test -d "${{1%.onnx}}.samples" && {SCRIPT}'))
    assert PieceCompiler(backend=ask.backend, folder=ask.folder, limits=ask.limits, samples=samples)(
        piece, {"a": "/a"}
    ).passed
    assert asked == [{"a": "/a"}]
    assert {path.name for path in piece.parent.iterdir()} == {"01_npu.onnx", "01_npu.data", "compiled"}


def test_compilers_say_what_their_device_needs() -> None:
    assert products(RknnBackend({})) == ("out.rknn",)
