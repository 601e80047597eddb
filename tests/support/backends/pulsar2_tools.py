"""Puts stand-ins for pulsar2 and docker on PATH."""

import atexit
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread

from support import TESTS

#: The client: leaves an order for the daemon, and waits for its end. It knows the image `pulsar2:5.1`.
_CLIENT = """#!{python} -S
import csv, json, os, sys, time
from pathlib import Path

here, words = Path({folder!r}), sys.argv[1:]
with (here / "docker.calls").open("a") as log:
    log.write(repr(words) + "\\n")
if words[:2] == ["image", "inspect"]:
    sys.exit(words[-1] != "pulsar2:5.1")
if words[:2] == ["rm", "--force"]:
    (here / f"{{words[2]}}.kill").touch()
    while any((here / f"{{words[2]}}.{{state}}").exists() for state in ("order", "running")):
        time.sleep(0.01)
    sys.exit(0)
order = {{"env": {{}}, "entry": [], "place": str(here)}}
name = f"unnamed-{{os.getpid()}}"
del words[0]
while words[0].startswith("--"):
    option, _, value = words.pop(0).partition("=")
    if option == "--rm":
        continue
    value = value or words.pop(0)
    if option == "--name":
        name = value
    elif option == "--entrypoint":
        order["entry"] = [value]
    elif option == "--env":
        order["env"].update([value.split("=", 1)])
    elif option == "--mount":
        order["place"] = dict(field.split("=", 1) for field in next(csv.reader([value])))["source"]
image = words.pop(0)
if image != "pulsar2:5.1":
    print(f"Unable to find image '{{image}}' locally", file=sys.stderr)
    sys.exit(125)
(here / f"{{name}}.new").write_text(json.dumps({{**order, "words": words}}))
(here / f"{{name}}.new").rename(here / f"{{name}}.order")
while not (here / f"{{name}}.status").exists():
    time.sleep(0.01)
print((here / f"{{name}}.log").read_text(), end="")
sys.exit(int((here / f"{{name}}.status").read_text()))
"""

#: Gives its words, folder and environment, and its standard streams, to `pulsar2_stand_in_forks`.
_FORKED = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    order = json.dumps([{options!r} + sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(order).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(order)
    status = server.recv(1)
sys.exit(status[0] if status else "the stand-in died")
"""


def stand_in(folder: Path, *options: str) -> Path:
    """A folder for PATH with a `pulsar2` that behaves as the options of the stand-in say."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "pulsar2"
    words = shlex.join([sys.executable, "-P", "-m", "support.backends.pulsar2_stand_in", *options])
    script.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(TESTS))} exec {words} "$@"\n')
    script.chmod(0o755)
    return folder


def forked_stand_in(folder: Path, *options: str) -> Path:
    """As `stand_in`, for many quick runs: killing one leaves what it does."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "pulsar2"
    script.write_text(_FORKED.format(python=sys.executable, address=_address(), options=list(options)))
    script.chmod(0o755)
    return folder


@cache
def _address() -> str:
    """Of the process whose forks all stand-ins of this session are."""
    path = str(Path(tempfile.mkdtemp(prefix="stand-in-")) / "socket")
    argv = [sys.executable, "-P", "-m", "support.backends.pulsar2_stand_in_forks", path]
    server = subprocess.Popen(
        argv, env={**os.environ, "PYTHONPATH": str(TESTS)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(server.communicate)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return path


@contextmanager
def docker(folder: Path) -> Iterator[None]:
    """A `docker` in the folder, and its daemon: containers are its children, not the client's.

    The daemon runs their commands right here, in the bound directory. `docker.calls` has every call of the client.
    """
    script = folder / "docker"
    script.write_text(_CLIENT.format(python=sys.executable, folder=str(folder)))
    script.chmod(0o755)
    end = Event()
    daemon = Thread(target=_serve, args=(folder, end))
    daemon.start()
    try:
        yield
    finally:
        end.set()
        daemon.join()


def containers(folder: Path) -> list[str]:
    """Names of those that run."""
    return [path.stem for path in folder.glob("*.running")]


def _serve(folder: Path, end: Event) -> None:
    running: dict[str, subprocess.Popen[bytes]] = {}
    while not end.is_set() or running:
        for order in folder.glob("*.order"):
            running[order.stem] = _start(folder, order)
        for name, container in list(running.items()):
            if end.is_set() or (folder / f"{name}.kill").exists():
                os.killpg(container.pid, signal.SIGKILL)
                container.wait()
            status = container.poll()
            if status is not None:
                del running[name]
                (folder / f"{name}.running").unlink()
                (folder / f"{name}.new").write_text(str(128 - status if status < 0 else status))
                (folder / f"{name}.new").rename(folder / f"{name}.status")
        time.sleep(0.01)


def _start(folder: Path, order: Path) -> subprocess.Popen[bytes]:
    wanted = json.loads(order.read_text())
    order.rename(order.with_suffix(".running"))
    with (folder / f"{order.stem}.log").open("wb") as log:
        return subprocess.Popen(
            [*wanted["entry"], *wanted["words"]],
            cwd=wanted["place"],
            env={**os.environ, **wanted["env"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
