"""A script for the user's Python, which needs torch alone: exports modules of a model, one in each child process.

`probed_model.py` loads the model, `probed_calls.py` sees what it calls, and `probed_export.py` exports one
module, whose other inputs `probed_inputs.py` makes up.
`torch_probe.py SOURCE`, where SOURCE is `FILE.py:FUNCTION`, or `hf:ID` for a model of transformers by its
configuration, with random weights. The function returns `(model, args)`, `(model, args, kwargs)` or `(model, [(args,
kwargs), ...])`. The first line of standard output is JSON with the modules that these inputs reach, or with a problem.
Then each line of standard input is an order, and each answer a line of JSON. What the user's code prints goes to
standard error. A child process holds the loaded model as its parent does, may crash, hang or run out of memory, and
changes the model as it likes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a process that has used a GPU cannot be forked
try:
    from torch import nn
except ImportError as error:
    print(json.dumps({"problem": "torch", "detail": str(error)}))
    sys.exit(0)
from probed_export import Export  # beside this script, whose folder is the first on the path
from probed_model import Loaded, WrongSourceError, said


def main(source: str) -> None:
    """Load the model, say what it is, and answer orders."""
    sys.path.pop(0)  # this script's folder
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def say(answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        loaded = Loaded(source)
        say(loaded.described())
    except WrongSourceError as problem:
        say({"problem": problem.args[0], "detail": problem.args[1]})
        return
    warm = False
    for line in orders:
        order = json.loads(line)
        if not warm and order["how"]["exporter"] != "legacy":
            warm = warm_up()
        say(in_child(loaded, order, orders))


def in_child(loaded: Loaded, order: Mapping[str, Any], orders: IO[str]) -> Any:
    """The child's answer, or why there is none. The child dies with this process's caller."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            limit_memory(order["memory"])
            answer = json.dumps(Export(loaded, order).answer()).encode()
        except BaseException as error:
            answer = json.dumps({"problem": "probe", "detail": said(error)}).encode()
        with contextlib.suppress(OSError):
            while answer:
                answer = answer[os.write(sink, answer) :]
        os._exit(0)
    os.close(sink)
    answer, deadline, late = b"", time.monotonic() + order["seconds"], False
    while True:
        left = deadline - time.monotonic()
        ready = select.select([source, orders.fileno()], [], [], max(left, 0))[0]
        if source in ready:
            data = os.read(source, 1 << 20)
            if not data:
                break
            answer += data
        elif ready or left <= 0:  # the caller has gone, or the time is up
            late = True
            os.kill(child, signal.SIGKILL)
            break
    os.close(source)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late:
        return {"problem": "time", "detail": f"{order['seconds']:g}"}
    if not answer:
        return {"problem": "crash", "detail": signal.Signals(-status).name if status < 0 else f"status {status}"}
    return json.loads(answer)


def limit_memory(megabytes: int) -> None:
    """Allow this process so much more memory than it has."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        used = next(int(it.split()[1]) << 10 for it in lines if it.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (used + (megabytes << 20), resource.RLIM_INFINITY))


def warm_up() -> bool:
    """Load what every export loads, so that children share it: half of the time of a small export."""
    try:
        import torch.onnx
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        made: dict[Any, Any] = {}
        original = ONNXRegistry.from_torchlib.__func__

        def from_torchlib(cls: Any, *args: Any, **kwargs: Any) -> Any:
            known = (args, tuple(sorted(kwargs.items())))
            if known not in made:
                made[known] = original(cls, *args, **kwargs)
            return made[known]

        ONNXRegistry.from_torchlib = classmethod(from_torchlib)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(nn.ReLU(), (torch.zeros(1),), dynamo=True, verbose=False)
    except Exception:  # another version of torch: each export loads it by itself
        return True
    return True


if __name__ == "__main__":
    main(sys.argv[1])
