"""`precision`: finds the fewest nodes that must stay in high precision so that the numbers are right."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Unpack

import onnx

from onnx_bisect.backend_choice import BackendChoice, chosen_backend
from onnx_bisect.keywords import with_keywords
from onnx_bisect.models import InputValues, Shapes, Source, load_model
from onnx_bisect.precision_record import FolderRecord, MeasurementBudget, Record
from onnx_bisect.precision_search import PrecisionSearch, Tell, WideSet, finite
from onnx_bisect.precision_subject import (
    SCREEN,
    AskedTarget,
    MeasuredModel,
    PrecisionQuestion,
    PrecisionSubject,
    likely,
)
from onnx_bisect.result import ShownPrecision
from onnxbisect.cut import write
from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.json_form import to_json
from onnxbisect.language import english, some
from onnxbisect.model.scopes import fed_inputs
from onnxbisect.precision.equivalents import rewritten
from onnxbisect.precision.pictures import flow, html, trade
from onnxbisect.precision.plan import MinimalSet, PrecisionEnding
from onnxbisect.precision.report import PrecisionReport, TensorError, markdown
from onnxbisect.precision.wanted import Low, wanted
from onnxbisect.proof import Tolerance, fault
from onnxbisect.report.files import put
from onnxbisect.report.text import clip
from onnxbisect.terms import BudgetCalls, BudgetSeconds, PrecisionGoal, PrecisionKeywords, Timeout, made
from onnxbisect.unitset import members, of, size
from onnxbisect_backends.calibration import first_sample, read_calibration
from onnxbisect_backends.contract import Backend, Limits, computes, computes_mixed
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.precision.arithmetic import Arithmetic
from onnxbisect_backends.precision.configurations import FILES, Configuration, configurations, read_layer_errors
from onnxbisect_backends.precision.scoring import scorer_of

#: The files beside each other in the folder of a result.
REPORT, TEXT, PAGE = "precision.json", "precision.md", "precision.html"
TRADE, FLOW = "precision.svg", "errors.svg"
MODEL, WIDE, CHANGED = "mixed.onnx", "mixed16.onnx", "rewritten.onnx"
#: Behind the name of an arithmetic that is asked about the rewritten model.
REWRITTEN = ", rewritten"
#: Seconds of one measurement, unless it is said.
_TIMEOUT = 600.0
#: Most measurements of onnxruntime's arithmetic for a target that fuses and quantises in its own way: a set that takes
#: more says little of what is needed there.
_SCREENED = 60
#: Most samples that are used.
MOST_SAMPLES = 32


@dataclass(frozen=True, kw_only=True)
class PrecisionResult(ShownPrecision):
    """The result of `precision`; `report` has the contents of precision.json (docs/precision.md)."""

    report: PrecisionReport
    folder: Path | None = field(default=None, compare=False)


@with_keywords(PrecisionGoal)
def precision(
    model: Source,
    *,
    backend: BackendChoice = "onnxruntime",
    samples: str | PathLike[str] | None = None,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    out: str | PathLike[str] | None = None,
    budget_calls: BudgetCalls = None,
    budget_seconds: BudgetSeconds = None,
    timeout: Timeout = None,
    jobs: int = 1,
    layer_errors: str | PathLike[str] | None = None,
    progress: Tell | None = None,
    **terms: Unpack[PrecisionKeywords],
) -> PrecisionResult:
    """Find a minimal set of nodes that must stay in high precision so that a metric is good enough.

    `samples` are inputs of the model, as for `diagnose`'s `calibration`: ranges are taken from them, and the metric is
    that of the worst one. `metric` is `sqnr` (dB, 30 by default), `cosine` (0.999 by default), `maxabs`, or
    `FILE.py:FUNCTION`, a function of the outputs in full precision, the outputs, and the sample, each by name, that
    returns a number. `low` is `int8` or `float16`.

    With `qnn` or `rknn` as `backend`, the set that onnxruntime's QDQ needs is proven on the emulator of the target: it
    and each set without one member are run there. Where the two disagree, the search goes on there. RKNN quantises by
    itself, after fusing: nodes that are fused away there are not kept, and `report.notes` names them.

    With `out`, precision.json, precision.md and the model with these nodes high and all others low (`int8`: in QDQ
    form) are written there, and each measurement is recorded: the same question in the same folder is not measured
    again. `jobs` is the number of measurements at a time; what is found does not depend on it.

    `layer_errors` is a file with the table of errors by layer that RKNN, TPU-MLIR or pulsar2 printed: it orders the
    measurements.

    Raises OptionError for arguments, samples and metrics that cannot be used and for a threshold that even full
    precision misses; ModelError for a model that does not run.
    """
    began = time.monotonic()
    goal, chosen = made(PrecisionGoal, terms), chosen_backend(backend, options or {})
    if goal.low not in list(Low):
        low, names = clip(goal.low, 60), ", ".join(Low)
        raise OptionError(english("There is no low precision '{low}'; there are {names}.", low=low, names=names))
    low = Low(goal.low)
    _demand_arithmetic(chosen, low)
    want = wanted(goal.metric, goal.at_least, goal.at_most)
    if samples is None:
        raise OptionError(
            english("Ranges and errors are measured on samples of the inputs; say where they are with --samples PATH.")
        )
    if complaint := chosen.check():
        raise BackendUnusableError(complaint)
    if jobs < 1:
        raise OptionError(f"jobs is {jobs}; at least one compiler has to run.")
    path = Path(samples)
    loaded = load_model(model, input_shapes, input_values, first_sample(path, "--samples")).model
    question = PrecisionQuestion(
        model=loaded,
        name=loaded.path.name,
        backend=chosen,
        samples=path,
        low=low,
        want=want,
        limits=Limits(seconds=timeout or _TIMEOUT),
        blamed=() if layer_errors is None else read_layer_errors(Path(layer_errors)),
    )
    budget = MeasurementBudget(budget_calls, budget_seconds, began)
    return answered(question, budget, None if out is None else Path(out), jobs=jobs, tell=progress or (lambda _: None))


def has_arithmetic(backend: Backend) -> bool:
    """Whether there is an arithmetic of the backend that a set can be searched in."""
    return backend.name == SCREEN or computes(backend) or computes_mixed(backend)


def _demand_arithmetic(chosen: Backend, low: Low) -> None:
    if not has_arithmetic(chosen):
        raise OptionError(
            english(
                "precision has no arithmetic of '{backend}'; it has that of onnxruntime, qnn, rknn, tpu-mlir and of "
                "others that can run what they compile.",
                backend=chosen.name,
            )
        )
    if low is Low.INT8 or chosen.name == SCREEN:
        return
    if not (computes(chosen) and str(chosen.describe().computes_in) == low):
        raise OptionError(english("With '{backend}' the low precision is int8.", backend=chosen.name))


def answered(
    asked: PrecisionQuestion,
    budget: MeasurementBudget,
    folder: Path | None,
    record: Record | None = None,
    *,
    jobs: int = 1,
    tell: Tell,
) -> PrecisionResult:
    """The result of a search, whose files are written to `folder`. Without a `record`, `folder` has it.

    Raises what `precision` does.
    """
    began = time.monotonic()
    chosen, low, want, loaded = asked.backend, asked.low, asked.want, asked.model
    _demand_arithmetic(chosen, low)
    own = chosen.name == SCREEN
    inputs = fed_inputs(loaded.proto.graph)
    given = read_calibration(asked.samples, inputs, MOST_SAMPLES, option="--samples", bound=loaded.input_values)
    described = chosen.describe()
    with working_folder() as work, ExitStack() as stack:
        limits = asked.limits
        if limits.confinement is not None:
            limits = replace(limits, confinement=replace(limits.confinement, workdir=work))
        target = AskedTarget(replace(asked, limits=limits), given.samples, stack, work)
        first = target.on(loaded)
        subject, space, quantiser, tensors = first.subject, first.space, first.quantiser, first.tensors
        names = [it.name for it in loaded.proto.graph.output]
        scorer = scorer_of(want, names, reference=quantiser.reference, samples=quantiser.samples, limits=limits)
        identity = [loaded.identity, given.digest, str(low), scorer.identity, described.version, chosen.options]
        if record is None:
            record = Record() if folder is None else FolderRecord(folder, identity)
        if not subject.space.order:
            raise OptionError(
                english(
                    "Nothing of {model} can be {low}: it has no node with float32 tensors that onnxruntime quantises.",
                    model=asked.name,
                    low=low,
                )
            )

        def asking(about: PrecisionSubject, on: str, arithmetic: Arithmetic) -> PrecisionSearch:
            made = PrecisionSearch(about, on, arithmetic, scorer, record, tell, jobs)
            stack.callback(made.close)
            return made

        search = asking(subject, chosen.name, first.arithmetic)
        search.merged = frozenset(node.name for node in subject.nodes if tensors and node.name not in tensors)
        # a threshold that the target misses, or reaches with everything low, ends the search before the screen
        if search.ends(space, budget) and not own:
            screen = asking(subject, SCREEN, quantiser)
            if screen.ends(subject.space, budget):
                known = sum(on == SCREEN for on, _ in record.values)
                left = budget.part(max(_SCREENED - known, 0)) if tensors else budget
                space = likely(space, screen.search(subject.space, left).keep)
        found = search.search(space, budget)
        changed = _changed(target, first, search, found, asking, budget)
        wide = search.wide(found, budget) if found.ending is PrecisionEnding.MINIMAL else None
        answer = _Answer(asked=asked, first=first, search=search, found=found, changed=changed, wide=wide)
        report = answer.report(len(given.samples), record, began)
        if folder is not None:
            answer.write(report, folder)
    return PrecisionResult(report=report, folder=folder)


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What was found of a model as `first` measured it: the set that stays, and less that stays in another form."""

    asked: PrecisionQuestion
    first: MeasuredModel
    search: PrecisionSearch
    found: MinimalSet
    changed: "_Changed | None"
    wide: WideSet | None

    @property
    def kept(self) -> list[onnx.NodeProto]:
        """The nodes that stay."""
        return [self.first.subject.nodes[unit] for unit in members(self.found.keep)]

    @property
    def sixteen(self) -> frozenset[str]:
        """The names of those that need no more than 16 bits."""
        return frozenset() if self.wide is None else self.first.subject.names(self.wide.units)

    @cached_property
    def files(self) -> Mapping[str, Configuration]:
        """The configurations of vendors' compilers."""
        return configurations(self.kept, self.asked.low, self.asked.backend.name, self.first.tensors, self.sixteen)

    @property
    def errors(self) -> tuple[TensorError, ...]:
        """Of each tensor, with everything low and with these nodes kept; empty where none has to be."""
        if not self.found.keep:
            return ()
        subject, quantiser = self.first.subject, self.first.quantiser
        low, kept = (quantiser.errors(subject.names(it)) for it in (0, self.found.keep))
        return tuple(
            TensorError(tensor=name, node=node.name, low=low[name], kept=kept[name])
            for node in subject.nodes
            for name in node.output
            if name in low and name in kept
        )

    @property
    def notes(self) -> list[str]:
        """What the target or the form of a file cannot do."""
        first, name, notes = self.first, self.asked.backend.name, list[str]()
        if first.tensors and (fused := [node for node in first.subject.candidates if node not in first.tensors]):
            notes.append(
                english(
                    "{backend} has no tensors of {names} after fusing: they cannot be kept on their own there.",
                    backend=name,
                    names=some(fused),
                )
            )
        if self.asked.low is Low.FLOAT16 and name != SCREEN:
            notes.append(
                english(
                    "Nodes that stay in high precision were measured on the host: {backend} computes in float16 alone.",
                    backend=name,
                )
            )
        left = {file: it.left_out for file, it in self.files.items() if it.left_out}
        return [*notes, *(english("{file} cannot name {names}.", file=it, names=some(left[it])) for it in left)]

    def report(self, samples: int, record: Record, began: float) -> PrecisionReport:
        """The document; `samples` is how many were measured, from `began` on."""
        asked, first, search, found, changed = self.asked, self.first, self.search, self.found, self.changed
        subject, space, want, sixteen = first.subject, first.space, asked.want, self.sixteen
        described = asked.backend.describe()
        value, full, all_low = (search.value(it) for it in (found.keep, space.everything, 0))
        return PrecisionReport(
            model=asked.name,
            backend=asked.backend.name,
            arithmetic=f"{described.tool} {described.version}",
            low=asked.low,
            metric=want.metric,
            threshold=want.threshold,
            at_most=want.at_most,
            wanted=want.words,
            samples=samples,
            nodes=len(subject.nodes),
            candidates=len(space.order),
            full=finite(full),
            full_shown=search.shown(space.everything),
            all_low=finite(all_low),
            all_low_shown=search.shown(0),
            value=finite(value),
            shown=search.shown(found.keep),
            ending=found.ending,
            members=search.members(found),
            work=subject.share(found.keep),
            asks=tuple(record.asked),
            resumed=record.resumed,
            seconds=round(time.monotonic() - began, 1),
            notes=(*search.notes, *self.notes),
            changes=() if changed is None else changed.sentences,
            changed_keep=() if changed is None else changed.keep,
            changed_shown="" if changed is None else changed.shown,
            wide=tuple(node.name for node in self.kept if node.name in sixteen),
            wide_shown="" if self.wide is None else self.wide.shown,
            errors=self.errors,
        )

    def write(self, report: PrecisionReport, folder: Path) -> None:
        """Write the report, and the models with these nodes precise: as it is, with 16 bits, and rewritten."""
        put(folder / REPORT, json.dumps(to_json(report), indent=1, ensure_ascii=False).encode() + b"\n")
        put(folder / TEXT, markdown(report).encode())
        put(folder / PAGE, html(report).encode())
        put(folder / TRADE, trade(report).encode())
        for name in (FLOW, MODEL, WIDE, CHANGED, *FILES):
            (folder / name).unlink(missing_ok=True)  # it may be of an earlier search
        if report.errors:
            put(folder / FLOW, flow(report).encode())
        for name, it in self.files.items():
            put(folder / name, it.content.encode())
        own, low = self.asked.backend.name == SCREEN, self.asked.low
        if not self.first.tensors and (own or low == Low.INT8):
            file = self.search.model_file(self.found.keep)
            if file is not None:
                _copy_model(file, folder / MODEL)
        if self.wide is not None:
            _copy_model(self.search.wide_file(self.found, self.wide), folder / WIDE)
        if self.changed is not None:
            _copy_model(self.changed.file, folder / CHANGED)


