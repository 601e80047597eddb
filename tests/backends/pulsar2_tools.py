"""Puts stand-ins for pulsar2 and docker on PATH."""

import shlex
import sys
from pathlib import Path

STAND_IN = Path(__file__).with_name("pulsar2_stand_in.py")

#: Runs the container's command right here, in the bound directory; notes every call.
_DOCKER = """#!{python}
import csv, os, signal, subprocess, sys
from pathlib import Path

words = sys.argv[1:]
here = Path({folder!r})
with (here / "docker.calls").open("a") as log:
    log.write(repr(words) + "\\n")
if words[:2] == ["image", "inspect"]:
    sys.exit(0 if words[-1] == "pulsar2:5.1" else 1)
if words[0] == "kill":
    pid = here / words[1]
    if pid.exists():
        os.killpg(int(pid.read_text()), signal.SIGKILL)
        sys.exit(0)
    sys.exit(1)
name, place, env = "", here, {{}}
while words[1].startswith("--"):
    option = words.pop(1)
    option, _, value = option.partition("=")
    if option in ("--rm",):
        continue
    value = value or words.pop(1)
    if option == "--name":
        name = value
    elif option == "--env":
        env.update([value.split("=", 1)])
    elif option == "--mount":
        fields = dict(field.split("=", 1) for field in next(csv.reader([value])))
        place = Path(fields["source"])
image = words.pop(1)
if image != "pulsar2:5.1":
    print(f"Unable to find image '{{image}}' locally", file=sys.stderr)
    sys.exit(125)
# a container outlives its client: a session of its own, and no tie to this process
child = subprocess.Popen(words[1:], cwd=place, env={{**os.environ, **env}}, start_new_session=True)
(here / name).write_text(str(child.pid))
try:
    status = child.wait()
finally:
    (here / name).unlink(missing_ok=True) if child.poll() is not None else None
sys.exit(128 - status if status < 0 else status)
"""


def stand_in(folder: Path, *options: str) -> Path:
    """A folder for PATH with a `pulsar2` that behaves as the options of the stand-in say."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "pulsar2"
    words = shlex.join([sys.executable, str(STAND_IN), *options])
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    return folder


def docker(folder: Path) -> Path:
    """A `docker` beside the stand-in, which has the image `pulsar2:5.1`; returns the list of its calls."""
    script = folder / "docker"
    script.write_text(_DOCKER.format(python=sys.executable, folder=str(folder)))
    script.chmod(0o755)
    return folder / "docker.calls"
