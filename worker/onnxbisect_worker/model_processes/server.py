"""The process that has a model, forked by `fork_server`.

Requests come and answers go through a socket, one at a time. When the socket's other end is gone, for whatever reason,
this process kills its compiles, removes its folder and ends.

Where models are strangers', it confines itself before it reads a byte of one (`confinement.confine`): the process that
was forked then only waits for another one, which is confined and answers. Its answers are not to be trusted.
"""

import json
import os
import resource
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, NoReturn

from onnxbisect.errors import BackendUnusableError, OnnxBisectError
from onnxbisect.job import Stats
from onnxbisect.shortage import shortage
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_worker.held_folders import remove_held
from onnxbisect_worker.model_processes.confinement import confine
from onnxbisect_worker.model_processes.contract import ProcessLostError, Repaired
from onnxbisect_worker.model_processes.layout import Layout
from onnxbisect_worker.model_processes.limits import Bounds
from onnxbisect_worker.model_processes.messages import (
    OWN,
    Setup,
    answered_from_json,
    asked_to_json,
    begun_from_json,
    failure,
)
from onnxbisect_worker.model_processes.work import ModelWork
from onnxbisect_worker.niceness import make_way

#: What compiles lets those go first who find work for it, and who answer requests.
_NICE = 5
#: Seconds in which compiles must have died, once nobody waits for them; their supervisors go on killing without us.
_PATIENCE = 0.4


def main(channel: socket.socket) -> None:
    """Answer requests for as long as there is somebody who asks. Standard input is nothing, and what is printed goes
    elsewhere.
    """
    _settle()
    lines = channel.makefile("rb")
    setup = Setup(**json.loads(lines.readline()))
    os.environ.clear()
    os.environ.update(setup.environment)
    folder = Path(setup.folder)
    own = folder / OWN
    own.mkdir()
    bounds = Bounds(seconds=setup.seconds, memory=setup.memory)
    with bounds.kept():
        ground = Layout.of(setup, own)
    status = confine(setup, own, ground)
    if status is not None:
        _end_like(status, folder)

    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    busy = Event()
    Thread(target=_listen, args=(lines, requests, busy, folder), daemon=True).start()
    work = ModelWork(setup, own, bounds, ground)
    while True:
        request = requests.get()
        busy.set()
        with bounds.kept():
            answer = json.dumps(_answer(work, setup, request)).encode()
        with suppress(OSError):  # nobody waits any more; the other thread knows
            channel.sendall(answer + b"\n")
        busy.clear()


def _settle() -> None:
    """Signals as in a program that a shell starts, whatever the worker does with them; no core files; the last to
    be served, and the first to go.
    """
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    make_way(_NICE)
    with suppress(OSError):  # where the machine runs out of memory, a process goes before its worker
        Path("/proc/self/oom_score_adj").write_text("400")


def _listen(lines: Iterable[bytes], requests: "SimpleQueue[dict[str, Any]]", busy: Event, folder: Path) -> None:
    """Pass requests on, until the other end is gone; then end everything."""
    with suppress(OSError):
        for line in lines:
            if line.endswith(b"\n"):
                requests.put(json.loads(line))
    give_up = time.monotonic() + _PATIENCE
    while busy.is_set() and time.monotonic() < give_up:
        kill_running()  # again and again: a compile may only now be starting
        time.sleep(0.01)
    with suppress(OSError):  # one that is confined cannot: the process that waits for it does
        remove_held(folder)
    os._exit(0)


def _end_like(status: int, folder: Path) -> NoReturn:
    """Remove the folder, and end as the process has ended that was confined."""
    with suppress(OSError):
        remove_held(folder)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # that of SIGKILL cannot be changed
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0) or int(code < 0))


def _answer(work: ModelWork, setup: Setup, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"result": _REQUESTS[request["do"]](work, request)}
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
    except Exception as error:  # a bug of ours is not to take the worker with it
        if (short := shortage(error)) is not None:
            return failure(short, str(short))
        traceback.print_exc()
        text = f"onnx-bisect has a fault that this model brings out: {type(error).__name__}: {error}. Please report it."
        return failure(OnnxBisectError(), work.plain(text))


def _prepare(work: ModelWork, _request: Mapping[str, Any]) -> str:
    return work.prepare().to_bytes().decode()


def _inspect(work: ModelWork, _request: Mapping[str, Any]) -> dict[str, Any]:
    return work.inspect()


def _draw(work: ModelWork, _request: Mapping[str, Any]) -> str:
    return work.draw().decode()


def _key(work: ModelWork, request: Mapping[str, Any]) -> str:
    return work.key(int(request["units"], 16))


def _ask(work: ModelWork, request: Mapping[str, Any]) -> dict[str, Any]:
    return asked_to_json(work.ask(int(request["units"], 16), seconds_left=request["seconds_left"]))


def _digests(work: ModelWork, request: Mapping[str, Any]) -> list[str]:
    return work.digests([int(units, 16) for units in request["pieces"]])


def _report(work: ModelWork, request: Mapping[str, Any]) -> dict[str, Any]:
    answers = [answered_from_json(it) for it in request["answers"]]
    written = work.report(answers, Stats(**request["stats"]), request["logs"])
    return {"document": written.document, "files": {name: path.name for name, path in written.files.items()}}


def _repair(work: ModelWork, request: Mapping[str, Any]) -> dict[str, Any]:
    came = work.repair(begun_from_json(request))
    files = {name: path.name for name, path in came.files.items()}
    if isinstance(came, Repaired):
        return {"question": None, "outcome": came.outcome, "files": files}
    return {"question": {"piece": came.piece, "whole": came.whole}, "files": files}


_REQUESTS: Mapping[str, Callable[[ModelWork, Mapping[str, Any]], object]] = {
    "prepare": _prepare,
    "draw": _draw,
    "inspect": _inspect,
    "key": _key,
    "ask": _ask,
    "digests": _digests,
    "report": _report,
    "repair": _repair,
}
