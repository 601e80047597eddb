"""What stands on the terminal while compilers run."""

import os
import pty
import subprocess
import unicodedata

from rich.console import Console

from onnx_bisect import Certainty, Found, Kind, PlanMade, ProbeAnswered, ProbeStarted, Status, Verdict
from onnxbisect_cli.progress import LiveDisplay
from support.cli.command_line import CASES, PROGRAM, Shell

EVIL = "Ev\x1b[2Jil[bold]"
ANSWERED = ProbeAnswered(
    probe="p2",
    why=f"{EVIL} alone",
    units=1,
    attempt=1,
    verdict=Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=f"no {EVIL}\nhere", seconds=75.0),
    cached=False,
)


def test_a_verdict_on_one_printable_line() -> None:
    line = str(ANSWERED)
    assert line.startswith("fail (unsupported): Ev\\x1b[2Jil[bold] alone (1 unit, asked again (2), 1 min 15 s): no Ev")
    assert not any(unicodedata.category(char) == "Cc" for char in line)


def test_the_live_display_tells_calls_questions_and_culprits() -> None:
    now = [0.0]
    console = Console(width=120, record=True, force_terminal=False)
    live = LiveDisplay(console, clock=lambda: now[0])
    found = Found(ops=("Relu", EVIL), occurrences=2, certainty=Certainty.SUSPECTED)
    live(PlanMade(calls=1, expected_calls=8.0, found=(found,)))
    live(ProbeStarted(probe="p2", units=1, why=f"{EVIL} alone"))
    live(ProbeStarted(probe="p3", units=2, why="the whole model"))
    live(ANSWERED)
    now[0] = 65.0
    console.print(live.display())
    shown = console.export_text()
    assert "1 call of about 8  1 min 05 s" in shown
    assert "asking  the whole model, 2 units, 1 min 05 s" in shown
    assert "alone, 1 unit" not in shown
    assert "found   Relu → Ev\\x1b[2Jil[bold], 2 places (suspected)" in shown
    assert "\x1b" not in shown


def test_on_a_terminal_the_display_comes_and_goes_and_the_report_stays(shell: Shell) -> None:
    controller, terminal = pty.openpty()
    command = [PROGRAM, "run", str(CASES / "c1_chain100_1bad.onnx"), "--backend", "whitelist"]
    done = subprocess.run(
        [*command, "--option", "deny=Asinh"],
        cwd=shell.folder,
        env={**shell.environment, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        stdin=subprocess.DEVNULL,
    )
    os.close(terminal)
    shown = os.read(controller, 1 << 20).decode()
    os.close(controller)
    assert "of about" in shown
    assert "\x1b[?25h" in shown  # the cursor is back
    assert b"\x1b" not in done.stdout
    assert done.stdout.splitlines()
