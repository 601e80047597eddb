"""Two pages of the benchmark are compared line by line."""

import sys
from pathlib import Path

import pytest

import against

PAGE = """
| graph | n | log | seeds | calls | limit | engine, ms per call |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| singles | 1000 | opaque | 20 | {calls} (28-32) | 31.5 | {engine} |
| singles | 1000 | first op | {seeds} | 9 | 14 | 2 |

| case | calls | engine, ms per call |
| --- | ---: | ---: |
| c1 | 4 | 2 |
"""


@pytest.mark.parametrize(("calls", "status"), [(30, 0), (31, 0), (31.1, 1), (20, 0)])
def test_a_line_that_takes_more_than_one_call_more_is_told_and_fails(
    calls: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [tmp_path / "before.md", tmp_path / "after.md"]
    pages[0].write_text(PAGE.format(calls=30, engine=2, seeds=3))
    pages[1].write_text(PAGE.format(calls=calls, engine=3, seeds=20))
    monkeypatch.setattr(sys, "argv", ["against.py", *map(str, pages)])
    assert against.main() == status
    said = capsys.readouterr().out
    assert ("| singles, 1000, opaque | 30.0 |" in said) == (calls != 30)
    assert "Of 2 lines in both pages" in said
    assert "1.50 at most (singles, 1000, opaque)" in said
