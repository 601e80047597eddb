"""`measure`: compiles single-node models, and concludes which ops a compiler takes."""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from os import PathLike
from pathlib import Path
from threading import Event

import onnx

from onnx_bisect.backend_choice import BackendChoice
from onnx_bisect.diagnosing import usable_backend
from onnx_bisect.searching import Cancellation
from onnx_bisect.verdict_base import InMemoryVerdictBase, VerdictBase, default_path, open_base
from onnxbisect.answer import Answer
from onnxbisect.cut.output_guard import guard_outputs
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.diagnosis import Target
from onnxbisect.errors import OnnxBisectError, OptionError
from onnxbisect.key import Keyer
from onnxbisect.model.model import directly
from onnxbisect.report.files import put
from onnxbisect.report.text import plural
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Backend, Description, Limits
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.measurement.measured import (
    MeasuredTest,
    MeasuredTests,
    RefusalBehaviour,
    folding_model,
    measured_profile,
    report_of,
    reporting_model,
)
from onnxbisect_backends.measurement.node_tests import USUAL_OPSET, NodeTest, NodeTestForm, node_tests
from onnxbisect_backends.options import unknown
from onnxbisect_backends.probing.identity import target_identity
from onnxbisect_backends.probing.loaded_model import LoadedModel, probe_writer
from onnxbisect_backends.probing.prober import Prober, ProbeResult
from onnxbisect_backends.probing.search_context import sampling
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.simulator.profiles import Profile, profile_text
from onnxbisect_backends.verifying import as_compared

#: The answer for models with inputs that the compiler does not accept, whatever their ops.
_NO_QUESTION = Verdict(status=Status.UNRESOLVED, kind=Kind.INVALID, message="not a model that the compiler takes")


@dataclass(frozen=True, kw_only=True)
class SeriesStarted:
    """So many models follow, which `subject` describes."""

    subject: str
    models: int

    def __str__(self) -> str:
        return f"{self.subject}: {plural(self.models, 'model')}"


@dataclass(frozen=True, kw_only=True)
class ModelAnswered:
    """The compiler's verdict on one model. `cached`: it was known before, and no compiler was called."""

    verdict: Verdict
    cached: bool


#: Called in the thread that called `measure`.
MeasureProgress = Callable[[SeriesStarted | ModelAnswered], None]


