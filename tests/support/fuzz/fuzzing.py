"""Shows hostile models to the command line and counts what becomes of them: `make fuzz`."""

import argparse
import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from support import TESTS
from support.fuzz.mutants import KINDS, kind_of, mutant

#: The longest that one command may take with one file; the machine may do other things meanwhile.
HANGS = 30.0
#: `share` reads three files, and each may be an endless loop that is given up after ten seconds.
_SHARE_HANGS = 90.0
#: The most memory that any process may have held.
MOST_MEMORY = 2 << 30


@dataclass(kw_only=True)
class Counts:
    """What became of the files. `outcomes` are by command, kind of mutation and outcome."""

    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)
    peak: int = 0

    def take(self, answer: Mapping[str, Any]) -> None:
        """Count one file."""
        number, kind = answer["number"], answer["kind"]
        self.peak = max(self.peak, answer["peak"])
        if answer["peak"] > MOST_MEMORY:
            self.wrong.append(f"{number} ({kind}): {answer['peak'] >> 20} MB")
        for result in answer["results"]:
            self.outcomes[result["command"], kind, result["outcome"]] += 1
            self.slowest = max(self.slowest, (result["seconds"], number))
            if result["outcome"] == "fault":
                self.wrong.append(f"{number} ({kind}), {result['command']}: {result['words']}")
            elif result["seconds"] > (_SHARE_HANGS if result["command"] == "share" else HANGS):
                self.wrong.append(f"{number} ({kind}), {result['command']}: {result['seconds']:.0f} s")

    def lost(self, number: int, how: str) -> None:
        """A file that ended the process which had it."""
        self.outcomes["any", kind_of(number), how] += 1
        self.wrong.append(f"{number} ({kind_of(number)}): {how}")

    def table(self) -> str:
        """In Markdown."""
        rows = sorted({(command, outcome) for command, _, outcome in self.outcomes})
        lines = [
            "| command | outcome | " + " | ".join(KINDS) + " | all |",
            "| --- | --- |" + " ---: |" * (len(KINDS) + 1),
        ]
        for command, outcome in rows:
            counts = [self.outcomes[command, kind, outcome] for kind in KINDS]
            lines.append(f"| {command} | {outcome} | " + " | ".join(map(str, [*counts, sum(counts)])) + " |")
        return "\n".join(lines)


class _Victim:
    """A process of its own, asked about one file at a time."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.fuzz.victim", str(folder)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, number: int, commands: str) -> dict[str, Any] | str:
        """What became of a file, or how the process ended, which it then has."""
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        orders.write(f"{number} {commands}\n".encode())
        orders.flush()
        # for all commands, and some for a machine that does other things
        if not select.select([answers], [], [], 4 * HANGS + _SHARE_HANGS)[0]:
            self.end()
            return "hangs"
        line = answers.readline()
        if not line:
            self.end()
            return f"ended with {self._process.returncode}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Nothing of it is left."""
        self._process.kill()
        self._process.communicate()


def fuzz(numbers: Iterable[int], *, processes: int = 2, every: bool = True) -> Counts:
    """Show these mutants to `inspect`, `run`, `share` and `split`; in turn to one of the first two, unless `every` is
    wanted.
    """
    counts = Counts()
    left = iter(numbers)
    lock = Lock()

    def work(folder: Path) -> None:
        folder.mkdir()
        victim: _Victim | None = None
        try:
            while True:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                victim = victim or _Victim(folder)
                answer = victim.ask(number, "0 2 3 4" if every else str(number // len(KINDS) % 2))
                with lock:
                    if isinstance(answer, str):
                        counts.lost(number, answer)
                        victim = None
                    else:
                        counts.take(answer)
        finally:
            if victim is not None:
                victim.end()

    with TemporaryDirectory(prefix="fuzz-") as name, ThreadPoolExecutor(processes) as pool:
        for done in [pool.submit(work, Path(name) / str(place)) for place in range(processes)]:
            done.result()
    return counts


def main() -> int:
    """Exit status 1 where anything went wrong; the files are kept then."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("count", type=int)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    given = arguments.parse_args()
    began = time.monotonic()
    counts = fuzz(range(given.first, given.first + given.count), processes=given.processes)
    print(counts.table())
    slow, number = counts.slowest
    print(
        f"\n{given.count:,} files from number {given.first:,} in {time.monotonic() - began:.0f} s; the slowest command "
        f"took {slow:.1f} s (file {number}), the largest process {counts.peak >> 20} MB; {len(counts.wrong)} wrong."
    )
    for finding in counts.wrong:
        given.keep.mkdir(exist_ok=True)
        wrong = int(finding.split()[0])
        (given.keep / f"{wrong}.onnx").write_bytes(mutant(wrong))
        print(f"\n{finding}")
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
