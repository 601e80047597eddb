"""What changed from one page of `calls.py` to another: calls of each line, and engine milliseconds per call.

    python benchmarks/against.py BEFORE.md AFTER.md

Either may be what `calls.py --quick` prints. Exit status 1 where a line takes more than one call more.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import tables

_MORE = 1.0
_NUMBER = re.compile(r"[\d.]+")


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a line says of its graph or case; `seeds` is empty where the table has no such column."""

    calls: float
    engine_ms: float
    seeds: str


def main() -> int:
    """Print the lines whose calls changed, then all in one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args()
    before, after = (dict(_lines(page.read_text())) for page in (given.before, given.after))
    # means of other seeds say nothing of the search
    both = [name for name in before if name in after and before[name].seeds == after[name].seeds]
    if not both:
        parser.error("no line is in both pages with the same number of seeds")
    changed = [name for name in both if before[name].calls != after[name].calls]
    worse = sum(after[name].calls > before[name].calls + _MORE for name in changed)
    ratio = {name: after[name].engine_ms / before[name].engine_ms for name in both}
    rows = [
        [name, before[name].calls, after[name].calls, tables.holds(after[name].calls, before[name].calls + _MORE)]
        for name in changed
    ]
    print(tables.table(["line", "calls before", "after", "at most one more"], rows))
    print(
        f"\nOf {len(both)} lines in both pages {len(changed)} changed in calls, {worse} by more than one call more. "
        f"Engine ms per call, after / before: {median(ratio.values()):.2f} in the median, "
        f"{max(ratio.values()):.2f} at most ({max(both, key=lambda name: ratio[name])})."
    )
    return int(worse > 0)


def _lines(page: str) -> Iterator[tuple[str, Line]]:
    """The lines of all tables with calls and engine milliseconds, by what stands left of these."""
    head: list[str] = []
    for text in page.splitlines():
        if not text.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if not head:
            head = cells
        if cells is head or "calls" not in head or "engine, ms per call" not in head or cells[0] == "---":
            continue
        line = dict(zip(head, cells, strict=True))
        names = [line[column] for column in head[: head.index("calls")] if column != "seeds"]
        calls, engine = (_number(line[column]) for column in ("calls", "engine, ms per call"))
        yield ", ".join(names), Line(calls=calls, engine_ms=engine, seeds=line.get("seeds", ""))


def _number(cell: str) -> float:
    found = _NUMBER.search(cell)
    if found is None:
        raise ValueError(f"not a number: {cell}")
    return float(found[0])


if __name__ == "__main__":
    raise SystemExit(main())
