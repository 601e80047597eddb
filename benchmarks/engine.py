"""What the engine itself takes: planner, key, cut and write, on real ONNX files."""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import models
import tables
from onnxbisect.cut import Cutter, write
from onnxbisect.key import Keyer
from onnxbisect.model import load
from onnxbisect.search import plan
from onnxbisect.unitset import UnitSet, full
from onnxbisect.verdict import Kind, Status, Verdict

#: Nodes of the piece that is cut from the large model.
_PIECE = 10
#: Milliseconds per call that the engine may take, by the nodes of the model.
_LIMITS = {1000: 10, 10_000: 60}
_BAD = ("Asinh", "Cosh", "Atan", "Erf")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Milliseconds per compiler call, in the mean of one search; `intake` in seconds, once."""

    nodes: int
    variants: int
    calls: int
    culprits: int
    plan: float
    key: float
    cut: float
    write: float
    worst: float
    intake: float

    @property
    def total(self) -> float:
        """Everything that is done for one call."""
        return self.plan + self.key + self.cut + self.write


@dataclass(frozen=True, kw_only=True)
class BigCut:
    """One cut from a model with gigabytes of external weights, in a fresh process.

    `beside` are the milliseconds of cutting and writing in the model's own folder, where weights are referred to,
    `elsewhere` those of writing to another one, with `copied` bytes of weights. `memory` is the highest resident
    set in MB from the end of intake on, `intake_memory` the one before, which counts weights that onnxruntime has
    mapped from the file for as long as the kernel leaves them there.
    """

    nodes: int
    weights: int
    intake: float
    beside: float
    elsewhere: float
    copied: int
    intake_memory: float
    memory: float


def measure(nodes: int) -> Engine:
    """An opaque search through a chain of so many nodes, every probe cut and written as the command line does."""
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-bench-") as folder:
        path, probe = Path(folder) / "model.onnx", Path(folder) / "elsewhere" / "probe.onnx"
        probe.parent.mkdir()
        models.long_chain(path, nodes)
        began = time.perf_counter()
        model = load(path)
        cutter, keyer = Cutter(model), Keyer(model)
        intake = time.perf_counter() - began
        universe = model.universe
        bad = 0
        for op in _BAD:
            bad |= universe.units_by_op[op]
        spent: dict[str, float] = {}
        verdicts: dict[UnitSet, list[Verdict]] = {}
        calls, worst = 0, 0.0
        while True:
            times = [time.perf_counter()]
            step = plan(universe, verdicts)
            times.append(time.perf_counter())
            if not step.asks:
                break
            ask = step.asks[0]
            keyer.key(ask.units)
            times.append(time.perf_counter())
            piece = cutter.cut(ask.units)
            times.append(time.perf_counter())
            write(piece, model, probe)
            times.append(time.perf_counter())
            refused = Verdict(status=Status.FAIL, kind=Kind.ERROR)
            verdicts.setdefault(ask.units, []).append(refused if ask.units & bad else Verdict(status=Status.PASS))
            for what, (start, end) in zip(("plan", "key", "cut", "write"), pairwise(times), strict=True):
                spent[what] = spent.get(what, 0.0) + end - start
            calls, worst = calls + 1, max(worst, times[-1] - times[0])
    return Engine(
        nodes=nodes,
        variants=len(universe.variant_members),
        calls=calls,
        culprits=len(step.diagnosis.culprits),
        plan=1000 * spent["plan"] / calls,
        key=1000 * spent["key"] / calls,
        cut=1000 * spent["cut"] / calls,
        write=1000 * spent["write"] / calls,
        worst=1000 * worst,
        intake=intake,
    )


def big_cut() -> BigCut:
    """In a process of its own, whose memory nothing else has used."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    return BigCut(**json.loads(done.stdout))


def _cut_from_gigabytes() -> BigCut:
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-bench-") as name:
        folder, elsewhere = Path(name) / "model", Path(name) / "probe"
        folder.mkdir()
        elsewhere.mkdir()
        weights = models.gigabytes(folder / "model.onnx")
        began = time.perf_counter()
        model = load(folder / "model.onnx")
        cutter = Cutter(model)
        intake = time.perf_counter() - began
        intake_memory = _peak_resident()
        Path("/proc/self/clear_refs").write_text("5")  # proc_pid_clear_refs(5): the peak begins anew
        ten = full(_PIECE) << 30
        times = []
        for path in (folder / "probe.onnx", elsewhere / "probe.onnx"):
            began = time.perf_counter()
            write(cutter.cut(ten), model, path)
            times.append(1000 * (time.perf_counter() - began))
        copied = sum(file.stat().st_size for file in elsewhere.glob("*.data"))
    return BigCut(
        nodes=_PIECE,
        weights=weights,
        intake=intake,
        beside=times[0],
        elsewhere=times[1],
        copied=copied,
        intake_memory=intake_memory,
        memory=_peak_resident(),
    )


def _peak_resident() -> float:
    """MB. Not getrusage: a process that was started by vfork inherits its parent's maximum there."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not tell the peak resident set")


def run(*, quick: bool) -> dict[str, str]:
    """The tables, by the name of their block in the document."""
    sizes = (1000,) if quick else tuple(_LIMITS)
    rows = []
    for nodes in sizes:
        print(f"engine: {nodes} nodes", file=sys.stderr)
        found = measure(nodes)
        assert found.culprits == len(_BAD), "not all culprits were found"
        parts = [tables.number(part) for part in (found.plan, found.key, found.cut, found.write)]
        limit = _LIMITS[nodes]
        row = [nodes, found.calls, *parts, tables.number(found.total), limit, tables.holds(found.total, limit)]
        rows.append([*row, tables.number(found.worst), tables.number(found.intake)])
    head = ["nodes", "calls", "plan", "key", "cut", "write", "all, ms per call", "limit", "holds", "worst call, ms"]
    blocks = {"engine": tables.table([*head, "intake, s"], rows)}
    print("engine: a cut from gigabytes", file=sys.stderr)
    return {**blocks, "cut": _cut_table(big_cut())}


def _cut_table(cut: BigCut) -> str:
    what = f"{cut.nodes} nodes of a model with {cut.weights / 1e9:.1f} GB of weights"
    rows: list[tables.Row] = [
        [f"{what}: cut and written beside it, ms", tables.number(cut.beside), 50, tables.holds(cut.beside, 50)],
        [
            f"the same written elsewhere, with {cut.copied / 1e6:.0f} MB of its own weights, ms",
            tables.number(cut.elsewhere),
            50,
            tables.holds(cut.elsewhere, 50),
        ],
        [
            "memory of the process from the end of intake on, MB",
            f"{cut.memory:.0f}",
            300,
            tables.holds(cut.memory, 300),
        ],
        ["memory during intake, weights mapped from the file included, MB", f"{cut.intake_memory:.0f}", "-", "-"],
        ["intake, s", tables.number(cut.intake), "-", "-"],
    ]
    return tables.table(["what", "measured", "limit", "holds"], rows)


if __name__ == "__main__":
    print(json.dumps(asdict(_cut_from_gigabytes())))
