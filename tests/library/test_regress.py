"""Since which version a compiler refuses or takes each part of a model."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnx_bisect
from onnx_bisect import OptionError, VersionHistory
from onnxbisect.language import CHINESE, within
from onnxbisect.report.history import VersionedPart, changes, history_document, history_sections, next_version
from onnxbisect.report.text import as_markdown, terminal_lines
from onnxbisect_backends.toolchains import series
from onnxbisect_backends.toolchains.toolchain import made_folder, toolchain_named
from support.backends.tiny_index import TinyIndex

#: Asinh is taken from 1.3 on, Cosh refused from 1.6 on, and Atan refused by all.
REFUSED = {
    f"1.{number}": ("Atan", *(["Asinh"] if number < 3 else []), *(["Cosh"] if number >= 6 else []))
    for number in range(9)
}
WITH_PYTHON = '["python", "-c", "import sys, tiny_compiler; sys.exit(tiny_compiler.main())", "{model}"]'
BACKEND = f"""
name = "tiny"
toolchain = "tiny"
command = {WITH_PYTHON}
[[patterns]]
regex = 'error: no (?P<op>\\w+)'
"""


#: The same, as a program of an environment that is made without pip.
PROGRAM = """#!/bin/sh
for op in {refused}; do
    if grep -q $op "$1"; then echo "error: no $op"; exit 1; fi
done
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The TOML file of a compiler of which all versions are there, and no index is."""
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(series, "SERIES", {})
    made_folder().mkdir(parents=True)
    for version, refused in REFUSED.items():
        text = f'name = "tiny"\nversion = "{version}"\npythons = ["3.11"]\ngigabytes = 1\nrequirements = []\n'
        (made_folder() / f"tiny-{version}.toml").write_text(text)
        folder = toolchain_named(f"tiny=={version}").folder
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "bin" / "tinyc").write_text(PROGRAM.format(refused=" ".join(refused)))
        (folder / "bin" / "tinyc").chmod(0o755)
        (folder / "onnx-bisect-complete").touch()
    path = tmp_path / "tiny.toml"
    path.write_text(BACKEND.replace(WITH_PYTHON, '["tinyc", "{model}"]'))
    return path


def model(folder: Path, *ops: str) -> Path:
    nodes = [helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], name=f"n{i}_{op}") for i, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", f"t{len(ops)}")]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:])
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def told(history: VersionHistory) -> Mapping[str, list[tuple[str, str, bool]]]:
    return {
        "+".join(part.ops): [(history.versions[it.before], history.versions[it.after], it.takes) for it in part.changes]
        for part in history.parts
    }


def test_the_version_of_each_change_is_found(installed: Path, tmp_path: Path) -> None:
    path = model(tmp_path, "Relu", "Asinh", "Neg", "Cosh", "Atan")

    history = onnx_bisect.regress(path, backend=installed, versions=("", ""))

    assert told(history) == {"": [], "Atan": [], "Asinh": [("1.2", "1.3", True)], "Cosh": [("1.5", "1.6", False)]}
    assert history.finished
    assert len(history.asked) <= 7  # of nine
    text = "\n".join(terminal_lines(history_sections(history)))
    assert "Asinh (n1_Asinh): taken since 1.3, 1.2 refuses it" in text
    assert "Cosh (n3_Cosh): refused since 1.6, 1.5 takes it" in text
    assert "Atan (n4_Atan): refused by every version that was asked" in text
    assert "`Asinh (n1_Asinh)`" in as_markdown(history_sections(history))
    data = json.loads(json.dumps(history_document(history)))
    assert data["format"] == "onnx-bisect/regress@1"
    assert data["compiler_calls"] == history.calls > 0
    (cosh,) = [part for part in data["parts"] if part["ops"] == ["Cosh"]]
    assert cosh["changes"] == [{"takes": False, "before": "1.5", "since": "1.6", "open": []}]

    again = onnx_bisect.regress(path, backend=installed, versions=("1.0", "1.8"))
    assert again.calls == 0
    assert told(again) == told(history)


def test_the_whole_model_has_a_history_too(installed: Path, tmp_path: Path) -> None:
    history = onnx_bisect.regress(model(tmp_path, "Relu", "Cosh"), backend=installed, versions=("1.3", "1.8"))
    assert told(history)[""] == told(history)["Cosh"] == [("1.5", "1.6", False)]
    assert len(history.asked) <= 4  # of six


def test_a_version_that_cannot_be_asked_is_passed_over_and_named(installed: Path, tmp_path: Path) -> None:
    (toolchain_named("tiny==1.5").folder / "bin" / "tinyc").unlink()
    history = onnx_bisect.regress(model(tmp_path, "Relu", "Cosh"), backend=installed, versions=("1.3", "1.8"))
    assert told(history)["Cosh"] == [("1.4", "1.6", False)]
    assert history.versions[next(iter(history.unusable))] == "1.5"
    text = "\n".join(terminal_lines(history_sections(history)))
    assert "refused since 1.6, 1.4 takes it (no answer from 1.5)" in text
    assert "1.5 could not be asked: " in text


def test_a_budget_leaves_changes_open_and_says_so(installed: Path, tmp_path: Path) -> None:
    path = model(tmp_path, "Relu", "Cosh")
    all_calls = onnx_bisect.regress(path, backend=installed, versions=("1.0", "1.8"), cache=False).calls
    history = onnx_bisect.regress(
        path, backend=installed, versions=("1.0", "1.8"), cache=False, budget_calls=all_calls - 2
    )
    assert history.calls == all_calls - 2
    assert not history.finished
    assert "The search ended early" in "\n".join(terminal_lines(history_sections(history)))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_versions_of_the_index_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is a folder of wheels; pip, environments and compiles are real."""
    refused = {"1.0": ("Asinh", "Atan"), "1.1": ("Atan",), "1.2": ("Atan", "Cosh")}
    TinyIndex(refused=refused).put_up(tmp_path, monkeypatch)
    (tmp_path / "tiny.toml").write_text(BACKEND)
    path = model(tmp_path, "Relu", "Asinh", "Neg", "Cosh", "Atan")
    notes: list[str] = []

    history = onnx_bisect.regress(
        path,
        backend=tmp_path / "tiny.toml",
        versions=("", ""),
        progress=lambda event: notes.append(str(event)) if isinstance(event, onnx_bisect.Note) else None,
    )

    assert told(history) == {"": [], "Atan": [], "Asinh": [("1.0", "1.1", True)], "Cosh": [("1.1", "1.2", False)]}
    assert history.finished
    assert history.installs == len(history.asked) == 3
    assert "tiny 1.1: finding out what it needs" in notes

    # all of it is kept: versions, definitions and verdicts
    for wheel in (tmp_path / "wheels").glob("*.whl"):
        wheel.unlink()
    notes.clear()
    again = onnx_bisect.regress(
        path,
        backend=tmp_path / "tiny.toml",
        versions=("1.0", "1.2"),
        progress=lambda event: notes.append(str(event)) if isinstance(event, onnx_bisect.Note) else None,
    )
    assert "No matching distribution found for tiny-compiler. Only versions that are known here are asked." in notes[0]
    assert (again.calls, again.installs) == (0, 0)
    assert told(again) == told(history)


