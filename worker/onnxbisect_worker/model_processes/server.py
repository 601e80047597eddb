"""Model processes, and the server that forks them: `python -m onnxbisect_worker.model_processes.server`.

Importing costs half a second of CPU, more than most model processes need. Reading the first model takes three times as
long as the second, because onnx and onnxruntime register their operators. So the server imports everything, reads a
small model, and forks. A fork takes some milliseconds, and unchanged memory is shared.

For each request it forks a *keeper*, which reads no model. The keeper forks the model process, waits until it has ended
or the worker is done with it, kills it, reports its exit code, and removes its folder. The model process dies with its
keeper.
"""

import gc
import json
import os
import resource
import select
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn, get_type_hints

# imported by the first request otherwise
import numpy.random  # noqa: F401 - see above
import onnx
import onnxruntime  # noqa: F401 - see above
from onnx import TensorProto, helper

from onnxbisect.errors import BackendUnusableError, OnnxBisectError, shortage
from onnxbisect.json_form import from_json, to_json
from onnxbisect.model.model import directly
from onnxbisect.report.html import compile_all, environment
from onnxbisect_backends import registry
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import search_context
from onnxbisect_backends.sandbox.supervise import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl
from onnxbisect_worker.model_processes.confinement import confine
from onnxbisect_worker.model_requests.layout import PreparedFiles, remove_held
from onnxbisect_worker.model_requests.limits import Bounds
from onnxbisect_worker.model_requests.protocol import OWN, PROCESS_NAME, ProcessLostError, Setup, failure
from onnxbisect_worker.model_requests.work import ModelWork

#: Seconds for compiles to die after their model process.
_PATIENCE = 2.0


def main() -> None:
    """Fork a keeper for each request, until the worker is gone.

    Standard input is a socket; a request is one byte with the keeper's descriptors.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # undo the worker's signal mask
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    requests = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    with suppress(OSError, OnnxBisectError):  # then the first request is slower, and reports the error
        _rehearse()
    gc.collect()
    gc.freeze()  # garbage collection would write to, and so copy, shared pages
    requests.send(b".")
    os.dup2(nothing, 2)
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not asked:
            return
        try:
            forked = os.fork()
        except OSError as error:
            forked = -1
            os.write(descriptors[1], f"no process can be forked: {error.strerror}\n".encode())
        if forked == 0:
            requests.close()
            _keep(*descriptors)
        for it in descriptors:
            os.close(it)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _rehearse() -> None:
    """Handle a model of one node as model processes do. It leaves no threads, with which forking would be unsafe."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "rehearsal", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "model.onnx")
        onnx.save(model, path)
        context = search_context(LoadedModel(path, {}, bounded=directly), registry.make("whitelist", {"deny": "Relu"}))
        context.key(1)
        context.write(1, Path(name, "piece.onnx"))
    compile_all(environment())


def _keep(channel_number: int, output: int, status: int, lock: int) -> NoReturn:
    """Run a keeper: fork the model process, wait for its end, and clean up."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for it in (1, 2):
        os.dup2(output, it)
    os.close(output)
    for it in (channel_number, status, lock):
        os.set_inheritable(it, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # the out-of-memory killer takes it before the worker
        Path("/proc/self/oom_score_adj").write_text("400")
    channel = socket.socket(fileno=channel_number)
    lines = channel.makefile("rb")
    line = lines.readline()
    if not line:  # the worker no longer needs it
        os._exit(0)
    setup = from_json(json.loads(line), Setup)
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned compiles become children of this process
    keeper = os.getpid()
    model_process = os.fork()
    if model_process == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        os.close(status)
        os.close(lock)
        _be_model_process(channel, lines, setup)
    watch = select.poll()
    watch.register(channel, select.POLLRDHUP)
    watch.register(os.pidfd_open(model_process), select.POLLIN)
    watch.poll()
    os.kill(model_process, signal.SIGKILL)
    _, ended = os.waitpid(model_process, 0)
    with suppress(OSError):  # the worker is gone
        os.write(status, b"%d" % os.waitstatus_to_exitcode(ended))
    give_up = time.monotonic() + _PATIENCE
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < give_up:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
    with suppress(OSError):
        remove_held(setup.folder)
    os._exit(0)


def _be_model_process(channel: socket.socket, lines: IO[bytes], setup: Setup) -> NoReturn:
    """Answer requests, one at a time.

    If models are untrusted, this process is confined before it reads a byte of one (`confinement.confine`): it then
    only waits for a confined child, which answers.
    """
    with suppress(OSError):
        Path("/proc/self/comm").write_text(PROCESS_NAME)
    os.environ.clear()
    os.environ.update(setup.environment)
    tempfile.tempdir = None  # recomputed from this environment
    own = setup.folder / OWN
    own.mkdir()
    bounds = Bounds(seconds=setup.seconds, memory=setup.memory)
    with bounds.kept():
        layout = PreparedFiles.of(setup, own)
    confined = confine(setup, own, layout)
    if confined is not None:
        _end_like(confined)

    def send(message: Mapping[str, Any]) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    work = ModelWork(setup, own, bounds, layout, send)
    for line in lines:
        with bounds.kept():
            answer = _answer(work, setup, json.loads(line))
            send(answer)
    os._exit(0)


def _end_like(status: int) -> NoReturn:
    """End with the exit code or signal of the confined process."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL's handler cannot be changed
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0) or int(code < 0))


def _answer(work: ModelWork, setup: Setup, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        method = getattr(work, request["do"])
        kinds = get_type_hints(method, include_extras=True)
        given = {name: from_json(value, kinds[name]) for name, value in request["given"].items()}
        return {"result": to_json(method(**given), kinds["return"])}
    except BackendUnusableError as error:
        blamed = work.blamed(error)
        return failure(blamed, work.plain(str(blamed)))
    except OnnxBisectError as error:
        found = shortage(error) or error
        return failure(found, work.plain(str(found)))
    except MemoryError:
        text = (
            f"The model takes more than the {setup.memory >> 20} MB of memory that reading one may take here "
            f"(ONNXBISECT_MODEL_MEMORY)."
        )
        return failure(ProcessLostError(), text)
    except Exception as error:  # a bug here must not end the worker
        if (short := shortage(error)) is not None:
            return failure(short, str(short))
        traceback.print_exc()
        text = f"onnx-bisect has a fault that this model brings out: {type(error).__name__}: {error}. Please report it."
        return failure(OnnxBisectError(), work.plain(text))


if __name__ == "__main__":
    main()
