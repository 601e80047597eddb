"""pulsar2 in Axera's Docker image: starting, ending and cleaning up containers.

The docker client is not the compiler: killing it leaves the container running. So containers have names and are killed
by name. They run as root, which pulsar2's licence needs, and their files may belong to root.
"""

import contextlib
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from onnxbisect_backends.contract import Limits
from onnxbisect_backends.sandbox.process import find_executable

#: Seconds that docker itself may take for a small request.
_SECONDS = 60.0
#: The path of the work directory inside the container.
_INSIDE = "/data"

#: docker's exit statuses without a container: its own errors, and commands that cannot be started or found.
NOT_RUN = (125, 126, 127)
#: The exit status of a killed container, for example for lack of memory.
KILLED = 137

_CLIENT = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "XDG_RUNTIME_DIR")


class Container:
    """One call of pulsar2 in a container of its own, with `workdir` as its working directory.

    With `gpus` it sees this machine's GPUs.
    """

    def __init__(self, image: str, workdir: Path, *, gpus: bool = False) -> None:
        self._image = image
        self._gpus = ["--gpus=all"] if gpus else []
        self._workdir = workdir
        self._name = f"onnx-bisect-{uuid4().hex[:16]}"

    def argv(self, words: Sequence[str], limits: Limits, env: Mapping[str, str]) -> list[str]:
        """The command line; memory and file size are limited inside the container."""
        bounds = [] if limits.memory_bytes is None else [f"--memory={limits.memory_bytes}b"]
        bounds += [] if limits.file_bytes is None else [f"--ulimit=fsize={limits.file_bytes}"]
        own = [f"--env={name}={value}" for name, value in env.items()]
        place = ["--mount", self._mount(), "--workdir", _INSIDE]
        return ["docker", "run", "--rm", "--name", self._name, *self._gpus, *bounds, *own, *place, self._image, *words]

    def end(self) -> None:
        """Kill the container if it runs; remove one that was only created."""
        _docker(["rm", "--force", self._name])

    def hand_over(self) -> None:
        """Change the owner of files to this user, so that the work directory can be removed."""
        me, group = os.getuid(), os.getgid()
        if any(_owner(path) not in (me, None) for path in self._workdir.rglob("*")):
            change = ["--entrypoint", "chown", self._image, "-R", f"{me}:{group}", _INSIDE]
            _docker(["run", "--rm", "--mount", self._mount(), *change])

    def _mount(self) -> str:
        """The mount as CSV, in which paths may contain commas, blanks and colons."""
        source = str(self._workdir).replace('"', '""')
        return f'type=bind,"source={source}",target={_INSIDE}'


def by_hand(image: str | None, words: Sequence[str], *, gpus: bool = False) -> list[str]:
    """The command for a person in the folder with the files; in the vendor's image if one is used."""
    if image is None:
        return [shlex.join(words)]
    sees = " --gpus=all" if gpus else ""
    return [f'docker run --rm{sees} -v "$PWD":{_INSIDE} -w {_INSIDE} {image} {shlex.join(words)}']


def client_environment() -> dict[str, str]:
    """The variables that the docker client needs to find its daemon, wherever home is."""
    found = {name: os.environ[name] for name in _CLIENT if name in os.environ}
    with contextlib.suppress(RuntimeError):  # a user without a home has no configuration either
        found.setdefault("DOCKER_CONFIG", str(Path.home() / ".docker"))
    return found


def complaint(image: str) -> str | None:
    """What is missing to run containers of this image, as a sentence; None if nothing."""
    if find_executable("docker", cwd=Path.cwd(), path=os.environ.get("PATH")) is None:
        return "docker was not found on PATH, in which the image of pulsar2 would run; install it."
    said = _docker(["image", "inspect", "--format", "{{.Id}}", image])
    if said is None:
        return (
            f"docker has no image '{image}', or its daemon does not answer; load what Axera ships "
            f"(docker load -i ax_pulsar2_VERSION.tar.gz), and see 'docker images' for its name."
        )
    return None


def _docker(words: Sequence[str]) -> str | None:
    """The output of a small docker command; None if it fails."""
    try:
        done = subprocess.run(
            ["docker", *words],  # noqa: S607 - the user's own docker
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None
