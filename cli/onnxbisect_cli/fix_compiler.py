"""The compiler as a repair asks it: every question is a search such as `onnx-bisect run` makes, with its verdicts."""

import shutil
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import onnx

from onnx_bisect.driver import Budget
from onnxbisect.cut import units_of_nodes
from onnxbisect.diagnosis import Certificate, CertificateStatus, Diagnosis
from onnxbisect.errors import CutError, ModelError
from onnxbisect.job import Stats
from onnxbisect.model.external import locations
from onnxbisect.remedies import Found
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.inquiry import inquire
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_cli.bisection import Request, backend_of, bisected

_NO_CALLS = Stats(compiler_calls=0, cached=0, rounds=0, compile_seconds=0, engine_seconds=0, wall_seconds=0)
#: What a repaired model is called, before it is handed out and after.
REPAIRED = "repaired.onnx"


class FixCompiler:
    """Asks for one repair (`onnxbisect.remedies.Compiler`). Models are written to `folder`, which outlives it.

    `calls` are those of the compiler so far; the request's budget is for all questions together. `exit_code` is set
    when a signal ended a search.
    """

    def __init__(self, request: Request, intake: Intake, folder: Path) -> None:
        self._request, self._intake, self._folder = request, intake, folder
        self._began = time.monotonic()
        self._latest: tuple[bytes, Intake] | None = None
        self.calls = 0
        self.exit_code: int | None = None

    def original(self) -> Found:
        """Which parts of the model fail, as the user gave it."""
        return self._search(self._request, self._intake)

    def original_whole(self) -> Found:
        """Whether that model passes: one call."""
        return self._search(self._request, self._intake, most=1)

    def diagnose(self, model: onnx.ModelProto) -> Found:
        """See `Compiler.diagnose`."""
        intake = self._read(model)
        return self._search(replace(self._request, model=intake.model.path), intake)

    def whole(self, model: onnx.ModelProto) -> Found:
        """See `Compiler.whole`."""
        intake = self._read(model)
        return self._search(replace(self._request, model=intake.model.path), intake, most=1)

    def ask(self, model: onnx.ModelProto, nodes: Collection[str]) -> Found:
        """See `Compiler.ask`. A piece that cannot be asked about is one that was not seen to pass."""
        request = self._request
        intake = self._read(model)
        inquiry = inquire(intake, backend_of(request), request.calibration)
        piece = self._folder / "piece" / "model.onnx"
        shutil.rmtree(piece.parent, ignore_errors=True)
        piece.parent.mkdir()
        try:
            units = inquiry.universe.with_needs(units_of_nodes(intake.model, list(nodes)))
            names = inquiry.write(units, piece)
            found = self._search(replace(request, model=piece, input_shapes={}, calibration=None))
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

    def _search(self, request: Request, intake: Intake | None = None, *, most: int | None = None) -> Found:
        budget = self._left()
        if most is not None:
            budget = replace(budget, calls=most if budget.calls is None else min(most, budget.calls))
        asked = replace(request, budget_calls=budget.calls, budget_seconds=budget.seconds, files=False)
        result, interruption = bisected(asked, intake)
        job = result.job
        assert job is not None  # noqa: S101 - it was searched here
        self.calls += job.stats.compiler_calls
        if interruption.number is not None:
            self.exit_code = interruption.exit_code
        stopped = interruption.number is not None or self._spent()
        return Found(job=job, stopped=stopped)

    def _left(self) -> Budget:
        calls, seconds = self._request.budget_calls, self._request.budget_seconds
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
            source = self._request.model
            if self._latest is None:
                copy_data(self._intake.model.proto, source.parent, self._folder)
            path = self._folder / REPAIRED
            path.write_bytes(content)
            self._latest = content, Intake(path, self._request.input_shapes)
        return self._latest[1]


def copy_data(model: onnx.ModelProto, source: Path, target: Path) -> None:
    """Copy the data files that a model refers to, to the same places below another folder."""
    for file in locations(model, source):
        copy = target / file.relative_to(source)
        if copy.resolve() != file.resolve():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
