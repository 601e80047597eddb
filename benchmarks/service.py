"""The service under load: redis, PostgreSQL, API and workers on this machine, as they are installed for a team.

    python benchmarks/service.py [--quick] [--write docs/service-load.md]

`make bench-service` writes the document, in an hour and a half on a machine that does nothing else.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from platform import python_version
from statistics import median

import coordination
import first_job
import many_jobs
import neighbours
import queueing
import startup
import tables
import tenants
import uploads
from installation import Installed, installed

_MB = 1e6
_SLOTS = 8


def main() -> None:
    """Measure everything that is wanted, then write; a table is never made of two runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything; never for the document")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this document")
    given = parser.parse_args()
    if given.write and given.quick:
        parser.error("--write is for what was measured in full: leave --quick out")
    document = given.write.read_text() if given.write else ""
    found = {}
    for name, part in PARTS.items():
        if given.only is None or name in given.only:
            began, load = time.monotonic(), os.getloadavg()[0]
            with installed(slots=str(_SLOTS)) as here:
                found[name] = part(here, given.quick)
            took = time.monotonic() - began
            found[name] += f"\n\n*{took:.0f} s; load average when it began: {load:.1f} on {os.cpu_count()} cores.*"
    found["machine"] = f"Python {python_version()}, {os.cpu_count()} cores."
    if given.write:
        given.write.write_text(tables.fill(document, found))
        print(f"wrote {given.write}", file=sys.stderr)
    else:
        print("\n\n".join(f"{name}\n\n{block}" for name, block in found.items()))


def _start(here: Installed, quick: bool) -> str:
    starts = startup.measure(here, times=2 if quick else 5)
    rows = [
        (words, f"{min(it.seconds for it in starts[name]):.2f}", f"{min(it.cpu for it in starts[name]):.2f}", limit)
        for name, words, limit in (
            ("fresh", "on a fresh data folder, everything in one process", "3"),
            ("again", "on a data folder that is there", "3"),
            ("api", "the API alone, with redis and PostgreSQL", "-"),
        )
    ]
    return tables.table(("start of `onnx-bisect serve`", "until it answers, s", "of them CPU", "limit, s"), rows)


def _answers(_here: Installed, quick: bool) -> str:
    found = first_job.measure(times=1 if quick else 5)

    def row(words: str, seconds: list[float], limit: str) -> tuple[str, ...]:
        ratio = median(taken / it.run for taken, it in zip(seconds, found, strict=True))
        held = "-" if limit == "-" else tables.holds(ratio, 1.5)
        return words, f"{median(seconds):.2f}", f"{ratio:.2f}", limit, held

    rows = [
        row("`onnx-bisect run`, with nothing known", [it.run for it in found], "-"),
        row("`onnx-bisect submit` to a fresh `serve`", [it.first for it in found], "≤ 1.5"),
        row("`onnx-bisect submit` of the same once more", [it.again for it in found], "≤ 1.5"),
    ]
    return tables.table(("the README's demo, with `--out`", "seconds", "of those of `run`", "limit", "holds"), rows)


def _upload(here: Installed, quick: bool) -> str:
    it = uploads.measure(here, 1 << 26 if quick else 1 << 30, times=1 if quick else 3)
    more = (it.most - it.idle) / _MB
    rows = [
        ("upload, MB/s", f"{it.speed(it.uploads):.0f}", "-", "-"),
        ("the disk alone, MB/s", f"{it.speed(it.writes):.0f}", "-", "-"),
        ("SHA-256 alone, MB/s", f"{it.speed(it.digests):.0f}", "-", "-"),
        ("upload / disk", f"{it.ratio:.2f}", "≥ 0.6", tables.holds(-it.ratio, -0.6)),
        ("CPU of the API for a gigabyte, s", f"{it.cpu_per_gigabyte:.2f}", "-", "-"),
        ("memory that taking them adds to the API, MB", f"{more:.1f}", "< 100", tables.holds(more, 100)),
        ("memory of the API before, MB", f"{it.idle / _MB:.0f}", "-", "-"),
        ("of an API that does nothing on the same libraries, MB", f"{it.bare / _MB:.0f}", "-", "-"),
        ("of the API at most, MB", f"{it.most / _MB:.0f}", "-", "-"),
        ("of that no page of a program's or library's file, at the end, MB", f"{it.own / _MB:.0f}", "-", "-"),
    ]
    return tables.table((f"{it.size >> 20} MiB, {len(it.uploads)} times", "", "limit", "holds"), rows)


