"""The page that says what is done about what: it may not speak of tests and files that are not there."""

import re
from pathlib import Path

import pytest

from onnxbisect_worker.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE) + re.findall(r"\]\(([^):]+)\)", PAGE)))
)
def test_what_the_page_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_settings_that_the_page_names_are_settings() -> None:
    named = {name.lower() for name in re.findall(r"`ONNXBISECT_([A-Z_]+)[`/]", PAGE)}
    assert named
    assert named <= set(Settings.model_fields)
