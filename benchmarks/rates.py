"""How often a search states something false, on random models with compilers whose rules are known.

    python benchmarks/rates.py [--worlds N] [--first SEED] [--classes fusion,weak,C] [--larger N] [--examples]

Small models have all their truth by brute force. Classes of larger ones are letters. `make rates` writes the tables
into docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import tables
from onnxbisect.diagnosis import CertificateStatus
from support.engine.judging import Judgement, Log, Run, judge
from support.engine.large_compilers import CLASSES, LargeClass
from support.engine.large_worlds import LargeJudgement
from support.engine.large_worlds import search as search_larger
from support.engine.rule_worlds import Behaviour, world

_PROCESSES = 2
#: Worlds that a process takes at a time: few enough that both end together.
_CHUNK = 25
#: Seconds that a search may take: ten to a hundred times as long as one in the mean.
_PATIENCE = 5.0
#: The same of a larger model.
_MORE_PATIENCE = 8.0
#: Seeds to show of each sort of falsehood.
_EXAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a class of worlds, and what the compiler and the search do besides."""

    behaviour: Behaviour
    log: Log = Log.SILENT
    recheck: bool = False

    @property
    def words(self) -> str:
        """What the column `log` says."""
        return f"{self.log}{', rechecked' if self.recheck else ''}"


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some worlds of a row, for one process."""

    row: Row
    seeds: range
    width: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One search; `error` says how it ended where it came to no diagnosis."""

    seed: int
    units: int
    calls: int = 0
    proven: bool = False
    judgement: Judgement | None = None
    error: str = ""


@dataclass(kw_only=True)
class Tally:
    """The outcomes of a row; `seeds` are those of each sort of falsehood, worlds of few units first."""

    row: Row
    outcomes: list[Outcome] = field(default_factory=list)

    def seeds(self, sort: str) -> list[int]:
        """The worlds whose judgement has something of this sort: a field of `Judgement`."""
        found = [it for it in self.outcomes if it.judgement is not None and getattr(it.judgement, sort)]
        return [it.seed for it in sorted(found, key=lambda it: (it.units, it.seed))]

    @property
    def errors(self) -> list[Outcome]:
        """The searches that ended in an exception, or not at all."""
        return [it for it in self.outcomes if it.error]

    def cells(self) -> list[object]:
        """A line of the table."""
        ended = [it for it in self.outcomes if not it.error]
        calls = [it.calls for it in ended] or [0]

        def share(count: int) -> str:
            return f"{100 * count / len(self.outcomes):.2f}"

        return [
            self.row.behaviour,
            self.row.words,
            len(self.outcomes),
            share(len(self.seeds("false_facts"))),
            share(len(self.seeds("innocent"))),
            share(len(self.seeds("missed"))),
            share(sum(it.proven for it in ended)),
            len(self.seeds("violations")),
            f"{tables.number(fmean(calls))} / {max(calls)}",
            len(self.errors),
        ]

    def examples(self) -> Iterator[str]:
        """Seeds to look at, by sort, and the smallest world of each sort."""
        for sort in ("innocent", "passing", "wrong_extent", "missed", "violations"):
            if seeds := self.seeds(sort):
                yield f"  {sort}: {len(seeds)}, such as {seeds[:_EXAMPLES]}"
                yield f"    {world(self.row.behaviour, seeds[0])}"
        for outcome in self.errors[:_EXAMPLES]:
            yield f"  seed {outcome.seed}: {outcome.error}"


HEAD = ["class", "log", "worlds", "false culprit stated as fact, %", "of these innocent, %", "missed though proven, %"]
HEAD += ["proven, %", "violations", "calls, mean / max", "no end"]


def rows(behaviours: Sequence[Behaviour]) -> list[Row]:
    """A compiler that lies is asked once and asked again; any other one is silent or names what it trips over.

    A monotone one also names what it does not trip over.
    """
    found = []
    for behaviour in behaviours:
        if behaviour in (Behaviour.FLAKY, Behaviour.WINDOW):
            found += [Row(behaviour=behaviour, recheck=recheck) for recheck in (False, True)]
        else:
            logs = Log if behaviour is Behaviour.MONOTONE else (Log.SILENT, Log.FIRST_OFFENDER)
            found += [Row(behaviour=behaviour, log=log) for log in logs]
    return found


def search(chunk: Chunk) -> list[Outcome]:
    """Search each world of a chunk and judge the diagnosis."""
    return [_outcome(chunk.row, seed, chunk.width) for seed in chunk.seeds]


