"""Shows models to the command line, one after the other: `python -m support.fuzz.victim FOLDER`.

A line on standard input has the number of a file and those of `_COMMANDS`; the answer is a line of JSON. Starting
Python for each of 20 000 files would take most of the time, so `main.run` is called instead; all else is as in a shell.
"""

import io
import json
import os
import resource
import shutil
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from support import TESTS
from support.fuzz.mutants import kind_of, mutant

#: Bytes of memory, as far as the kernel counts them: a model that takes more ends the process, which is a finding.
MEMORY = 2 << 30
_WHITELIST = ("--backend", "whitelist", "--option", "deny=Add")
_COMMANDS = (
    ("inspect",),
    ("run", *_WHITELIST, "--no-cache"),
    ("share", *_WHITELIST, "-o", "shared.onnx"),
    ("run", *_WHITELIST, "--no-cache", "--out", "found"),
    ("split", *_WHITELIST, "--report", "found", "--out", "pieces"),
)


def called(arguments: list[str]) -> tuple[int, str]:
    """Exit status and standard error."""
    from onnxbisect_cli.main import run

    said = io.StringIO()
    sys.argv = ["onnx-bisect", *arguments]
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        try:
            run()
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
        except BaseException:
            return -1, traceback.format_exc()
    return 0, said.getvalue()


def outcome(status: int, said: str) -> str:
    """What became of one command: `fault` is never right."""
    last = said.splitlines()[-1] if said.strip() else ""
    if status not in (0, 1, 2, 3) or "report it" in said or "Traceback" in said:
        return "fault"
    if status == 2:
        sentence = (
            last.startswith("onnx-bisect: ") and last.endswith((".", "?")) and last.isprintable() and len(last) < 600
        )
        return "refused" if sentence else "fault"
    return {0: "compiles", 1: "culprits", 3: "no answer"}[status]


def _own_peak() -> int:
    """The most memory that this program has held, in KB. What getrusage says includes the program that started it."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def prepare() -> None:
    """Do once what each command does anew in a shell and costs more than most models: two thirds of the time."""
    import typer

    from onnxbisect.model.load import load
    from onnxbisect_cli import main

    main.app = typer.main.get_command(main.app)  # type: ignore[assignment]  # which can be called, too
    load(TESTS / "models" / "control_captures.onnx")  # unforked, so that forks have onnxruntime and its schemas


def main(folder: Path) -> None:
    """Until standard input ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.environ["XDG_CACHE_HOME"] = os.environ["TMPDIR"] = str(folder)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(folder)
    prepare()
    for line in sys.stdin:
        number, *wanted = map(int, line.split())
        path = folder / "model.onnx"
        path.write_bytes(mutant(number))
        for name in ("found", "pieces"):  # of the last file: `split` overwrites nothing
            shutil.rmtree(folder / name, ignore_errors=True)
        results = []
        for command, *options in (_COMMANDS[place] for place in wanted):
            began = time.monotonic()
            status, said = called([command, str(path), *options])
            found = outcome(status, said)
            if command == "inspect" and found in ("compiles", "culprits"):
                found = "described"
            seconds = time.monotonic() - began
            words = said.strip()[-2000:] if found == "fault" else ""
            results.append({"command": command, "outcome": found, "seconds": seconds, "words": words})
        peak = max(_own_peak(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
        print(
            json.dumps({"number": number, "kind": kind_of(number), "peak": peak << 10, "results": results}),
            file=answers,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
