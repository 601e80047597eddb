"""What stands on the terminal while compilers run."""

import os
import pty
import subprocess
import unicodedata

from rich.console import Console

from onnxbisect.diagnosis import Certainty, Certificate, CertificateStatus, Culprit, CulpritKind, Diagnosis, Evidence
from onnxbisect.job import ProbeRecord
from onnxbisect.search.plan import Ask, Plan
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_cli.progress import LiveProgress, sentence
from support.cli.command_line import CASES, PROGRAM, Shell

EVIL = "Ev\x1b[2Jil[bold]"
UNIVERSE = Universe(
    variant=(0, 1), solo=(0, 1), op=("Relu", EVIL), names=(("a",), ("b",)), tensors=(("x",), ("y",)), successors=(2, 0)
)
RECORD = ProbeRecord(
    key="k",
    units=2,
    verdict=Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=f"no {EVIL}\nhere", seconds=75.0),
    why=f"{EVIL} alone",
    round=1,
    attempt=1,
)


def diagnosis() -> Diagnosis:
    culprit = Culprit(
        units=3,
        occurrences=(3, 3),
        kind=CulpritKind.INTERACTION,
        certainty=Certainty.SUSPECTED,
        failure=Kind.UNSUPPORTED,
        fingerprint="",
        message="",
        evidence=Evidence(fails=3),
    )
    return Diagnosis(
        verdict=Status.FAIL,
        culprits=(culprit,),
        needs_context=(),
        certificate=Certificate(status=CertificateStatus.BOUNDED),
        remainder=0,
    )


def test_a_verdict_on_one_printable_line() -> None:
    line = sentence(UNIVERSE, RECORD)
    assert line.startswith("fail (unsupported): Ev\\x1b[2Jil[bold] alone (1 unit, asked again (2), 1 min 15 s): no Ev")
    assert not any(unicodedata.category(char) == "Cc" for char in line)


def test_the_live_display_tells_calls_questions_and_culprits() -> None:
    now = [0.0]
    console = Console(width=120, record=True, force_terminal=False)
    live = LiveProgress(UNIVERSE, console, clock=lambda: now[0])
    plan = Plan(asks=(), diagnosis=diagnosis(), expected=7.0)
    live.planned(plan, 1)
    live.asked(Ask(units=2, attempt=1, why=f"{EVIL} alone"))
    live.asked(Ask(units=3, attempt=0, why="the whole model"))
    live.answered(RECORD)
    now[0] = 65.0
    console.print(live.display())
    shown = console.export_text()
    assert "1 call of about 8  1 min 05 s" in shown
    assert "asking  the whole model, 2 units, 1 min 05 s" in shown
    assert "alone, 1 unit" not in shown
    assert "found   Relu → Ev\\x1b[2Jil[bold], 2 times (suspected)" in shown
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
