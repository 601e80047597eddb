"""The page that says what is done about what: it may not speak of tests and files that are not there."""

import re
from pathlib import Path

import pytest

from onnxbisect_service.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE) + re.findall(r"\]\(([^):]+)\)", PAGE)))
)
def test_what_the_page_names_is_there(path: str) -> None:
    assert (ROOT / path.partition("#")[0]).exists()


CHECKLIST = (ROOT / "docs" / "security-checklist.md").read_text()


def test_the_checklist_has_no_line_without_a_test() -> None:
    lines = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", CHECKLIST, re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(1, len(lines) + 1))
    assert len(lines) >= 28
    assert all("`tests/" in tests for _, tests in lines)


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`(tests/[^`]+)`", CHECKLIST))))
def test_what_the_checklist_names_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert re.search(rf"def {name}" if name else "def test_", (ROOT / file).read_text())


def test_settings_that_the_page_names_are_settings() -> None:
    named = {name.lower() for name in re.findall(r"`ONNXBISECT_([A-Z_]+)[`/]", PAGE)}
    assert named
    assert named <= set(Settings.model_fields)
