"""`precision`: finds the fewest nodes that must stay in high precision so that the numbers are right."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from os import PathLike
from pathlib import Path

import onnx

from onnx_bisect.backend_choice import BackendChoice, chosen_backend
from onnx_bisect.models import InputValues, Shapes, Source, load_model
from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.model.modules import path_of_node
from onnxbisect.model.scopes import constant_names
from onnxbisect.precision.low import Low, can_be_low, suspicion
from onnxbisect.precision.metric import METRICS, Wanted, broken, wanted
from onnxbisect.precision.plan import Ask, Ending, Found, Space, Why, plan, so_far
from onnxbisect.precision.reasons import reason
from onnxbisect.precision.report import Asked, Member, PrecisionReport, markdown
from onnxbisect.report.files import put
from onnxbisect.report.text import clip, plural
from onnxbisect.split.work import total, work_of
from onnxbisect.unitset import UnitSet, members, of, size
from onnxbisect_backends.calibration import Calibration, first_sample, read_calibration
from onnxbisect_backends.contract import Limits
from onnxbisect_backends.precision.arithmetic import Measured, OrtArithmetic
from onnxbisect_backends.precision.scoring import BuiltIn, Scorer, UserMetric
from onnxbisect_backends.sandbox.working_folder import working_folder

#: The files beside each other in the folder of a result.
REPORT, PAGE, MODEL, RECORD = "precision.json", "precision.md", "mixed.onnx", "asks.jsonl"
#: Most samples that are used.
MOST_SAMPLES = 32

#: Called with a line about each measurement.
Tell = Callable[[str], None]


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

    With `out`, precision.json, precision.md and the model with these nodes high and all others low (`int8`: in QDQ
    form) are written there, and each measurement is recorded: the same question in the same folder is not measured
    again.

    Raises OptionError for arguments, samples and metrics that cannot be used and for a threshold that even full
    precision misses; ModelError for a model that does not run.
    """
    began = time.monotonic()
    chosen = chosen_backend(backend, options or {})
    if chosen.name != "onnxruntime":
        raise OptionError(
            english("precision has no arithmetic of '{backend}'; it has that of onnxruntime.", backend=chosen.name)
        )
    if low not in list(Low):
        raise OptionError(
            english("There is no low precision '{low}'; there are {names}.", low=clip(low, 60), names=", ".join(Low))
        )
    want = wanted(metric, at_least, at_most)
    if samples is None:
        raise OptionError(
            english("Ranges and errors are measured on samples of the inputs; say where they are with --samples PATH.")
        )
    path = Path(samples)
    loaded = load_model(model, input_shapes, input_values, first_sample(path, "--samples")).model
    given = _samples(loaded, path)
    version = chosen.describe().version
    with working_folder() as work, OrtArithmetic(loaded, given.samples, Low(low), work, timeout) as arithmetic:
        scorer = _scorer(want, loaded, arithmetic, Limits(seconds=timeout))
        measured = arithmetic.measure()
        identity = [loaded.identity, given.digest, str(low), version, scorer.identity, list(input_shapes or {})]
        record = _Record(None if out is None else Path(out), identity)
        searching = _Searching(loaded, measured, Low(low), want, arithmetic, scorer, record, progress or _silent)
        found = searching.search(budget_calls or inf, began + (budget_seconds or inf))
        report = searching.report(found, given, f"onnxruntime {version}", began)
        if out is not None:
            folder = Path(out)
            put(folder / REPORT, json.dumps(asdict(report), indent=1, ensure_ascii=False).encode() + b"\n")
            put(folder / PAGE, markdown(report).encode())
            searching.write_model(found.keep, folder)
    return PrecisionResult(report=report, folder=None if out is None else Path(out))


def _silent(line: str) -> None:
    pass


def _samples(model: Model, path: Path) -> Calibration:
    graph = model.proto.graph
    constants = constant_names(graph)
    inputs = [it for it in graph.input if it.name not in constants]
    return read_calibration(path, inputs, MOST_SAMPLES, option="--samples", bound=model.input_values)


