"""Computes shapes and known values of a model in a forked process, which may crash, hang or run out of memory."""

import faulthandler
import gc
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

from google.protobuf.message import EncodeError

from onnxbisect.errors import ModelError
from onnxbisect.model.model import Allowance, Established, ExceededError
from onnxbisect_backends.sandbox.process import oom_kills
from onnxbisect_backends.sandbox.supervise import PR_SET_PDEATHSIG, bound, prctl

#: First byte of the process's message: result, refusal of the model, out of memory, internal error.
_RESULT, _REFUSAL, _MEMORY, _FAULT = b"R", b"E", b"M", b"F"

#: Wall time limit, as a multiple of `Allowance.seconds`: on a busy machine, a process waits for a CPU.
_IDLE = 5
#: How often the work is begun where somebody killed the process, or it stood still, which says nothing of the model.
_MOST_BEGUN = 3
#: Seconds after which a process that sleeps and uses no CPU stands still: it waits for a lock that another thread held
#: at the fork, such as one of onnxruntime's, and that nobody releases there.
_STILL = 5.0


def forked(work: Callable[[], Established], allowance: Allowance) -> Established:
    """Do `work` in a forked process, which already has the parsed model; only the result is sent back.

    Implements `Bounded`. Raises ModelError if `work` does, RuntimeError for its other errors, and ExceededError if the
    process needs more than its allowance or crashes. On other systems than Linux the work is done here without limits,
    because forking is not safe there.
    """
    if sys.platform != "linux":
        return work()
    for number in range(_MOST_BEGUN):
        before = oom_kills()
        try:
            answer, status = _ended(work, allowance)
        except _StoodStillError:
            if number + 1 < _MOST_BEGUN:
                continue
            raise
        if answer or status != -signal.SIGKILL or oom_kills() != before:
            break
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


class _StoodStillError(ExceededError):
    """The process waited, and used no CPU."""


def _ended(work: Callable[[], Established], allowance: Allowance) -> tuple[bytes, int]:
    """What one process wrote, and its exit status. Raises ExceededError if it takes too long, or stands still."""
    source, sink = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():  # Python warns if there are threads; the child uses none of their locks
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _work(work, allowance, parent, sink)
    os.close(sink)
    late = False
    try:
        answer = _read(source, child, allowance.seconds)
        late = answer is None
    finally:  # also after Ctrl-C
        os.close(source)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late:
        raise ExceededError(f"took more than {allowance.seconds:.0f} s")
    return answer or b"", status


def _read(source: int, child: int, seconds: float) -> bytes | None:
    """All bytes that the process writes until it ends; None if it takes too long.

    It takes too long after `seconds` of both wall time and CPU time, or `_IDLE` times as much wall time. Raises
    _StoodStillError if it sleeps, and used no CPU for `_STILL` seconds.
    """
    began = moved = time.monotonic()
    before = -1.0
    answer = bytearray()
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while True:
        passed = time.monotonic() - began
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        worked = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # CPU seconds of all its threads
        if worked > before or fields[0] != "S":
            moved, before = time.monotonic(), worked
        elif time.monotonic() - moved > _STILL:
            raise _StoodStillError(f"stood still for {_STILL:.0f} s")
        left = seconds - min(passed, worked)
        if left <= 0 or passed > seconds * _IDLE:
            return None
        if poll.poll(min(max(left, 0.1), _STILL / 4) * 1000):
            data = os.read(source, 1 << 20)
            if not data:
                return bytes(answer)
            answer += data


def _held() -> int:
    """Bytes of data that this process shares with the one that it was forked from, such as a notebook's models."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[5]) * resource.getpagesize()


def _work(work: Callable[[], Established], allowance: Allowance, parent: int, sink: int) -> NoReturn:
    try:
        gc.freeze()  # what closes an object left by the parent may wait for threads that only the parent has
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        bound(resource.RLIMIT_CORE, 0)
        # RLIMIT_AS would also count reserved and mapped memory
        soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
        most = _held() + allowance.memory
        bound(resource.RLIMIT_DATA, most if soft == resource.RLIM_INFINITY else min(soft, most))
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # hides C++ abort messages
            os.dup2(nothing, descriptor)
        faulthandler.disable()
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500")
        try:
            answer = _RESULT + work().to_bytes()
        except ModelError as error:
            answer = _REFUSAL + str(error).encode()
        except (MemoryError, EncodeError):  # protobuf raises the latter where it gets no memory to write a model
            answer = _MEMORY
        except Exception as error:  # an internal error, which the parent reports
            answer = _FAULT + f"{type(error).__name__}: {error}".encode(errors="replace")
        while answer:
            answer = answer[os.write(sink, answer) :]
    finally:
        os._exit(0)
