"""The cases of tests/cases: the command line, NVIDIA Polygraphy, and what people do without a tool, in one run."""

import sys

import nvidia
import peers
import tables
from cases import Case, InProcess, Nodes, Report, named, run_command_line, shipped
from generated import WORKERS
from simulated import search

#: Calls that a case may take; the others need only be exact.
_LIMITS = {"c1": 7, "c2": 11, "c3": 14, "c4": 14, "c5": 20, "c7": 14, "c9": None, "c12": None}


def run(*, quick: bool, peer_seconds: float, polygraphy: bool) -> dict[str, str]:
    """The tables, by the name of their block in the document."""
    own: list[tables.Row] = []
    others: list[tables.Row] = []
    for name, limit in _LIMITS.items():
        if quick and name not in ("c1", "c5", "c12"):
            continue
        case = shipped(name)
        print(f"cases: {case.name}", file=sys.stderr)
        report, process = run_command_line(case), InProcess(case)
        own.append(_own(case, limit, report, process))
        cells = [f"{report.calls} · {_counts(report.found, case)}"]
        if polygraphy:
            cells += _polygraphy(case, peer_seconds, linear=not quick)
        for peer in (peers.each_variant, peers.each_node, peers.recursive_bisection):
            scan = peer(process.model.universe, process.refused)
            cells.append(f"{scan.calls} · {_counts(process.nodes(scan.found), case)}")
        others.append([case.name, *cells])
    head = [
        "case",
        "nodes",
        "calls",
        "limit",
        "holds",
        "rounds at 1 / 4 / 16",
        "engine, ms per call",
        "found",
        "certificate",
    ]
    asked = ["Polygraphy bisect", "the same, rerun", "Polygraphy linear"] if polygraphy else []
    peer_head = ["case", "onnx-bisect", *asked, "each variant alone", "each node alone", "recursive bisection"]
    return {"cases": tables.table(head, own), "cases-peers": tables.table(peer_head, others)}


def _own(case: Case, limit: int | None, report: Report, process: InProcess) -> list[object]:
    rounds = []
    for workers in WORKERS:
        tally = search(process.model.universe, process.compile, workers, process.key)
        assert process.nodes(tally.found) == report.found, f"{case.name}: {workers} workers find something else"
        rounds.append(str(tally.rounds))
    kept = ["-", "-"] if limit is None else [limit, tables.holds(report.calls, limit)]
    return [
        case.name,
        len(process.model.universe),
        report.calls,
        *kept,
        " / ".join(rounds),
        tables.number(1000 * report.engine_seconds / report.calls),
        _counts(report.found, case),
        "proven" if report.proven else "**bounded**",
    ]


def _counts(found: frozenset[Nodes], case: Case) -> str:
    """As in "3/3", with what is blamed though it is not to blame."""
    false = len(found - case.truth)
    right = f"{len(found & case.truth)}/{len(case.truth)}"
    return f"{right}, {false} false" if false else right


def _polygraphy(case: Case, seconds: float, *, linear: bool) -> list[str]:
    print(f"cases: {case.name}, Polygraphy bisect", file=sys.stderr)
    again = nvidia.rerun(case, "bisect", seconds)
    cells = [_reduced(again.first, case)]
    cells.append(
        _reduced(again.first, case) if again.first.trouble else f"{again.checks} · {len(again.found)}/{len(case.truth)}"
    )
    if not linear:
        return [*cells, "-"]
    print(f"cases: {case.name}, Polygraphy linear", file=sys.stderr)
    return [*cells, _reduced(nvidia.reduce_once(case, "linear", seconds), case)]


def _reduced(run: nvidia.Reduced, case: Case) -> str:
    """Checks and what the reduced model has of the truth; how many nodes where it has more than that."""
    if run.nodes is None:
        return run.trouble or f"{run.checks} · nothing"
    inside = named(run.nodes, case.truth)
    if not inside:
        return f"{run.checks} · 0/{len(case.truth)}, wrong"
    exact = {name for nodes in inside for name in nodes} == set(run.nodes)
    around = "" if exact else f" in {len(run.nodes)} nodes"
    return f"{run.checks} · {len(inside)}/{len(case.truth)}{around}"