def _scorer(want: Wanted, model: Model, arithmetic: OrtArithmetic, limits: Limits) -> Scorer:
    if want.metric in METRICS:
        return BuiltIn(want.metric)
    return UserMetric(
        want.metric,
        names=[it.name for it in model.proto.graph.output],
        reference=arithmetic.reference,
        samples=arithmetic.samples,
        limits=limits,
        at_most=want.at_most,
    )


class _Record:
    """The measurements of a folder, which a later search of the same question continues from."""

    def __init__(self, folder: Path | None, identity: object) -> None:
        self.values: dict[frozenset[str], float] = {}
        self._file = None if folder is None else folder / RECORD
        if self._file is None:
            return
        head = json.dumps({"question": identity})
        self._file.parent.mkdir(parents=True, exist_ok=True)
        lines = self._file.read_text().splitlines() if self._file.is_file() else []
        if lines[:1] == [head]:
            for line in lines[1:]:
                try:
                    entry = json.loads(line)
                    self.values[frozenset(entry["keep"])] = float(entry["value"])
                except (ValueError, KeyError, TypeError):
                    break  # a process was killed while it wrote
            kept = [json.dumps({"keep": sorted(keep), "value": value}) for keep, value in self.values.items()]
            put(self._file, "\n".join([head, *kept, ""]).encode())
        else:
            put(self._file, f"{head}\n".encode())

    def add(self, keep: frozenset[str], value: float) -> None:
        """Record one measurement."""
        self.values[keep] = value
        if self._file is not None:
            with self._file.open("a") as stream:
                stream.write(json.dumps({"keep": sorted(keep), "value": value}) + "\n")


