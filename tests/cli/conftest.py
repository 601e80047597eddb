"""A shell for each test."""

from pathlib import Path

import pytest

from support.cli.command_line import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(folder=tmp_path, monkeypatch=monkeypatch, capture=capfd)
