"""A shell for each test."""

from pathlib import Path

import pytest
from command_line import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
