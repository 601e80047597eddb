"""Sets up searches in this process: the driver, its verdict base, budgets, cancellation, and other options to try."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from onnx_bisect import verdict_base
from onnx_bisect.backend_choice import BackendChoice, CallableBackend, texts
from onnx_bisect.driver import Budget, Driver, Ended, OtherForm
from onnx_bisect.events import Event, Note, ProbeAnswered, ProbeStarted, Progress, SearchEnded, SearchStarted
from onnx_bisect.steps.alternatives import AskOthers, CulpritVerdicts, asked_with
from onnxbisect.alternatives import CulpritsThenWhole
from onnxbisect.diagnosis import Alternative, Diagnosis
from onnxbisect.errors import OptionError, ShortageError, shortage
from onnxbisect.remedies import SearchedModel
from onnxbisect.search import plan
from onnxbisect.session import Digests, Ending, Planner
from onnxbisect.terms import CallTerms, OtherValues
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_backends.probing.boundary_limits import learn_limits, may_learn, refused_traits, with_known_limits
from onnxbisect_backends.probing.boundary_traits import traits_of, version_traits
from onnxbisect_backends.probing.identity import search_identity
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.prober import Prober
from onnxbisect_backends.probing.search_context import SearchContext, search_context


class Cancellation:
    """Pass it to `diagnose`, and call `cancel` from another thread or a signal handler.

    A handle that is passed to several calls cancels all of them, including calls that start after `cancel`.
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._stops: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Kill running compiles and end the search; `diagnose` returns what it knows. Further calls have no effect."""
        self._cancelled.set()
        for stop in tuple(self._stops):
            stop()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While the context is open, `cancel` calls `stop`. If it was called before, entering calls `stop`."""
        self._stops.append(stop)
        try:
            if self.cancelled:
                stop()
            yield
        finally:
            self._stops.remove(stop)


