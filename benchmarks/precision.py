"""Which nodes must stay precise in int8: asks, size of the set and metric, side by side with what else is done.

    PYTHONPATH=tests python benchmarks/precision.py MODELS [--write docs/benchmarks.md]

MODELS is a folder of ONNX files. Of each net the same measurements are made for five ways to choose:

- `precision` of this program;
- *worst first*: each node alone is made low and the error measured; then the worst is kept, the worst two, and so on,
  until that is enough (tables of single errors, as RKNN's);
- *by the table*: everything is made low once, and the error of each tensor measured; then the nodes that make the worst
  ones are kept, as many as it takes (what vendors' manuals do with their tables of layers);
- *best first*: each node alone is kept high and the metric measured; then the one that helps most is kept, and so on
  (NNCF's accuracy control);
- *first or last N nodes* high, N by bisection, the smaller of the two (`polygraphy debug precision`).
"""

import argparse
import time
from collections.abc import Callable, Iterator
from math import inf, log2
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tables
from onnx_bisect.models import load_model
from onnx_bisect.precision_record import MeasurementBudget, Record
from onnx_bisect.precision_search import PrecisionSearch
from onnx_bisect.precision_subject import PrecisionSubject
from onnxbisect.precision.plan import PrecisionEnding
from onnxbisect.precision.wanted import Low, Wanted
from onnxbisect.proof import random_feeds
from onnxbisect.unitset import UnitSet, of, size
from onnxbisect_backends.precision.arithmetic import OrtArithmetic
from onnxbisect_backends.precision.scoring import BuiltIn
from support.precision import Net

#: Nets of the folder, each with decibels that some nodes have to stay precise for.
REAL = {
    "sam_part1_prompt__ts11": 35.0,
    "sam_part2_transformer__ts11": 24.0,
    "sam_part3_maskhead__ts11": 35.0,
    "timm_mobilenetv3_small_100__ts17": 42.0,
}
#: Seeds of generated nets, and how many are tried for the rate of planted sets found.
GENERATED, RATE = range(6), range(100)
THRESHOLD = 20.0


class Measured:
    """One net, and the metric of each set that was asked."""

    def __init__(self, file: Path, samples: Path | None, threshold: float, folder: Path) -> None:
        model = load_model(file).model
        inputs = list(model.proto.graph.input)
        if samples is None:
            given = [dict(it) for it in random_feeds(inputs, 2)]
        else:
            given = [dict(np.load(it)) for it in sorted(samples.iterdir())]
        self.arithmetic = OrtArithmetic(model, given, Low.INT8, folder, 600.0)
        self.want = Wanted(metric="sqnr", threshold=threshold, unit="dB")
        self._model = model

    def __enter__(self) -> "Measured":
        self.arithmetic.__enter__()
        self.subject = PrecisionSubject(self._model, self.arithmetic.measure(), Low.INT8, self.want)
        self.known: dict[UnitSet, float] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self.arithmetic.__exit__(None, None, None)

    def score(self, keep: UnitSet) -> float:
        if keep not in self.known:
            ran, place = self.arithmetic.run(self.subject.names(keep))
            self.known[keep] = BuiltIn("sqnr").value(self.subject.measured.reference, ran.outputs, place)
            place.with_suffix(".onnx").unlink()
        return self.known[keep]


def searched(net: Measured) -> tuple[UnitSet, int]:
    """This program's set, and its asks."""
    record = Record()
    search = PrecisionSearch(net.subject, "onnxruntime", net.arithmetic, BuiltIn("sqnr"), record, lambda _: None)
    found = search.search(net.subject.space, MeasurementBudget(None, None, time.monotonic()))
    assert found.ending in (PrecisionEnding.MINIMAL, PrecisionEnding.NOTHING)
    net.known[found.keep] = search.value(found.keep)
    return found.keep, len(record.asked)


def worst_first(net: Measured) -> tuple[UnitSet, int]:
    """Keep the nodes with the largest errors of their own, as many as it takes."""
    units = net.subject.space.order
    everything = of(units)
    own = {unit: net.score(everything & ~(1 << unit)) for unit in units}
    keep: UnitSet = 0
    asks = len(units)
    for unit in sorted(units, key=lambda it: own[it]):
        asks += 1
        if net.score(keep) >= net.want.at_least:
            break
        keep |= 1 << unit
    return keep, asks


