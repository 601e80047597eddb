"""The compiler as a repair asks it: every question is a diagnosis, and shares verdicts with all others."""

import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import onnx

from onnx_bisect.driver import Budget
from onnx_bisect.models import Shapes
from onnx_bisect.result import Result
from onnxbisect.cut import units_of_nodes
from onnxbisect.diagnosis import Certificate, CertificateStatus, Diagnosis
from onnxbisect.errors import CutError, ModelError
from onnxbisect.job import Stats
from onnxbisect.model.external import locations
from onnxbisect.remedies import Found
from onnxbisect.session import Ending
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.inquiry import Inquiry
from onnxbisect_backends.probing.intake import Intake

_NO_CALLS = Stats(compiler_calls=0, cached=0, rounds=0, compile_seconds=0, engine_seconds=0, wall_seconds=0)
#: What a repaired model is called, before it is handed out and after.
REPAIRED = "repaired.onnx"


class Diagnose(Protocol):
    """`diagnose` for one compiler."""

    def __call__(
        self, model: Intake, *, calibration: Path | None, budget_calls: int | None, budget_seconds: float | None
    ) -> Result:
        """What the compiler refuses of the model."""


@dataclass(kw_only=True)
class FixCompiler:
    """Asks for the repair of one model, that of `intake` (`onnxbisect.remedies.Compiler`).

    Models are written to `folder`, which outlives it. The budget is for all questions together, of which `calls` is the
    part that is spent. `inquire` looks at a model for the compiler, `input_shapes` bind its dynamic dimensions.
    """

    intake: Intake
    ask_about: Diagnose
    inquire: Callable[[Intake], Inquiry]
    folder: Path
    input_shapes: Shapes
    calibration: Path | None
    budget: Budget
    calls: int = 0

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._latest: tuple[bytes, Intake] | None = None

    def original(self) -> Found:
        """Which parts of the model fail, as the user gave it."""
        return self._search(self.intake)

    def original_whole(self) -> Found:
        """Whether that model passes: one call."""
        return self._search(self.intake, most=1)

    def diagnose(self, model: onnx.ModelProto) -> Found:
        """See `Compiler.diagnose`."""
        return self._search(self._read(model))

    def whole(self, model: onnx.ModelProto) -> Found:
        """See `Compiler.whole`."""
        return self._search(self._read(model), most=1)

    def ask(self, model: onnx.ModelProto, nodes: Collection[str]) -> Found:
        """See `Compiler.ask`. A piece that cannot be asked about is one that was not seen to pass."""
        intake = self._read(model)
        inquiry = self.inquire(intake)
        piece = self.folder / "piece" / "model.onnx"
        shutil.rmtree(piece.parent, ignore_errors=True)
        piece.parent.mkdir()
        try:
            units = inquiry.universe.with_needs(units_of_nodes(intake.model, list(nodes)))
            names = inquiry.write(units, piece)
            found = self._search(Intake(piece, {}), calibrated=False)
        except (CutError, ModelError) as error:
            nothing = Diagnosis(
                verdict=Status.UNRESOLVED,
                culprits=(),
                needs_context=(),
                certificate=Certificate(status=CertificateStatus.BOUNDED, unknown=(str(error),)),
                remainder=0,
            )
            return Found(job=inquiry.job(nothing, (), _NO_CALLS))
        return replace(found, names=names)

    def _search(self, intake: Intake, *, most: int | None = None, calibrated: bool = True) -> Found:
        budget = self._left()
        if most is not None:
            budget = replace(budget, calls=most if budget.calls is None else min(most, budget.calls))
        result = self.ask_about(
            intake,
            calibration=self.calibration if calibrated else None,
            budget_calls=budget.calls,
            budget_seconds=budget.seconds,
        )
        job = result.job
        assert job is not None  # noqa: S101 - it was searched here
        self.calls += job.stats.compiler_calls
        return Found(job=job, stopped=result.ending is Ending.CANCELLED or self._spent())

    def _left(self) -> Budget:
        calls, seconds = self.budget.calls, self.budget.seconds
        return Budget(
            calls=None if calls is None else max(0, calls - self.calls),
            seconds=None if seconds is None else max(0.0, seconds - (time.monotonic() - self._began)),
        )

    def _spent(self) -> bool:
        left = self._left()
        return left.calls == 0 or left.seconds == 0

    def _read(self, model: onnx.ModelProto) -> Intake:
        """The model from a file, with the original's data files beside it: onnx takes no links to them."""
        content = model.SerializeToString(deterministic=True)
        if self._latest is None or self._latest[0] != content:
            if self._latest is None:
                copy_data(self.intake.model.proto, self.intake.model.path.parent, self.folder)
            path = self.folder / REPAIRED
            path.write_bytes(content)
            self._latest = content, Intake(path, self.input_shapes)
        return self._latest[1]


def copy_data(model: onnx.ModelProto, source: Path, target: Path) -> None:
    """Copy the data files that a model refers to, to the same places below another folder."""
    for file in locations(model, source):
        copy = target / file.relative_to(source)
        if copy.resolve() != file.resolve():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
