"""`fix`: from a model that a compiler refuses to one that it takes, proven, or to what is left of the way there."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path

import onnx

from onnx_bisect.cancellation import Cancellation
from onnx_bisect.diagnosing import BackendChoice, chosen_backend, diagnose
from onnx_bisect.driver import Budget
from onnx_bisect.events import Note, Progress
from onnx_bisect.fix_compiler import REPAIRED, FixCompiler, copy_data
from onnx_bisect.models import Shapes, Source, loaded
from onnxbisect.errors import OptionError
from onnxbisect.file_remedies import Candidate, candidates
from onnxbisect.model import Model
from onnxbisect.model.compute import Sample
from onnxbisect.model.wording import some
from onnxbisect.preflight import Severity, settled_by
from onnxbisect.proof import Tolerance, edge_feeds, random_feeds
from onnxbisect.remedies import Prover, Repair, TriedFiles, repair, try_files
from onnxbisect.remedies.document import RepairDocument, document
from onnxbisect.remedies.summary import headline, markdown
from onnxbisect.report.document import document as report_document
from onnxbisect.report.files import FORMS, put
from onnxbisect.rewrites import Exactness, Facts, installed
from onnxbisect_backends.calibration import read_calibration
from onnxbisect_backends.probing.forked import forked
from onnxbisect_backends.probing.inquiry import Inquiry, inquire
from onnxbisect_backends.working_folder import working_folder

#: The report on what is left.
REPORT = "report.json"
#: Samples taken from the user's.
_MOST_SAMPLES = 100
_ORDER = list(Exactness)


@dataclass(frozen=True, kw_only=True)
class FixResult:
    """What a repair came to. `document` says all of it as values, as repair.json does (docs/fix.md)."""

    document: RepairDocument
    repair: Repair = field(repr=False, compare=False)
    source: Path = field(repr=False, compare=False)

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        return headline(self.document)

    @property
    def compiles(self) -> bool:
        """Whether the compiler takes the model, repaired where it had to be."""
        return self.repair.compiles

    @property
    def repaired(self) -> bool:
        """Whether there is a repaired model; it may still have culprits (`document.left`)."""
        return self.repair.model is not None

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the repaired model, and beside it the data files of the original. Raises OptionError where nothing was
        repaired, or it cannot be written.
        """
        path = Path(path)
        if self.repair.model is None:
            raise OptionError(f"There is no repaired model: {self.headline}")
        try:
            copy_data(self.repair.model, self.source.parent, path.parent)
            return put(path, self.repair.model.SerializeToString(deterministic=True))
        except OSError as error:
            raise OptionError(f"{path} cannot be written: {error.strerror or error}.") from error

    def write(self, folder: str | PathLike[str]) -> list[str]:
        """Put all that `onnx-bisect fix` writes into a folder, and return the names: the repaired model where there is
        one, the report on what is left where something is, and what was done as Markdown and JSON. Raises OptionError
        or OSError where they cannot be written.
        """
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        for name in (REPAIRED, REPORT):
            (out / name).unlink(missing_ok=True)  # that of an earlier repair is no part of this one
        written = []
        if self.repaired:
            written.append(self.save(out / REPAIRED).name)
        if self.repair.left:
            report = report_document(self.repair.after.job)
            for culprit in report["culprits"]:
                culprit["repro"] = None  # `Result.write` of a diagnosis writes those
            written.append(put(out / REPORT, FORMS[REPORT](report).encode("utf-8", "backslashreplace")).name)
        put(out / "repair.md", markdown(self.document).encode("utf-8", "backslashreplace"))
        put(out / "repair.json", (json.dumps(self.document.to_json(), indent=1) + "\n").encode())
        return [*written, "repair.md", "repair.json"]