def by_table(net: Measured) -> tuple[UnitSet, int]:
    """Keep the nodes whose tensors have the largest errors where everything is low, as many as it takes."""
    decibels = net.arithmetic.errors(())
    nodes = net.subject.nodes
    seen = {
        unit: min((decibels.get(it, inf) for it in nodes[unit].output), default=inf) for unit in net.subject.space.order
    }
    keep: UnitSet = 0
    asks = 1
    for unit in sorted(seen, key=lambda it: seen[it]):
        keep |= 1 << unit
        asks += 1
        if net.score(keep) >= net.want.at_least:
            break
    return keep, asks


def best_first(net: Measured) -> tuple[UnitSet, int]:
    """Keep the nodes that help most where all others are low, as many as it takes."""
    units = net.subject.space.order
    alone = {unit: net.score(1 << unit) for unit in units}
    keep: UnitSet = 0
    asks = len(units) + 1
    for unit in sorted(units, key=lambda it: -alone[it]):
        if net.score(keep) >= net.want.at_least:
            break
        keep |= 1 << unit
        asks += 1
    return keep, asks


def first_or_last(net: Measured) -> tuple[UnitSet, int]:
    """The fewest first nodes, or last ones, by bisection."""
    units = sorted(net.subject.space.order)
    found, asks = [], 0
    for order in (units, units[::-1]):
        low, high = 0, len(order)
        while high - low > 1:
            middle = (low + high) // 2
            asks += 1
            if net.score(of(order[:middle])) >= net.want.at_least:
                high = middle
            else:
                low = middle
        found.append(of(order[:high]))
    return min(found, key=size), asks


WAYS: dict[str, Callable[[Measured], tuple[UnitSet, int]]] = {
    "precision": searched,
    "worst first": worst_first,
    "by the table": by_table,
    "best first": best_first,
    "first or last N": first_or_last,
}


def nets(models: Path, folder: Path) -> Iterator[tuple[str, Path, Path | None, float]]:
    """Name, file, samples and threshold of every net."""
    for seed in GENERATED:
        file = Net.random(seed).write(folder / f"generated{seed}")
        yield f"generated {seed}", file, file.parent / "samples", THRESHOLD
    for name, threshold in REAL.items():
        yield name.partition("__")[0], models / f"{name}.onnx", None, threshold


def rate(folder: Path) -> str:
    """How often the planted set is found."""
    found = 0
    for seed in RATE:
        made = Net.random(seed)
        file = made.write(folder / f"rate{seed}")
        work = folder / f"work-rate{seed}"
        work.mkdir()
        with Measured(file, file.parent / "samples", THRESHOLD, work) as net:
            keep, _ = searched(net)
            found += sorted(net.subject.names(keep)) == sorted(made.planted)
    return f"{found} of {len(RATE)}"


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this document")
    parser.add_argument("--quick", action="store_true", help="generated nets only, no rate")
    given = parser.parse_args()
    rows = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, file, samples, threshold in nets(given.models, folder):
            if given.quick and samples is None:
                continue
            work = folder / f"work-{name.replace(' ', '')}"
            work.mkdir()
            with Measured(file, samples, threshold, work) as net:
                count = len(net.subject.space.order)
                cells = [name, str(count), f"{net.score(0):.1f}", f"{threshold:.0f}"]
                for way in WAYS.values():
                    net.known = {}
                    keep, asks = way(net)
                    cells.append(f"{size(keep)}, {net.score(keep):.1f} dB, {asks}")
                    if way is searched:
                        goal = f"{3 * log2(count) * max(size(keep), 1):.0f}"
                cells.append(goal)
            rows.append(cells)
            print("| " + " | ".join(cells) + " |", flush=True)
        counted = "" if given.quick else rate(folder)
    head = ["net", "nodes", "all int8, dB", "wanted", *WAYS, "3·log2(n)·K"]
    lines = [tables.table(head, rows), "", f"Generated nets whose planted set was found and nothing else: {counted}."]
    print("\n".join(lines))
    if given.write:
        given.write.write_text(tables.fill(given.write.read_text(), {"precision": "\n".join(lines)}))


if __name__ == "__main__":
    main()
