"""`precision`: finds the fewest nodes that must stay in high precision so that the numbers are right."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import onnx

from onnx_bisect.backend_choice import BackendChoice, chosen_backend
from onnx_bisect.models import InputValues, Shapes, Source, load_model
from onnx_bisect.precision_search import (
    Arithmetic,
    MeasurementBudget,
    PrecisionSearch,
    PrecisionSubject,
    Record,
    Tell,
    finite,
)
from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.json_form import to_json
from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import constant_names
from onnxbisect.model.wording import some
from onnxbisect.precision.low import Low
from onnxbisect.precision.metric import METRICS, Wanted, wanted
from onnxbisect.precision.report import PrecisionReport, markdown, svg
from onnxbisect.report.files import put
from onnxbisect.report.text import clip
from onnxbisect.unitset import members
from onnxbisect_backends.calibration import Calibration, first_sample, read_calibration
from onnxbisect_backends.contract import Limits, computes, computes_mixed
from onnxbisect_backends.precision.arithmetic import (
    HostedTarget,
    OrtArithmetic,
    SelfQuantisingTarget,
    TargetArithmetic,
)
from onnxbisect_backends.precision.configurations import FILES, configurations
from onnxbisect_backends.precision.scoring import BuiltIn, Scorer, UserMetric
from onnxbisect_backends.sandbox.working_folder import working_folder

#: The backend whose arithmetic every search begins with.
SCREEN = "onnxruntime"
#: The files beside each other in the folder of a result.
REPORT, PAGE, PICTURE, MODEL = "precision.json", "precision.md", "precision.svg", "mixed.onnx"
#: Most samples that are used.
MOST_SAMPLES = 32


@dataclass(frozen=True, kw_only=True)
class PrecisionResult:
    """The result of `precision`; `report` has the contents of precision.json (docs/precision.md)."""

    report: PrecisionReport
    folder: Path | None = field(default=None, compare=False)

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        return self.report.headline

    @property
    def keep(self) -> tuple[str, ...]:
        """The names of the nodes to keep in high precision."""
        return tuple(it.node for it in self.report.members)


def precision(
    model: Source,
    *,
    backend: BackendChoice = "onnxruntime",
    samples: str | PathLike[str] | None = None,
    metric: str = "sqnr",
    at_least: float | None = None,
    at_most: float | None = None,
    low: str = Low.INT8,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    out: str | PathLike[str] | None = None,
    budget_calls: int | None = None,
    budget_seconds: float | None = None,
    timeout: float = 600.0,
    progress: Tell | None = None,
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
    again.

    Raises OptionError for arguments, samples and metrics that cannot be used and for a threshold that even full
    precision misses; ModelError for a model that does not run.
    """
    began = time.monotonic()
    chosen = chosen_backend(backend, options or {})
    own = chosen.name == SCREEN
    if not (own or computes(chosen) or computes_mixed(chosen)):
        raise OptionError(
            english(
                "precision has no arithmetic of '{backend}'; it has that of onnxruntime, qnn and rknn.",
                backend=chosen.name,
            )
        )
    if low not in list(Low):
        raise OptionError(
            english("There is no low precision '{low}'; there are {names}.", low=clip(low, 60), names=", ".join(Low))
        )
    if not own and low == Low.FLOAT16 and not (computes(chosen) and str(chosen.describe().computes_in) == low):
        raise OptionError(english("With '{backend}' the low precision is int8.", backend=chosen.name))
    want = wanted(metric, at_least, at_most)
    if samples is None:
        raise OptionError(
            english("Ranges and errors are measured on samples of the inputs; say where they are with --samples PATH.")
        )
    if complaint := chosen.check():
        raise BackendUnusableError(complaint)
    path = Path(samples)
    loaded = load_model(model, input_shapes, input_values, first_sample(path, "--samples")).model
    given = _samples(loaded, path)
    limits = Limits(seconds=timeout)
    with working_folder() as work, OrtArithmetic(loaded, given.samples, Low(low), work, timeout) as quantiser:
        scorer = _scorer(want, loaded, quantiser, limits)
        subject = PrecisionSubject(loaded, quantiser.measure(), Low(low), want)
        described = chosen.describe()
        identity = [loaded.identity, given.digest, str(low), scorer.identity, described.version, chosen.options]
        record = Record(None if out is None else Path(out), identity)
        budget, tell, space = MeasurementBudget(budget_calls, budget_seconds, began), progress or _silent, subject.space
        if not space.order:
            raise OptionError(
                english(
                    "Nothing of {model} can be {low}: it has no node with float32 tensors that onnxruntime quantises.",
                    model=loaded.path.name,
                    low=low,
                )
            )
        screen = search = PrecisionSearch(subject, SCREEN, quantiser, scorer, record, tell)
        screened = space
        tensors: Mapping[str, Sequence[str]] = {}  # of each node, of a compiler that quantises by itself
        fused: list[str] = []
        if not own:
            target: Arithmetic
            if low == Low.FLOAT16:
                target = HostedTarget(quantiser, loaded, chosen, limits)
            elif computes_mixed(chosen):
                target = SelfQuantisingTarget(quantiser, chosen, limits)
                target.quantise(loaded.proto.graph)
                tensors = target.tensors
                fused = [subject.nodes[unit].name for unit in space.order if subject.nodes[unit].name not in tensors]
                there = [unit for unit, node in enumerate(subject.nodes) if node.name in tensors]
                space = replace(space, order=subject.by_suspicion(there))
            else:
                target = TargetArithmetic(quantiser, chosen, limits)
            search = PrecisionSearch(subject, chosen.name, target, scorer, record, tell)
            search.merged = frozenset(node.name for node in subject.nodes if tensors and node.name not in tensors)
            # a threshold that the target misses, or reaches with everything low, ends the search before the screen
            if search.ends(space, budget) and screen.ends(screened, budget):
                guess = screen.search(screened, budget).keep
                first = sorted(space.order, key=lambda unit: not guess >> unit & 1)
                space = replace(space, order=tuple(first), groups=(), guess=guess & space.everything)
        found = search.search(space, budget)
        value, full, all_low = (search.value(it) for it in (found.keep, space.everything, 0))
        kept = [subject.nodes[unit] for unit in members(found.keep)]
        files = configurations(kept, Low(low), tensors)
        remarks = [
            english("{file} cannot name {names}.", file=name, names=some(it.left_out))
            for name, it in files.items()
            if it.left_out
        ]
        if low == Low.FLOAT16 and not own:
            remarks.insert(
                0,
                english(
                    "Nodes that stay in high precision were measured on the host: {backend} computes in float16 alone.",
                    backend=chosen.name,
                ),
            )
        if fused:
            remarks.insert(
                0,
                english(
                    "{backend} has no tensors of {names} after fusing: they cannot be kept on their own there.",
                    backend=chosen.name,
                    names=some(fused),
                ),
            )
        report = PrecisionReport(
            model=loaded.path.name,
            backend=chosen.name,
            arithmetic=f"{described.tool} {described.version}",
            low=low,
            metric=want.metric,
            threshold=want.threshold,
            at_most=want.at_most,
            wanted=want.words,
            samples=len(given.samples),
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
            notes=(*search.notes, *remarks),
        )
        if out is not None:
            folder = Path(out)
            put(folder / REPORT, json.dumps(to_json(report), indent=1, ensure_ascii=False).encode() + b"\n")
            put(folder / PAGE, markdown(report).encode())
            put(folder / PICTURE, svg(report).encode())
            for name in (MODEL, *FILES):
                (folder / name).unlink(missing_ok=True)  # it may be of an earlier search
            for name, it in files.items():
                put(folder / name, it.content.encode())
            if not tensors and (own or low == Low.INT8) and (file := search.model_file(found.keep)) is not None:
                _copy_model(file, folder / MODEL)
    return PrecisionResult(report=report, folder=None if out is None else Path(out))


def _copy_model(file: Path, target: Path) -> None:
    proto = onnx.load(file)
    large = proto.ByteSize() >= 2**31 - 1
    onnx.save(proto, target, save_as_external_data=large, location=f"{target.stem}.data")


def _silent(line: str) -> None:
    pass


def _samples(model: Model, path: Path) -> Calibration:
    graph = model.proto.graph
    constants = constant_names(graph)
    inputs = [it for it in graph.input if it.name not in constants]
    return read_calibration(path, inputs, MOST_SAMPLES, option="--samples", bound=model.input_values)


def _scorer(want: Wanted, model: Model, quantiser: OrtArithmetic, limits: Limits) -> Scorer:
    if want.metric in METRICS:
        return BuiltIn(want.metric)
    return UserMetric(
        want.metric,
        names=[it.name for it in model.proto.graph.output],
        reference=quantiser.reference,
        samples=quantiser.samples,
        limits=limits,
        at_most=want.at_most,
    )
