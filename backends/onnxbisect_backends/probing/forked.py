"""Works out shapes and known values of a model in a forked process, which may crash, hang or run out of memory."""

import faulthandler
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from onnxbisect.errors import ModelError
from onnxbisect.model.allowance import Allowance, ExceededError
from onnxbisect.model.established import Established
from onnxbisect_backends.sandbox.supervise import PR_SET_PDEATHSIG, bound, prctl

#: First byte of what the process sends: a result, a refusal of the model, no memory, a fault.
_RESULT, _REFUSAL, _MEMORY, _FAULT = b"R", b"E", b"M", b"F"

#: As many times its seconds may pass while a process waits for a processor, or for nothing.
_IDLE = 5


def forked(work: Callable[[], Established], allowance: Allowance) -> Established:
    """A `Bounded`. A fork has the parsed model already, and only the result comes back.

    Elsewhere than on Linux the work is done here, without bounds: forking is not safe there.
    """
    if sys.platform != "linux":
        return work()
    source, sink = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():  # Python warns where there are threads; this process uses none of their locks
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _work(work, allowance, parent, sink)
    os.close(sink)
    late = False
    try:
        answer = _read(source, child, allowance.seconds)
        late = answer is None
    finally:  # reached by Ctrl-C, too
        os.close(source)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late:
        raise ExceededError(f"took more than {allowance.seconds:.0f} s")
    return _result(answer or b"", status, allowance)


def _result(answer: bytes, status: int, allowance: Allowance) -> Established:
    kind, content = answer[:1], answer[1:]
    if kind == _RESULT:
        return Established.from_bytes(content)
    if kind == _REFUSAL:
        raise ModelError(content.decode())
    if kind == _FAULT:
        raise RuntimeError(content.decode())
    if kind == _MEMORY or status == -signal.SIGKILL:
        raise ExceededError(f"took more than {allowance.memory >> 20} MB of memory")
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    raise ExceededError(how)


def _read(source: int, child: int, seconds: float) -> bytes | None:
    """All that comes until the process ends; None where it takes longer. On a busy machine its own seconds count."""
    began = time.monotonic()
    answer = bytearray()
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while True:
        passed = time.monotonic() - began
        left = seconds - min(passed, _worked(child))
        if left <= 0 or passed > seconds * _IDLE:
            return None
        if poll.poll(max(left, 0.1) * 1000):
            data = os.read(source, 1 << 20)
            if not data:
                return bytes(answer)
            answer += data


def _worked(child: int) -> float:
    """Seconds of processors that all threads of a process have used."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(work: Callable[[], Established], allowance: Allowance, parent: int, sink: int) -> NoReturn:
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _settle(allowance)
        answer = _answer(work)
        while answer:
            answer = answer[os.write(sink, answer) :]
    finally:
        os._exit(0)


def _settle(allowance: Allowance) -> None:
    bound(resource.RLIMIT_CORE, 0)
    # RLIMIT_AS would also count what allocators only reserve, and models that are mapped
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    bound(resource.RLIMIT_DATA, allowance.memory if soft == resource.RLIM_INFINITY else min(soft, allowance.memory))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what C++ code prints when it aborts helps no user
        os.dup2(nothing, descriptor)
    faulthandler.disable()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _answer(work: Callable[[], Established]) -> bytes:
    try:
        return _RESULT + work().to_bytes()
    except ModelError as error:
        return _REFUSAL + str(error).encode()
    except MemoryError:
        return _MEMORY
    except Exception as error:  # a fault of ours, for the parent to report
        return _FAULT + f"{type(error).__name__}: {error}".encode(errors="replace")