@pytest.mark.parametrize(
    ("backend", "versions", "options", "said"),
    [
        ("whitelist", ("1", "2"), {"deny": "Relu"}, "'whitelist' is no compiler of which"),
        ("tiny.toml", ("1.0", "2.0"), {}, r"'2\.0' is no version of tiny on the package index or here"),
        ("tiny.toml", ("1.0", "1.0"), {}, "the older one first"),
        ("tiny.toml", ("", ""), {"version": "1.0"}, "leave the option 'version' out"),
    ],
)
def test_what_is_no_range_is_a_mistake(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    versions: tuple[str, str],
    options: dict[str, str],
    said: str,
) -> None:
    TinyIndex().put_up(tmp_path, monkeypatch)
    monkeypatch.setattr(series, "SERIES", {})  # without the index
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(BACKEND)
    with pytest.raises(OptionError, match=said):
        onnx_bisect.regress(model(tmp_path, "Relu"), backend=backend, versions=versions, options=options)


@given(
    count=st.integers(2, 40),
    truths=st.lists(st.lists(st.integers(1, 39), max_size=3), min_size=1, max_size=4),
    unusable=st.sets(st.integers(1, 38)),
)
def test_every_change_that_shows_is_narrowed_to_neighbours(
    count: int, truths: list[list[int]], unusable: set[int]
) -> None:
    """Where a part changes at several versions, one that shows at all is told as it is."""

    def truth(number: int, flips: list[int]) -> bool:
        return sum(number >= flip for flip in flips) % 2 == 0

    broken = frozenset(it for it in unusable if it < count - 1)
    asked = {0, count - 1}

    def answers() -> list[dict[int, bool | None]]:
        return [{number: truth(number, flips) for number in asked} for flips in truths]

    while (number := next_version(answers(), broken)) is not None:
        assert 0 < number < count - 1
        assert number not in asked
        assert number not in broken
        asked.add(number)

    for flips, row in zip(truths, answers(), strict=True):
        for change in changes(row):
            assert truth(change.before, flips) is not truth(change.after, flips) is change.takes
            assert set(range(change.before + 1, change.after)) <= broken
    once = [flips for flips in truths if len(flips) == 1 and flips[0] < count]
    if len(truths) == 1 and once and not broken:
        assert [(it.before, it.after) for it in changes(answers()[0])] == [(once[0][0] - 1, once[0][0])]
        assert len(asked) <= 2 + count.bit_length()


def test_a_version_without_an_answer_leaves_a_change_open() -> None:
    part = VersionedPart(answers={0: True, 1: None, 2: False})
    history = VersionHistory(
        model="m.onnx",
        compiler="tiny",
        versions=("1.0", "1.1", "1.2"),
        parts=(part,),
        unusable={},
        finished=True,
        installs=0,
        calls=3,
    )
    assert next_version([part.answers]) is None
    assert "refused since 1.2, 1.0 takes it (no answer from 1.1)" in "\n".join(
        terminal_lines(history_sections(history))
    )


def test_a_history_is_told_in_chinese() -> None:
    answers: list[dict[int, bool | None]] = [
        {0: True, 1: None, 4: False, 5: True},
        {0: None},
        {0: True, 5: True},
        {0: False},
    ]
    history = VersionHistory(
        model="m.onnx",
        compiler="tiny",
        versions=("1.0", "1.1", "1.2", "1.3", "1.4", "1.5"),
        parts=(VersionedPart(answers=answers[0]), *(VersionedPart(answers=it, ops=("Abs",)) for it in answers[1:])),
        unusable={2: "It does not start."},
        finished=False,
        installs=1,
        calls=3,
    )
    with within(CHINESE):
        shown = "\n".join(terminal_lines(history_sections(history))).replace("It does not start.", "")
    assert "自 1.4 起拒绝" in shown
    assert not re.search("[a-z]{2,} [a-z]{2,}", shown)
