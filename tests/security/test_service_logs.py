"""Line 8 of the security checklist for what the service logs: hostile text is one line of plain characters."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import logging, sys
from pathlib import Path
from onnxbisect_service.logs import configure
from onnxbisect_service.settings import Settings

configure(Settings(data=Path(sys.argv[1]), log_format=sys.argv[2]))
hostile = sys.argv[3].encode().decode("unicode_escape")
logging.error("the model says %s", hostile)
try:
    raise ValueError(hostile)
except ValueError:
    logging.exception("the model says %s", hostile)
"""
_FORGED = "2026-01-01 00:00:00,000 INFO    1 root: all is well"
#: Lines of another, a terminal's colours and title, text backwards, and what ends a line elsewhere.
HOSTILE = rf"x\n{_FORGED}\r{_FORGED}\x1b[31m\x1b]0;title\x07\u202egnp.exe\u2066\u2028{_FORGED}\x85\x9b31m\x00\x7f"


def logged(tmp_path: Path, log_format: str) -> str:
    """What a process of the service writes to its standard error."""
    argv = [sys.executable, "-c", _PROGRAM, str(tmp_path), log_format, HOSTILE]
    return subprocess.run(argv, stderr=subprocess.PIPE, check=True).stderr.decode()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_8_a_log_has_no_character_that_is_not_to_be_seen(tmp_path: Path, log_format: str) -> None:
    said = logged(tmp_path, log_format)
    assert "gnp.exe" in said
    assert said.replace("\n", "").isprintable()


def test_8_no_text_makes_a_line_of_the_log(tmp_path: Path) -> None:
    begun = [line for line in logged(tmp_path, "text").split("\n") if re.match(r"\d{4}-", line)]
    assert len(begun) == 2, "one for each message, with an exception or without"
    assert all("the model says" in line for line in begun)


def test_8_every_line_is_a_whole_json_document(tmp_path: Path) -> None:
    first, second = (json.loads(line) for line in logged(tmp_path, "json").splitlines())
    assert first["message"] == second["message"]
    assert first["message"].isprintable()
    assert "ValueError" in second["traceback"]
