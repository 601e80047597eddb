"""Searches through generated graphs, beside peers that ask the same simulated compiler."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb, log2
from statistics import fmean

import peers
import tables
from generate import Generated, adjacent_pair, branches, far_pair, singles
from simulated import Log, Tally, compiler_of, search

#: Seeds for the runs with several workers: their speculation replays the planner many times.
_FEW_SEEDS = 5
WORKERS = (1, 4, 16)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of graph: `n` units of `m` variants, `k` culprits apart from occurrences; `limit` is on the mean."""

    name: str
    n: int
    m: int
    k: int
    make: Callable[[int], Generated]
    logs: tuple[Log, ...] = tuple(Log)
    limited: bool = True
    seeds: int = 20

    def limit(self, log: Log) -> float | None:
        """Calls that the search may take: by information theory, or by what the log gives away."""
        if not self.limited:
            return None
        if log is Log.OPAQUE:
            return 1.15 * (log2(comb(self.m, self.k)) + self.k + 1) + 4
        return None if log is Log.FIRST_NODE else 2 * self.k + 6


def kinds(*, quick: bool) -> list[Kind]:
    """All kinds of graphs that are measured; with `quick`, a few of each sort on fewer seeds."""

    def of_singles(n: int, m: int, k: int, *, skewed: bool = False, logs: tuple[Log, ...] = tuple(Log)) -> Kind:
        name = f"singles{', skewed' if skewed else ''}"
        make: Callable[[int], Generated] = lambda seed: singles(n, m, k, seed, skewed=skewed)  # noqa: E731
        return Kind(name=name, n=n, m=m, k=k, make=make, logs=logs, seeds=3 if quick else 20)

    opaque = (Log.OPAQUE,)
    some = [of_singles(1000, 60, 4)]
    if not quick:
        some += [of_singles(1000, 60, 10), of_singles(10_000, 200, 6)]
        some += [of_singles(100, 20, 1, logs=opaque), of_singles(1000, 60, 1, logs=opaque)]
        some += [of_singles(1000, 60, 4, skewed=True, logs=opaque), of_singles(1000, 60, 20, logs=opaque)]
        some += [of_singles(10_000, 60, 4, logs=opaque), of_singles(10_000, 200, 6, skewed=True, logs=opaque)]
    seeds = 3 if quick else 20
    rest = [
        Kind(name="8 branches", n=1000, m=60, k=4, make=lambda seed: branches(1000, 60, 4, seed), seeds=seeds),
        Kind(
            name="adjacent pair",
            n=1000,
            m=60,
            k=1,
            make=lambda seed: adjacent_pair(1000, 60, seed),
            logs=opaque,
            limited=False,
            seeds=seeds,
        ),
        Kind(
            name="far pair",
            n=1000,
            m=60,
            k=1,
            make=lambda seed: far_pair(1000, 60, seed),
            logs=opaque,
            limited=False,
            seeds=seeds,
        ),
    ]
    return [*some, *rest]


@dataclass(kw_only=True)
class Results:
    """What one kind came to with one log, a number for each seed; `calls` and `rounds` by number of workers."""

    kind: Kind
    log: Log
    calls: dict[int, list[int]] = field(default_factory=dict)
    rounds: dict[int, list[int]] = field(default_factory=dict)
    seconds: float = 0.0
    exact: int = 0
    scans: dict[str, list[peers.Scan]] = field(default_factory=dict)
    truths: list[int] = field(default_factory=list)
    hits: dict[str, int] = field(default_factory=dict)

    def add(self, workers: int, tally: Tally) -> None:
        """Take one search."""
        self.calls.setdefault(workers, []).append(tally.calls)
        self.rounds.setdefault(workers, []).append(tally.rounds)


def measure(kind: Kind, log: Log) -> Results:
    """All seeds; a search that finds anything but the truth shows in `exact`."""
    results = Results(kind=kind, log=log)
    for seed in range(kind.seeds):
        graph = kind.make(seed)
        compiler = compiler_of(graph, log)
        for workers in WORKERS if seed < _FEW_SEEDS else WORKERS[:1]:
            tally = search(graph.universe, compiler, workers)
            results.add(workers, tally)
            right = tally.found == graph.truth and tally.proven
            if workers == 1:
                results.seconds += tally.engine_seconds
                results.exact += right
            elif not right:
                raise AssertionError(f"{kind.name}, seed {seed}, {workers} workers: not the truth")
        results.truths.append(len(graph.truth))
        if log is Log.OPAQUE:
            for peer in (peers.each_node, peers.each_variant, peers.recursive_bisection):
                scan = peer(graph.universe, graph.refused)
                results.scans.setdefault(peer.__name__, []).append(scan)
                results.hits[peer.__name__] = results.hits.get(peer.__name__, 0) + len(scan.found & graph.truth)
    return results


def run(*, quick: bool) -> dict[str, str]:
    """The tables, by the name of their block in the document."""
    measured: list[Results] = []
    for kind in kinds(quick=quick):
        for log in kind.logs:
            print(f"generated: {kind.name} n={kind.n} m={kind.m} k={kind.k}, {log}", file=sys.stderr)
            measured.append(measure(kind, log))
    return {"generated": _own_table(measured), "generated-peers": _peer_table(measured)}


def _own_table(measured: Sequence[Results]) -> str:
    head = ["graph", "n", "m", "k", "log", "seeds", "calls", "limit", "holds", "rounds at 1 / 4 / 16", "calls at 16"]
    head += ["engine, ms per call", "exact and proven"]
    rows = []
    for result in measured:
        kind, calls = result.kind, result.calls[1]
        limit = kind.limit(result.log)
        kept = ["-", "-"] if limit is None else [tables.number(limit), tables.holds(fmean(calls), limit)]
        rounds = " / ".join(tables.mean(result.rounds[workers]) for workers in WORKERS)
        speed = tables.number(1000 * result.seconds / sum(calls))
        exact = f"{result.exact}/{kind.seeds}" if result.exact == kind.seeds else f"**{result.exact}/{kind.seeds}**"
        row = [kind.name, kind.n, kind.m, kind.k, result.log, kind.seeds, tables.spread(calls), *kept]
        rows.append([*row, rounds, tables.mean(result.calls[16]), speed, exact])
    return tables.table(head, rows)


def _peer_table(measured: Sequence[Results]) -> str:
    """Calls, and which share of the true culprits was found."""
    head = [
        "graph, opaque",
        "n",
        "m",
        "k",
        "onnx-bisect",
        "each variant alone",
        "each node alone",
        "recursive bisection",
    ]
    rows = []
    for result in measured:
        if not result.scans:
            continue
        kind = result.kind
        cells: list[object] = [f"{tables.mean(result.calls[1])} · {_share(result.exact, kind.seeds)}"]
        for name in ("each_variant", "each_node", "recursive_bisection"):
            calls = tables.number(fmean(scan.calls for scan in result.scans[name]))
            blamed = sum(len(scan.found) for scan in result.scans[name]) - result.hits[name]
            false = f", {tables.number(blamed / kind.seeds)} false" if blamed else ""
            cells.append(f"{calls} · {_share(result.hits[name], sum(result.truths))}{false}")
        rows.append([kind.name, kind.n, kind.m, kind.k, *cells])
    return tables.table(head, rows)


def _share(found: int, there: int) -> str:
    return f"{100 * found / there:.0f} %"