def fix(
    model: Source,
    *,
    backend: BackendChoice,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    allow: Exactness = Exactness.ROUNDING,
    samples: str | PathLike[str] | None = None,
    count: int = 4,
    tolerance: Tolerance | None = None,
    jobs: int = 1,
    budget_calls: int | None = None,
    budget_seconds: float | None = None,
    timeout: float | None = None,
    recheck: bool = False,
    calibration: str | PathLike[str] | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> FixResult:
    """Repair a model: diagnose it, replace what is refused, prove that the numbers stay, compile, and repeat.

    Changes of the whole file come first, then rules for single nodes. Nothing of lesser exactness than `allow` is used,
    and nothing whose proof failed. A proof is a run of both models in onnxruntime on `samples` (a folder, zip or tar of
    .npz keyed by input names), on `count` random inputs and on as many with edge values; the model's outputs must agree
    within `tolerance`. The other arguments are those of `diagnose`; the budgets are for all compiles together.

    Raises what `diagnose` raises, and OptionError for dynamic dimensions that `input_shapes` does not bind.
    """
    chosen = chosen_backend(backend, options or {})
    intake, tell = loaded(model, input_shapes), progress or (lambda event: None)
    calibration_path = None if calibration is None else Path(calibration)
    original = onnx.load(intake.model.path, load_external_data=False)
    prover = _prover(intake.model, original, None if samples is None else Path(samples), count, tolerance)
    ask = partial(
        diagnose,
        backend=chosen,
        jobs=jobs,
        timeout=timeout,
        recheck=recheck,
        cache=cache,
        files=False,
        progress=tell,
        cancellation=cancellation,
    )
    inquiry = inquire(intake, chosen, calibration_path)
    with working_folder() as work:
        compiler = FixCompiler(
            intake=intake,
            ask_about=ask,
            inquire=lambda read: inquire(read, chosen, calibration_path),
            folder=work,
            input_shapes=input_shapes or {},
            calibration=calibration_path,
            budget=Budget(calls=budget_calls, seconds=budget_seconds),
        )
        found, calls = _repaired(compiler, inquiry, original, prover, allow, tell)
        told = document(
            intake.model,
            found,
            allow,
            diagnosis_calls=calls,
            repair_calls=compiler.calls - calls,
            input_shapes={name: tuple(dims) for name, dims in (input_shapes or {}).items()},
        )
    return FixResult(document=told, repair=found, source=intake.model.path)


def _repaired(
    compiler: FixCompiler,
    inquiry: Inquiry,
    original: onnx.ModelProto,
    prover: Prover,
    allow: Exactness,
    tell: Progress,
) -> tuple[Repair, int]:
    """The repair, and how many compiler calls the diagnosis took."""

    def say(sentence: str) -> None:
        tell(Note(sentence=sentence))

    files = changed_files(inquiry, allow)
    base = TriedFiles()
    if (first := next(files, None)) is not None:
        whole = compiler.original_whole()
        if whole.compiles or whole.stopped:
            return Repair(before=whole, after=whole, stopped=whole.stopped), compiler.calls
        calls = compiler.calls
        base = try_files(whole, chain([first], files), compiler, prover, say)
        if base.repair is not None:
            return base.repair, calls
    if base.base is None:
        before = compiler.original()
    else:
        say(f"going on from the changed file: {base.base.sentence}")
        original = base.base.proto
        before = compiler.diagnose(original)
        prover = prover.on(original, Facts.of(before.model))
    calls = compiler.calls
    found = repair(before, original, compiler, prover, installed().rules, most=allow, tell=say)
    if base.base is not None and not found.stopped:
        unchanged = found.model is None
        found = replace(
            found,
            changed_file=base.base,
            model=original if unchanged else found.model,
            proof=base.proof if unchanged else found.proof,
        )
    return found, calls


def changed_files(inquiry: Inquiry, allow: Exactness) -> Iterator[Candidate]:
    """At most four changes of the whole file, the one that changes least first; none where the preflight finds nothing
    that most compilers refuse. Each costs a compile of the whole model.
    """
    settled = settled_by(inquiry.reader.dressing)
    if any(it.severity is Severity.ERROR and it.id not in settled for it in inquiry.findings):
        for candidate in candidates(inquiry.intake.model, inquiry.findings, inquiry.reader, forked):
            if _ORDER.index(candidate.exactness) <= _ORDER.index(allow):
                yield candidate


def _prover(
    model: Model, original: onnx.ModelProto, samples: Path | None, count: int, tolerance: Tolerance | None
) -> Prover:
    if model.unbound:
        raise OptionError(
            f"Bind the dynamic dimensions of {some(model.unbound)} with --input-shape (input_shapes): a repair is "
            "proven by running the model."
        )
    inputs = model.proto.graph.input
    given: tuple[Sample, ...] = ()
    if samples is not None:
        given = tuple(read_calibration(samples, inputs, _MOST_SAMPLES).samples)
    shown = list(chain(given, random_feeds(inputs, count), edge_feeds(inputs, count)))
    return Prover(original, Facts.of(model), shown, folder=model.path.parent, tolerance=tolerance)