@dataclass(frozen=True, kw_only=True)
class MeasuredOps:
    """What was measured of a compiler. `ops` were tried; `profile` has what it takes and refuses of them."""

    profile: Profile
    ops: Set[str]
    compiler_calls: int

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the profile as a TOML file for the whitelist backend. Raises OSError."""
        return put(Path(path), profile_text(self.profile).encode())


def measure(
    backend: BackendChoice,
    *,
    name: str,
    options: Mapping[str, object] | None = None,
    ops: Sequence[str] = (),
    jobs: int = 1,
    budget_seconds: float | None = None,
    timeout: float | None = None,
    cache: bool = True,
    progress: MeasureProgress | None = None,
    cancellation: Cancellation | None = None,
) -> MeasuredOps | None:
    """Compile the single-node tests of ONNX, and conclude which ops the compiler takes; the profile is called `name`.

    `ops` are those to test, all if empty. No compile starts after `budget_seconds`, but for two that concern every op;
    `timeout` limits one compile, in seconds. With `cache`, verdicts are kept, and a cancelled measurement can go on.
    Returns None if it was cancelled. Raises OptionError for unknown ops and wrong options, and BackendUnusableError.
    """
    chosen = usable_backend(backend, options or {}, jobs)
    description = as_compared(chosen, chosen.describe())
    every = node_tests()
    known = {test.op for test in every}
    if missing := [op for op in ops if op not in known]:
        raise OptionError(unknown("op that ONNX has a node test for", missing[0], known))
    tests = tuple(test for test in every if not ops or test.op in ops)
    cancellation = cancellation or Cancellation()
    calls = 0

    def tell(event: SeriesStarted | ModelAnswered) -> None:
        nonlocal calls
        calls += isinstance(event, ModelAnswered) and not event.cached
        if progress is not None:
            progress(event)

    with closing(_base(chosen, description) if cache else InMemoryVerdictBase()) as base, working_folder() as folder:
        sweep = Sweep(
            backend=chosen,
            description=description,
            base=base,
            folder=folder,
            limits=Limits() if timeout is None else Limits(seconds=timeout),
            jobs=jobs,
            until=None if budget_seconds is None else time.monotonic() + budget_seconds,
        )
        with cancellation.stopping(sweep.stop):
            asked = _answers(sweep, tests, description, tell)
            sweep.until = None  # two more compiles whatever the budget, because their result concerns every op
            behaviour = _refusal_behaviour(sweep, asked.answers, tell)
        if sweep.stopped:
            return None
    values = ", ".join(f"{key}={value}" for key, value in chosen.options.items() if value is not None)
    by = f"{chosen.name} ({values})" if values else chosen.name
    profile = measured_profile(
        name,
        asked,
        description,
        behaviour,
        source=f"measured: the single-node tests of onnx {onnx.__version__} through {by}, {description.tool}",
        tests=len(tests),
    )
    return MeasuredOps(profile=profile, ops=asked.ops, compiler_calls=calls)


@dataclass(kw_only=True)
class Sweep:
    """One compiler, many models. Answers of earlier runs are reused.

    `until` is the time (`time.monotonic`) after which no compile starts.
    """

    backend: Backend
    description: Description
    base: VerdictBase
    folder: Path
    limits: Limits
    jobs: int = 1
    until: float | None = None

    def __post_init__(self) -> None:
        self._stopping = Event()

    def stop(self) -> None:
        """End now: compiles are killed and their results dropped. Safe in a signal handler."""
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def ask(self, models: Iterable[onnx.ModelProto], tell: MeasureProgress) -> list[Verdict | None]:
        """Compile the models; returns verdicts in their order, None for those not compiled before `until` or `stop`."""
        verdicts: list[Verdict | None] = []
        running: dict[Future[ProbeResult], str] = {}
        waiting: dict[str, list[int]] = {}

        def collect(room: int) -> None:
            while len(running) > room:
                done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                if self.stopped:
                    kill_running()  # repeatedly, because a thread may only now start its compiler
                for future in done:
                    key = running.pop(future)
                    answer = None if self.stopped else future.result().answer
                    numbers = waiting.pop(key)
                    if answer is not None:
                        self.base.put(key, 0, answer)
                        for number in numbers:
                            note(number, answer, number != numbers[0])

        def note(number: int, answer: Answer, known: bool) -> None:
            verdicts[number] = answer.verdict
            tell(ModelAnswered(verdict=answer.verdict, cached=known))

        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for model in models:
                    number = len(verdicts)
                    verdicts.append(None)
                    if self.stopped:
                        continue
                    if (loaded := self._take_in(model)) is None:
                        verdicts[number] = _NO_QUESTION
                        continue
                    everything = loaded.model.universe.everything
                    key = Keyer(loaded.model, weights=self.description.weights_matter).key(everything)
                    answer = self.base.get(key, 0)
                    if answer is not None:
                        note(number, answer, True)
                    elif key in waiting:
                        waiting[key].append(number)
                    elif self.until is None or time.monotonic() < self.until:
                        waiting[key] = [number]
                        running[pool.submit(self._prober(loaded).ask, everything)] = key
                        collect(self.jobs - 1)
                collect(0)
            except BaseException:
                self.stop()  # otherwise the pool would wait for running compiles
                collect(0)
                raise
        return verdicts

    def _take_in(self, model: onnx.ModelProto) -> LoadedModel | None:
        """The model; None if the compiler does not accept its inputs, so that its answer would not be about the op."""
        covered = onnx.ModelProto()
        covered.CopyFrom(model)
        probe_format = self.description.probe_format
        guard_outputs(covered.graph, (*probe_format.covered, *probe_format.accompanied), own=())
        with tempfile.TemporaryDirectory(prefix="question-", dir=self.folder) as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(covered, path)
            try:
                loaded = LoadedModel(path, {}, bounded=directly)
            except OnnxBisectError:
                return None
        if loaded.model.unbound and not self.description.dynamic_shapes:
            return None
        dtypes, inputs = probe_format.input_dtypes, loaded.model.proto.graph.input
        return loaded if dtypes is None or all(runtime_dtype(it.type) in dtypes for it in inputs) else None

    def _prober(self, loaded: LoadedModel) -> Prober:
        samples = sampling(loaded.model, None, self.description.samples)
        return Prober(
            write=probe_writer(loaded, self.description.probe_format),
            backend=self.backend,
            limits=self.limits,
            objection=lambda units, probe: None,  # onnx's own test models are valid
            folder=self.folder,
            samples=None if samples is None else samples.write,
        )


def _base(backend: Backend, description: Description) -> VerdictBase:
    target = Target(
        backend=backend.name,
        tool=description.tool,
        version=description.version,
        options=backend.options,
        calibration="random" if description.samples else "",
    )
    identity = target_identity(target, description.probe_format, description.environment)
    return open_base(default_path(), target=identity, search=identity)


def _answers(sweep: Sweep, tests: Sequence[NodeTest], description: Description, tell: MeasureProgress) -> MeasuredTests:
    """Compile a few tests of every op in all their forms, then further tests, so that a budget covers every op.

    A form is tried for tests that failed in the earlier forms, and for each op's first test, which shows how the
    compiler treats the op with constant inputs.
    """
    newest = description.newest_opset
    opset = min(newest or USUAL_OPSET, USUAL_OPSET)
    asked = MeasuredTests()
    for _, band in groupby(tests, key=lambda test: test.place.bit_length()):
        left = list(band)
        for form in NodeTestForm:
            models = [(test, test.question(form, opset=opset, newest_opset=newest)) for test in left]
            posed = [(test, model) for test, model in models if model is not None]
            asked.ops |= {test.op for test, _ in posed}
            subject = f"tests {left[0].place + 1} to {left[-1].place + 1} of each op, {form}"
            tell(SeriesStarted(subject=subject, models=len(posed)))
            verdicts = sweep.ask([model for _, model in posed], tell)
            if sweep.stopped:
                return asked
            passed = set()
            for (test, model), verdict in zip(posed, verdicts, strict=True):
                if verdict is not None and (verdict.passed or verdict.failed):
                    answer = MeasuredTest(test=test.name, op=test.op, form=form, model=model, verdict=verdict)
                    asked.answers.append(answer)
                    passed |= {test.name} if verdict.passed else set()
                elif verdict is None or verdict.kind is not Kind.INVALID:
                    asked.unanswered.add(test.name)
            left = [test for test in left if test.name not in passed or test.place == 0]
            if not left:
                break
    return asked


def _refusal_behaviour(sweep: Sweep, answers: Sequence[MeasuredTest], tell: MeasureProgress) -> RefusalBehaviour:
    folding, reporting = folding_model(answers), reporting_model(answers)
    folds = report = None
    tell(SeriesStarted(subject="how it treats what it refuses", models=2))
    if folding is not None:
        (verdict,) = sweep.ask([folding], tell)
        folds = verdict.passed if verdict is not None and (verdict.passed or verdict.failed) else None
    if reporting is not None:
        (verdict,) = sweep.ask([reporting], tell)
        report = report_of(reporting, verdict) if verdict is not None else None
    return RefusalBehaviour(folds=folds, report=report)
