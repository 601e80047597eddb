"""Models with external data, put together once and cleared away by use, while others work with them."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from onnxbisect.errors import ModelError, OnnxBisectError
from onnxbisect.model import load
from onnxbisect_db.files import Files
from onnxbisect_worker.model_requests.layout import ModelCache, hold, remove
from support.worker.hosted import MODELS, Place


def stored(files: Files, content: bytes) -> tuple[str, Path]:
    sha256 = files.put([content]).sha256
    return sha256, files.path(sha256)


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files", floor=0)


def test_a_model_is_put_together_once_with_its_data_where_it_says(files: Files, tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache", 1 << 20)
    sha256, model = stored(files, b"the model")
    data = {"weights.bin": stored(files, b"some")[1], "a/b/more data": stored(files, b"more")[1]}
    first = cache.assembled(sha256, model, data)
    assert first.path.read_bytes() == b"the model"
    assert (first.path.parent / "weights.bin").read_bytes() == b"some"
    assert (first.path.parent / "a/b/more data").read_bytes() == b"more"
    assert not any(path.is_symlink() or path.stat().st_nlink > 1 for path in first.path.parent.rglob("*.*"))
    inode = first.path.stat().st_ino
    second = cache.assembled(sha256, model, data)
    assert (second.path, second.path.stat().st_ino) == (first.path, inode)
    other = cache.assembled(sha256, model, {"weights.bin": data["weights.bin"]})
    assert other.path != first.path
    for held in (first, second, other):
        os.close(held.lock)


def test_onnx_reads_what_was_put_together(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    source = MODELS / "external" / "external_data.onnx"
    case = place.case(source)
    paths = {location: place.files.path(sha256) for location, sha256 in case.files.items()}
    cache = ModelCache(tmp_path / "cache", 1 << 20)
    held = cache.assembled(case.onnx, place.files.path(case.onnx), paths)
    assert load(held.path).sha256 == load(source).sha256
    os.close(held.lock)


def test_the_least_used_goes_first_and_what_is_in_use_stays(files: Files, tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache", 400)
    data = {"weights": stored(files, b"w" * 100)[1]}

    def use(name: str) -> Path:
        held = cache.assembled(*stored(files, name.encode() * 10), data)
        os.close(held.lock)
        return held.path

    a, b, c = use("a"), use("b"), use("c")
    for seconds, path in enumerate((a, b, c)):
        os.utime(path.parent.parent, (seconds, seconds))
    assert use("a") == a
    used = cache.assembled(*stored(files, b"b" * 10), data)
    os.utime(b.parent.parent, (1, 1))  # the oldest, and in use
    d = use("d")
    assert [path.exists() for path in (a, b, c, d)] == [True, True, False, True]
    os.close(used.lock)
    e = use("e")
    assert [path.exists() for path in (a, b, d, e)] == [True, False, True, True]
    assert len(folders(tmp_path / "cache")) == 3


def test_a_model_that_is_larger_than_the_limit_is_put_together_all_the_same(files: Files, tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache", 0)
    data = {"weights": stored(files, b"w" * 100)[1]}
    first = cache.assembled(*stored(files, b"one"), data)
    assert first.path.exists()
    os.close(first.lock)
    second = cache.assembled(*stored(files, b"two"), data)
    assert second.path.exists()
    assert not first.path.exists()
    os.close(second.lock)


def test_what_a_killed_process_left_unfinished_is_made_anew(files: Files, tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache", 1 << 20)
    sha256, model = stored(files, b"the model")
    data = {"weights": stored(files, b"some")[1]}
    held = cache.assembled(sha256, model, data)
    whole = held.path.parent
    os.close(held.lock)
    whole.rename(whole.with_name("unfinished"))
    (whole.with_name("unfinished") / "weights").write_bytes(b"so")
    held = cache.assembled(sha256, model, data)
    assert (held.path.parent / "weights").read_bytes() == b"some"
    assert not whole.with_name("unfinished").exists()
    os.close(held.lock)


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Path.mkdir` looks whether what is there is a folder; by then somebody else may have removed it."""
    folder = tmp_path / "held"
    folder.mkdir()

    def removed(path: Path) -> bool:
        monkeypatch.undo()
        path.rmdir()
        return False

    monkeypatch.setattr(Path, "is_dir", removed)
    os.close(hold(folder))
    assert folder.is_dir()
    with pytest.raises(FileExistsError):
        hold(folder / "lock")


def test_many_at_once_meet_only_whole_models(files: Files, tmp_path: Path) -> None:
    """In several processes, of a cache that holds one model at a time: everybody's removes everybody else's."""
    digests = [
        (stored(files, bytes([number]) * 10)[0], stored(files, bytes([number]) * 300_000)[0]) for number in range(3)
    ]
    script = """
import os
import sys
from pathlib import Path
from onnxbisect_db.files import Files
from onnxbisect_worker.model_requests.layout import ModelCache
files, cache = Files(Path(sys.argv[1]), floor=0), ModelCache(Path(sys.argv[2]), 300_000)
pairs = [pair.split(":") for pair in sys.argv[3:]]
for turn in range(60):
    number = turn % len(pairs)
    model, data = pairs[number]
    held = cache.assembled(model, files.path(model), {"a/data": files.path(data)})
    assert held.path.read_bytes() == files.path(model).read_bytes()
    assert (held.path.parent / "a/data").read_bytes() == files.path(data).read_bytes()
    os.close(held.lock)
"""
    processes = []
    for turn in range(3):
        pairs = [":".join(pair) for pair in digests[turn:] + digests[:turn]]
        words = [str(tmp_path / "files"), str(tmp_path / "cache"), *pairs]
        processes.append(subprocess.Popen([sys.executable, "-c", script, *words], stderr=subprocess.PIPE, text=True))
    for process in processes:
        _, said = process.communicate()
        assert process.returncode == 0, said


@pytest.mark.parametrize(
    "location",
    ["", ".", "/etc/passwd", "..", "../weights", "a/../../weights", "a\\b", "a\nb", "a\x1b[31m", "a\0b", "model.onnx"],
)
def test_a_location_that_leads_elsewhere_is_refused(location: str, files: Files, tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache", 1 << 20)
    sha256, model = stored(files, b"the model")
    with pytest.raises(ModelError, match="cannot lie at") as refused:
        cache.assembled(sha256, model, {location: model})
    assert str(refused.value).isprintable()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("locations", [("a", "a/b"), ("model.onnx/a",), ("a" * 300,)])
def test_locations_that_cannot_be_files_are_a_sentence(
    locations: tuple[str, ...], files: Files, tmp_path: Path
) -> None:
    cache = ModelCache(tmp_path / "cache", 1 << 20)
    sha256, model = stored(files, b"the model")
    with pytest.raises(OnnxBisectError, match="cannot be put into a folder with its data files"):
        cache.assembled(sha256, model, dict.fromkeys(locations, model))
    assert not list((tmp_path / "cache").rglob("unfinished"))


def test_a_held_folder_is_not_removed_and_a_removed_one_is_not_held(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    first = hold(folder, shared=True)
    second = hold(folder, shared=True)
    os.close(first)
    assert not remove(folder)
    taken: list[int] = []
    waiting = Thread(target=lambda: taken.append(hold(folder)), daemon=True)
    waiting.start()
    os.close(second)
    waiting.join(60)
    assert not remove(folder)
    os.close(taken[0])
    assert remove(folder)
    assert remove(folder)
    assert list(tmp_path.iterdir()) == []