def _busy(here: Installed, quick: bool) -> str:
    it = many_jobs.measure(here, jobs=6 if quick else 12, slots=_SLOTS, seconds=10 if quick else 40)
    compiling, cpu, page = 100 * it.compiling, sum(it.cpu.values()), it.reads.at(0.99)
    rows = [
        ("seconds", f"{it.window:.0f}", "-", "-"),
        ("jobs done meanwhile", it.done, "-", "-"),
        ("probes answered, a second", f"{it.probes / it.window:.1f}", "-", "-"),
        ("of them compiled", f"{it.compiled / it.window:.1f}", "-", "-"),
        ("slots in the compiler, %", f"{compiling:.1f}", "≥ 85", tables.holds(-compiling, -85)),
        ("slots with a claimed probe, %", f"{100 * it.asking:.1f}", "-", "-"),
        ("CPU for each probe, ms", f"{cpu:.1f}", "≤ 40", tables.holds(cpu, 40)),
        *((f"of it {name}", f"{ms:.1f}", "-", "-") for name, ms in it.cpu.items()),
        ("then, while all goes on: pages of a job, a second", f"{it.reads.per_second:.1f}", "-", "-"),
        ("their first byte after, ms, p50", f"{it.reads.at(0.5):.0f}", "-", "-"),
        ("their first byte after, ms, p99", f"{page:.0f}", "≤ 150", tables.holds(page, 150)),
        (
            "pages of a job, over 4 connections, when nothing else runs, a second",
            f"{it.alone.per_second:.0f}",
            "-",
            "-",
        ),
        ("their first byte after, ms, p50 / p99", f"{it.alone.at(0.5):.0f} / {it.alone.at(0.99):.0f}", "-", "-"),
    ]
    return tables.table((f"{it.jobs} jobs, {it.slots} slots", "", "limit", "holds"), rows)


def _tenants(here: Installed, quick: bool) -> str:
    jobs = 20 if quick else 1000
    found = [tenants.embedded(here, jobs), tenants.with_postgres(here, jobs)]
    rows = [
        ("the first result after, s", *(f"{it.first:.1f}" for it in found)),
        ("each tenant has one after, s", *(f"{it.last_first:.1f}" for it in found)),
        ("the median job ends after, s", *("-" if it.median is None else f"{it.median:.0f}" for it in found)),
        ("all have ended after, s", *map(_all_ended, found)),
        ("jobs, a second", *(f"{it.ended / it.all:.2f}" for it in found)),
        ("jobs in progress, at most", *(it.running for it in found)),
        (
            "older jobs of a tenant that wait for a result when a later one has it, at most",
            *(it.overtaken for it in found),
        ),
        ("memory of all processes, at most, MB", *(f"{it.memory / _MB:.0f}" for it in found)),
        (
            "meanwhile 10 pages of a job a second: their first byte after, ms, p50",
            *(f"{it.reads.at(0.5):.0f}" for it in found),
        ),
        ("p99", *(f"{it.reads.at(0.99):.0f}" for it in found)),
    ]
    head = (f"{jobs} jobs of 10 tenants, 2 slots", "`serve`, SQLite", "API and workers, PostgreSQL")
    return tables.table(head, rows)


def _all_ended(it: tenants.Crowd) -> str:
    return f"{it.all:.0f}" if it.ended == it.jobs else f"{it.jobs - it.ended} had not after {it.all:.0f}"


def _coordination(here: Installed, quick: bool) -> str:
    sizes, counts = ((100, 1000), (10, 100)) if quick else ((100, 1000, 10_000), (10, 100, 1000))
    rows = [
        (it.nodes, it.probes, f"{it.run:.0f}", f"{it.read:.0f}", f"{it.plan:.0f}", f"{it.alone:.0f}")
        for nodes in sizes
        for it in coordination.measure(here, nodes, counts, times=3)
    ]
    return tables.table(
        ("nodes", "answers", "CPU of a run, ms", "reading the answers", "planner, 8 idle slots", "none idle"), rows
    )


def _queue(here: Installed, quick: bool) -> str:
    sizes = ((1000, 100), (10_000, 1000)) if quick else ((1000, 20), (10_000, 200), (100_000, 2000))
    rows = []
    for count, each in sizes:
        it = queueing.measure(here, f"queue-{count}", count, each, claims=50 if quick else 200)
        rows.append(
            (
                f"{it.probes} of {it.jobs} jobs",
                f"{it.claim(0.5):.1f} / {it.claim(0.99):.1f}",
                f"{it.answer(0.5):.1f} / {it.answer(0.99):.1f}",
                f"{1000 * max(it.new_plans):.0f}",
                f"{1000 * max(it.same_plans):.0f}",
                f"{1000 * it.reconcile:.0f}",
            )
        )
    head = (
        "probes",
        "claim, ms, p50 / p99",
        "answer, ms, p50 / p99",
        "plan, all new, ms",
        "same plan, ms",
        "reconcile, ms",
    )
    return tables.table(head, rows)


def _neighbours(here: Installed, quick: bool) -> str:
    found = neighbours.measure(here, seconds=5 if quick else 20)
    words = {
        "nothing": "nothing else happens",
        "inspections": "45 tokens of one tenant inspect a model of loops",
        "bucket": "these and 45 `/readyz` wait for a silent bucket",
    }
    rows = [
        (words[name], len(it.seconds), *(f"{it.at(part):.0f}" for part in (0.5, 0.99, 1)), it.refused, *_limit(it))
        for name, it in found.items()
    ]
    head = (
        "another tenant's `GET /v1/jobs` while",
        "requests",
        "ms, p50",
        "p99",
        "most",
        "refused",
        "p99 limit",
        "holds",
    )
    return tables.table(head, rows)


def _limit(waited: neighbours.Waited) -> tuple[str, str]:
    return "≤ 500", tables.holds(waited.at(0.99), 500)


PARTS: dict[str, Callable[[Installed, bool], str]] = {
    "start": _start,
    "answers": _answers,
    "upload": _upload,
    "busy": _busy,
    "tenants": _tenants,
    "coordination": _coordination,
    "queue": _queue,
    "neighbours": _neighbours,
}

if __name__ == "__main__":
    main()
