"""`diagnose`: searches a model for the parts that a compiler refuses."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import Unpack
from weakref import finalize

from onnx_bisect.backend_choice import BackendChoice, chosen_backend, started_from, texts
from onnx_bisect.driver import Driver, Ended
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
from onnxbisect.preflight import NEWER_THAN_TOOL
from onnxbisect.remedies import SearchedModel
from onnxbisect.remedies.advisor import replacements
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.session import Ending
from onnxbisect.terms import OtherValues, SearchKeywords, SearchTerms, made
from onnxbisect.verdict import Status
from onnxbisect_backends import contract
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext, search_context
from onnxbisect_backends.sandbox.working_folder import working_folder


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
    named = OtherOptions.in_messages(backend, texts(options or {}))
    samples = None if calibration is None else Path(calibration)
    loaded = load_model(
        model, {**contract.input_shapes(chosen), **(input_shapes or {})}, input_values, first_sample(samples)
    )
    context = search_context(loaded, chosen, samples)
    tell = progress or (lambda event: None)
    if calibration is not None and context.samples is None:
        tell(Note(sentence=f"{chosen.name} takes no input samples; calibration changes nothing for it."))
    for finding in context.findings:
        if finding.id in NEWER_THAN_TOOL:  # before the search, so that the user can stop it and change the model
            tell(Note(sentence=f"{finding.detail}. {finding.why} {finding.fix}"))
    searching = Searching(
        backend=chosen,
        terms=wanted,
        jobs=jobs,
        cache=cache,
        progress=tell,
        cancellation=cancellation or Cancellation(),
    )
    kept = None if artifacts is None else Path(artifacts)
    with working_folder() as folder:
        with searching.driver(context, folder, searching.budget, artifacts=kept) as driver:
            context = searching.learned(driver, context, samples, folder)
            culprit_files = context.culprit_files(folder)
            if files:
                driver.digests = lambda pieces: {units: culprit_files.digest(units) for units in pieces}
            after: CompilesAfter | GoesOn | None = None
            if not wanted.as_is and (named is not None or may_be_changed(context)):
                after = _compiles_after(driver, driver.ask_whole(), context, searching, samples, named)
            # if a changed file compiles, only the recorded verdict of the whole model is needed
            ended = driver.run() if after is None else driver.ask_whole()
            if after is None and ended.ending is Ending.FORM:
                after = _compiles_after(driver, ended, context, searching, samples, named, as_is=wanted.as_is)
                ended = driver.ask_whole()
            left = driver.budget_left
            if kept is not None and ended.diagnosis.verdict is Status.PASS and not kept.exists():
                ended = _compiled_again(driver, ended, tell)
        file_after = ""
        if isinstance(after, GoesOn):
            first, changed = ended.stats, Path(mkdtemp(prefix="onnx-bisect-")).resolve()
            loaded, file_after = after.saved(loaded, changed), after.changed.sentence
            finalize(loaded, rmtree, changed, ignore_errors=True)  # the result cuts culprits from it
            context = search_context(loaded, chosen, samples)
            (folder / "changed").mkdir()
            with searching.driver(context, folder / "changed", left, artifacts=kept) as driver:
                context = searching.learned(driver, context, samples, folder / "changed")
                culprit_files = context.culprit_files(folder / "changed")
                if files:
                    driver.digests = lambda pieces: {units: culprit_files.digest(units) for units in pieces}
                ended, further = driver.run(), None
                if ended.ending is Ending.FORM:
                    further = _compiles_after(driver, ended, context, searching, samples, named, as_is=wanted.as_is)
                    ended = driver.ask_whole()
            ended = replace(ended, stats=first.and_then(ended.stats))
            if isinstance(further, CompilesAfter):
                after, file_after = further.following(after.change), ""
            else:
                after = None
        if after is not None:
            unsearched = replace(ended.diagnosis, culprits=(), needs_context=())
            ended = replace(ended, diagnosis=unsearched, ending=Ending.COMPILES_AFTER)
        asked: tuple[Alternative, ...] = ()
        if others is not None and ended.diagnosis.verdict is not Status.PASS:
            asked = searching.tried(others, context.loaded, ended.diagnosis, samples, driver.budget_left)
        job = context.job(ended.diagnosis, ended.records, ended.stats)
        job = replace(job, compiles_after=after, alternatives=asked, file_after=file_after)
        if wanted.confirm_causes and ended.ending is Ending.FINISHED:
            left = driver.budget_left.without(calls=sum(it.calls for it in asked), seconds=0)
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
            report = with_repro(report, [culprit_files.is_seen(culprit, ended.answers) for culprit in culprits])
        if (place := started_from(searching.backend)) is not None:
            report["reproduce"] = place
    return Result.of(report, _OwnFiles(context, searching.backend, ended, report), ending=ended.ending, job=job)


def _compiles_after(
    driver: Driver,
    ended: Ended,
    context: SearchContext,
    searching: Searching,
    calibration: Path | None,
    options: OtherOptions | None,
    *,
    as_is: bool = False,
) -> CompilesAfter | GoesOn | None:
    """The change after which the whole model compiles, or another reason shows (`changed_files.compiles_after`).

    Its compiler calls are added to those of `driver`; with `as_is` none is made.
    """
    whole = SearchedModel(job=context.job(ended.diagnosis, ended.records, ended.stats))
    if ended.ending is Ending.CANCELLED or whole.diagnosis.verdict is not Status.FAIL:
        return None

    def with_options(model: LoadedModel, _: Mapping[str, str], backend: contract.Backend) -> SearchedModel:
        other = replace(searching.quiet, backend=backend)
        return Searches(other, calibration, driver.budget_left)(model, piece=False, whole=True)

    with working_folder() as folder:
        compiler = RepairCompiler(
            loaded=context.loaded,
            search=Searches(searching.quiet, calibration, driver.budget_left),
            context_of=lambda loaded, piece: search_context(
                loaded, searching.backend, None if piece else calibration, piece=piece
            ),
            folder=folder,
            named=None if options is None else NamedOptions(options=options, ask=with_options),
            tell=lambda sentence: searching.progress(Note(sentence=sentence)),
        )
        found = compiles_after(whole, context, compiler, changes=not as_is)
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
