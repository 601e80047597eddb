"""What the chaos run asks for, and what is right: models, targets, and what `onnx-bisect run` says of them."""

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import TESTS
from support.production.topology import PLUGIN, PROGRAM

_MODELS, _CASES = TESTS / "models", TESTS / "cases"


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A model before one target."""

    model: Path
    backend: str
    options: Mapping[str, str]

    @property
    def target(self) -> dict[str, Any]:
        return {"backend": self.backend, "options": dict(self.options)}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A job to ask for: one model, some targets. `cancel_after` seconds it is not wanted any more."""

    tenant: str
    goals: tuple[Goal, ...]
    cancel_after: float | None = None
    repair: bool = False

    @property
    def body(self) -> dict[str, Any]:
        """What `POST /v1/jobs` gets, without the model."""
        return {
            "targets": [goal.target for goal in self.goals],
            "labels": {"model": self.goals[0].model.name},
            **({"repair": {}} if self.repair else {}),
        }


def _rules(model: Path, **options: str) -> Goal:
    return Goal(model=model, backend="whitelist", options={"delay": "0.1", **options})


def _process(model: Path, deny: str) -> Goal:
    return Goal(model=model, backend="stand-in", options={"deny": deny, "delay": "0.3"})


def _real(model: Path) -> Goal:
    return Goal(model=model, backend="onnxruntime", options={})


#: Those of one model stand together in jobs with several targets.
GOALS: Sequence[tuple[Goal, ...]] = (
    (_rules(file := _MODELS / "interleaved.onnx", deny="Sin"), _process(file, "Sin-Cos")),
    (_rules(file := _CASES / "c4_chain100_adjpair.onnx", fail_patterns="Sinh>Cosh"), _process(file, "Sinh")),
    (_rules(file := _CASES / "c5_chain100_farpair.onnx", fail_patterns="Asinh&Cosh", report="none"),),
    (_rules(file := _MODELS / "sam_part1_prompt__ts11.onnx", deny="Abs,Sin,Cos,Clip"),),
    (_real(file := _MODELS / "custom_domain_unknown.onnx"), _process(file, "FancyAct")),
    (_process(file := _MODELS / "duplicate_names.onnx", "Cos"), _rules(file, ops="Relu,Sin", report="first")),
    (_process(file := _MODELS / "names_weird.onnx", "Sin-Abs"), _real(file)),
    (_rules(file := _MODELS / "control_captures.onnx", deny="Not"),),
)

#: Those whose culprits `fix` replaces; their jobs are repaired.
REPAIRED = GOALS[-1:]


def orders(jobs: int, chance: random.Random, of: Sequence[tuple[Goal, ...]] = GOALS) -> Iterator[Wanted]:
    """So many jobs of a few tenants. Within a tenant the second job of a target knows the answers of the first one."""
    tenants = [f"tenant-{number}" for number in range(max(2, jobs // 15))]
    for _ in range(jobs):
        goals = chance.choice(of)
        several = chance.random() < 0.15
        yield Wanted(
            tenant=chance.choice(tenants),
            goals=goals if several else (chance.choice(goals),),
            cancel_after=chance.uniform(0, 8) if chance.random() < 0.08 else None,
            repair=goals in REPAIRED,
        )


def known_culprits(wanted: Sequence[Wanted] = ()) -> dict[tuple[str, str, str], str]:
    """What `run` says of every goal of these, or of every goal."""
    named = {name_of(goal): goal for want in wanted for goal in want.goals}
    goals = [*named.values()] or [goal for of_model in GOALS for goal in of_model]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(map(name_of, goals), pool.map(_run, goals), strict=True))


def known_repairs(wanted: Sequence[Wanted]) -> dict[tuple[str, str, str], str]:
    """What `fix` makes of the goals that are repaired."""
    named = {name_of(goal): goal for want in wanted if want.repair for goal in want.goals}
    return {name: _fix(goal) for name, goal in named.items()}


def name_of(goal: Goal) -> tuple[str, str, str]:
    return goal.model.name, goal.backend, json.dumps(dict(goal.options), sort_keys=True)


def culprits_of(report: Mapping[str, Any]) -> str:
    """What must be equal, to the byte."""
    return json.dumps([report["verdict"], *report["culprits"]])


def repair_of(document: Mapping[str, Any]) -> str:
    """What must be equal, to the byte."""
    return json.dumps([document["verdict"], document["changes"]])


def _run(goal: Goal) -> str:
    return culprits_of(_document(goal, "run", "report.json"))


def _fix(goal: Goal) -> str:
    return repair_of(_document(goal, "fix", "repair/repair.json"))


def _document(goal: Goal, command: str, name: str) -> dict[str, Any]:
    told = [word for name, value in goal.options.items() for word in ("--option", f"{name}={value}")]
    environment = {**os.environ, "PYTHONPATH": str(PLUGIN)}
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-run-") as folder:
        argv = [str(PROGRAM), command, "--no-cache", str(goal.model), "--backend", goal.backend, *told, "--out", folder]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        document: dict[str, Any] = json.loads((Path(folder) / name).read_text())
        return document
