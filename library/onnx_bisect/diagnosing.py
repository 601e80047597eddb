"""`diagnose`: searches a model for the parts that a compiler refuses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import Unpack
from weakref import finalize

from onnx_bisect.backend_choice import BackendChoice, chosen_backend, started_from, texts
from onnx_bisect.driver import Budget, Driver, Ended
from onnx_bisect.events import Note, Progress, SearchEnded
from onnx_bisect.keywords import with_keywords
from onnx_bisect.models import InputValues, Shapes, Source, load_model
from onnx_bisect.result import Result, with_repro
from onnx_bisect.searching import Cancellation, Searches, Searching, other_options
from onnx_bisect.steps.changed_files import GoesOn, compiles_after, may_be_changed
from onnx_bisect.steps.confirming import Answered, confirmed
from onnx_bisect.steps.repair_compiler import NamedOptions, RepairCompiler
from onnxbisect.diagnosis import Alternative, CompilesAfter
from onnxbisect.drawing import model_explorer
from onnxbisect.drawing.graph import network_of
from onnxbisect.errors import BackendUnusableError, ModelError, OptionError
from onnxbisect.language import english
from onnxbisect.preflight import NEWER_THAN_TOOL
from onnxbisect.remedies import SearchedModel
from onnxbisect.remedies.advisor import replacements
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.search import plan
from onnxbisect.session import Ending
from onnxbisect.terms import OtherValues, SearchKeywords, SearchTerms, made
from onnxbisect.verdict import Status
from onnxbisect_backends import contract
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.prober import CulpritFiles
from onnxbisect_backends.probing.search_context import SearchContext, search_context

#: Findings that are told before the search, so that the user can stop it and change the model.
_TOLD_FIRST = (*NEWER_THAN_TOOL, "invalid-node")


@with_keywords(SearchTerms)
def diagnose(
    model: Source,
    *,
    backend: BackendChoice,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    jobs: int = 1,
    calibration: str | PathLike[str] | None = None,
    cache: bool = True,
    files: bool = True,
    artifacts: str | PathLike[str] | None = None,
    alternatives: OtherValues | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
    **terms: Unpack[SearchKeywords],
) -> Result:
    """Find every part of the model that the compiler refuses, and prove that nothing else is wrong.

    If the model fails and the preflight found a problem that a change of the whole file can solve, such as an IR
    version that is too new, up to four changed files are compiled first. If one of them compiles, the result names the
    change (`compiles_after`) and the parts are not searched. If one of them fails for another reason than the file as
    it is, that file is searched, and the report says so (`file_after`). `as_is` skips this step.

    `model` is the path of an ONNX file, or a `LoadedModel`, which several calls may share. `backend` is the name of a
    backend (`backends()` lists them), the path of a TOML file, an object with the protocol
    `onnxbisect_backends.contract.Backend`, or a function that takes the path of a model and returns whether it
    compiles, as a bool or a Verdict.

    `options` are passed to the backend. `input_shapes` binds dynamic dimensions of inputs, and
    `input_values` makes inputs constants, such as `{"sr": 16000}`. `jobs` is the number of
    compiles at a time; a function is called from as many threads. When the budget of calls or seconds is used up, the
    search ends and the result says what is known. `timeout` limits each compile, in seconds. `recheck` repeats the
    compiles that decide the result until their verdicts agree. `calibration` is a file or folder with samples of the
    model's inputs. With `cache`, verdicts are read from and stored in the user's verdict base, but never those of a
    function. With `files`, every culprit's own file is compiled, so that it can be saved. `artifacts` is a folder for
    the compiler's output on the whole model, if it compiles; if its verdict is cached, it is compiled once more.

    `alternatives` are other values of options, such as `{"precision": ["fp16", "bf16"]}`. After the search, each
    culprit's own file is compiled with each of these values, and the whole model if all culprits compile. An empty
    list, as in `{"version": []}`, stands for the values that the backend suggests; `"all"` stands for the suggested
    values of all options.

    With `confirm_causes`, up to so many more compiles are made after the search, of culprits with one property
    changed. The causes then name changes that compile, such as `Gather with indices of rank 1`.

    `progress` is called with each event; `cancellation` ends the search from another thread (docs/library.md). Raises
    OptionError for wrong arguments, ModelError for an invalid model, BackendUnusableError if the compiler cannot be
    called, and ShortageError if this machine runs out of a resource, such as disk space.
    """
    wanted = made(SearchTerms, terms)
    chosen = usable_backend(backend, options or {}, jobs)
    others = other_options(backend, options or {}, alternatives)
    samples = None if calibration is None else Path(calibration)
    loaded = load_model(
        model, {**contract.input_shapes(chosen), **(input_shapes or {})}, input_values, first_sample(samples)
    )
    context = search_context(loaded, chosen, samples)
    tell = progress or (lambda event: None)
    if calibration is not None and context.samples is None:
        tell(Note(sentence=f"{chosen.name} takes no input samples; calibration changes nothing for it."))
    for finding in context.findings:
        if finding.id in _TOLD_FIRST:
            tell(Note(sentence=f"{finding.detail}. {finding.why.rstrip('.')}. {finding.fix}"))
    searching = Searching(
        backend=chosen,
        terms=wanted,
        jobs=jobs,
        cache=cache,
        progress=tell,
        cancellation=cancellation or Cancellation(),
    )
    file_search = _FileSearch(
        searching=searching,
        as_is=wanted.as_is,
        named=OtherOptions.in_messages(backend, texts(options or {})),
        samples=samples,
        digests=files,
        artifacts=None if artifacts is None else Path(artifacts),
    )
    with working_folder() as folder:
        found, file_after = file_search.run(context, folder, searching.budget, file_first=not wanted.as_is), ""
        if isinstance(goes_on := found.after, GoesOn):
            before, place = found, Path(mkdtemp(prefix="onnx-bisect-")).resolve()
            loaded, file_after = goes_on.saved(loaded, place), goes_on.changed.sentence
            finalize(loaded, rmtree, place, ignore_errors=True)  # the result cuts culprits from it
            (folder / "changed").mkdir()
            context = search_context(loaded, chosen, samples)
            found = file_search.run(context, folder / "changed", before.left, file_first=False)
            found = replace(found, ended=replace(found.ended, stats=before.ended.stats.and_then(found.ended.stats)))
            if isinstance(found.after, CompilesAfter):
                found, file_after = replace(found, after=found.after.following(goes_on.change)), ""
        context, ended = found.context, found.ended
        after = found.after if isinstance(found.after, CompilesAfter) else None
        if after is not None:
            unsearched = replace(ended.diagnosis, culprits=(), needs_context=())
            ended = replace(ended, diagnosis=unsearched, ending=Ending.COMPILES_AFTER)
        asked: tuple[Alternative, ...] = ()
        if others is not None and ended.diagnosis.verdict is not Status.PASS:
            asked = searching.tried(others, context.loaded, ended.diagnosis, samples, found.driver.budget_left)
        job = context.job(ended.diagnosis, ended.records, ended.stats)
        job = replace(job, compiles_after=after, alternatives=asked, file_after=file_after)
        if wanted.confirm_causes and ended.ending is Ending.FINISHED:
            left = found.driver.budget_left.without(calls=sum(it.calls for it in asked), seconds=0)
            job = confirmed(
                job,
                context.loaded,
                partial(_answer_about, Searches(searching.quiet, None, left)),
                folder,
                most=wanted.confirm_causes,
                tell=lambda sentence: tell(Note(sentence=sentence)),
            )
        tell(SearchEnded(ending=ended.ending))
        report = document(job, replacements(job))
        if files:
            culprits = ended.diagnosis.culprits
            report = with_repro(report, [found.culprit_files.is_seen(culprit, ended.answers) for culprit in culprits])
        if (reproduce := started_from(searching.backend)) is not None:
            report["reproduce"] = reproduce
    return Result.of(report, _OwnFiles(context, searching.backend, ended, report), ending=ended.ending, job=job)


@dataclass(frozen=True, kw_only=True)
class _SearchedFile:
    """The end of the search of one file. `after` is the change that makes it compile, or shows another reason.

    `left` is the budget for a search of the changed file, or once more of this one, if it was found at the end that
    the compiler does not read its versions.
    """

    ended: Ended
    context: SearchContext
    driver: Driver
    culprit_files: CulpritFiles
    after: CompilesAfter | GoesOn | None
    left: Budget
    versions_learned: bool


@dataclass(frozen=True, kw_only=True)
class _FileSearch:
    """The search of the model's file, and of a changed file if the first one fails for a reason that hides others.

    `named` are options that messages of the compiler may name. With `digests`, culprits' own files are compiled.
    """

    searching: Searching
    as_is: bool
    named: OtherOptions | None
    samples: Path | None
    digests: bool
    artifacts: Path | None

    def run(self, context: SearchContext, folder: Path, budget: Budget, *, file_first: bool) -> _SearchedFile:
        """Search the file of `context`; with `file_first`, changed files are compiled before its parts.

        Where it is found only then that the compiler does not read the file's versions, it is searched once more.
        """
        found = self._run(context, folder, budget, file_first=file_first)
        if not found.versions_learned:
            return found
        (folder / "anew").mkdir()
        context = search_context(context.loaded, self.searching.backend, self.samples)
        again = self._run(context, folder / "anew", found.left, file_first=file_first)
        stats = found.ended.stats.and_then(again.ended.stats)
        return replace(again, ended=replace(again.ended, stats=stats))

    def _run(self, context: SearchContext, folder: Path, budget: Budget, *, file_first: bool) -> _SearchedFile:
        planner = partial(plan, recheck=self.searching.terms.recheck, as_is=self.as_is)
        with self.searching.driver(context, folder, budget, artifacts=self.artifacts, planner=planner) as driver:
            context = self.searching.learned(driver, context, self.samples, folder)
            culprit_files = context.culprit_files(folder)
            if self.digests:
                driver.digests = lambda pieces: {units: culprit_files.digest(units) for units in pieces}
            after: CompilesAfter | GoesOn | None = None
            if file_first and (self.named is not None or may_be_changed(context)):
                after = self._compiles_after(driver, driver.ask_whole(), context, changes=True)
            # if a changed file compiles, only the recorded verdict of the whole model is needed
            ended = driver.run() if after is None else driver.ask_whole()
            if after is None and ended.ending is Ending.FORM:
                after = self._compiles_after(driver, ended, context, changes=not self.as_is)
                ended = driver.ask_whole()
            learned = False
            if after is None and not self.as_is:
                learned = self.searching.learned_versions(driver, context, ended, folder)
            if learned:
                ended = driver.ask_whole()  # with the calls that were made since
            left = driver.budget_left
            whole = driver.universe.everything
            known = any(it.units == whole and it.cached and it.verdict.passed for it in ended.records)
            if known and self.artifacts is not None and not self.artifacts.exists():
                ended = _compiled_again(driver, ended, self.searching.progress)
        return _SearchedFile(
            ended=ended,
            context=context,
            driver=driver,
            culprit_files=culprit_files,
            after=after,
            left=left,
            versions_learned=learned,
        )

    def _compiles_after(
        self, driver: Driver, ended: Ended, context: SearchContext, *, changes: bool
    ) -> CompilesAfter | GoesOn | None:
        """The change after which the whole model compiles, or another reason shows (`changed_files.compiles_after`).

        Its compiler calls are added to those of `driver`; without `changes` none is made. They take at most half of the
        seconds that are left: a whole model that compiles for long must not leave nothing for the search of its parts.
        """
        whole = SearchedModel(job=context.job(ended.diagnosis, ended.records, ended.stats))
        if ended.ending is Ending.CANCELLED or whole.diagnosis.verdict is not Status.FAIL:
            return None
        searching, samples = self.searching, self.samples
        searches = Searches(searching.quiet, samples, driver.budget_left.half)

        def with_options(model: LoadedModel, _: Mapping[str, str], backend: contract.Backend) -> SearchedModel:
            found = Searches(replace(searching.quiet, backend=backend), samples, searches.left)(
                model, piece=False, whole=True
            )
            searches.spend(found.job.stats.compiler_calls)
            return found

        with working_folder() as folder:
            compiler = RepairCompiler(
                loaded=context.loaded,
                search=searches,
                context_of=lambda loaded, piece: search_context(
                    loaded, searching.backend, None if piece else samples, piece=piece
                ),
                folder=folder,
                named=None if self.named is None else NamedOptions(options=self.named, ask=with_options),
                tell=lambda sentence: searching.progress(Note(sentence=sentence)),
            )
            found = compiles_after(whole, context, compiler, changes=changes)
        if found is None and searches.left.seconds == 0:
            sentence = english("half of the time that was left went to changed files; searching the parts")
            searching.progress(Note(sentence=sentence))
        driver.spend(compiler.calls, compiler.seconds)
        return found


def _answer_about(searches: Searches, neighbour: Path) -> Answered:
    try:
        found = searches(LoadedModel(neighbour, {}), piece=True, whole=True)
    except ModelError:  # the target cannot be given this model
        return Answered(status=Status.UNRESOLVED)
    return Answered(status=found.diagnosis.verdict, calls=found.job.stats.compiler_calls, stopped=found.stopped)


def _compiled_again(driver: Driver, ended: Ended, tell: Progress) -> Ended:
    """Compile the whole model again for its artifacts: its verdict came from the cache, which keeps no artifacts."""
    asked = driver.probes.ask(driver.universe.everything, driver.budget_left.seconds)
    if asked.answer is None or not asked.answer.verdict.passed:
        said = asked.answer.verdict.message if asked.answer is not None else "the budget has ended."
        tell(Note(sentence=f"The model is known to compile, but compiling it again for its artifacts failed: {said}"))
    return replace(ended, stats=replace(ended.stats, compiler_calls=ended.stats.compiler_calls + 1))


def usable_backend(backend: BackendChoice, options: Mapping[str, object], jobs: int) -> contract.Backend:
    """Create the backend and check that its compiler can be called.

    Raises OptionError for a wrong argument, BackendUnusableError if the compiler cannot be called.
    """
    if jobs < 1:
        raise OptionError(f"jobs is {jobs}; at least one compiler has to run.")
    chosen = chosen_backend(backend, options)
    if complaint := chosen.check():
        raise BackendUnusableError(complaint)
    return chosen


class _OwnFiles:
    """The attachments of a diagnosis in this process, cut again from the model file, which must not have changed."""

    def __init__(self, context: SearchContext, backend: contract.Backend, ended: Ended, report: Report) -> None:
        self._context = context
        self._backend = backend
        self._ended = ended
        self._report = report
        self._cutting = Lock()

    def of_culprit(self, number: int, folder: Path) -> Mapping[str, Path | bytes]:
        culprit = self._ended.diagnosis.culprits[number - 1]
        with self._cutting:
            return self._context.culprit_files(folder, self._backend).files(culprit, self._ended.answers)

    def pictures(self) -> Mapping[str, bytes]:
        return model_explorer.files(network_of(self._context.loaded.model), self._report)
