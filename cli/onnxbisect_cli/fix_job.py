"""`onnx-bisect fix`: a model that compiles, or what is left of the way there."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import onnx

from onnxbisect.errors import OptionError
from onnxbisect.model import Model
from onnxbisect.model.compute import Sample
from onnxbisect.model.wording import some
from onnxbisect.proof import Tolerance, edge_feeds, random_feeds
from onnxbisect.remedies import Advisor, Found, Prover, Repair, TriedFiles, repair, try_files
from onnxbisect.remedies.document import RepairDocument, document
from onnxbisect.remedies.summary import lines, markdown, plan_lines
from onnxbisect.report.document import document as report_document
from onnxbisect.report.files import FORMS, put
from onnxbisect.report.text import clean
from onnxbisect.rewrites import Exactness, Facts, installed
from onnxbisect_backends.calibration import read_calibration
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_backends.working_folder import working_folder
from onnxbisect_cli import bisection
from onnxbisect_cli.fix_compiler import REPAIRED, FixCompiler, copy_data
from onnxbisect_cli.fix_files import changed_files
from onnxbisect_cli.run_job import demand_folder

#: The report on what is left.
REPORT = "report.json"
#: It compiles now; something is left; nothing is known.
COMPILES, PARTIAL, UNKNOWN = 0, 1, 3
#: Samples taken from the user's.
_MOST_SAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asks for. `search` names model and compiler as for `onnx-bisect run`; nothing of lesser exactness
    than `allow` is used. `count` random samples, and as many with edge values, are made up beside those of `samples`.
    `tolerance` is for the model's outputs. `plan` shows what would be tried, and changes nothing.
    """

    search: bisection.Request
    allow: Exactness = Exactness.ROUNDING
    samples: Path | None = None
    count: int = 4
    tolerance: Tolerance = field(default_factory=Tolerance)
    out: Path = Path()
    plan: bool = False


def run(request: Request) -> int:
    """Returns the exit status. The outcome goes to standard output, progress to standard error."""
    folder = request.out / "repair"
    if not request.plan:
        demand_folder(folder)
    intake = Intake(request.search.model, request.search.input_shapes)
    if request.plan:
        return _plan(request, intake)
    original = onnx.load(request.search.model, load_external_data=False)
    prover = _prover(request, intake.model, original)
    with working_folder() as work:
        compiler = FixCompiler(request.search, intake, work)
        found, calls = _repaired(request, compiler, intake, original, prover)
        told = _told(request, compiler, intake.model, found, calls)
    _write(found, told, folder, request.search.model)
    print("\n".join(lines(told)))
    written = [REPAIRED] * (found.model is not None) + [REPORT] * bool(found.left)
    print(f"{folder}{os.sep} holds {', '.join([*written, 'repair.md'])} and repair.json.")
    if compiler.exit_code is not None:
        print("onnx-bisect: interrupted; the same command goes on from here.", file=sys.stderr)
        return compiler.exit_code
    if found.left:
        model = request.search.model if found.model is None else folder / REPAIRED
        print(f"To run what is left on the host: {shlex.join(_split(model, folder, request))}")
    return _exit_code(found)


def _split(model: Path, report: Path, request: Request) -> list[str]:
    """The command that cuts the model as it is now into pieces for the NPU and for the host."""
    shapes = [f"--input-shape={name}={','.join(map(str, it))}" for name, it in request.search.input_shapes.items()]
    return ["onnx-bisect", "split", str(model), "--report", str(report), *shapes]


