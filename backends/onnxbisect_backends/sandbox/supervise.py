"""The supervisor of one compile: a script that starts the compiler, watches it, and kills all its processes.

Run as `python -I -S supervise.py`, one per compile, because only a separate process can adopt orphans and know their
origin: a compiler that forks, calls setsid and lets its parent exit becomes a child of the nearest subreaper, which is
this process. It imports little, to start in a few milliseconds.

Protocol: standard input has one line of JSON (`argv`, `path` of the executable, `cwd`, `env`, `seconds`,
`memory_bytes`, `file_bytes`, `log_bytes`, `network`, `view`) and stays open while the answer is wanted. Its end, or
SIGTERM (which the kernel sends when the parent dies), means kill everything. Standard output gets one line of JSON and
then the log's bytes, verbatim.
"""

import contextlib
import ctypes
import json
import os
import re
import resource
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: Processes and threads of a compiler that is confined; some start one for each of a hundred cores, several times.
MOST_PROCESSES = 4096
#: Of a log's middle: lines that are kept, the longest of them, what they are compared without, and what they must have.
MOST_FORMS, LONGEST_LINE = 500, 1000
NUMBER, LETTERS = re.compile(rb"0x[0-9a-f]+|\d+"), re.compile(rb"[A-Za-z]{3}")


def beside(name: str) -> Any:
    """The module of this name in this script's folder, which is not on the import path."""
    from importlib.machinery import SourceFileLoader
    from types import ModuleType

    module = ModuleType(name)
    SourceFileLoader(name, __file__.removesuffix("supervise.py") + f"{name}.py").exec_module(module)
    return module


if TYPE_CHECKING:
    from onnxbisect_backends.sandbox import process_tree
else:
    process_tree = beside("process_tree")