def _outcome(row: Row, seed: int, width: int) -> Outcome:
    made = world(row.behaviour, seed)
    run = Run(world=made, log=row.log, recheck=row.recheck)
    try:
        diagnosis = run.diagnose(width, patience=_PATIENCE)
    except Exception as error:  # one broken search must not end the measurement
        return Outcome(seed=seed, units=len(made.universe), error=f"{type(error).__name__}: {error}"[:300])
    return Outcome(
        seed=seed,
        units=len(made.universe),
        calls=run.calls,
        proven=diagnosis.certificate.status is CertificateStatus.PROVEN,
        judgement=judge(run, diagnosis),
    )


def measure(chosen: Sequence[Row], worlds: int, first: int, width: int) -> Iterator[Tally]:
    """The rows one after the other, each as soon as it is complete."""
    seeds = range(first, first + worlds)
    chunks = [
        Chunk(row=row, seeds=seeds[start : start + _CHUNK], width=width)
        for row in chosen
        for start in range(0, worlds, _CHUNK)
    ]
    with ProcessPoolExecutor(_PROCESSES) as processes:
        for row, results in groupby(zip(chunks, processes.map(search, chunks), strict=True), lambda it: it[0].row):
            yield Tally(row=row, outcomes=[outcome for _, outcomes in results for outcome in outcomes])


LARGER_HEAD = ["class", "what is refused, or how the compiler behaves", "worlds", "false fact, %"]
LARGER_HEAD += ["proven and wrong, %", "proven, %", "calls, mean / max", "no end"]


def search_row(task: tuple[int, int, int]) -> list[tuple[int, LargeJudgement]]:
    """Search so many worlds of one class of larger models; each with its seed."""
    row, worlds, first = task
    one = CLASSES[row]
    return [
        (seed, search_larger(made, seed, recheck=one.recheck, seconds=_MORE_PATIENCE))
        for seed, made in one.worlds(worlds, first)
    ]


def measure_larger(letters: Sequence[str], worlds: int, first: int, *, examples: bool) -> Iterator[list[object]]:
    """A line for each class of larger models, as soon as it is complete."""
    chosen = [number for number, one in enumerate(CLASSES) if one.letter in letters]
    with ProcessPoolExecutor(_PROCESSES) as processes:
        found = processes.map(search_row, [(number, worlds, first) for number in chosen])
        for number, searches in zip(chosen, found, strict=True):
            yield _larger_cells(CLASSES[number], searches)
            if examples:
                for what in ("false", "wrong"):
                    print(f"  {what}: {[seed for seed, it in searches if getattr(it, what)]}", flush=True)


def _larger_cells(one: LargeClass, searches: Sequence[tuple[int, LargeJudgement]]) -> list[object]:
    judged = [it for _, it in searches]
    calls = [it.calls for it in judged]
    shares = [sum(map(bool, it)) for it in zip(*((it.false, it.wrong, it.proven) for it in judged), strict=True)]
    return [
        one.letter,
        one.words,
        len(judged),
        *(f"{100 * count / len(judged):.1f}" for count in shares),
        f"{tables.number(fmean(calls))} / {max(calls)}",
        sum(not it.ended for it in judged),
    ]


def main() -> None:
    """Print each row when it is complete, and write the tables at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=400, metavar="N", help="worlds in each row (default: 400)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default: 0)")
    letters = sorted({one.letter for one in CLASSES})
    every = ",".join([*Behaviour, *letters])
    parser.add_argument("--classes", default=every, help="classes of worlds, with commas between")
    parser.add_argument("--larger", type=int, default=40, metavar="N", help="larger worlds in each row (default: 40)")
    parser.add_argument("--width", type=int, default=1, help="probes under way at a time (default: 1)")
    parser.add_argument("--examples", action="store_true", help="also show seeds of worlds with a false statement")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this document")
    given = parser.parse_args()
    try:
        named = given.classes.split(",")
        behaviours = [Behaviour(name) for name in named if name not in letters]
    except ValueError as error:
        parser.error(f"{error}; the classes are {every.replace(',', ', ')}")
    document = given.write.read_text() if given.write else ""
    out = sys.stderr if given.write else sys.stdout
    found: dict[str, str] = {}
    if behaviours:
        print(tables.table(HEAD, []), file=out, flush=True)
        lines = []
        for tally in measure(rows(behaviours), given.worlds, given.first, given.width):
            lines.append(tally.cells())
            print(_line(lines[-1]), file=out, flush=True)
            for line in tally.examples() if given.examples else ():
                print(line, flush=True)
        found["rates"] = tables.table(HEAD, lines)
    if chosen := [name for name in named if name in letters]:
        print(tables.table(LARGER_HEAD, []), file=out, flush=True)
        larger = []
        for cells in measure_larger(chosen, given.larger, given.first, examples=given.examples):
            larger.append(cells)
            print(_line(cells), file=out, flush=True)
        found["rates-larger"] = tables.table(LARGER_HEAD, larger)
    if given.write:
        given.write.write_text(tables.fill(document, found))
        print(f"wrote {given.write}", file=sys.stderr)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