@dataclass(frozen=True, kw_only=True)
class Searching:
    """Settings for searches with one backend. `jobs` and `cache` are arguments of `onnx_bisect.diagnose`.

    `answers` are those of the run so far, by target; its searches share them.
    """

    backend: Backend
    terms: CallTerms = field(default_factory=CallTerms)
    jobs: int = 1
    cache: bool = True
    progress: Progress = lambda event: None
    cancellation: Cancellation = field(default_factory=Cancellation)
    answers: dict[str, verdict_base.Answers] = field(default_factory=dict)

    @property
    def quiet(self) -> "Searching":
        """The same settings for additional compiles beside the main search: only notes reach the progress callback."""

        def tell(event: Event) -> None:
            if isinstance(event, Note):
                self.progress(event)

        return replace(self, progress=tell)

    def learned(self, driver: Driver, context: SearchContext, samples: Path | None, folder: Path) -> SearchContext:
        """The context with what the compiler takes at a boundary, which is measured once the whole model has failed.

        `driver` goes on in the new context. Compiles are added to its calls.
        """
        model = context.loaded.model
        if not may_learn(self.backend, model):
            return context
        ended = driver.ask_whole()
        if ended.diagnosis.verdict is not Status.FAIL or ended.ending is Ending.CANCELLED:
            return context
        if driver.budget_left.calls == 0 or driver.budget_left.seconds == 0:
            return context
        keep = self.cache and not isinstance(self.backend, CallableBackend)
        with driver.compiles.joined():
            driver.spend(learn_limits(self.backend, traits_of(model), folder, self._limits, kept=keep))
        new = search_context(context.loaded, self.backend, samples, piece=context.piece)
        if new.description == context.description:
            return context
        refused = ", ".join(map(str, refused_traits(self.backend)))
        self.progress(Note(sentence=f"Measured: {context.target.tool} takes no {refused}; probes are written without."))
        prober = new.prober(self.backend, folder, self._limits)
        driver.go_on(new.universe, prober, new.key, _other_form(new, prober))
        return new

    def learned_versions(self, driver: Driver, context: SearchContext, ended: Ended, folder: Path) -> bool:
        """Whether the compiler was found not to read the file's versions, after it gave every probe the same error.

        The model can be searched anew then, in the versions that it reads. Compiles are added to the calls of `driver`.
        """
        verdicts = [record.verdict for record in ended.records]
        alike = len({(it.status, it.kind, it.fingerprint) for it in verdicts}) == 1 < len(verdicts)
        left = driver.budget_left
        if ended.ending is Ending.CANCELLED or left.calls == 0 or left.seconds == 0:
            return False
        if not alike or verdicts[0].status is not Status.FAIL or any(it.hints for it in verdicts):
            return False
        keep = self.cache and not isinstance(self.backend, CallableBackend)
        traits = version_traits(context.loaded.model.proto)
        with driver.compiles.joined():
            driver.spend(learn_limits(self.backend, traits, folder, self._limits, kept=keep))
        learned = with_known_limits(self.backend, context.description)
        if learned == context.description:
            return False
        refused = ", ".join(str(it) for it in refused_traits(self.backend) if it.is_version)
        self.progress(Note(sentence=f"Measured: {context.target.tool} takes no {refused}; searching anew."))
        return True

    def tried(
        self,
        others: OtherOptions,
        loaded: LoadedModel,
        diagnosis: Diagnosis,
        calibration: Path | None,
        budget: Budget,
    ) -> tuple[Alternative, ...]:
        """Compile each culprit's own file with each of the other options, and the whole model if all culprits compile.

        All options share the budget. If the compiler cannot be called with one of them, the others are still tried.
        """
        asked: list[Alternative] = []
        began = time.monotonic()
        culprits = [culprit.evidence.own for culprit in diagnosis.culprits]
        for changed, backend in others.settings([culprit.message for culprit in diagnosis.culprits]):
            left = budget.without(calls=sum(it.calls for it in asked), seconds=time.monotonic() - began)
            if self.cancellation.cancelled or left.calls == 0 or left.seconds == 0:
                self.progress(Note(sentence="The search has ended before all of the other options were tried."))
                break
            asked.append(asked_with(changed, backend, loaded, culprits, calibration, self.asking(left)))
        return tuple(asked)

    def asking(self, budget: Budget) -> AskOthers:
        """A function that compiles with another backend, otherwise with these settings, within the budget."""

        def tell(event: Event) -> None:
            if isinstance(event, Note | ProbeStarted | ProbeAnswered):  # others describe the search of the target
                self.progress(event)

        def ask(other: SearchContext, backend: Backend, planner: CulpritsThenWhole) -> CulpritVerdicts:
            with working_folder() as folder:
                own = replace(self, backend=backend, progress=tell)
                with own.driver(other, folder, budget, planner=planner) as driver:
                    ended = driver.run()
            problem = "The search was cancelled." if ended.ending is Ending.CANCELLED else ""
            return CulpritVerdicts(records=ended.records, calls=ended.stats.compiler_calls, problem=problem)

        return ask

    @property
    def budget(self) -> Budget:
        """The whole budget."""
        return Budget(calls=self.terms.budget_calls, seconds=self.terms.budget_seconds)

    @property
    def _limits(self) -> Limits:
        return Limits() if self.terms.timeout is None else Limits(seconds=self.terms.timeout)

    @contextmanager
    def driver(
        self,
        context: SearchContext,
        folder: Path,
        budget: Budget,
        digests: Digests | None = None,
        artifacts: Path | None = None,
        planner: Planner | None = None,
    ) -> Iterator[Driver]:
        """A driver, with the verdict base open as long as the context is.

        Probes are written into `folder`, the compiler's output on the whole model into `artifacts`. `planner` replaces
        the planner of a search.
        """
        keep = self.cache and not isinstance(self.backend, CallableBackend)
        with _base(context, keep, self.answers.setdefault(context.identity, {}), self.progress) as base:
            prober = context.prober(self.backend, folder, self._limits, keep=artifacts)
            driver = Driver(
                universe=context.universe,
                planner=planner or partial(plan, recheck=self.terms.recheck),
                probes=prober,
                base=base,
                key=context.key,
                progress=self.progress,
                jobs=self.jobs,
                budget=budget,
                digests=digests,
                other_form=None if isinstance(planner, CulpritsThenWhole) else _other_form(context, prober),
            )
            self.progress(SearchStarted(target=context.target, units=len(context.universe)))
            with self.cancellation.stopping(driver.stop), _shortage_as_error(base, keep):
                yield driver


