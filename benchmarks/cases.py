"""The cases of tests/cases, and other models with a rule: what the command line makes of them, and what peers do."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxbisect.cut import Cutter
from onnxbisect.key import Keyer
from onnxbisect.model import Model, load
from onnxbisect.unitset import UnitSet, members
from onnxbisect.verdict import Kind, Status, Verdict

CASES = Path(__file__).parents[1] / "tests" / "cases"
CHECK = CASES / "check.py"

#: Node names of one culprit, in the order of the model.
Nodes = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, what the simulated compiler refuses in it (tests/cases/README.md), and the truth."""

    name: str
    model: Path
    rule: Path

    @cached_property
    def truth(self) -> frozenset[Nodes]:
        """The minimal failing subgraphs."""
        return frozenset(tuple(nodes) for nodes in json.loads(self.rule.read_text())["truth"])

    def check(self, model: str, log: Path, ignore: Iterable[str] = ()) -> list[str]:
        """The compiler as a command; it says nothing but yes or no, and adds a line per call to `log`."""
        command = [sys.executable, str(CHECK), model, "--rule", str(self.rule), "--log", str(log)]
        ignored = ",".join(ignore)
        return [*command, "--ignore", ignored] if ignored else command


def shipped(name: str) -> Case:
    """The case of tests/cases whose name begins so, as in "c5"."""
    (rule,) = CASES.glob(f"{name}_*.json")
    return Case(name=rule.stem, model=rule.with_suffix(".onnx"), rule=rule)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `onnx-bisect run` reported; `calls` are those that the compiler itself has counted."""

    calls: int
    found: frozenset[Nodes]
    proven: bool
    engine_seconds: float


def run_command_line(case: Case) -> Report:
    """`onnx-bisect run CASE -- check.py {model}` as a user types it, without verdicts of other runs."""
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-bench-") as folder:
        log = Path(folder) / "calls.jsonl"
        program = [str(Path(sys.executable).with_name("onnx-bisect"))]
        command = [
            *program,
            "run",
            "--no-cache",
            "--format",
            "json",
            str(case.model),
            "--",
            *case.check("{model}", log),
        ]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"onnx-bisect ended with {done.returncode} on {case.name}: {done.stderr}")
        report: Mapping[str, Any] = json.loads(done.stdout)
        calls = len(log.read_text().splitlines())
    return Report(
        calls=calls,
        found=frozenset(tuple(nodes) for culprit in report["culprits"] for nodes in culprit["occurrences"]),
        proven=report["certificate"]["status"] == "proven",
        engine_seconds=report["stats"]["engine_seconds"],
    )


class InProcess:
    """A case with its compiler in this process: for peers that need thousands of calls, and for rounds."""

    def __init__(self, case: Case) -> None:
        self.model: Model = load(case.model)
        self._rule = json.loads(case.rule.read_text())["rule"]
        self._cutter = Cutter(self.model)
        self._keyer = Keyer(self.model)
        self._refused = _check_module().refused

    def refused(self, units: UnitSet) -> bool:
        """Whether the compiler fails on a piece that was really cut."""
        return bool(self._refused(self._rule, self._cutter.cut(units).proto.graph))

    def compile(self, units: UnitSet) -> Verdict:
        """The same as a verdict without a word."""
        if self.refused(units):
            return Verdict(status=Status.FAIL, kind=Kind.ERROR)
        return Verdict(status=Status.PASS)

    def key(self, units: UnitSet) -> str:
        """What the verdict base would know this probe by."""
        return self._keyer.key(units)

    def nodes(self, found: Iterable[UnitSet]) -> frozenset[Nodes]:
        """Sets of units by their node names."""
        names = self.model.universe.names
        return frozenset(tuple(names[unit][0] for unit in members(units)) for units in found)


def named(graph: Sequence[str], truth: Iterable[Nodes]) -> list[Nodes]:
    """The culprits all of whose nodes are among these."""
    return [nodes for nodes in sorted(truth) if set(nodes) <= set(graph)]


def _check_module() -> Any:
    spec = importlib.util.spec_from_file_location("case_check", CHECK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