def _repaired(
    request: Request, compiler: FixCompiler, intake: Intake, original: onnx.ModelProto, prover: Prover
) -> tuple[Repair, int]:
    """The repair, and how many compiler calls the diagnosis took."""
    files = changed_files(request.search, intake, request.allow)
    base = TriedFiles()
    if (first := next(files, None)) is not None:
        whole = compiler.original_whole()
        if whole.compiles or whole.stopped:
            return Repair(before=whole, after=whole, stopped=whole.stopped), compiler.calls
        calls = compiler.calls
        base = try_files(whole, chain([first], files), compiler, prover, _tell)
        if base.repair is not None:
            return base.repair, calls
    if base.base is None:
        before = compiler.original()
    else:
        _tell(f"going on from the changed file: {base.base.sentence}")
        original = base.base.proto
        before = compiler.diagnose(original)
        prover = prover.on(original, Facts.of(before.model))
    calls = compiler.calls
    found = repair(before, original, compiler, prover, installed().rules, most=request.allow, tell=_tell)
    if base.base is not None and not found.stopped:
        unchanged = found.model is None
        found = replace(
            found,
            changed_file=base.base,
            model=original if unchanged else found.model,
            proof=base.proof if unchanged else found.proof,
        )
    return found, calls


def _exit_code(found: Repair) -> int:
    if found.compiles:
        return COMPILES
    return PARTIAL if found.after.culprits else UNKNOWN


def _plan(request: Request, intake: Intake) -> int:
    """Diagnose, and say which remedies would be tried."""
    with working_folder() as work:
        compiler = FixCompiler(request.search, intake, work)
        before = compiler.original()
    files = [it.sentence for it in changed_files(request.search, intake, request.allow)]
    print("\n".join(_plan_of(request, before, files)))
    if compiler.exit_code is not None:
        return compiler.exit_code
    if before.compiles:
        return COMPILES
    return PARTIAL if before.culprits else UNKNOWN


def _plan_of(request: Request, before: Found, files: Sequence[str]) -> list[str]:
    if before.compiles:
        return [clean(f"{before.model.path.name} compiles as it is.")]
    advisor = Advisor(before, installed().rules, request.allow)
    advisor.add_places(before)
    return plan_lines(advisor.advise(), advisor.left(before), files)


def _prover(request: Request, model: Model, original: onnx.ModelProto) -> Prover:
    if model.unbound:
        raise OptionError(
            f"Bind the dynamic dimensions of {some(model.unbound)} with --input-shape: a repair is proven by running "
            "the model."
        )
    return Prover(
        original,
        Facts.of(model),
        list(_samples(request, model.proto.graph.input)),
        folder=model.path.parent,
        tolerance=request.tolerance,
    )


def _samples(request: Request, inputs: Sequence[onnx.ValueInfoProto]) -> Iterator[Sample]:
    given = () if request.samples is None else read_calibration(request.samples, inputs, _MOST_SAMPLES).samples
    return chain(given, random_feeds(inputs, request.count), edge_feeds(inputs, request.count))


def _told(request: Request, compiler: FixCompiler, model: Model, found: Repair, calls: int) -> RepairDocument:
    return document(
        model,
        found,
        request.allow,
        diagnosis_calls=calls,
        repair_calls=compiler.calls - calls,
        input_shapes=_shapes(request.search.input_shapes),
    )


def _shapes(given: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(dims) for name, dims in given.items()}


def _write(found: Repair, told: RepairDocument, folder: Path, source: Path) -> None:
    """The repaired model where there is one, its data files beside it as beside the original; what was done; and where
    something is left, the report on the model as it is now.
    """
    if found.model is None:
        (folder / REPAIRED).unlink(missing_ok=True)  # that of an earlier run is no part of this one
    else:
        copy_data(found.model, source.parent, folder)
        put(folder / REPAIRED, found.model.SerializeToString(deterministic=True))
    if found.left:
        report = report_document(found.after.job)
        for culprit in report["culprits"]:
            culprit["repro"] = None  # 'onnx-bisect run --out' writes those
        put(folder / REPORT, FORMS[REPORT](report).encode("utf-8", "backslashreplace"))
    else:
        (folder / REPORT).unlink(missing_ok=True)
    put(folder / "repair.json", (json.dumps(told.to_json(), indent=1) + "\n").encode())
    put(folder / "repair.md", markdown(told).encode("utf-8", "backslashreplace"))


def _tell(sentence: str) -> None:
    print(f"onnx-bisect: {clean(sentence)}", file=sys.stderr, flush=True)
