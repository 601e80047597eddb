"""The colours of a report on a terminal."""

import io

import pytest

from onnxbisect_cli.run_job import print_report

TEXT = "m.onnx does not compile for x\n  bounded: 1 of 2 units, [bold]not markup[/bold]\n  next: To replace:\n"


class Terminal(io.StringIO):
    """A text stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_only_terminals_get_colours(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_color: str, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    print_report(TEXT, compiles=False)
    shown = stream.getvalue()
    assert ("\x1b[1;31m" in shown) is coloured
    assert "[bold]not markup[/bold]" in shown
    if not terminal:
        assert shown == TEXT