def other_options(
    backend: BackendChoice, options: Mapping[str, object], wanted: OtherValues | None
) -> OtherOptions | None:
    """The other options to try; None if `wanted` is None.

    Raises OptionError if the backend suggests no values and `wanted` has none.
    """
    if wanted is None:
        return None
    found = OtherOptions.of(backend, texts(options), wanted)
    if not found.wanted:
        raise OptionError(
            f"The backend '{found.name}' says of none of its options which values are worth trying; name them: "
            "--try KEY=VALUE,VALUE."
        )
    return found


def _other_form(context: SearchContext, prober: Prober) -> OtherForm:
    """The whole model, written as its parts are."""
    whole = context.universe.everything
    return OtherForm(
        differs=lambda: context.forms_differ,
        key=partial(context.key, whole, as_part=True),
        ask=partial(prober.ask, whole, as_part=True),
    )


class Searches:
    """Searches that share one budget, such as those of a repair (`repair_compiler.SearchModel`)."""

    def __init__(self, searching: Searching, calibration: Path | None, budget: Budget) -> None:
        self._searching, self._calibration, self._budget = searching, calibration, budget
        self._began, self._calls = time.monotonic(), 0
        self._latest: tuple[SearchContext, Collection[str]] | None = None

    def __call__(
        self, model: LoadedModel, *, piece: bool, whole: bool, brief: bool = False, most_calls: int | None = None
    ) -> SearchedModel:
        context, doubted = self._latest or (None, ())
        if context is None or context.loaded is not model or doubted != model.doubted:
            context = search_context(model, self._searching.backend, None if piece else self._calibration, piece=piece)
        planner = partial(plan, recheck=self._searching.terms.recheck, brief=piece or brief)
        with (
            working_folder() as folder,
            self._searching.driver(context, folder, self.left.within(most_calls), planner=planner) as driver,
        ):
            if not (piece and whole):
                samples = None if piece else self._calibration
                context = self._searching.learned(driver, context, samples, folder)
            self._latest = context, model.doubted  # consecutive searches are often of the same model
            ended = driver.ask_whole() if whole else driver.run()
            anew = not (whole or piece) and self._searching.learned_versions(driver, context, ended, folder)
        self._searching.progress(SearchEnded(ending=ended.ending))
        self._calls += ended.stats.compiler_calls
        if anew:
            self._latest = None
            return self(model, piece=piece, whole=whole, brief=brief, most_calls=most_calls)
        left = self.left
        return SearchedModel(
            job=context.job(ended.diagnosis, ended.records, ended.stats),
            stopped=ended.ending is Ending.CANCELLED or left.calls == 0 or left.seconds == 0,
        )

    def spend(self, calls: int) -> None:
        """Subtract calls that were made outside of these searches from the budget."""
        self._calls += calls

    @property
    def left(self) -> Budget:
        """The budget that is left."""
        return self._budget.without(calls=self._calls, seconds=time.monotonic() - self._began)


@contextmanager
def _base(
    context: SearchContext, keep: bool, answers: verdict_base.Answers, tell: Progress
) -> Iterator[verdict_base.VerdictBase]:
    base: verdict_base.VerdictBase = verdict_base.InMemoryVerdictBase()
    if keep:
        search = search_identity(context.identity, context.loaded.file_key, context.universe)
        base = verdict_base.open_base(verdict_base.default_path(), target=context.identity, search=search)
    try:
        yield verdict_base.SharedVerdictBase(base, answers)
    finally:
        base.close()
        if base.problem is not None:
            tell(Note(sentence=base.problem))


@contextmanager
def _shortage_as_error(base: verdict_base.VerdictBase, keep: bool) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (short := shortage(error)) is None:
            raise
        kept = " Verdicts so far are kept." if keep and base.problem is None else ""
        raise ShortageError(f"{short}{kept} Run it again when there is room.") from error
