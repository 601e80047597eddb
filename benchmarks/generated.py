"""Searches through generated graphs, beside peers that ask the same simulated compiler."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean

import peers
import tables
from generate import Generated
from kinds import Kind, kinds, quick
from onnxbisect.diagnosis import CulpritKind
from onnxbisect.unitset import UnitSet, is_subset, size
from simulated import Log, Tally, compiler_of, search, structure

WORKERS = (1, 4, 16)
#: How many times the calls of one worker 16 may make.
_MORE_CALLS = 2


@dataclass(kw_only=True)
class Results:
    """What one kind came to with one log, a search for each seed, by number of workers."""

    kind: Kind
    log: Log
    seeds: int
    tallies: dict[int, list[Tally]] = field(default_factory=dict)
    exact: int = 0
    scans: dict[str, list[peers.Scan]] = field(default_factory=dict)
    truths: list[int] = field(default_factory=list)
    hits: dict[str, int] = field(default_factory=dict)

    def calls(self, workers: int = 1) -> list[int]:
        """Of each seed."""
        return [tally.calls for tally in self.tallies[workers]]

    def rounds(self, workers: int) -> float:
        """In the mean."""
        return fmean(tally.rounds for tally in self.tallies[workers])


def measure(kind: Kind, log: Log, seeds: int) -> Results:
    """All seeds; one at which any number of workers finds anything but the truth is not counted as exact."""
    results = Results(kind=kind, log=log, seeds=seeds)
    for seed in range(seeds):
        graph = kind.make(seed)
        compiler, key = compiler_of(graph, log), structure(graph.universe)
        exact = True
        for workers in WORKERS if seed < kind.few else WORKERS[:1]:
            tally = search(graph.universe, compiler, workers, key)
            results.tallies.setdefault(workers, []).append(tally)
            exact = exact and _exact(graph, tally)
        results.exact += exact
        results.truths.append(len(graph.truth))
        if log is Log.OPAQUE and graph.truth:
            for peer in (peers.each_node, peers.each_variant, peers.recursive_bisection):
                scan = peer(graph.universe, graph.refused)
                results.scans.setdefault(peer.__name__, []).append(scan)
                results.hits[peer.__name__] = results.hits.get(peer.__name__, 0) + len(scan.found & graph.truth)
    return results


def _exact(graph: Generated, tally: Tally) -> bool:
    """Whether a proven diagnosis names the truth; of too many of an op, whether it says so of all of them."""
    if not graph.counted:
        return tally.proven and tally.found == graph.truth
    named = 0
    for culprit in tally.diagnosis.culprits:
        if culprit.kind not in (CulpritKind.SINGLE, CulpritKind.INTERACTION):
            named |= culprit.among or culprit.units
        elif not all(_too_many(graph, units) for units in culprit.occurrences):
            return False
    return tally.ended and is_subset(graph.counted, named)


def _too_many(graph: Generated, units: UnitSet) -> bool:
    return is_subset(units, graph.counted) and size(units) == graph.most + 1


def run(*, quickly: bool) -> dict[str, str]:
    """The tables, by the name of their block in the document."""
    measured: list[Results] = []
    for kind in quick() if quickly else kinds():
        for log in kind.logs:
            print(f"generated: {kind.name} n={kind.n} m={kind.m} k={kind.k}, {log}", file=sys.stderr)
            measured.append(measure(kind, log, min(3, kind.seeds) if quickly else kind.seeds))
    return {
        "generated": _own_table(measured),
        "generated-workers": _workers_table(measured),
        "generated-peers": _peer_table(measured),
    }


def _own_table(measured: Sequence[Results]) -> str:
    head = ["graph", "n", "m", "k", "log", "seeds", "calls", "limit", "holds", "rounds at 1 / 4 / 16", "calls at 16"]
    head += ["compiler, s", "engine, ms per call", "exact and proven"]
    rows = []
    for result in measured:
        kind, tallies, calls = result.kind, result.tallies[1], result.calls()
        limit = kind.limits.get(result.log)
        # a limit is kept by the searches that find the truth, and by no others
        cost = fmean(calls) if result.exact == result.seeds else inf
        kept = ["-", "-"] if limit is None else [tables.number(limit), tables.holds(cost, limit)]
        asked = f"{'' if all(tally.ended for tally in tallies) else 'no end, '}{tables.spread(calls)}"
        rounds = " / ".join(tables.number(result.rounds(workers)) for workers in WORKERS)
        compiler = f"{fmean(tally.compiler_seconds for tally in tallies):.0f}"
        speed = tables.number(1000 * sum(tally.engine_seconds for tally in tallies) / sum(calls))
        exact = (
            f"{result.exact}/{result.seeds}" if result.exact == result.seeds else f"**{result.exact}/{result.seeds}**"
        )
        row = [kind.name, kind.n, kind.m, kind.k, result.log, result.seeds, asked, *kept]
        rows.append([*row, rounds, tables.mean(result.calls(16)), compiler, speed, exact])
    return tables.table(head, rows)


def _workers_table(measured: Sequence[Results]) -> str:
    """The same seeds with one worker and with sixteen."""
    head = ["graph, opaque", "n", "m", "k", "calls at 1", "calls at 16", "limit", "holds", "rounds at 16", "limit"]
    rows = []
    for result in measured:
        kind = result.kind
        if result.log is not Log.OPAQUE or kind.rounds is None:
            continue
        one, many, rounds = fmean(result.calls()[: kind.few]), fmean(result.calls(16)), result.rounds(16)
        row = [kind.name, kind.n, kind.m, kind.k, tables.number(one), tables.number(many)]
        row += [tables.number(_MORE_CALLS * one), tables.holds(many, _MORE_CALLS * one), tables.number(rounds)]
        rows.append([*row, tables.number(kind.rounds), tables.holds(rounds, kind.rounds)])
    return tables.table([*head, "holds"], rows)


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
        cells: list[object] = [f"{tables.mean(result.calls())} · {_share(result.exact, result.seeds)}"]
        for name in ("each_variant", "each_node", "recursive_bisection"):
            calls = tables.number(fmean(scan.calls for scan in result.scans[name]))
            blamed = sum(len(scan.found) for scan in result.scans[name]) - result.hits[name]
            false = f", {tables.number(blamed / result.seeds)} false" if blamed else ""
            cells.append(f"{calls} · {_share(result.hits[name], sum(result.truths))}{false}")
        rows.append([kind.name, kind.n, kind.m, kind.k, *cells])
    return tables.table(head, rows)


def _share(found: int, there: int) -> str:
    return f"{100 * found / there:.0f} %"
