"""How long a model takes that is submitted to a fresh service, beside the same model with `onnx-bisect run`."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from installation import PROGRAM

_MODEL = Path(__file__).parent.parent / "examples" / "sam_decoder.onnx"
_TARGET = ("--backend", "whitelist", "--option", "profile=edgesam")
_CULPRITS = 1
#: Seconds between the service's first answer and the model.
_REST = 3.0


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Seconds of a command: `run` with nothing known, the first and the second `submit` to a service of its own."""

    run: float
    first: float
    again: float


def measure(times: int) -> list[Answered]:
    """Side by side, so many times: what else the machine does meets all three."""
    return [_answered() for _ in range(times)]


def _answered() -> Answered:
    with TemporaryDirectory(prefix="onnx-bisect-bench-") as name:
        folder = Path(name)
        nothing_known = {"XDG_CACHE_HOME": name, "XDG_DATA_HOME": name}
        run = _seconds("run", folder / "run", nothing_known)
        with _serving(folder / "data") as server:
            time.sleep(_REST)
            first, again = (_seconds("submit", folder / which, server) for which in ("first", "again"))
    return Answered(run=run, first=first, again=again)


def _seconds(command: str, out: Path, environment: Mapping[str, str]) -> float:
    began = time.monotonic()
    done = subprocess.run(
        [PROGRAM, command, _MODEL, *_TARGET, "--out", out],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == _CULPRITS, f"{command} ended with {done.returncode}"
    return time.monotonic() - began


@contextmanager
def _serving(data: Path) -> Iterator[dict[str, str]]:
    """A service of its own; what a client is told of it."""
    alone = {"ONNXBISECT_DATA": str(data)}
    with subprocess.Popen(
        [PROGRAM, "serve", "--port", "0"],
        env={**os.environ, **alone},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            yield {"ONNXBISECT_SERVER": url, "ONNXBISECT_TOKEN": (data / "token").read_text().strip()}
        finally:
            process.terminate()