class Log:
    """The first and the last half of `limit` bytes of output, and of the lines between them each that says a new thing.

    Some compilers print one error for each register that they set, half a million times. `lost` counts bytes of lines
    of which nothing is kept.
    """

    def __init__(self, limit: int) -> None:
        self.half = max(1, limit // 2)
        self.head = bytearray()
        self.tail = bytearray()
        self.between = bytearray()
        self.unended = b""
        self.said: set[bytes] = set()
        self.repeated = self.lost = 0

    def add(self, data: bytes) -> None:
        """Append bytes."""
        room = self.half - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        surplus = len(self.tail) - self.half
        if surplus > 0:
            self._condense(bytes(self.tail[:surplus]))
            del self.tail[:surplus]

    def _condense(self, data: bytes) -> None:
        lines = (self.unended + data).split(b"\n")
        self.unended = lines.pop()
        if len(self.unended) > LONGEST_LINE:
            self.lost += len(self.unended)
            self.unended = b""
        for line in lines:
            form = NUMBER.sub(b"0", line)
            if form in self.said:
                self.repeated += 1
            elif len(self.said) < MOST_FORMS and len(line) <= LONGEST_LINE and LETTERS.search(form):
                self.said.add(form)
                self.between += line + b"\n"
            else:
                self.lost += len(line) + 1

    def text(self) -> bytes:
        """The kept bytes, with lines that say how much is left out."""
        gap = bytes(self.between)
        if self.repeated:
            gap += f"[... {self.repeated} lines left out that differ from these in numbers ...]\n".encode()
        cut = self.unended
        if self.lost:
            gap += f"[... {self.lost + len(cut)} bytes left out ...]\n".encode()
            cut = b""
        return bytes(self.head) + (b"\n" + gap if gap else b"") + cut + bytes(self.tail)


def prctl(option: int, value: int) -> None:
    """Set a process option on Linux; other systems rely on process groups."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def lower_priority() -> None:
    """Give this session the nice value of this process: Linux schedules sessions as groups (autogroup, sched(7))."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if nice > 0:
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:  # noqa: PTH123 - pathlib is slow to import
            group.write(str(nice))


def bound(which: int, value: int) -> None:
    """Lower a resource limit; a lower hard limit stays."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def become_compiler(
    spec: dict[str, Any], confined: Any, parent: int, log: int, trouble: int, alive: int, ended: int
) -> NoReturn:
    """Turn the forked child into the compiler; an error is written to `trouble` as a sentence.

    A confined compiler is that child's child; see `run_as_init` for `alive` and `ended`.
    """
    what = "could not be prepared"
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as adjust:  # noqa: PTH123 - pathlib is slow to import
            adjust.write("500")  # the out-of-memory killer takes the compiler first
        if spec["view"] is not None:
            what = "could not be isolated"
            confined.run_as_init(spec["view"], alive, ended)
            os.setsid()
            lower_priority()
            bound(resource.RLIMIT_NPROC, MOST_PROCESSES)
            confined.give_up_rights()
        else:
            if confined is not None:
                confined.leave_network()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            lower_priority()
        bound(resource.RLIMIT_CORE, 0)
        if spec["file_bytes"] is not None:
            bound(resource.RLIMIT_FSIZE, spec["file_bytes"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        what = f"could not be started in {spec['cwd']}"
        os.chdir(spec["cwd"])
        what = "could not be started"
        os.execve(spec["path"], spec["argv"], spec["env"])  # noqa: S606 - a list, and no shell is wanted
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        os.write(trouble, f"{what}: {reason}".encode(errors="replace"))
    os._exit(1)


def drain(source: int, log: Log) -> bool:
    """Add available output to the log; False if there is none, that is, after a poll, if all writers have closed."""
    with contextlib.suppress(BlockingIOError):
        data = os.read(source, 1 << 20)
        log.add(data)
        return bool(data)
    return False


def supervise(spec: dict[str, Any], confined: Any) -> tuple[dict[str, Any], bytes]:
    """Run the compiler to its end, or to a limit; returns the answer's head and the log."""
    me = os.getpid()
    alarm, ring = os.pipe()
    os.set_blocking(ring, False)
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    cancelled = False

    def cancel(_number: int, _frame: object) -> None:
        nonlocal cancelled
        cancelled = True

    signal.signal(signal.SIGTERM, cancel)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    source, sink = os.pipe()
    trouble, complain = os.pipe()
    alive, living = os.pipe()
    told, tell = os.pipe()
    begun = time.monotonic()
    compiler = os.fork()
    if compiler == 0:
        os.close(living)
        become_compiler(spec, confined, me, sink, complain, alive, tell)
    for descriptor in (sink, complain, tell):
        os.close(descriptor)
    complaint = os.read(trouble, 4096).decode(errors="replace")
    os.set_blocking(source, False)

    log = Log(spec["log_bytes"])
    deadline = begun + spec["seconds"]
    limit = spec["memory_bytes"]
    look_every = 0.05 if limit else 0.5
    look_at = begun
    peak = 0
    ended: int | None = None
    timed_out = over_memory = False
    poll = select.poll()
    for descriptor in (source, alarm, 0):
        poll.register(descriptor, select.POLLIN)
    while True:
        now = time.monotonic()
        if now >= look_at:
            pids = process_tree.descendants()
            held = process_tree.resident(pids)
            if limit and held > limit:
                held = process_tree.proportional(pids)
                over_memory = held > limit
            peak = max(peak, held)
            look_at = now + look_every
        status, _ = process_tree.reap(compiler)
        if status is not None:
            # a confined compiler's status comes from its parent, unless that was killed, too
            ended = int.from_bytes(os.read(told, 4) or status.to_bytes(4, "little"), "little")
            over_memory = False
            break
        timed_out = now >= deadline
        if cancelled or timed_out or over_memory:
            break
        for descriptor, _event in poll.poll(max(0.0, min(deadline, look_at) - now) * 1000):
            if descriptor == source and not drain(source, log):
                poll.unregister(source)
            elif descriptor == alarm:
                os.read(alarm, 512)
            elif descriptor == 0 and not os.read(0, 512):
                cancelled = True
    seconds = time.monotonic() - begun
    survivors = process_tree.kill_all(compiler)
    for _ in range(64):  # more than a pipe holds; output of surviving processes is not waited for
        if not drain(source, log):
            break
    unit = 1 if sys.platform == "darwin" else 1024
    peak = max(peak, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit)
    return {
        "complaint": complaint,
        "cancelled": cancelled,
        "timed_out": timed_out,
        "over_memory": over_memory,
        "exit_code": os.WEXITSTATUS(ended) if ended is not None and os.WIFEXITED(ended) else None,
        "signal": os.WTERMSIG(ended) if ended is not None and os.WIFSIGNALED(ended) else None,
        "survivors": survivors,
        "seconds": seconds,
        "peak_memory": peak,
        "truncated": log.lost > 0,
    }, log.text()


def main() -> None:
    """Read the order from standard input, run it, and write the answer to standard output."""
    parent = os.getppid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # unbuffered bytes: after the order, standard input only has its end
    order = bytearray()
    while not order.endswith(b"\n"):
        data = os.read(0, 1 << 16)
        if not data:
            return
        order += data
    spec = json.loads(order)
    confined: Any = beside("confine") if sys.platform == "linux" and (spec["view"] or not spec["network"]) else None
    refused = ""
    if spec["view"] is not None:
        try:
            confined.enter(network=spec["network"])
        except OSError as error:
            refused = f"could not be isolated: {error.strerror}"
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return
    if refused:
        head, log = {"complaint": refused, "seconds": 0.0, "peak_memory": 0, "truncated": False}, b""
    else:
        head, log = supervise(spec, confined)
    with contextlib.suppress(BrokenPipeError):
        answer = json.dumps(head).encode() + b"\n" + log
        while answer:
            answer = answer[os.write(1, answer) :]


if __name__ == "__main__":
    main()
