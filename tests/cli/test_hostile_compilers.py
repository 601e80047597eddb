"""Whatever a compiler does to the machine, there is a verdict in time, and nothing of it stays."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from onnxbisect.answer import LOG_BYTES
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Limits
from onnxbisect_backends.probing.prober import Prober
from onnxbisect_backends.testing import conv_net, processes_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no subreapers")

LIMITS = Limits(seconds=3, memory_bytes=300 << 20, file_bytes=10 << 20)

HANGS = """
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
time.sleep(600)
"""

# the daemon goes on writing into the work directory, which is about to be removed
DAEMON = """
import os, sys
ready, told = os.pipe()
if os.fork():
    os.read(ready, 1)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in range(10_000_000):
    with open(f"{number}.tmp", "w") as file:
        file.write("x")
    if number == 20:
        os.write(told, b"x")
"""

ENDLESS_LOG = """
import os
line = b"error: nothing works\\n" * 50_000
while True:
    os.write(1, line)
"""

ENDLESS_MEMORY = """
held = []
while True:
    held.append(b"x" * (16 << 20))
"""

SEGFAULT = """
import ctypes
open("half.bin", "w").write("written")
ctypes.string_at(0)
"""

ENDLESS_FILE = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
with open("big.bin", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
"""


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        pytest.param(HANGS, Status.UNRESOLVED, Kind.TIMEOUT, id="hangs"),
        pytest.param(DAEMON, Status.PASS, None, id="forks a daemon"),
        pytest.param(ENDLESS_LOG, Status.UNRESOLVED, Kind.TIMEOUT, id="logs without end"),
        pytest.param(ENDLESS_MEMORY, Status.FAIL, Kind.RESOURCE, id="eats all memory"),
        pytest.param(SEGFAULT, Status.FAIL, Kind.CRASH, id="dies of SIGSEGV"),
        pytest.param(ENDLESS_FILE, Status.FAIL, Kind.RESOURCE, id="writes without end"),
    ],
)
def test_a_verdict_in_time_and_nothing_left(tmp_path: Path, code: str, status: Status, kind: Kind | None) -> None:
    def write(_units: UnitSet, path: Path) -> Mapping[str, str]:
        onnx.save(conv_net(), path)
        return {}

    # a busy machine takes seconds to start a process and to give it memory
    limits = LIMITS if kind is Kind.TIMEOUT else replace(LIMITS, seconds=30)
    start = [sys.executable, "-I", "-S", "-c", f"import os, sys; os.chdir(sys.argv[2])\n{code}"]
    prober = Prober(
        write=write,
        backend=CommandBackend([*start, "{model}", "{workdir}"]),
        limits=limits,
        objection=lambda _units, _path: None,
        folder=tmp_path,
    )
    begun = time.monotonic()

    answer = prober.ask(1).answer

    assert time.monotonic() - begun < limits.seconds + 2
    assert answer is not None
    assert (answer.verdict.status, answer.verdict.kind) == (status, kind), answer
    assert len(answer.log) < LOG_BYTES + 1000
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
