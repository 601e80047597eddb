"""What is kept between runs, and what happens to a run whose verdict base is damaged, locked or read-only."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from onnx_bisect.verdict_base import InMemoryVerdictBase, JournalEntry, VerdictBase, default_path, open_base
from onnxbisect.answer import LOG_BYTES, Answer, shorten_log
from onnxbisect.diagnosis import Target
from onnxbisect.json_form import from_json
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict
from onnxbisect_backends.probing import identity
from onnxbisect_backends.probing.identity import search_identity, target_identity

FAIL = Answer(
    verdict=Verdict(
        status=Status.FAIL,
        kind=Kind.UNSUPPORTED,
        fingerprint="op <name> is not supported",
        message="op Sinh\x1b[31m is not supported ☃",
        hints=Hints(ops=("Sinh",), nodes=("n/1:0",), tensors=("t",)),
        seconds=1.5,
        tables=(Table(title="t", columns=("a", "b"), rows=(("1", "|"), ("", "☃")), counted="a"),),
    ),
    file_sha256="ab" * 32,
    log="a\0b\ud800",
)
TARGET = Target(backend="command", tool="sh", version="1", options={"command": ["a", "b"]})


@pytest.fixture(params=["memory", "sqlite"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> VerdictBase:
    if request.param == "memory":
        return InMemoryVerdictBase()
    return open_base(tmp_path / "deep" / "verdicts.sqlite", target="t", search="s")


def test_an_answer_comes_back_as_it_was(base: VerdictBase) -> None:
    assert base.get("k", 0) is None
    base.put("k", 0, FAIL)
    kept = base.get("k", 0)
    assert kept is not None
    assert kept.verdict == FAIL.verdict
    assert kept.file_sha256 == FAIL.file_sha256
    assert kept.log.startswith("a\0b")
    assert base.get("k", 1) is None
    assert base.get("other", 0) is None
    assert base.problem is None


def test_an_answer_that_was_kept_before_tables_were_is_still_one() -> None:
    said = '"status": "fail", "kind": "crash", "fingerprint": "f", "message": "m", "seconds": 1.0'
    kept = f'{{{said}, "hints": {{"ops": ["Sin"], "nodes": [], "tensors": []}}}}'
    verdict = from_json(json.loads(kept), Verdict)
    assert (verdict.kind, verdict.hints.ops, verdict.tables) == (Kind.CRASH, ("Sin",), ())


def test_attempts_are_kept_apart_and_replaced(base: VerdictBase) -> None:
    base.put("k", 0, FAIL)
    base.put("k", 1, Answer(verdict=Verdict(status=Status.PASS)))
    base.put("k", 0, Answer(verdict=FAIL.verdict, file_sha256="cd"))
    first, second = base.get("k", 0), base.get("k", 1)
    assert first is not None
    assert first.file_sha256 == "cd"
    assert second is not None
    assert second.verdict.passed


def test_unresolved_is_not_kept(base: VerdictBase) -> None:
    base.put("k", 0, Answer(verdict=Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT)))
    assert base.get("k", 0) is None


def test_the_journal_keeps_order_and_huge_sets(base: VerdictBase) -> None:
    lines = [
        JournalEntry(units=(1 << 10_000) - 1, attempt=0, key="whole", why="the whole model"),
        JournalEntry(units=5, attempt=0, key="k", why="n/1 alone"),
        JournalEntry(units=5, attempt=1, key="k", why="again"),
    ]
    for line in lines:
        base.note(line)
    base.note(lines[0])
    assert base.journal() == lines


def test_targets_and_searches_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    one = open_base(path, target="one", search="one")
    two = open_base(path, target="two", search="two")
    one.put("k", 0, FAIL)
    one.note(JournalEntry(units=1, attempt=0, key="k", why=""))
    assert two.get("k", 0) is None
    assert two.journal() == []
    same = open_base(path, target="one", search="another model")
    assert same.get("k", 0) is not None
    assert same.journal() == []


def test_a_damaged_file_is_moved_aside_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    path.write_bytes(b"this is no database" * 100)
    base = open_base(path, target="t", search="s")
    assert base.problem is not None
    assert "moved to" in base.problem
    base.put("k", 0, FAIL)
    base.close()
    assert [file.read_bytes()[:4] for file in tmp_path.glob("*.damaged-*")] == [b"this"]
    again = open_base(path, target="t", search="s")
    assert again.problem is None
    assert again.get("k", 0) is not None


def test_damage_that_shows_later_costs_the_cache_and_not_the_run(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    base = open_base(path, target="t", search="s")
    base.put("k", 0, FAIL)
    stranger = sqlite3.connect(path)
    stranger.execute('UPDATE answer SET verdict = \'{"status": "maybe"}\'')
    stranger.commit()
    assert base.get("k", 0) is None
    stranger.execute("DROP TABLE answer")
    stranger.commit()
    stranger.close()
    assert base.get("k", 0) is None
    base.put("k", 0, FAIL)
    assert base.problem is not None
    assert "no such table" in base.problem


def test_a_base_of_another_version_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert open_base(path, target="t", search="s").problem is not None
    assert list(tmp_path.glob("*.damaged-*"))


def test_where_nothing_can_be_written_answers_live_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    base = open_base(tmp_path / "file" / "verdicts.sqlite", target="t", search="s")
    assert base.problem is not None
    assert "not kept" in base.problem
    base.put("k", 0, FAIL)
    assert base.get("k", 0) is not None


def test_a_folder_in_place_of_the_file_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "verdicts.sqlite").mkdir()
    assert open_base(tmp_path / "verdicts.sqlite", target="t", search="s").problem is not None


def test_the_cache_directory_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", os.fspath(tmp_path))
    assert default_path() == tmp_path / "verdicts.sqlite"
    monkeypatch.delenv("ONNXBISECT_CACHE_DIR")
    assert default_path().parent.name == "onnx-bisect"


def test_any_change_of_the_target_is_another_target() -> None:
    probe_format = ProbeFormat(input_dtypes=frozenset({"float", "int32", "uint8"}))
    same = target_identity(TARGET, ProbeFormat(input_dtypes=frozenset({"uint8", "float", "int32"})))
    assert target_identity(TARGET, probe_format) == same
    others = {
        target_identity(Target(backend="command", tool="sh", version="2", options=TARGET.options), probe_format),
        target_identity(Target(backend="command", tool="sh", version="1", options={"command": ["a"]}), probe_format),
        target_identity(TARGET, ProbeFormat()),
        target_identity(TARGET, probe_format, "other libraries"),
        target_identity(TARGET, ProbeFormat(input_dtypes=frozenset())),
    }
    assert len(others | {same}) == 6


def test_answers_of_an_earlier_release_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is added to the probe format changes nothing for targets that do not use it."""
    monkeypatch.setattr(identity, "version", lambda name: "0")
    monkeypatch.setattr(identity, "REVISION", 4)
    target = Target(backend="command", tool="sh", version="1", options={})
    recorded = "acbf65293ec608df0318001ebfa8f3389cb6771aa0c8e0daedc897ab7e805cac"
    assert target_identity(target, ProbeFormat(folds=False)) == recorded
    assert target_identity(target, ProbeFormat(folds=False, loses_outputs=True)) != recorded


def test_a_search_is_named_by_the_units_it_numbers() -> None:
    def universe(op: str, after: int) -> Universe:
        return Universe(
            variant=(0, 1), solo=(0, 1), op=("A", op), names=(("a",), ("b",)), tensors=(("x",), ("y",)),
            successors=(after, 0),
        )  # fmt: skip

    names = {
        search_identity("t", "sha", universe("B", 2)),
        search_identity("t", "sha", universe("C", 2)),
        search_identity("t", "sha", universe("B", 0)),
        search_identity("u", "sha", universe("B", 2)),
        search_identity("t", "other", universe("B", 2)),
    }
    assert len(names) == 5


def test_a_long_log_keeps_its_beginning_and_its_end() -> None:
    log = "version 1\n" + "x" * 1_000_000 + "\nerror: Sinh"
    kept = shorten_log(log)
    assert kept.startswith("version 1\n")
    assert kept.endswith("error: Sinh")
    assert "bytes left out" in kept
    assert len(kept.encode()) < LOG_BYTES + 100
    assert shorten_log("short") == "short"
