"""`split`: divides a model into pieces for the NPU and for the host, based on a report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from onnx_bisect.backend_choice import BackendChoice
from onnx_bisect.diagnosing import usable_backend
from onnx_bisect.events import Note, Progress
from onnx_bisect.models import InputValues, Shapes, Source, load_model
from onnx_bisect.result import Result
from onnxbisect import split as engine
from onnxbisect.errors import OptionError
from onnxbisect.language import some
from onnxbisect.model import Model
from onnxbisect.model.read import original
from onnxbisect.model.versions import versions_changed
from onnxbisect.report import words
from onnxbisect.report.contents import Report
from onnxbisect.split import SHARE, Manifest
from onnxbisect.unitset import UnitSet, units_in
from onnxbisect.verdict import Status
from onnxbisect_backends import contract
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.custom_ops import CustomOps
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.probing.prober import PieceCompiler
from onnxbisect_backends.probing.search_context import search_context


@dataclass(frozen=True, kw_only=True)
class SplitResult:
    """A model in pieces. `manifest` has the contents of manifest.json in `folder` (docs/split.md)."""

    folder: Path
    manifest: Manifest

    @property
    def proven(self) -> bool:
        """Whether the pieces, one after the other, gave the model's outputs bit for bit."""
        return self.manifest.proof.proven

    @property
    def refused(self) -> bool:
        """Whether the compiler refused a piece that is meant for the NPU."""
        return bool(self.manifest.refused)


def split(
    model: Source,
    report: Result | Report,
    folder: str | PathLike[str],
    *,
    backend: BackendChoice | None = None,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    host_share: float = SHARE,
    samples: str | PathLike[str] | None = None,
    custom_ops: Mapping[str, str] | None = None,
    timeout: float | None = None,
    calibration: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> SplitResult:
    """Write the model to `folder` as pieces for the NPU and for the host, with a script that runs them.

    `report` is the result of `diagnose`, or its report.json: what compiled there goes to the NPU. `host_share` is the
    part of the NPU's work that may move to the host so that fewer pieces remain. `backend`, which must be the report's
    target, compiles the NPU's pieces; without it none is compiled. The other arguments are those of `fix`.

    Raises OptionError if the report is of another model or target, if the model compiles as a whole, or if `folder` is
    not empty; ModelError, CutError, and BackendUnusableError.
    """
    document = report.report if isinstance(report, Result) else report
    target = document["target"]
    compiler = None if backend is None else usable_backend(backend, options or {}, 1)
    if compiler is None and options:
        raise OptionError("options are for a backend: name it.")
    if compiler is not None:
        known_options = json.loads(json.dumps(compiler.options))  # as report.json has them
        if compiler.name != target["backend"] or known_options != target["options"]:
            raise OptionError(f"The report is of another target: {words.target(target)}. Name that one, or none.")
    calibration_path = None if calibration is None else Path(calibration)
    known = CustomOps(samples=None if samples is None else Path(samples), functions=custom_ops or {})
    sample = first_sample(known.samples, "--samples") or first_sample(calibration_path)
    shapes = {**({} if compiler is None else contract.input_shapes(compiler)), **(input_shapes or {})}
    loaded = load_model(model, shapes, input_values, sample)
    passed = _passed(document, loaded.model)
    if loaded.model.unbound:
        raise OptionError(f"Bind the dynamic dimensions of {some(loaded.model.unbound)} with --input-shape.")
    if progress is not None and (note := versions_changed(loaded.model.proto)):
        progress(Note(sentence=note))
    recorded = known.for_proof(loaded.model, original(loaded.model))
    out = Path(folder)
    if compiler is None:
        manifest = engine.split(loaded.model, passed, out, share=host_share, target=target, samples=recorded)
        return SplitResult(folder=out, manifest=manifest)
    context = search_context(loaded, compiler, calibration_path)
    with working_folder() as scratch:
        manifest = engine.split(
            loaded.model,
            passed,
            out,
            share=host_share,
            probe_format=context.description.probe_format,
            static=context.description.needs_static,
            target=target,
            compile_piece=PieceCompiler(
                backend=contract.for_model(compiler, loaded.model.proto.graph),
                folder=scratch,
                limits=contract.Limits() if timeout is None else contract.Limits(seconds=timeout),
                samples=None if context.samples is None else context.samples.write,
            ),
            samples=recorded,
        )
    return SplitResult(folder=out, manifest=manifest)


def _passed(report: Report, model: Model) -> list[UnitSet]:
    """The sets of units that always compiled; OptionError if the report cannot be used."""
    about = report["model"]
    if about["sha256"] != model.sha256:
        if clauses := report.get("file_after"):
            raise OptionError(
                f"This is the report of {about['name']} after: {clauses}. Run 'fix', which writes that file as "
                "repair/repaired.onnx with a report, and split it."
            )
        raise OptionError(
            f"This is the report of another model, {about['name']} ({about['sha256'][:12]}…); "
            f"{model.path.name} is {model.sha256[:12]}…. Run the diagnosis of this one."
        )
    if report["verdict"] == Status.PASS:
        raise OptionError(f"{about['name']} compiles as a whole: there is nothing to split.")
    names = [model.proto.graph.node[unit.node].name for unit in model.units]
    verdicts: dict[UnitSet, set[str]] = {}
    try:
        agrees = report["units"]["names"] == names
        for probe in report["probes"]:
            verdicts.setdefault(units_in(probe["units"], len(names)), set()).add(probe["verdict"])
    except (AttributeError, KeyError, TypeError, ValueError):
        agrees = False
    if not agrees:
        raise OptionError("The report is damaged, or of another version of onnx-bisect. Run the diagnosis again.")
    return [units for units, seen in verdicts.items() if Status.PASS in seen and Status.FAIL not in seen]
