"""Forks model processes, with everything imported: `python -m onnxbisect_worker.model_processes.fork_server`.

Importing costs half a second of CPU, more than most model processes work in their lives, and the first model takes
three times as long to read as the second: onnx and onnxruntime write down which operators there are. A fork costs some
milliseconds, and what is not changed is in memory once.

The forkserver of `multiprocessing` would pass on the worker's environment, with its passwords, to itself and to a
second process, and would import the worker's main module in every child.

Standard input is a socket. A message on it is one byte with descriptors: those of the child, and one to which its fate
is written: the process id at once, or minus the system's error number, and how it ended (as `Popen.returncode` says it)
later, each on a line. When the socket's other end is gone, this process waits until its children have seen that, too,
and ends.
"""

import gc
import os
import select
import signal
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

# what the first question to a process would import
import numpy.random  # noqa: F401 - see above
import onnx
import onnxruntime  # noqa: F401 - see above
from onnx import TensorProto, helper

from onnxbisect.errors import OnnxBisectError
from onnxbisect.model.allowance import directly
from onnxbisect_backends import registry
from onnxbisect_backends.probing.inquiry import inquire
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_backends.sandbox.supervise import PR_SET_PDEATHSIG, prctl
from onnxbisect_worker.held_folders import hold, remove_held
from onnxbisect_worker.model_processes import server
from onnxbisect_worker.model_processes.fork_client import HOST_NAME

#: Seconds in which children end by themselves, once their worker is gone.
_PATIENCE = 5.0


class _Server:
    """The parent of what is forked."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        #: Descriptors on which ends are told, by process id.
        self._told: dict[int, int] = {}
        self._awake, self._wake = os.pipe()
        for end in (self._awake, self._wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)

    def serve(self) -> list[int]:
        """Returns in each child, with its descriptors. In the parent it does not."""
        poll = select.poll()
        for it in (self._requests.fileno(), self._awake):
            poll.register(it, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._awake:
                    self._bury()
                elif (given := self._asked()) is not None:
                    return given

    def _asked(self) -> list[int] | None:
        asked, descriptors, _, _ = socket.recv_fds(self._requests, 1, 4)
        if not asked:
            self._end()
        *given, told = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            os.close(told)
            self._let_go()
            return given
        for it in given:
            os.close(it)
        _tell(told, pid)
        if pid > 0:
            self._told[pid] = told
        else:
            os.close(told)
        return None

    def _let_go(self) -> None:
        """In a child: nothing here is its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._requests.close()
        for it in (self._awake, self._wake, *self._told.values()):
            os.close(it)

    def _bury(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._awake, 4096)
        while self._told:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            told = self._told.pop(pid)
            _tell(told, os.waitstatus_to_exitcode(status))
            os.close(told)

    def _end(self) -> None:
        give_up = time.monotonic() + _PATIENCE
        while self._told and time.monotonic() < give_up:
            self._bury()
            time.sleep(0.01)
        os._exit(0)


def main() -> None:
    """Serve; in a child, be a model process."""
    requests = socket.socket(fileno=os.dup(0))
    _nothing_for(0)
    os.set_blocking(2, False)  # nobody reads it before the end
    with suppress(OSError, OnnxBisectError):  # then the first question takes longer, and says what is wrong
        _rehearse()
    gc.collect()
    gc.freeze()  # collections would touch, and so copy, what is shared
    _be_host(*_Server(requests).serve())


def _be_host(channel: int, output: int, lock: int) -> None:
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # who else would tell how it ended
    with suppress(OSError):
        Path("/proc/self/comm").write_text(HOST_NAME)
    for it in (1, 2):
        os.dup2(output, it)
    os.close(output)
    for it in (channel, lock):
        os.set_inheritable(it, False)
    tempfile.tempdir = None  # that of the environment which the process is told
    server.main(socket.socket(fileno=channel))


def _rehearse() -> None:
    """Do with a model of one node what model processes do with theirs, in a folder beside theirs. Nothing of it goes on
    running: what has threads cannot be forked safely.
    """
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "rehearsal", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder = Path(os.environ["TMPDIR"]) / uuid4().hex
    lock = hold(folder)
    try:
        onnx.save(model, folder / "model.onnx")
        inquiry = inquire(
            Intake(folder / "model.onnx", {}, bounded=directly), registry.make("whitelist", {"deny": "Relu"})
        )
        inquiry.key(1)
        inquiry.write(1, folder / "piece.onnx")
    finally:
        remove_held(folder)
        os.close(lock)


def _nothing_for(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _tell(told: int, number: int) -> None:
    with suppress(BrokenPipeError):
        os.write(told, b"%d\n" % number)


if __name__ == "__main__":
    main()
