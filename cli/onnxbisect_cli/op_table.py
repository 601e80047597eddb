"""Measure which ops a compiler takes, and write its table of ops as a profile."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

import onnx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from onnx_bisect.verdict_base import InMemoryVerdictBase, VerdictBase, default_path, open_base
from onnxbisect.answer import Answer
from onnxbisect.cut.output_guard import guard_outputs
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.errors import BackendUnusableError, OnnxBisectError, OptionError
from onnxbisect.job import Target
from onnxbisect.key import Keyer
from onnxbisect.model import Model
from onnxbisect.model.established import directly
from onnxbisect.report.text import clean, clip, plural
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend, Description, Limits
from onnxbisect_backends.measurement.measured import (
    MeasuredTest,
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
from onnxbisect_backends.sandbox.working_folder import working_folder
from onnxbisect_backends.simulator.profiles import Profile, profile_text
from onnxbisect_cli.signals import stopping

#: The answer for models with inputs that the compiler does not accept, whatever their ops.
_NO_QUESTION = Verdict(status=Status.UNRESOLVED, kind=Kind.INVALID, message="not a model that the compiler takes")

#: Called with each answer, and whether it was known before.
OnAnswer = Callable[[Verdict, bool], None]


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

    def ask(self, models: Iterable[onnx.ModelProto], on_answer: OnAnswer) -> list[Verdict | None]:
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
            on_answer(answer.verdict, known)

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
        covered = onnx.ModelProto()
        covered.CopyFrom(model)
        guard_outputs(covered.graph, self.description.probe_format.covered, own=())
        with tempfile.TemporaryDirectory(prefix="question-", dir=self.folder) as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(covered, path)
            try:
                loaded = LoadedModel(path, {}, bounded=directly)
            except OnnxBisectError:
                return None
        return loaded if self._takes(loaded.model) else None

    def _takes(self, model: Model) -> bool:
        """Whether the compiler accepts the inputs, so that its answer is about the op."""
        if model.unbound and not self.description.dynamic_shapes:
            return False
        dtypes = self.description.probe_format.input_dtypes
        return dtypes is None or all(runtime_dtype(value.type) in dtypes for value in model.proto.graph.input)

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


#: Answers between two progress lines if standard error is no terminal.
_LINE = 100


@dataclass(frozen=True, kw_only=True)
class OpTableRequest:
    """The user's request. `only` are the ops to test, all if empty; `seconds` limits one compile.

    `keep` stores the verdicts on disk, so that an interrupted run can continue.
    """

    backend: str
    output: Path
    options: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[str] = ()
    jobs: int = 1
    seconds: float | None = None
    budget_seconds: float | None = None
    keep: bool = True


def measure(request: OpTableRequest) -> int:
    """Compile the tests and write the profile; returns the exit status."""
    if request.output.suffix != ".toml" or not request.output.parent.is_dir():
        raise OptionError(f"{request.output} cannot be a profile: name a file that ends in .toml in a folder that is.")
    try:  # checked first, because compiling can take an hour
        tempfile.TemporaryFile(dir=request.output.parent).close()
    except OSError as error:
        raise OptionError(f"{request.output} cannot be written: {error.strerror or error}.") from error
    backend = registry.make(request.backend, dict(request.options))
    if complaint := backend.check():
        raise BackendUnusableError(complaint)
    description = backend.describe()
    tests = _chosen(request.only)
    with (
        closing(_base(request, backend, description)) as base,
        working_folder() as folder,
    ):
        sweep = Sweep(
            backend=backend,
            description=description,
            base=base,
            folder=folder,
            limits=Limits() if request.seconds is None else Limits(seconds=request.seconds),
            jobs=request.jobs,
            until=None if request.budget_seconds is None else time.monotonic() + request.budget_seconds,
        )
        with stopping(sweep.stop) as interruption, _Shown() as shown:
            asked = _answers(sweep, tests, description, shown)
            sweep.until = None  # two more compiles whatever the budget, because their result concerns every op
            behaviour = _refusal_behaviour(sweep, asked.answers, shown)
        if interruption.number is not None:
            kept = "its verdicts are kept and the same command goes on" if request.keep else "nothing is kept"
            print(clean(f"onnx-bisect: interrupted; no profile is written, {kept}."), file=sys.stderr)
            return interruption.exit_code
    profile = measured_profile(
        request.output.stem,
        asked.answers,
        description,
        behaviour,
        source=_source(backend, description),
        tests=len(tests),
        asked=frozenset(asked.ops),
        unanswered=frozenset(asked.unanswered),
    )
    request.output.write_text(profile_text(profile), encoding="utf-8")
    _say(profile, request.output, asked.ops, shown.calls)
    return 0


def _chosen(only: Sequence[str]) -> tuple[NodeTest, ...]:
    tests = node_tests()
    known = {test.op for test in tests}
    for op in only:
        if op not in known:
            raise OptionError(unknown("op that ONNX has a node test for", op, known))
    return tuple(test for test in tests if not only or test.op in only)


def _base(request: OpTableRequest, backend: Backend, description: Description) -> VerdictBase:
    if not request.keep:
        return InMemoryVerdictBase()
    target = Target(
        backend=backend.name,
        tool=description.tool,
        version=description.version,
        options=backend.options,
        calibration="random" if description.samples else "",
    )
    identity = target_identity(target, description.probe_format, description.environment)
    return open_base(default_path(), target=identity, search=identity)


@dataclass(kw_only=True)
class _Measurement:
    """The answers, the ops that were tried, and the names of tests with a form that got no answer."""

    answers: list[MeasuredTest] = field(default_factory=list)
    ops: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)


def _answers(sweep: Sweep, tests: Sequence[NodeTest], description: Description, shown: "_Shown") -> _Measurement:
    """Compile a few tests of every op in all their forms, then further tests, so that a budget covers every op.

    A form is tried for tests that failed in the earlier forms, and for each op's first test, which shows how the
    compiler treats the op with constant inputs.
    """
    newest = description.newest_opset
    opset = min(newest or USUAL_OPSET, USUAL_OPSET)
    asked = _Measurement()
    for _, band in groupby(tests, key=lambda test: test.place.bit_length()):
        left = list(band)
        for form in NodeTestForm:
            models = [(test, test.question(form, opset=opset, newest_opset=newest)) for test in left]
            posed = [(test, model) for test, model in models if model is not None]
            asked.ops |= {test.op for test, _ in posed}
            shown.begin(f"tests {left[0].place + 1} to {left[-1].place + 1} of each op, {form}", len(posed))
            verdicts = sweep.ask([model for _, model in posed], shown.answered)
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


def _refusal_behaviour(sweep: Sweep, answers: Sequence[MeasuredTest], shown: "_Shown") -> RefusalBehaviour:
    folding, reporting = folding_model(answers), reporting_model(answers)
    folds = report = None
    shown.begin("how it treats what it refuses", 2)
    if folding is not None:
        (verdict,) = sweep.ask([folding], shown.answered)
        folds = verdict.passed if verdict is not None and (verdict.passed or verdict.failed) else None
    if reporting is not None:
        (verdict,) = sweep.ask([reporting], shown.answered)
        report = report_of(reporting, verdict) if verdict is not None else None
    return RefusalBehaviour(folds=folds, report=report)


def _source(backend: Backend, description: Description) -> str:
    options = ", ".join(f"{key}={value}" for key, value in backend.options.items() if value is not None)
    by = f"{backend.name} ({options})" if options else backend.name
    return f"measured: the single-node tests of onnx {onnx.__version__} through {by}, {description.tool}"


def _say(profile: Profile, output: Path, asked: Set[str], calls: int) -> None:
    supported = sum(bool(support.node_tests) for support in profile.ops.values())
    unknown_ops = len(asked - profile.ops.keys() - profile.refused.keys())
    found = f"{plural(supported, 'op')} supported, {len(profile.refused)} refused"
    found += f", {unknown_ops} not known" if unknown_ops else ""
    print(clean(f"{output}: {found}; {plural(calls, 'compiler call')}"))
    for note in profile.notes:
        print(f"  {clip(note, 300)}")


class _Shown:
    """Progress on standard error: a bar on a terminal, else a line after every `_LINE` answers."""

    def __init__(self) -> None:
        self.calls = 0
        self._refused = 0
        self._known = 0
        self._console = Console(file=sys.stderr)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._live)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, what: str, count: int) -> None:
        """Start a series of `count` compiles."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=count)
        if not self._live and count:
            print(f"{what}: {plural(count, 'model')}", file=sys.stderr, flush=True)

    def answered(self, verdict: Verdict, known: bool) -> None:
        """Count an answer; `known` if it came from an earlier run."""
        self.calls += not known
        self._known += known
        self._refused += verdict.failed
        if self._task is not None:
            self._bar.advance(self._task)
        done = self.calls + self._known
        if not self._live and done % _LINE == 0:
            print(f"{done} answers, {self._known} known before, {self._refused} refused", file=sys.stderr, flush=True)