@dataclass(frozen=True, kw_only=True)
class _Changed:
    """A model that computes the same and needs fewer nodes in high precision: its file, and what was measured of it."""

    sentences: tuple[str, ...]
    keep: tuple[str, ...]
    shown: str
    file: Path


def _changed(
    target: AskedTarget,
    asked: MeasuredModel,
    search: PrecisionSearch,
    found: MinimalSet,
    asking: Callable[[PrecisionSubject, str, Arithmetic], PrecisionSearch],
    budget: MeasurementBudget,
) -> _Changed | None:
    """The model with rewrites of the nodes to keep, if fewer have to stay then, measured as those were."""
    kept = [asked.subject.nodes[unit].name for unit in members(found.keep)]
    proto, changes = rewritten(asked.model, kept, target.low, asked.subject.measured.seen)
    if not changes or found.ending is not PrecisionEnding.MINIMAL or budget.spent:
        return None
    file = target.work / CHANGED
    write(proto, asked.model, file, self_contained=True)
    other = target.on(load_model(file, None, None).model, "rewritten", asked.subject)
    computed = other.quantiser.outputs(other.quantiser.reference)
    for before, after in zip(asked.subject.measured.reference, computed, strict=True):
        if any(fault(name, it, after[name], Tolerance()) for name, it in before.items()):
            return None  # rounding in float32 alone makes too much of a difference
    again = asking(other.subject, search.on + REWRITTEN, other.arithmetic)
    touched = {name for it in changes for name in it.nodes}
    rest = of(unit for unit, node in enumerate(other.subject.nodes) if node.name in set(kept) - touched)
    try:
        left = again.search(likely(other.space, rest), budget)
    except OptionError:  # full precision misses, or the budget ended
        return None
    if left.ending is PrecisionEnding.BUDGET or size(left.keep) >= len(kept):
        return None
    return _Changed(
        sentences=tuple(it.sentence for it in changes),
        keep=tuple(other.subject.nodes[unit].name for unit in members(left.keep)),
        shown=again.shown(left.keep),
        file=file,
    )


def _copy_model(file: Path, target: Path) -> None:
    proto = onnx.load(file)
    large = proto.ByteSize() >= 2**31 - 1
    onnx.save(proto, target, save_as_external_data=large, location=f"{target.stem}.data")