class _Searching:
    """Asks until the search has its result, and keeps what was measured."""

    def __init__(
        self,
        model: Model,
        measured: Measured,
        low: Low,
        want: Wanted,
        arithmetic: OrtArithmetic,
        scorer: Scorer,
        record: _Record,
        tell: Tell,
    ) -> None:
        self._model, self._measured, self._low, self._want = model, measured, low, want
        self._arithmetic, self._scorer, self._record, self._tell = arithmetic, scorer, record, tell
        self._nodes = [model.proto.graph.node[unit.node] for unit in model.units]
        self._space = _space(self._nodes, model, low, measured)
        self._scores: dict[UnitSet, float] = {}
        self._asked: list[Asked] = []
        self._number: dict[UnitSet, int] = {}
        self._resumed = 0
        self._problems: dict[str, int] = {}
        self._files: dict[UnitSet, Path] = {}

    def search(self, calls: float, deadline: float) -> Found:
        """Measure until nothing is open, or the budget is spent. Raises OptionError if full precision misses."""
        made = 0
        while isinstance(step := plan(self._space, self._scores, self._want.at_least), Ask):
            names = frozenset(self._name(unit) for unit in members(step.keep))
            if names in self._record.values:
                self._resumed += 1
                value = self._record.values[names]
            elif made >= calls or time.monotonic() >= deadline:
                if Why.FULL in (step.why, *(it.why for it in self._asked[-1:])):
                    raise OptionError(english("The budget ended before anything could be measured; give more."))
                return so_far(self._space, self._scores, self._want.at_least)
            else:
                made += 1
                value = self._measure(step.keep, names)
                self._record.add(names, value)
            self._note(step, value)
        if step.ending is Ending.MISSED:
            raise OptionError(
                english(
                    "Full precision itself has {metric} {seen}, and {what} is wanted; give another threshold.",
                    metric=clip(self._want.metric, 100),
                    seen=self._want.shown(self._value(self._space.everything)),
                    what=self._want.words,
                )
            )
        return step

    def report(self, found: Found, given: Calibration, arithmetic: str, began: float) -> PrecisionReport:
        """The document."""
        want, work = self._want, work_of(self._model)
        everything = total(work, self._model.universe.everything)
        value = self._value(found.keep)
        full, low = self._value(self._space.everything), self._value(0)
        problems = [
            english("{units} gave no numbers: {reason}.", units=plural(count, "ask"), reason=said)
            for said, count in self._problems.items()
        ]
        return PrecisionReport(
            model=self._model.path.name,
            backend="onnxruntime",
            arithmetic=arithmetic,
            low=self._low,
            metric=want.metric,
            threshold=want.threshold,
            at_most=want.at_most,
            wanted=want.words,
            samples=len(given.samples),
            nodes=len(self._nodes),
            candidates=len(self._space.order),
            full=_finite(full),
            full_shown=want.shown(full),
            all_low=_finite(low),
            all_low_shown=want.shown(low),
            value=_finite(value),
            shown=want.shown(value),
            ending=found.ending,
            members=tuple(
                self._member(unit, found, total(work, 1 << unit) / everything) for unit in members(found.keep)
            ),
            work=total(work, found.keep) / everything if found.keep else 0.0,
            asks=tuple(self._asked),
            resumed=self._resumed,
            seconds=round(time.monotonic() - began, 1),
            notes=tuple(problems),
        )

    def write_model(self, keep: UnitSet, folder: Path) -> None:
        """Write the model with these nodes high and all others low."""
        if keep not in self._files:
            self._files[keep] = self._arithmetic.run([self._name(unit) for unit in members(keep)])[1]
        file = self._files[keep].with_suffix(".onnx")
        if file.is_file():
            proto = onnx.load(file)
            large = proto.ByteSize() >= 2**31 - 1
            onnx.save(proto, folder / MODEL, save_as_external_data=large, location="mixed.data")

    def _measure(self, keep: UnitSet, names: frozenset[str]) -> float:
        """The value of the metric, infinitely bad where there is none."""
        none = inf if self._want.at_most else -inf
        ran, place = self._arithmetic.run(names)
        if ran.problem:
            if keep == self._space.everything:
                raise OptionError(
                    english("The model does not run in full precision: {reason}.", reason=clip(ran.problem, 300))
                )
            said = clip(ran.problem, 300)
            self._problems[said] = self._problems.get(said, 0) + 1
            return none
        if broken(self._measured.reference, ran.outputs):
            return none
        value = self._scorer.value(self._measured.reference, ran.outputs, place)
        if self._want.score(value) >= self._want.at_least:
            for path in self._files.values():
                path.with_suffix(".onnx").unlink(missing_ok=True)
            self._files = {keep: place}
        else:
            place.with_suffix(".onnx").unlink(missing_ok=True)
        return value

    def _note(self, ask: Ask, value: float) -> None:
        self._scores[ask.keep] = self._want.score(value)
        number = self._number[ask.keep] = len(self._asked) + 1
        shown = self._want.shown(value)
        self._asked.append(Asked(number=number, kept=size(ask.keep), value=_finite(value), shown=shown, why=ask.why))
        self._tell(f"{number}  {plural(size(ask.keep), 'node')} kept: {shown} ({ask.why})")

    def _member(self, unit: int, found: Found, share: float) -> Member:
        node = self._nodes[unit]
        without = self._want.score(found.without[unit]) if unit in found.without else None
        return Member(
            node=node.name,
            op=node.op_type,
            module="/".join(path_of_node(node)),
            without=None if without is None else _finite(without),
            shown="" if without is None else self._want.shown(without),
            asked=None if without is None else self._number[found.keep & ~(1 << unit)],
            reason=reason(node, self._low, self._measured.seen, self._measured.weights),
            work=share,
        )

    def _value(self, keep: UnitSet) -> float:
        none = inf if self._want.at_most else -inf
        return self._want.score(self._scores[keep]) if keep in self._scores else none

    def _name(self, unit: int) -> str:
        return self._nodes[unit].name


def _space(nodes: list[onnx.NodeProto], model: Model, low: Low, measured: Measured) -> Space:
    """The nodes that can be low, the most suspect first, in groups of one variant and then of one module."""
    seen = measured.seen
    units = [unit for unit, node in enumerate(nodes) if can_be_low(node, low, seen)]
    doubt = {unit: suspicion(nodes[unit], low, seen, measured.weights) for unit in units}
    variants: dict[int, list[int]] = {}
    for unit in units:
        variants.setdefault(model.universe.variant[unit], []).append(unit)
    return Space(
        order=tuple(sorted(units, key=lambda unit: (-doubt[unit], unit))),
        groups=(tuple(of(group) for group in variants.values()),),
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
