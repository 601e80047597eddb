"""What a repair costs beside the compiler: the seconds of the processor for `onnx_bisect.fix`.

    python benchmarks/repairing.py MODEL.onnx [--refuses Gather,Abs,Sin,Cos] [--runs 3]

The compiler is a function that refuses some ops and names the first node of them. What it uses is measured in its own
thread and subtracted; processes that are started to work out shapes are counted. Seconds of the processor do not depend
on what else the machine does, or little.
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import onnx

import onnx_bisect
import tables
from onnx_bisect import Exactness, Hints, Kind, Status, Verdict
from onnxbisect.model import session

P = ParamSpec("P")
R = TypeVar("R")


class Compiler:
    """Refuses some ops; `calls` and `seconds` are what it was asked and what it used."""

    def __init__(self, refused: set[str]) -> None:
        self._refused = refused
        self.calls, self.seconds = 0, 0.0

    def __call__(self, path: Path) -> Verdict:
        """Names the first node that it refuses, as most compilers do."""
        began = time.thread_time()
        graph = onnx.load(path, load_external_data=False).graph
        first = next((node for node in graph.node if node.op_type in self._refused), None)
        self.calls, self.seconds = self.calls + 1, self.seconds + time.thread_time() - began
        if first is None:
            return Verdict(status=Status.PASS)
        message = f"unsupported op {first.op_type} at node {first.name}"
        hints = Hints(ops=(first.op_type,), nodes=(first.name,))
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=message, hints=hints)


class Running:
    """Counts what onnxruntime uses in this process, which is the proof."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> "Running":
        self._originals = session.Session.__init__, session.Session.run
        for name in ("__init__", "run"):
            setattr(session.Session, name, self._timed(getattr(session.Session, name)))
        return self

    def __exit__(self, *error: object) -> None:
        session.Session.__init__, session.Session.run = self._originals  # type: ignore[method-assign]

    def _timed(self, method: Callable[P, R]) -> Callable[P, R]:
        def timed(*given: P.args, **named: P.kwargs) -> R:
            began = time.process_time()
            try:
                return method(*given, **named)
            finally:
                self.seconds += time.process_time() - began

        return timed


def main() -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--refuses", default="Gather,Abs,Sin,Cos", metavar="OPS")
    parser.add_argument("--allow", type=Exactness, default=Exactness.DOMAIN)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    rows = []
    for number in range(given.runs):
        compiler, began, children = Compiler(set(given.refuses.split(","))), time.process_time(), _children()
        with Running() as running:
            fixed = onnx_bisect.fix(given.model, backend=compiler, allow=given.allow)
        used = time.process_time() - began - compiler.seconds
        told = fixed.document
        calls = f"{told.diagnosis_calls} + {told.repair_calls}"
        outcome = "compiles" if fixed.compiles else "in part"
        worst = max((it.absolute for it in told.outputs), default=0.0)
        seconds = (used - running.seconds, running.seconds, _children() - children)
        cells = (calls, outcome, f"{worst:.2g}", *(f"{it:.1f}" for it in seconds))
        rows.append((f"run {number + 1}", *cells))
    head = ("", "calls", "outcome", "largest difference", "engine s", "proof s", "shapes s")
    print(tables.table(head, rows))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
