"""Ctrl-C and its relatives, sent to the real process: nobody survives, nothing known is lost."""

import json
import signal
import sys
import time

import pytest

from support.cli.command_line import CASES, Shell, culprits, truth
from support.cli.processes import survivors

C2 = str(CASES / "c2_chain100_3bad.onnx")

#: Answers about the whole model at once; every other compile starts a daemon and hangs until the release file is there.
#: Ops are found in the bytes, by the names of the nodes: importing onnx would take ten times as long.
COMPILER = """
import os, re, subprocess, sys, time
from pathlib import Path

here = Path(__file__).parent
ops = re.findall(rb"n\\d+_(\\w+)\\x22", Path(sys.argv[1]).read_bytes())
if len(ops) < 100 and not (here / "release").exists():
    sleep = "import time; time.sleep(300)"
    subprocess.Popen([sys.executable, "-c", sleep, str(here)], start_new_session=True)
    (here / f"hanging-{os.getpid()}").touch()
    time.sleep(300)
with (here / "calls").open("a") as calls:
    calls.write(f"{len(ops)}\\n")
raise SystemExit(bool({b"Asinh", b"Cosh", b"Atan"} & set(ops)))
"""


def command(shell: Shell) -> list[str]:
    (shell.folder / "compiler.py").write_text(COMPILER)
    return [C2, "--", sys.executable, "-I", "-S", str(shell.folder / "compiler.py"), "{model}"]


def wait_for_hanging(shell: Shell, count: int) -> None:
    give_up = time.monotonic() + 40
    while len(list(shell.folder.glob("hanging-*"))) < count:
        assert time.monotonic() < give_up, "the compilers did not start"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "code", "jobs"),
    [
        pytest.param(signal.SIGINT, 130, 2, id="ctrl-c"),
        pytest.param(signal.SIGTERM, 143, 1, id="terminate", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_search_leaves_nobody_and_goes_on_where_it_stopped(
    shell: Shell, number: signal.Signals, code: int, jobs: int
) -> None:
    arguments = command(shell)
    with shell.start("run", "--format", "json", "--jobs", str(jobs), *arguments) as process:
        try:
            wait_for_hanging(shell, jobs)
            began = time.monotonic()
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert survivors(shell.folder) == {}
    assert process.returncode == code, err
    assert time.monotonic() - began < 8
    assert "Traceback" not in err
    assert "the same command goes on from here" in err
    report = json.loads(out)
    assert report["certificate"]["status"] == "bounded"
    assert [probe["size"] for probe in report["probes"]] == [100]
    (shell.folder / "release").touch()
    complete = shell.report(*arguments)
    assert culprits(complete) == truth("c2_chain100_3bad")
    assert (shell.folder / "calls").read_text().split().count("100") == 1


def test_an_interrupted_repair_without_the_cache_does_not_promise_to_go_on(shell: Shell) -> None:
    with shell.start("fix", "--no-cache", *command(shell)) as process:
        try:
            wait_for_hanging(shell, 1)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "onnx-bisect: interrupted; nothing is kept."


def test_a_second_ctrl_c_does_not_wait(shell: Shell) -> None:
    with shell.start("run", *command(shell)) as process:
        try:
            wait_for_hanging(shell, 1)
            for _ in range(2):
                process.send_signal(signal.SIGINT)
                time.sleep(0.15)
            process.communicate(timeout=30)
        finally:
            process.kill()
    # shells report both as 130: where the second one comes as Python ends, nobody is left to catch it
    assert process.returncode in (130, -signal.SIGINT)
    give_up = time.monotonic() + 5
    while survivors(shell.folder) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert survivors(shell.folder) == {}


def test_a_killed_search_leaves_nobody_and_keeps_its_verdicts(shell: Shell) -> None:
    arguments = command(shell)
    with shell.start("run", *arguments) as process:
        try:
            wait_for_hanging(shell, 1)
        finally:
            process.kill()
    give_up = time.monotonic() + 10
    while survivors(shell.folder) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert survivors(shell.folder) == {}
    (shell.folder / "release").touch()
    shell.report(*arguments)
    assert (shell.folder / "calls").read_text().split().count("100") == 1


def test_the_working_folder_is_gone_after_an_interrupt(shell: Shell) -> None:
    temporary = shell.folder / "tmp"
    temporary.mkdir()
    environment = {**shell.environment, "TMPDIR": str(temporary)}
    with shell.start("run", *command(shell), environment=environment) as process:
        try:
            wait_for_hanging(shell, 1)
            assert list(temporary.iterdir())
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert list(temporary.iterdir()) == []
