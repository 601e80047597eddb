"""A backend whose compiles are confined, as the service has them; for the conformance suite."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from onnxbisect.verdict import Verdict
from onnxbisect_backends.contract import Backend, Confinement, Description, Limits, Outcome
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.isolation import Isolation


def demand_namespaces() -> None:
    """Skip where compiles cannot be confined."""
    if isolation.available() is Isolation.NONE:
        pytest.skip("the kernel allows no namespaces here")


@dataclass(frozen=True)
class Confined:
    backend: Backend

    @property
    def name(self) -> str:
        return self.backend.name

    @property
    def options(self) -> dict[str, Any]:
        return self.backend.options

    def describe(self) -> Description:
        return self.backend.describe()

    def check(self) -> str | None:
        return self.backend.check()

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        confinement = Confinement(probe=probe, workdir=workdir, required=True)
        return self.backend.compile(probe, workdir, replace(limits, confinement=confinement))

    def judge(self, outcome: Outcome) -> Verdict:
        return self.backend.judge(outcome)


def confined(backend: Backend) -> Backend:
    """The backend, confined; skips where that cannot be."""
    demand_namespaces()
    return Confined(backend)
